"""The records of a stream of the history, for tests."""

from __future__ import annotations

from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import history
from dayjob.store.ops.history import KeptRecord, StoredRecord


def all_records(link: Link, key: str) -> list[KeptRecord]:
    """Every record of a stream, newest first."""
    found: list[KeptRecord] = []
    (scanned,) = link.run(history.scan([history.Scan(key)]))
    found += scanned.found
    while scanned.last is not None:
        (scanned,) = link.run(history.scan([history.Scan(key, (scanned.last, False))]))
        found += scanned.found
    return found


def write_records(link: Link, keys: Keys, name: str, *records: StoredRecord, place: str = "*") -> None:
    """Add records to the history of a name, as an exchange does; `place` is the entry id of the first."""
    for record in records:
        key = history.stream(keys, name, completed=record.ending == "completed")
        link.run(plain("XADD", key, place, "r", history.encode(record)))

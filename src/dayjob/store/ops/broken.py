"""Entries of broken: bytes that could not be parsed as a job. `operate` repairs and deletes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops.inspect import MAX_BYTES, MAX_ENTRIES
from dayjob.store.scripts import load


@dataclass(frozen=True, slots=True)
class BrokenEntry:
    """Bytes that could not be parsed as a job, and what is known about them."""

    #: Its index when it was read, and the whole entry. An action must send both to identify it.
    index: int
    entry: bytes
    #: The original bytes.
    payload: bytes
    at: float | None
    where: str
    why: str

    @property
    def digest(self) -> str:
        """A short name of the whole entry: the same bytes have the same."""
        return hashlib.sha256(self.entry).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class BrokenPage:
    """Some entries of broken, oldest first or sorted."""

    total: int
    entries: tuple[BrokenEntry, ...]
    #: How many were compared for a sort; 0 where it is the order of all.
    sorted_among: int = 0


def page(keys: Keys, *, offset: int = 0, size: int = 50) -> Op[BrokenPage]:
    """Entries that could not be parsed as jobs, oldest first."""
    return Op(
        load("page"),
        (keys.broken,),
        ("list", 0, max(1, min(size, MAX_ENTRIES)), MAX_BYTES, offset, 0, ""),
        lambda reply: BrokenPage(
            reply[1], tuple(_entry(offset + i, entry) for i, entry in enumerate(reply[3:]))
        ),
    )


def _entry(index: int, entry: bytes) -> BrokenEntry:
    header, _, payload = entry.partition(b"\n")
    try:
        fields = msgspec.json.decode(header, type=dict[str, Any])
    except codec.UNREADABLE:
        return BrokenEntry(index, entry, entry, None, "", "")
    at = fields.get("at")
    moment = at / 1000 if isinstance(at, int) and at > 0 else None
    return BrokenEntry(
        index, entry, payload, moment, str(fields.get("where", "")), str(fields.get("why", ""))
    )

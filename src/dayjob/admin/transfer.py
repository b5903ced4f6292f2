"""Export and import: every job that waits, is scheduled, in retry or dead, as JSON lines. Bounded reads and writes.

What moves while it is read may be missing or there twice: pause or stop the workers for an exact copy.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from dayjob.admin.session import Session, write_audit
from dayjob.admin.walks import Put, next_size, over_set
from dayjob.errors import BadOption
from dayjob.job import new_id
from dayjob.names import check_name
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import inspect, maintain, membership, partitions, produce, transfer
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import counted

#: Jobs that one write puts into a side set.
_BATCH = 100
_VERSION = 2
#: The first version whose exports end with a line that has the number of jobs.
_WITH_TAIL = 2
#: Seconds since the epoch. The scripts take no later moment.
_LATEST_SECONDS = 1e12
#: As long as a unique key is held at most.
_THIRTY_DAYS = 30 * 86400


class Head(msgspec.Struct, omit_defaults=True):
    """The first line: the format, and a name under which an import may be repeated for an hour."""

    dayjob: str
    version: int = 0
    id: str = ""
    namespace: str = ""


class Tail(msgspec.Struct):
    """The last line: how many jobs came before it."""

    dayjob: str
    jobs: int


class Record(msgspec.Struct, omit_defaults=True):
    """One job. Its payload is text if it is valid UTF-8, else base64."""

    state: str
    #: Its queue, if it waits in one.
    name: str = ""
    at: float | None = None
    job: str | None = None
    raw: str | None = None


class Moved(msgspec.Struct, frozen=True):
    """How many jobs were exported or imported, by state."""

    counts: dict[str, int]
    #: Jobs that were running and are not in the export, or duplicates of unique jobs that were not imported.
    left_out: int
    #: Queues that changed while they were read.
    changed: tuple[str, ...] = ()
    #: Jobs of the same export that were imported before.
    there: int = 0

    @property
    def total(self) -> int:
        """The number of all jobs."""
        return sum(self.counts.values())


def export(session: Session, put: Put) -> Steps[Moved]:
    """Export all jobs that are not running: call `put` with each line. A queue's next job comes first."""
    keys = session.keys
    put(_line(Head("export", _VERSION, new_id(), keys.namespace)))
    counts: dict[str, int] = {}
    changed = []
    for name in (yield from ask(maintain.known_jobs(keys))):
        number, steady = yield from _export_queue(keys, name, put)
        counts["waiting"] = counts.get("waiting", 0) + number
        if not steady:
            changed.append(name)
    for state, source in (("scheduled", keys.scheduled), ("retry", keys.retry), ("dead", keys.dead)):
        counts[state] = yield from _export_set(source, state, put)
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    held = yield from ask_all([inspect.held_count(keys, one) for one in holders[0] + holders[1]])
    put(_line(Tail("end", sum(counts.values()))))
    return Moved(counts, sum(held), tuple(changed))


def _export_queue(keys: Keys, name: str, put: Put) -> Steps[tuple[int, bool]]:
    """The jobs of a queue and of its keys. Returns how many, and whether none came or left meanwhile."""
    count, steady = 0, True
    for place in (yield from partitions.lists_of(keys, name)):
        number, same = yield from _export_list(keys, place, put)
        count, steady = count + number, steady and same
    return count, steady


def _export_list(keys: Keys, name: str, put: Put) -> Steps[tuple[int, bool]]:
    size = inspect.queue_size(keys, name)
    total = yield from ask(size)
    place, count = 0, 8
    while place < total:
        last = min(place + count, total) - 1
        found = yield from ask(inspect.queue_slice(keys, name, -1 - last, -1 - place))
        for payload in reversed(found):
            put(_record("waiting", payload, name=name.partition("|")[0]))
        place += len(found)
        if not found:
            break
        count = next_size(count, found)
    return place, (yield from ask(size)) == total


def _export_set(source: str, state: str, put: Put) -> Steps[int]:
    return (yield from over_set(source, lambda entry: put(_record(state, entry.member, at=entry.at))))


def _record(state: str, payload: bytes, *, name: str = "", at: float | None = None) -> bytes:
    try:
        return _line(Record(state, name, at, job=payload.decode()))
    except UnicodeDecodeError:
        return _line(Record(state, name, at, raw=b64encode(payload).decode()))


def _line(value: Head | Record | Tail) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# Import.


@dataclass(frozen=True, slots=True)
class _Item:
    """One parsed line."""

    state: str
    name: str
    at: float
    payload: bytes
    #: Its unique key in this namespace and its id, or two empty strings.
    key: str
    id: str


def load(
    session: Session, lines: Iterable[bytes], *, progress: Callable[[int], None] | None = None
) -> Steps[Moved]:
    """Store the jobs of an export. After an interruption, the same file may be imported again within an hour without duplicates.

    Unique jobs whose key is taken are left out. Raises BadOption for a line that cannot be read, and for a file that
    ends too early; what comes before is in.
    """
    source = _Source(lines)
    counts: dict[str, int] = {}
    done = left_out = there = 0
    for number, batch in enumerate(_batches(session.keys, Keys(source.head.namespace), source), 1):
        stored = yield from _store(session.keys, source.head.id, number, batch)
        counts[batch[0].state] = counts.get(batch[0].state, 0) + stored.new
        left_out += stored.left_out
        there += len(batch) - stored.new - stored.left_out
        done += len(batch)
        if progress is not None:
            progress(done)
    moved = Moved(counts, left_out, there=there)
    message = f"{counted(moved.total, 'job')} imported, {there:,} there already, {left_out:,} left out."
    yield from write_audit(session, "import", f"export of {source.head.namespace}", message)
    source.check_end(done)
    return moved


class _Source:
    """The lines of an export between its first and its last."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self.head = _head(next(self._lines, b""))
        self._tail: Tail | None = None

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            if line.startswith(b'{"dayjob":'):
                self._tail = msgspec.json.decode(line, type=Tail)
                return
            yield line

    def check_end(self, done: int) -> None:
        """Raises BadOption when lines are missing."""
        if self.head.version < _WITH_TAIL or (self._tail is not None and self._tail.jobs == done):
            return
        has = counted(done, "job") if self._tail is None else f"{done:,} of {counted(self._tail.jobs, 'job')}"
        raise BadOption(
            f"the export is not complete: it has {has} and lacks lines"
            f"{' at its end' if self._tail is None else ''}. Those that it has are imported; export again for the rest"
        )


def _head(line: bytes) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
    except codec.UNREADABLE:
        head = Head("")
    if head.dayjob != "export" or not 1 <= head.version <= _VERSION or not head.id:
        raise BadOption("this is no export: its first line is not that of `dayjob export`")
    return head


def _batches(keys: Keys, old: Keys, lines: Iterable[bytes]) -> Iterator[list[_Item]]:
    """Successive jobs of one state and queue, as many as fit into one write. A unique job is alone."""
    batch: list[_Item] = []
    size = 0
    for number, line in enumerate(lines, 2):
        try:
            item = _item(keys, old, msgspec.json.decode(line, type=Record))
        except codec.UNREADABLE as error:
            # Import the complete jobs first, so that the message is true.
            if batch:
                yield batch
            raise BadOption(f"line {number}: {error}. The lines before it are imported") from None
        if batch and (
            (batch[0].state, batch[0].name) != (item.state, item.name)
            or item.key
            or batch[0].key
            or len(batch) >= _BATCH
            or size + len(item.payload) > produce.MAX_BYTES
        ):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.payload)
    if batch:
        yield batch


def _item(keys: Keys, old: Keys, record: Record) -> _Item:
    if record.state not in ("waiting", "scheduled", "retry", "dead"):
        raise ValueError(f"there is no state {record.state!r}")
    if not abs(record.at or 0.0) < _LATEST_SECONDS:
        raise ValueError(f"its time {record.at!r} is out of range")
    payload = record.job.encode() if record.job is not None else b64decode(record.raw or "", validate=True)
    try:
        wire = codec.read(payload)
    except codec.Broken:
        return _Item(
            record.state,
            check_name(record.name) if record.state == "waiting" else "",
            record.at or 0.0,
            payload,
            "",
            "",
        )
    key = wire.unique_key
    if keys != old and key.startswith(old.unique_prefix):
        key = keys.unique_prefix + key.removeprefix(old.unique_prefix)
        payload = codec.rewrite(payload, {"unique_key": key})
    holds = record.state in ("waiting", "scheduled") or (
        record.state == "retry" and wire.unique_until == "done"
    )
    owns = holds and key.startswith(keys.unique_prefix)
    name = check_name(record.name or wire.name)
    return _Item(record.state, name, record.at or 0.0, payload, key if owns else "", wire.id)


@dataclass(frozen=True, slots=True)
class _Put:
    """The result of a batch: jobs stored now, and duplicates of unique jobs. The others were stored before."""

    new: int
    left_out: int = 0


def _store(keys: Keys, export_id: str, number: int, batch: list[_Item]) -> Steps[_Put]:
    """Store a batch."""
    first = batch[0]
    if first.state in ("retry", "dead") or not first.name:
        return (yield from _store_in_set(keys, batch))
    slot = produce.Slot(export_id, number)
    if first.key:
        when = _when(first) if first.state == "scheduled" else produce.When()
        op = produce.admit(
            keys, slot, first.name, first.payload, when,
            job_id=first.id, chosen=False, unique_key=first.key, unique_for=None, introduce=True,
        )  # fmt: skip
        answer = yield from ask(op)
        return _Put(int(answer.new), int(not answer.stored))
    if first.state == "waiting":
        payloads = [item.payload for item in batch]
        answer = yield from ask(produce.enqueue(keys, slot, first.name, payloads, introduce=True))
        return _Put(len(batch) if answer.new else 0)
    # Each batch has its own slot, so that Redis does not take it for a resend of the one before.
    answers = yield from ask_all(
        [
            produce.schedule(
                keys, produce.Slot(f"{export_id}-{place}", number), item.name, [item.payload], _when(item), introduce=True
            )
            for place, item in enumerate(batch)
        ]
    )  # fmt: skip
    return _Put(sum(answer.new for answer in answers))


def _store_in_set(keys: Keys, batch: list[_Item]) -> Steps[_Put]:
    sources = {"scheduled": keys.scheduled, "retry": keys.retry, "dead": keys.dead}
    entries = [(item.at, item.payload) for item in batch]
    new = yield from ask(transfer.restore(sources[batch[0].state], entries))
    if batch[0].key:
        yield from ask(transfer.claim(batch[0].key, batch[0].id, _THIRTY_DAYS))
    return _Put(new)


def _when(item: _Item) -> produce.When:
    return produce.When("at", round(item.at * 1000))

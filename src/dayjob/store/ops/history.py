"""The history: a small record of each attempt that ended, in two capped streams for each job name.

One stream has the attempts that completed, the other those that ended in any other way, so that many completions never
push out a failure. `exchange` and `sweep` write the records in the step that ends the attempt, or within a second after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from dayjob.errors import BadOption
from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    GivenBack,
    HeldBack,
    Kept,
    Outcome,
    Reaped,
    Retried,
    Rewound,
    Snoozed,
    Unreadable,
)
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.scripts import load

#: How an attempt ended.
Ending = Literal[
    "completed", "retried", "dead", "dropped", "crashed", "snoozed", "discarded", "cancelled", "given_back", "unreadable"
]  # fmt: skip
ENDINGS: tuple[Ending, ...] = get_args(Ending)
#: The endings that are failures.
FAILED: tuple[Ending, ...] = ("retried", "dead", "dropped", "crashed")
#: Longest id, source, error and tag in a record, in characters.
MAX_ID, MAX_TEXT = 200, 60


@dataclass(frozen=True, slots=True)
class HistoryCaps:
    """How many records one stream keeps, and for how long. A count of 0 means that nothing is recorded."""

    count: int = 20_000
    seconds: float = 86_400.0

    @property
    def milliseconds(self) -> int:
        """`seconds` as scripts take them."""
        return max(1, int(self.seconds * 1000))


#: For a record of a name whose caps are not known here: the record is written, and nothing is removed.
UNKNOWN_CAPS = HistoryCaps(0)


class StoredRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One attempt that ended, as the stream has it: a JSON array without the defaults at its end."""

    id: str
    ending: str
    #: Redis milliseconds.
    ended: int
    #: Microseconds that it waited and ran, and milliseconds from the first enqueue of the job to this end; -1: not known.
    waited: int = -1
    ran: int = -1
    age: int = -1
    attempt: int = 1
    pool: str = ""
    source: str | int | None = None
    #: The class name of its exception.
    error: str = ""
    #: How many completed attempts this one stands for, itself included: more than 1 if only a sample is recorded.
    weight: float = 1
    #: The tag of its pool.
    tag: str = ""
    #: The job inside which it was enqueued, `<name>/<id>`.
    parent: str = ""
    #: The schedule that enqueued it.
    schedule: str = ""


_DEFAULTS = StoredRecord.__struct_defaults__
_REQUIRED = len(StoredRecord.__struct_fields__) - len(_DEFAULTS)
_encode = msgspec.json.Encoder().encode


def encode(record: StoredRecord) -> bytes:
    """One line of a stream: JSON has no line ends. What a foreign program put into the job is cut to a bounded size."""
    values = [
        record.id[:MAX_ID], record.ending, record.ended, record.waited, record.ran, record.age, record.attempt, record.pool,
        record.source[:MAX_TEXT] if isinstance(record.source, str) else record.source,
        record.error[:MAX_TEXT], record.weight, record.tag[:MAX_TEXT], record.parent[: codec.MAX_ORIGIN],
        record.schedule[: codec.MAX_ORIGIN],
    ]  # fmt: skip
    while len(values) > _REQUIRED and values[-1] == _DEFAULTS[len(values) - 1 - _REQUIRED]:
        values.pop()
    return _encode(values)


def stream(keys: Keys, name: str, *, completed: bool) -> str:
    """The stream of the attempts of a name that completed, or of its others."""
    return keys.history(name) if completed else keys.history_other(name)


class Records(msgspec.Struct, frozen=True, gc=False):
    """Records for one stream."""

    name: str
    completed: bool
    lines: bytes
    caps: HistoryCaps

    def key(self, keys: Keys) -> str:
        """The stream that they are added to."""
        return stream(keys, self.name, completed=self.completed)


def new_records(name: str, records: Iterable[StoredRecord], caps: HistoryCaps, *, completed: bool) -> Records:
    """Records as exchange and sweep take them."""
    return Records(name, completed, b"\n".join(map(encode, records)), caps)


class AttemptLines(msgspec.Struct, frozen=True, gc=False):
    """The last lines that one attempt logged."""

    job_id: str
    attempt: int
    text: bytes
    milliseconds: int


def logs(keys: Keys, job_id: str) -> Op[list[tuple[int, bytes]]]:
    """The lines that the attempts of a job logged, by the number of the attempt; ten attempts at most."""
    return Op("HGETALL", (keys.logs(job_id),), (), _read_logs)


def _read_logs(reply: Any) -> list[tuple[int, bytes]]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return sorted((int(number), text) for number, text in pairs if number.isdigit())


def ending_of(outcome: Outcome) -> Ending | None:
    """How the history names an outcome; None for one that it does not record, because no attempt of this pool ended."""
    match outcome:
        case Done() | Kept():
            return "completed"
        case Retried():
            return "retried"
        case Died():
            return "dead"
        case Dropped(counts_failure=failed):
            return "dropped" if failed else "discarded"
        case Snoozed():
            return "snoozed"
        case Cancelled():
            return "cancelled"
        case GivenBack() | HeldBack():
            return "given_back"
        case Reaped():
            return "crashed"
        case Unreadable():
            return "unreadable"
        case Rewound():
            return None


#: Where a record is in its stream: the Redis milliseconds at which it was written, and a number.
Place = tuple[int, int]
#: How many records one request searches. The script takes about a millisecond for them.
MAX_SCANNED = 1000
#: How many streams one request searches.
MAX_STREAMS = 100


class KeptRecord(NamedTuple):
    """A record and its place in its stream."""

    place: Place
    record: StoredRecord


class Scanned(NamedTuple):
    """Matches in one stream, newest first."""

    searched: int
    #: The place of the last record that was searched; None if there are no older ones.
    last: Place | None
    found: list[KeptRecord]


class Scan(NamedTuple):
    """Which part of a stream to search: the newest records, or those before a place."""

    key: str
    #: A place, and whether to begin with it or behind it.
    before: tuple[Place, bool] | None = None
    most: int = MAX_SCANNED

    @property
    def begin(self) -> str:
        """Where the script begins."""
        if self.before is None:
            return "+"
        (milliseconds, number), included = self.before
        return f"{'' if included else '('}{milliseconds}-{number}"


def scan(
    scans: Sequence[Scan], *, since: int = 0, texts: Sequence[bytes] = (), ran: float = 0.0
) -> Op[list[Scanned]]:
    """The newest records of some streams that have all of `texts`, of attempts that ran for `ran` seconds or longer.

    `since`: Redis milliseconds. Raises BadOption for more than MAX_SCANNED records.
    """
    if sum(one.most for one in scans) > MAX_SCANNED:
        raise BadOption(f"one request searches at most {MAX_SCANNED} records")
    args: list[Arg] = [since, int(ran * 1e6), len(texts), *texts]
    for one in scans:
        args += (one.begin, one.most)
    return Op(load("scan"), [one.key for one in scans], args, _read_scans)


def batches(scans: Iterable[Scan]) -> Iterator[list[Scan]]:
    """The same scans in groups that one request can search each."""
    batch: list[Scan] = []
    records = 0
    for one in scans:
        if batch and (records + one.most > MAX_SCANNED or len(batch) >= MAX_STREAMS):
            yield batch
            batch, records = [], 0
        batch.append(one)
        records += one.most
    if batch:
        yield batch


_decode = msgspec.json.Decoder(StoredRecord).decode
_decode_all = msgspec.json.Decoder(list[StoredRecord]).decode


def _read_scans(reply: Any) -> list[Scanned]:
    parts = zip(reply[::4], reply[1::4], reply[2::4], reply[3::4], strict=True)
    return [_read_scanned(*part) for part in parts]


def _read_scanned(searched: int, last: bytes, ids: bytes, matches: bytes) -> Scanned:
    found: list[KeptRecord] = []
    if matches:
        lines = matches.splitlines()
        try:
            records: list[StoredRecord | None] = [*_decode_all(b"[%b]" % b",".join(lines))]
        except codec.UNREADABLE:
            records = [_read_record(line) for line in lines]
        found = [
            KeptRecord(_place(raw), record)
            for raw, record in zip(ids.split(), records, strict=False)
            if record is not None
        ]
    return Scanned(searched, _place(last) if last else None, found)


def _read_record(line: bytes) -> StoredRecord | None:
    """A record; None for what dayjob did not write."""
    try:
        return _decode(line)
    except codec.UNREADABLE:
        return None


def _place(raw: bytes) -> Place:
    milliseconds, _, number = raw.partition(b"-")
    return int(milliseconds), int(number)

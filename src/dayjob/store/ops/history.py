"""The history: a small record of each attempt that ended, in two capped streams for each job name.

One stream has the attempts that completed, the other those that ended in any other way, so that many completions never
push out a failure. `exchange` and `sweep` write the records in the step that ends the attempt, or within a second after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import msgspec

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
from dayjob.store.op import Op

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


_DEFAULTS = StoredRecord.__struct_defaults__
_REQUIRED = len(StoredRecord.__struct_fields__) - len(_DEFAULTS)
_encode = msgspec.json.Encoder().encode


def encode(record: StoredRecord) -> bytes:
    """One line of a stream: JSON has no line ends. What a foreign program put into the job is cut to a bounded size."""
    values = [
        record.id[:MAX_ID], record.ending, record.ended, record.waited, record.ran, record.age, record.attempt, record.pool,
        record.source[:MAX_TEXT] if isinstance(record.source, str) else record.source,
        record.error[:MAX_TEXT], record.weight, record.tag[:MAX_TEXT],
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


class KeptRecord(NamedTuple):
    """A record and its place in its stream: the Redis milliseconds at which it was written, and a number."""

    place: tuple[int, int]
    record: StoredRecord


_decode = msgspec.json.Decoder(StoredRecord).decode


def read(
    key: str, *, before: tuple[int, int] | None = None, since: int = 0, most: int = 100
) -> Op[list[KeptRecord]]:
    """The newest records of one stream that were written before a place, and at or after a moment in milliseconds."""
    end = "+" if before is None else f"({before[0]}-{before[1]}"
    return Op("XREVRANGE", (key,), (end, since, "COUNT", most), _read_records)


def _read_records(reply: Any) -> list[KeptRecord]:
    found = []
    for raw_place, fields in reply:
        milliseconds, _, number = raw_place.partition(b"-")
        try:
            record = _decode(fields[1])
        except codec.UNREADABLE:
            continue
        found.append(KeptRecord((int(milliseconds), int(number)), record))
    return found

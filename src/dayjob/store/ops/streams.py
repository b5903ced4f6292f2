"""The streams of jobs: what their attempts emit while they run, and how they ended.

An entry has the values that an attempt emitted between two exchanges. The first one of an attempt also names the attempt, and
drops what earlier attempts emitted. The step that ends the attempt adds a last entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    GivenBack,
    HeldBack,
    Kept,
    NameSuspect,
    Outcome,
    Reaped,
    Recharge,
    Release,
    Retried,
    Rewound,
    Snoozed,
    Stage,
    StartRequest,
    Unreadable,
)
from dayjob.outcome import Emit as EmitRequest
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op

#: Milliseconds for which a stream is kept: after an entry of a job that has not ended, and at least after its end.
RUNNING_MS, ENDED_MS = 86_400_000, 3_600_000
#: Before the first entry of a stream.
START = "0-0"
#: How an attempt ended: the job completed, failed for good, or runs again.
StreamEnd = Literal["completed", "failed", "again"]


class StreamPart(msgspec.Struct, frozen=True, gc=False):
    """What an exchange adds to the stream of a job: values, and behind an outcome the end of the attempt."""

    job_id: str
    name: str
    #: The number of the attempt.
    attempt: int
    #: The values as JSON, one per line; b"" if there are none. `shown` is the same without redacted values, if that differs.
    values: bytes = b""
    shown: bytes = b""
    #: Whether these are the first values of the attempt.
    begins: bool = False
    #: Milliseconds for which the job type keeps results.
    keep_ms: int = 0

    def fields(self, place: str) -> list[Arg]:
        """The fields of the entry with the values; `place` is `<pool>/<token>`."""
        found: list[Arg] = ["a", self.attempt, "v", self.values]
        if self.shown:
            found += ("s", self.shown)
        if self.begins:
            found += ("n", self.name, "p", place)
        return found

    def end_fields(self, outcome: Outcome | StartRequest) -> list[Arg]:
        """The fields of the entry that ends the attempt."""
        end, why = end_of(outcome)
        return ["a", self.attempt, "e", end, *(("w", why) if why else ())]

    def life(self, outcome: Outcome | StartRequest) -> int:
        """For how many milliseconds the stream is kept from now on."""
        return RUNNING_MS if end_of(outcome)[0] == "again" else max(ENDED_MS, self.keep_ms)


def end_of(outcome: Outcome | StartRequest) -> tuple[StreamEnd, str]:
    """How an attempt with this outcome ends its stream, and why its job failed."""
    match outcome:
        case Done() | Kept():
            return "completed", ""
        case Dropped(why=why):
            return "failed", why or "discarded"
        case Died(why=why):
            return "failed", why
        case Cancelled():
            return "failed", "an operator cancelled it"
        case Unreadable():
            return "failed", "its payload cannot be read"
        case Retried() | Snoozed() | GivenBack() | HeldBack() | Rewound() | Reaped():
            return "again", ""
        case Release() | NameSuspect() | Recharge() | Stage() | EmitRequest():
            return "again", ""


class StreamEntry(NamedTuple):
    """One entry of the stream of a job."""

    id: str
    attempt: int
    #: JSON values: as they were emitted, and without redacted values.
    values: list[bytes]
    shown: list[bytes]
    #: Of the first entry of an attempt: the name of the job, the pool that runs it and the token; else "".
    name: str
    pool_id: str
    token: str
    #: Of the last entry of an attempt: how it ended, and why; else "".
    end: str
    why: str


def read_stream(
    keys: Keys, job_id: str, after: str, *, wait_ms: int, most: int = 100
) -> Op[list[StreamEntry]]:
    """The entries after an id. If there are none, waits up to `wait_ms` milliseconds for the next."""
    args: Sequence[Arg] = ("COUNT", most, "BLOCK", wait_ms, "STREAMS", keys.stream(job_id), after)
    if wait_ms <= 0:
        args = (*args[:2], *args[4:])
    return Op("XREAD", (), args, lambda reply: _entries(reply[0][1]) if reply else [])


def first_entry(keys: Keys, job_id: str) -> Op[StreamEntry | None]:
    """The first entry of a stream, which names the attempt that emitted it; None if there is no stream."""
    return Op(
        "XRANGE",
        (keys.stream(job_id),),
        ("-", "+", "COUNT", 1),
        lambda reply: next(iter(_entries(reply)), None),
    )


def last_entries(keys: Keys, job_id: str, most: int) -> Op[list[StreamEntry]]:
    """The last entries of a stream, oldest first."""
    return Op(
        "XREVRANGE",
        (keys.stream(job_id),),
        ("+", "-", "COUNT", most),
        lambda reply: list(reversed(_entries(reply))),
    )


def runs(keys: Keys, pool_id: str, token: str) -> Op[bool]:
    """Whether a pool still holds an attempt."""
    return Op("HEXISTS", (keys.held(pool_id),), (token,), bool)


def _entries(reply: Any) -> list[StreamEntry]:
    return [_entry(one[0].decode(), dict(zip(one[1][::2], one[1][1::2], strict=True))) for one in reply]


def _entry(entry_id: str, fields: dict[bytes, bytes]) -> StreamEntry:
    def text(field: bytes) -> str:
        return fields.get(field, b"").decode("utf-8", "replace")

    number = text(b"a")
    values = fields.get(b"v", b"").splitlines()
    pool_id, _, token = text(b"p").partition("/")
    return StreamEntry(
        entry_id, int(number) if number.isdecimal() else 0, values, fields.get(b"s", b"").splitlines() or values,
        text(b"n"), pool_id, token, text(b"e"), text(b"w"),
    )  # fmt: skip


def before(entry_id: str) -> str:
    """The id right before an id, so that a read after it begins with that entry."""
    milliseconds, _, number = entry_id.partition("-")
    if int(number):
        return f"{milliseconds}-{int(number) - 1}"
    return f"{int(milliseconds) - 1}-18446744073709551615" if int(milliseconds) else START

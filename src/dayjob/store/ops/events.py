"""Events: what the system did. One list for each kind, so that frequent events do not displace rare ones. Reads only.

Each event is written by the script that makes it true, in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.steps import Steps, ask, ask_all

#: Kinds of events that have a list of their own. The events of `rescued` complete those of `died` and `stopped`.
StoredKind = Literal[
    "started", "stopped", "died", "rescued", "leader", "deploy", "limit", "pause", "starved", "redis"
]
#: How many events of each kind, and how many entries of the ticks of a schedule, the scripts keep.
MAX_EVENTS = 500
MAX_TICKS = 100
#: How many schedules one request reads the ticks of.
MAX_SCHEDULES = 500


class PoolAbout(msgspec.Struct, frozen=True):
    """What a pool published about itself when it joined."""

    host: str = ""
    pid: int = 0
    #: The version of the program, as its operator named it.
    tag: str = ""
    #: The version of dayjob.
    dayjob: str = ""
    python: str = ""


class RescuedJob(msgspec.Struct, frozen=True):
    """A job that a pool held when it died or stopped."""

    id: str
    name: str
    #: What became of it: reaped (back to its queue), retried, died, dropped, cancelled, unreadable.
    became: str


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as it is stored. Which fields are set depends on its kind."""

    pool: str = ""
    about: PoolAbout = PoolAbout()
    #: died: `lease` when its lease ended, `exit` when its process exited. rescued: why the parent killed the process.
    why: str = ""
    cause: str = ""
    held: int = 0
    jobs: tuple[RescuedJob, ...] = ()
    name: str = ""
    schedule: str = ""
    before: str = ""
    after: str = ""
    actor: str = ""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    waiting: int = 0


class _StoredTicks(msgspec.Struct, frozen=True):
    fired: int = 0
    missed: int = 0
    paused: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class TickRun:
    """Ticks of a schedule in a row that all fired, or all did not."""

    at: float
    schedule: str
    #: fired; missed, by the policy for missed ticks; or paused, because an operator paused the schedule.
    what: Literal["fired", "missed", "paused"]
    count: int
    #: The first and the last tick that fired. For others: the tick before them, and the last of them.
    first: int
    last: int


#: Events of one read of `rescued`, which are large: each may name twenty jobs.
RESCUED_AT_ONCE = 100


def lines(keys: Keys, kinds: Sequence[StoredKind], most: int = MAX_EVENTS) -> Steps[list[list[bytes]]]:
    """The stored lines of each of these kinds, newest first, `most` of each. `event_of` reads one."""
    return (
        yield from ask_all([Op("LRANGE", (keys.events(kind),), (0, most - 1), list) for kind in kinds])
    )  # fmt: skip


def read(keys: Keys, kinds: Sequence[StoredKind]) -> Steps[list[list[tuple[float, StoredEvent]]]]:
    """The events of each of these kinds with their Redis times, newest first."""
    found = yield from lines(keys, kinds)
    return [[event for raw in some if (event := event_of(raw)) is not None] for some in found]


def rescued(keys: Keys, first: int) -> Op[list[bytes]]:
    """Some stored lines of `rescued`, newest first."""
    return Op("LRANGE", (keys.events("rescued"),), (first, first + RESCUED_AT_ONCE - 1), list)


_decode = msgspec.json.Decoder(StoredEvent).decode


def moment_of(raw: bytes) -> float:
    """The Redis time of a stored line, without reading the rest; 0 if it has none."""
    moment = raw.partition(b" ")[0]
    return int(moment) / 1000 if moment.isdigit() else 0.0


def event_of(raw: bytes) -> tuple[float, StoredEvent] | None:
    """The Redis time and the event of a stored line; None if it cannot be read."""
    moment, _, text = raw.partition(b" ")
    try:
        return int(moment) / 1000, _decode(text)
    except codec.UNREADABLE:
        return None


def members(keys: Keys) -> Steps[dict[str, PoolAbout]]:
    """What the registered pools published about themselves, by pool id."""
    return (yield from ask(Op("HGETALL", (keys.members,), (), _read_members)))


def _read_members(reply: Any) -> dict[str, PoolAbout]:
    found: dict[str, PoolAbout] = {}
    for raw_id, raw in zip(reply[::2], reply[1::2], strict=True):
        try:
            found[raw_id.decode()] = msgspec.json.decode(raw, type=PoolAbout)
        except codec.UNREADABLE:
            continue
    return found


def tick_lines(keys: Keys, schedules: Sequence[str]) -> Steps[list[list[bytes]]]:
    """The stored ticks of each of these schedules, newest first; of 500 schedules at most. `ticks_of` reads a line."""
    return (
        yield from ask_all(
            [Op("LRANGE", (keys.ticks(one),), (0, MAX_TICKS - 1), list) for one in schedules[:MAX_SCHEDULES]]
        )
    )


def ticks_of(schedule: str, raw: bytes) -> TickRun | None:
    """The ticks of a stored line; None if it cannot be read."""
    moment, _, text = raw.partition(b" ")
    try:
        at, stored = int(moment) / 1000, msgspec.json.decode(text, type=_StoredTicks)
    except codec.UNREADABLE:
        return None
    for what in ("fired", "missed", "paused"):
        if count := getattr(stored, what):
            return TickRun(at, schedule, what, count, stored.first, stored.last)
    return None

"""Events: what the system did. One list for each kind, so that frequent events do not displace rare ones. Reads only.

Each event is written by the script that makes it true, in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.steps import Steps, ask, ask_all

#: Kinds of events that have a list of their own. The events of `rescued` complete those of `died` and `stopped`.
StoredKind = Literal[
    "started", "stopped", "died", "rescued", "leader", "deploy", "limit", "pause", "starved", "redis"
]
STORED_KINDS: tuple[StoredKind, ...] = get_args(StoredKind)
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


def read(keys: Keys, kinds: Sequence[StoredKind]) -> Steps[list[list[tuple[float, StoredEvent]]]]:
    """The events of each of these kinds with their Redis times, newest first."""
    return (
        yield from ask_all(
            [Op("LRANGE", (keys.events(kind),), (0, MAX_EVENTS - 1), _read_events) for kind in kinds]
        )
    )


def _read_events(reply: Any) -> list[tuple[float, StoredEvent]]:
    return [event for raw in reply if (event := _event(raw)) is not None]


_decode = msgspec.json.Decoder(StoredEvent).decode


def _event(raw: bytes) -> tuple[float, StoredEvent] | None:
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


def ticks(keys: Keys, schedules: Sequence[str]) -> Steps[list[TickRun]]:
    """The ticks of these schedules, newest first for each; of 500 schedules at most."""
    found = yield from ask_all(
        [
            Op("LRANGE", (keys.ticks(schedule),), (0, MAX_TICKS - 1), list)
            for schedule in schedules[:MAX_SCHEDULES]
        ]
    )
    runs = [
        _ticks(schedule, raw)
        for schedule, lines in zip(schedules[:MAX_SCHEDULES], found, strict=True)
        for raw in lines
    ]
    return [run for run in runs if run is not None]


def _ticks(schedule: str, raw: bytes) -> TickRun | None:
    moment, _, text = raw.partition(b" ")
    try:
        at, stored = int(moment) / 1000, msgspec.json.decode(text, type=_StoredTicks)
    except codec.UNREADABLE:
        return None
    for what in ("fired", "missed", "paused"):
        if count := getattr(stored, what):
            return TickRun(at, schedule, what, count, stored.first, stored.last)
    return None

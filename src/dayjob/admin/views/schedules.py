"""Schedules, and what will run in the next hours, as consoles show them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Periodic:
    """A schedule, in English."""

    name: str
    job: str
    spec: str
    timezone: str | None
    english: str
    paused: bool
    missed: str
    args: Any
    #: The last tick that enqueued a job; None if none has.
    last_at: float | None
    #: The next ticks; empty if no live pool has the schedule.
    next: tuple[float, ...]
    #: Who paused it and when, if known.
    paused_by: str = ""
    paused_at: float | None = None
    #: Whether a live pool has this schedule. If not, it does not tick.
    live: bool = True


ComingKind = Literal["scheduled", "retry", "periodic"]


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that will become due, or a tick that will enqueue one."""

    at: float
    kind: ComingKind
    name: str
    #: The id of the job; "" for a tick, whose job does not exist yet.
    id: str = ""
    args: Any = None
    #: The schedule of a tick.
    schedule: str = ""


@dataclass(frozen=True, slots=True)
class ComingName:
    """How many jobs of one name will become due, by where they come from."""

    name: str
    scheduled: int
    retry: int
    periodic: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """What will run in the next hours."""

    now: float
    hours: int
    #: Seconds in one step, and when each begins. What is overdue is in the first.
    step: int
    starts: tuple[int, ...]
    #: Jobs that become due in each step: scheduled ones, retries, and those that schedules will enqueue.
    scheduled: tuple[int, ...]
    retry: tuple[int, ...]
    periodic: tuple[int, ...]
    #: By job name, the one with most first; and the first of them in the order in which they become due.
    names: tuple[ComingName, ...]
    entries: tuple[Coming, ...]
    #: Whether `names` has all of them. `entries` may still be only the first.
    complete: bool = True

"""The values of the timeline: what the system did and what operators did, and the marks of it on charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dayjob.store.ops.events import RescuedJob

TimelineKind = Literal[
    "started", "stopped", "died", "leader", "deploy", "tick", "limit", "pause", "starved", "redis", "action"
]
KINDS: tuple[TimelineKind, ...] = get_args(TimelineKind)


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened. Which fields are set depends on its kind."""

    #: Redis time in seconds.
    at: float
    kind: TimelineKind
    #: What happened, as a sentence.
    text: str = ""
    #: The operator who did it; "" if no operator did.
    actor: str = ""
    #: The id of the pool, its machine, its process, and the version of its program.
    pool: str = ""
    host: str = ""
    pid: int = 0
    tag: str = ""
    #: For a pool that died: why its parent killed the process; "" if the parent did not.
    cause: str = ""
    #: The job name or the schedule that it is about.
    name: str = ""
    schedule: str = ""
    #: The value before and after: a limit, a version, the leader; for others what happened, in a word.
    before: str = ""
    after: str = ""
    #: How many ticks, waiting jobs, or jobs of a pool that were rescued.
    count: int = 0
    #: For ticks: the first and the last of them.
    first_at: float | None = None
    last_at: float | None = None
    #: What the pool held when it died or stopped, and what became of each job.
    jobs: tuple[RescuedJob, ...] = ()
    #: Job types that are new, and those whose arguments or options changed.
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    #: For an action: what it was applied to, as the audit has it.
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Part of the timeline, newest first."""

    now: float
    events: tuple[TimelineEvent, ...]
    #: Whether older events match too.
    more: bool


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """An event to mark on a chart over time."""

    at: float
    kind: TimelineKind
    text: str
    #: The job name that it is about; "" if it is about all.
    name: str = ""

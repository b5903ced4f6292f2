"""What the admin layer answers about one thing: a pool, a schedule, a group of failures, a source. Frozen values. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.admin.records import AttemptRecord, HistoryCounts, SourceView
from dayjob.admin.timeline_views import TimelineEvent
from dayjob.admin.views import AuditEntry, BusyWorker, Count, FailureGroup, JobView, Periodic, Pool, State


@dataclass(frozen=True, slots=True)
class PoolDetail:
    """One pool with all that is known of it."""

    now: float
    id: str
    #: None if it is dead: its attempts are being rescued, or its last actions are all that is left of it.
    pool: Pool | None
    leads: bool
    #: How many attempts it holds, and since when it is dead; None if it is not.
    held: int
    died_at: float | None
    #: Its workers that have run a job for more than 0.5 s, the longest first.
    workers: tuple[BusyWorker, ...]
    #: What operators did to it, newest first.
    actions: tuple[AuditEntry, ...]
    #: What happened to it, newest first: it started, led, stopped or died, with the jobs that it held.
    events: tuple[TimelineEvent, ...] = ()
    #: The attempts that it ended last, newest first, as far as the history has them.
    ended: tuple[AttemptRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """One schedule with its next ticks, and what its last ones did."""

    now: float
    schedule: Periodic
    #: The pools that have it.
    pools: tuple[str, ...]
    #: Its next ticks; none if no live pool has the schedule.
    next: tuple[float, ...]
    #: What operators did to it, newest first.
    actions: tuple[AuditEntry, ...]
    #: Its last ticks, newest first: those that fired, were missed, or came while it was paused.
    ticks: tuple[TimelineEvent, ...] = ()
    #: The attempts of the jobs that it enqueued that ended last, newest first, as far as the history has them.
    runs: tuple[AttemptRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class FailurePlace:
    """Where attempts failed."""

    #: The machine; "" if it is not known any more.
    host: str
    #: The version of the program, which is the tag of its pool; "" if it has none.
    tag: str
    attempts: int
    #: Redis time in seconds.
    last_at: float


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group of failures with its newest jobs."""

    now: float
    group: FailureGroup
    #: The jobs that failed last, newest first.
    jobs: tuple[JobView, ...]
    #: Seconds in one step, when each begins, and how many attempts of jobs that are in the group now failed in it.
    step: int
    starts: tuple[int, ...]
    failed: tuple[int, ...]
    #: Pools whose process died with a job of the group.
    pools: tuple[str, ...] = ()
    #: On which machines and with which versions attempts of its jobs failed, as far as the history has them; most first.
    places: tuple[FailurePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceDetail:
    """One source: what it used, and what it has stored."""

    now: float
    used: SourceView
    #: Since when, and how many records were searched.
    since: float
    searched: int
    #: Whether records were left out, because there are more than one request searches.
    partial: bool
    counts: HistoryCounts
    #: Its jobs that wait, are scheduled, in retry and dead.
    stored: dict[State, Count]
    #: Its last attempts, and those that failed, newest first.
    recent: tuple[AttemptRecord, ...]
    failed: tuple[AttemptRecord, ...]

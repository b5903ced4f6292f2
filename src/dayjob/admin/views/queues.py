"""Queues as consoles show them: one in the list of all, and one with its details. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.admin.views.failures import FailureGroup
from dayjob.admin.views.job_types import JobTypeView
from dayjob.admin.views.jobs import JobView
from dayjob.admin.views.limits import LimitView
from dayjob.admin.views.metrics import Quantiles
from dayjob.admin.views.pools import BusyWorker
from dayjob.admin.views.schedules import Periodic
from dayjob.explain.obstacles import UNATTENDED, ObstacleKind
from dayjob.store.ops.inspect import Queue
from dayjob.text import span

DrainKind = Literal["empty", "draining", "growing", "standing", "paused", "unattended", "unknown"]


@dataclass(frozen=True, slots=True)
class DrainTime:
    """How long until a queue is empty, at the rate of the last one or two minutes."""

    kind: DrainKind
    #: If it drains: seconds until it is empty.
    seconds: float | None = None
    #: If it grows: by how many jobs per minute.
    growth: float | None = None

    @property
    def text(self) -> str:
        """A short text."""
        if self.kind == "draining":
            return f"in {span(self.seconds or 0.0)}"
        if self.kind == "growing":
            return f"grows by {self.growth or 0.0:,.0f}/min"
        return _DRAIN_WORDS[self.kind]


_DRAIN_WORDS: dict[DrainKind, str] = {
    "empty": "empty", "standing": "does not shrink", "paused": "paused", "unattended": "no worker", "unknown": "not known",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue in the list of all."""

    queue: Queue
    #: How many attempts run, as the pools last reported.
    running: int
    #: How many of its jobs can run at once if no other queue has jobs; 0 if no live pool knows the name. For a sync
    #: function this is the number of threads, if a pool has fewer threads than workers.
    workers: int
    #: Attempts that ended per minute, on average over the last five minutes and the present one, or since the first pool
    #: started if that is less.
    out: float
    #: Jobs that came into the queue per minute in the same time: new jobs, and jobs that became due or were given back. It
    #: is the jobs that went out plus the growth of the queue; None if no pool counted its size.
    incoming: float | None = None
    #: Attempts that failed per minute, and their share of all, from 0 to 1; None if none ended.
    fails: float = 0.0
    failing: float | None = None
    #: About which share of its workers' time its jobs used, from 0 to 1, by the histogram. None without workers.
    utilisation: float | None = None
    #: How many of `workers` are stuck in a job past its timeout, and can run no other.
    stuck: int = 0
    #: Why pools do not fetch from it; None if they do.
    obstacle: ObstacleKind | None = None
    #: How many jobs per minute the queue grew by in the last one or two minutes; negative if it shrank, None if not known.
    growth: float | None = None
    #: How long until it is empty.
    drain: DrainTime = DrainTime("unknown")

    @property
    def unattended(self) -> bool:
        """Whether its jobs wait until a pool is started."""
        return self.queue.size > 0 and self.obstacle in UNATTENDED

    @property
    def crew(self) -> str:
        """How many workers it has, and how many of them are stuck."""
        return f"{self.workers:,}" + (f" ({self.stuck:,} stuck)" if self.stuck else "")


@dataclass(frozen=True, slots=True)
class QueuesView:
    """All queues at one moment."""

    now: float
    queues: tuple[QueueView, ...]


@dataclass(frozen=True, slots=True)
class QueueMinute:
    """One queue in one minute."""

    #: When it begins, in seconds since the epoch.
    at: int
    #: Jobs that came in, as in QueueView; None if not known.
    incoming: int | None
    #: Jobs that were fetched from it, attempts that ended, and those of them that failed.
    out: int
    runs: int
    fails: int
    #: How many waited when the minute began; None if not counted.
    size: int | None
    #: Seconds that the oldest of them had waited; None where it was not measured.
    oldest: float | None = None


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """The details of one queue."""

    now: float
    view: QueueView
    #: Jobs that come in per minute, see `incoming_exact`.
    incoming: float
    #: Over the last hour.
    waits: Quantiles
    runs: Quantiles
    totals: dict[str, int]
    #: The pools that run its jobs.
    pools: tuple[str, ...]
    paused_by: str
    paused_at: float | None
    #: The next jobs.
    next: tuple[JobView, ...]
    #: Whether `incoming` is the exact rate of its view. If not, it is an estimate for the last minute.
    incoming_exact: bool = False
    #: The last hour by minute, oldest first; the last minute is not over.
    series: tuple[QueueMinute, ...] = ()
    #: Its attempts that have run for more than 0.5 s, the longest first; 50 at most.
    busy: tuple[BusyWorker, ...] = ()
    #: Groups of its jobs in retry and dead, among the newest 500 of each.
    failures: tuple[FailureGroup, ...] = ()
    #: The schedules that enqueue it.
    schedules: tuple[Periodic, ...] = ()
    #: Its job type, if a pool announced it.
    job_type: JobTypeView | None = None
    #: Its rate limits; and how many jobs of each of its keys may run at once, in words, "" if that is not limited.
    limits: tuple[LimitView, ...] = ()
    per_key: str = ""

"""What the admin layer answers: frozen values with everything that consoles show. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dayjob.doctor import Finding
from dayjob.store.ops.audit import Line
from dayjob.store.ops.figures import Histogram
from dayjob.store.ops.find import State
from dayjob.store.ops.health import Health
from dayjob.store.ops.inspect import BrokenEntry, BrokenPage, Queue, Sizes
from dayjob.store.ops.pools import Condemned, Pool, Status, Worker

__all__ = [
    "BrokenEntry", "BrokenPage", "BusyWorker", "Condemned", "Count", "Event", "FailureGroup", "Failures", "Finding",
    "JobDetail", "JobMetrics", "JobPage", "JobView", "Line", "Metrics", "Note", "Outcome", "Periodic", "Pool",
    "PoolsView", "Progress", "Quantiles", "Queue", "QueueDetail", "QueueView", "QueuesView", "RedisView", "Seen", "Sizes",
    "State", "Status", "Tally", "Verdict", "Worker",
]  # fmt: skip

Level = Literal["ok", "warning", "error"]


# Words.


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that is wrong, in words."""

    level: Level
    #: What it is about: a queue, a pool, or a side set; "" when it is about all.
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How everything stands, in words: the worst first."""

    level: Level
    sentence: str
    notes: tuple[Note, ...]
    #: Redis time.
    now: float
    waiting: int
    running: int
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action."""

    #: Whether something was changed.
    done: bool
    #: The same in words; it also says why not.
    says: str
    action: str
    subject: str
    #: Whether it is in the audit.
    noted: bool = True


# Jobs.


@dataclass(frozen=True, slots=True)
class Seen:
    """What somebody saw of a job: enough to find it again, and to know whether it has moved on."""

    id: str
    #: Where it was; None when that does not matter.
    state: State | None = None
    #: Its moment there, as the page said: finds it in sets of any size.
    at: float | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as it may be shown: secrets among its arguments are hidden."""

    id: str
    name: str
    state: State
    #: When it is due, died, or will be dropped from done, in seconds since the epoch; None in a queue.
    at: float | None = None
    args: Any = None
    source: str | int | None = None
    #: When it was enqueued or last became due; None when it does not say.
    enqueued_at: float | None = None
    attempt: int = 1
    fails: int = 0
    deaths: int = 0
    snoozes: int = 0
    error: str = ""
    trace: str = ""
    failed_at: float | None = None
    expires_at: float | None = None
    unique_key: str = ""
    #: Why its bytes cannot be read as a job; "" when they can.
    problem: str = ""
    #: How many jobs are ahead of it in its queue.
    place: int | None = None
    #: The attempt that runs.
    pool_id: str = ""
    token: str = ""
    #: The result that is kept.
    result: Any = None
    #: The bytes as they are: what an action names to the server.
    payload: bytes = field(default=b"", repr=False)

    @property
    def seen(self) -> Seen:
        """What names this job, in this state, to an action."""
        return Seen(self.id, self.state, self.at, self.name or None)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs in order."""

    now: float
    state: State
    #: How many there are in all, filter or not.
    total: int
    jobs: tuple[JobView, ...]
    #: What to pass as `after` for the next page; "" when this is the last.
    next: str = ""
    #: How many entries were looked at for this page; a filter may pass over many.
    looked: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One moment in the life of a job."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job, wherever it is, with its story."""

    job: JobView
    #: Why it is not running, or what it does, in one sentence.
    sentence: str
    timeline: tuple[Event, ...]
    #: What enqueues one like it; hidden arguments stay hidden.
    python: str
    command: str


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs match a filter."""

    matched: int
    looked: int
    total: int

    @property
    def complete(self) -> bool:
        """Whether all were looked at; otherwise there may be more."""
        return self.looked >= self.total


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an action on many jobs is."""

    looked: int
    total: int
    matched: int
    changed: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of an action on many jobs."""

    looked: int
    matched: int
    changed: int
    says: str
    noted: bool = True

    @property
    def stayed(self) -> int:
        """Those that matched and were not changed: they moved on, or their unique key is another's."""
        return self.matched - self.changed


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Jobs of one name that failed the same way."""

    name: str
    #: The error without what differs from job to job; `kind=` in a filter.
    kind: str
    count: int
    #: How many of them failed within 1 h, 24 h and 72 h.
    last_hour: int
    last_day: int
    last_three_days: int
    dead: int
    retry: int
    first_at: float
    last_at: float
    #: One of them, the last that failed.
    sample: JobView


@dataclass(frozen=True, slots=True)
class Failures:
    """What fails, by error and job; the largest group first."""

    now: float
    groups: tuple[FailureGroup, ...]
    looked: int
    total: int


# Queues.


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue in the list of all."""

    queue: Queue
    #: How many attempts run, as far as the pools have said.
    running: int
    #: How many workers could run it; 0 when no live pool knows the name.
    workers: int
    #: Attempts that ended in each of the last five minutes, on average.
    out: float


@dataclass(frozen=True, slots=True)
class QueuesView:
    """All queues at one moment."""

    now: float
    queues: tuple[QueueView, ...]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """How a number of durations is spread, in seconds; None where there are none."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, histogram: Histogram) -> Quantiles:
        """The quantiles of a histogram."""
        found = (histogram.quantile(q) for q in (0.5, 0.95, 0.99))
        return cls(histogram.count, *found)


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """One queue with all that is known of it."""

    now: float
    view: QueueView
    #: Jobs that came in during the last minute, roughly.
    incoming: float
    #: Over the last hour.
    waits: Quantiles
    runs: Quantiles
    totals: dict[str, int]
    #: Whose workers know it.
    pools: tuple[str, ...]
    paused_by: str
    paused_at: float | None
    #: The next jobs.
    next: tuple[JobView, ...]


# Pools.


@dataclass(frozen=True, slots=True)
class PoolsView:
    """The pools on the register, and the dead ones whose attempts are being rescued."""

    pools: tuple[Pool, ...]
    condemned: tuple[Condemned, ...]
    leader: str | None


@dataclass(frozen=True, slots=True)
class BusyWorker:
    """A worker that has run a job for longer than a moment."""

    pool_id: str
    host: str
    pid: int
    worker: Worker
    running_for: float

    @property
    def progress(self) -> float | None:
        """The share that is done, from 0 to 1, when the job says both numbers."""
        done, total = self.worker.done, self.worker.total
        return min(1.0, max(0.0, done / total)) if done is not None and total else None


# The rest.


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
    last_at: float | None
    #: The next ticks; none when no pool said what the schedule is.
    next: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """The figures of one job name."""

    name: str
    #: Attempts that ended, in each step.
    series: tuple[int, ...]
    runs: Quantiles
    waits: Quantiles
    #: Since the beginning.
    totals: dict[str, int]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures by job name over some hours."""

    now: float
    hours: int
    #: Seconds in one step of a series, and when each step begins.
    step: int
    starts: tuple[int, ...]
    jobs: tuple[JobMetrics, ...]
    #: Round trips of the pools' exchanges.
    trips: Quantiles


@dataclass(frozen=True, slots=True)
class RedisView:
    """How the server fares."""

    #: What is well and what is not.
    findings: tuple[Finding, ...]
    health: Health
    #: Round trips of the pools' exchanges in the last ten minutes.
    trips: Quantiles

"""Views: the frozen values that the admin layer returns, with everything that consoles show. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dayjob.admin.doctor import Finding
from dayjob.admin.records import AttemptRecord
from dayjob.explain.obstacles import UNATTENDED, ObstacleKind
from dayjob.explain.reasons import ReasonKind
from dayjob.store.ops.audit import AuditEntry
from dayjob.store.ops.figures import Histogram
from dayjob.store.ops.find import State
from dayjob.store.ops.groups import GroupMark
from dayjob.store.ops.health import Health
from dayjob.store.ops.inspect import BrokenEntry, BrokenPage, Queue, Sizes
from dayjob.store.ops.pools import Condemned, Pool, Status, WorkerStatus
from dayjob.text import span

__all__ = [
    "Argument",
    "AttemptRecord",
    "AuditEntry",
    "BrokenEntry",
    "BrokenPage",
    "BusyWorker",
    "Calendar",
    "Coming",
    "ComingKind",
    "ComingName",
    "Condemned",
    "Count",
    "DeletionView",
    "DrainTime",
    "Event",
    "FailedAttempts",
    "FailureGroup",
    "Failures",
    "Finding",
    "Frame",
    "GroupMark",
    "Histogram",
    "JobDetail",
    "JobMetrics",
    "JobPage",
    "JobSpread",
    "JobTypeView",
    "JobView",
    "Line",
    "Metrics",
    "Note",
    "Outcome",
    "Periodic",
    "Pool",
    "PoolsView",
    "Preview",
    "Progress",
    "Quantiles",
    "Queue",
    "QueueDetail",
    "QueueMinute",
    "QueueView",
    "QueuesView",
    "RedisView",
    "SearchHit",
    "SearchView",
    "SearchedPart",
    "Seen",
    "Sizes",
    "Stacks",
    "State",
    "Status",
    "Tally",
    "Verdict",
    "Vitals",
    "Worker",
    "WorkerStack",
    "WorkerStatus",
]  # fmt: skip

#: The names that programs imported before.
Line = AuditEntry
Worker = WorkerStatus

#: A notice is a fact to know of that needs no action at once.
Level = Literal["ok", "notice", "warning", "error"]
NoteKind = Literal[
    "unused", "no_pool", "not_rescued", "stuck", "loop_blocked", "arguments", "wrong_type", "paused", "no_worker", "late",
    "failing", "overdue", "broken", "dead", "eviction", "memory_only",
]  # fmt: skip
#: done; the target was not found; it has moved on; it does not allow this in its state; its unique key is another job's; it was so
#: already.
OutcomeKind = Literal["done", "not_found", "moved", "not_allowed", "taken", "already"]
DrainKind = Literal["empty", "draining", "growing", "standing", "paused", "unattended", "unknown"]
SearchKind = Literal["job", "queue", "pool", "schedule", "source", "error"]
EventKind = Literal["enqueued", "due", "ended", "failed", "crashed", "died", "dropped", "expires"]


# Words.


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that is wrong or worth knowing, as a sentence."""

    level: Level
    #: What it is about: a queue, a side set, `pools`, `busy` (the workers) or `redis` (the server); "" when it is about all.
    subject: str
    text: str
    #: What is wrong, as a stable word for programs.
    kind: NoteKind
    #: Since when, Redis time; None if that is not known.
    since: float | None = None
    #: What to do about it, in a sentence.
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether anything is wrong, as sentences: the worst first."""

    level: Level
    sentence: str
    notes: tuple[Note, ...]
    #: Redis time.
    now: float
    waiting: int
    running: int
    sizes: Sizes
    #: Pools with a lease, and the workers they have.
    pools: int
    workers: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an action."""

    #: Whether something was changed.
    done: bool
    #: A sentence about what was done, or why nothing was.
    message: str
    action: str
    subject: str
    #: Whether it is in the audit.
    audited: bool = True
    #: Whether the target exists. If not, nothing was done.
    found: bool = True
    #: The outcome as a stable word for programs.
    kind: OutcomeKind = "done"
    #: The id of the deletion that undo takes back; "" where there is nothing to undo.
    undo: str = ""


# Jobs.


@dataclass(frozen=True, slots=True)
class Seen:
    """What an operator saw of a job: enough to find it again, and to notice that it has moved."""

    id: str
    #: Its state; None if that does not matter.
    state: State | None = None
    #: Its score, as the page showed it, which finds it in a set of any size.
    at: float | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, redacted."""

    id: str
    name: str
    state: State
    #: When it is due, died, or will be removed from done, in seconds since the epoch; None in a queue.
    at: float | None = None
    args: Any = None
    source: str | int | None = None
    #: Texts that travel with the job.
    headers: dict[str, str] = field(default_factory=dict)
    #: Who enqueued it: the job inside which that was done, `<name>/<id>`, or the machine and process; "" if not known.
    parent: str = ""
    producer: str = ""
    #: When it was first enqueued; None if not known, as for some jobs that Go workers retried.
    enqueued_at: float | None = None
    #: When it last came into its queue: enqueued, due, or due again; None if not known.
    due_at: float | None = None
    #: The number of the running attempt, or of the next; of a completed job, the last.
    attempt: int = 1
    #: How many attempts were made, including the running one.
    attempts: int = 0
    fails: int = 0
    deaths: int = 0
    snoozes: int = 0
    error: str = ""
    trace: str = ""
    failed_at: float | None = None
    expires_at: float | None = None
    unique_key: str = ""
    #: Why its bytes cannot be read as a job; "" if they can.
    problem: str = ""
    #: How many jobs are ahead of it in its queue.
    place: int | None = None
    #: The running attempt.
    pool_id: str = ""
    token: str = ""
    #: The stored result.
    result: Any = None
    #: Of a completed job: when it completed, and how many seconds it ran.
    done_at: float | None = None
    ran: float | None = None
    #: Its attempts that failed or whose process died, the last ten, oldest first.
    past: tuple[PastAttempt, ...] = ()
    #: The stored bytes, by which actions identify the job.
    payload: bytes = field(default=b"", repr=False)

    @property
    def size(self) -> int:
        """Bytes of its payload."""
        return len(self.payload)

    @property
    def seen(self) -> Seen:
        """Identifies this job, in this state, in an action."""
        return Seen(self.id, self.state, self.at, self.name or None)


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that failed, or whose process died."""

    attempt: int
    at: float
    #: Seconds that it ran; 0 when that is not known, as of one whose process died.
    ran: float
    #: The first line of its error.
    error: str
    #: Id of the pool whose process died; "" for an attempt that failed.
    died_in: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of one state, in order."""

    now: float
    state: State
    #: How many there are in all, filter or not.
    total: int
    jobs: tuple[JobView, ...]
    #: Pass it as `after` for the next page; "" on the last page.
    next: str = ""
    #: How many entries were searched for this page; a filter may pass over many.
    searched: int = 0
    #: How many waiting jobs cannot be listed, because they are behind the first 10,000 of their queue.
    beyond: int = 0
    #: How many entries come after those that were searched: the next pages have them.
    left: int = 0
    #: The sort that this is: a column, with a minus where the greatest comes first.
    sort: str = ""
    #: How many entries were compared for the sort; 0 where it is the order of the whole list.
    sorted_among: int = 0
    #: How many were passed over, because a filter compares arguments and theirs are hidden.
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the life of a job."""

    at: float
    text: str
    kind: EventKind = "due"


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job in any state, with its timeline."""

    job: JobView
    #: Why it is not running, or that it is, in one sentence.
    sentence: str
    timeline: tuple[Event, ...]
    #: The code that enqueues a job like it; hidden arguments stay hidden.
    python: str
    command: str
    #: The reason as a stable word for programs.
    kind: ReasonKind = "not_found"
    #: Its attempts that the history has, oldest first.
    attempts: tuple[AttemptRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs match a filter."""

    matched: int
    searched: int
    total: int
    #: How many could not be compared, because the filter is about arguments and theirs are hidden.
    hidden: int = 0

    @property
    def complete(self) -> bool:
        """Whether all were searched. If not, more may match."""
        return self.searched >= self.total


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an action on many jobs."""

    searched: int
    total: int
    matched: int
    changed: int
    #: More about it in words, where the numbers do not say it.
    message: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action on many jobs would change."""

    message: str
    count: Count
    would_change: int
    #: The first ten of them, or of those that were found.
    samples: tuple[JobView, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of an action on many jobs."""

    searched: int
    matched: int
    changed: int
    message: str
    audited: bool = True
    #: The id of the deletion that undo takes back; "" where there is nothing to undo.
    undo: str = ""

    @property
    def unchanged(self) -> int:
        """Jobs that matched and were not changed: they moved on, or another job has their unique key."""
        return self.matched - self.changed


@dataclass(frozen=True, slots=True)
class DeletionView:
    """An action that deleted jobs and can be undone."""

    id: str
    #: When the action ended, by Redis time.
    at: float
    actor: str
    action: str
    subject: str
    #: How many jobs are in the bin.
    jobs: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Jobs of one name that failed the same way."""

    name: str
    #: The first line of the error, with numbers and ids as #; `kind=` in a filter.
    kind: str
    count: int
    #: How many of them failed within 1 h, 24 h and 72 h.
    last_hour: int
    last_day: int
    last_three_days: int
    dead: int
    retry: int
    #: When the first of them failed this way; `first_known` is false if it may have been earlier.
    first_at: float
    last_at: float
    #: The one that failed last.
    sample: JobView
    first_known: bool = True
    #: What operators noted about it.
    mark: GroupMark = field(default_factory=GroupMark)


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """How often attempts of one job name failed, including those whose jobs completed later."""

    name: str
    last_hour: int


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures by error and job name, the largest group first."""

    now: float
    #: Jobs that are in retry or dead now.
    groups: tuple[FailureGroup, ...]
    searched: int
    total: int
    #: Every job name of which an attempt failed in the last hour, the one with most first.
    attempts: tuple[FailedAttempts, ...] = ()


# The search.


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One thing that a text may mean."""

    kind: SearchKind
    #: Its name: of a job the job name, of a pool its id, of a source the source, of an error the job that fails with it.
    name: str
    #: Of a job: its id and its state.
    id: str = ""
    state: State | None = None
    #: What else is known: the error of a job, the host of a pool, the job of a schedule, the kind of an error.
    text: str = ""
    #: Of a source or an error: how many of the jobs that were read have it.
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SearchedPart:
    """How many jobs of a state were searched."""

    state: State
    searched: int
    total: int


@dataclass(frozen=True, slots=True)
class SearchView:
    """What a text may mean, the nearest first, and what was searched."""

    text: str
    hits: tuple[SearchHit, ...]
    parts: tuple[SearchedPart, ...]

    @property
    def complete(self) -> bool:
        """Whether every job was searched."""
        return all(part.searched >= part.total for part in self.parts)


# Queues.


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
class Quantiles:
    """Quantiles of durations in seconds; None if there are no durations."""

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
    #: The last hour, oldest first.
    series: tuple[QueueMinute, ...] = ()
    #: Its attempts that have run for more than 0.5 s, the longest first; 50 at most.
    busy: tuple[BusyWorker, ...] = ()
    #: Groups of its jobs in retry and dead, among the newest 500 of each.
    failures: tuple[FailureGroup, ...] = ()
    #: The schedules that enqueue it.
    schedules: tuple[Periodic, ...] = ()
    #: Its job type, if a pool announced it.
    job_type: JobTypeView | None = None


# Pools.


@dataclass(frozen=True, slots=True)
class PoolsView:
    """The registered pools, and the dead ones whose jobs are being requeued."""

    pools: tuple[Pool, ...]
    condemned: tuple[Condemned, ...]
    leader: str | None


@dataclass(frozen=True, slots=True)
class BusyWorker:
    """A worker that has run a job for more than 0.5 s."""

    pool_id: str
    host: str
    pid: int
    worker: WorkerStatus
    running_for: float
    #: Whether the lease of its pool has expired. Then this is what the pool last reported.
    stale: bool = False

    @property
    def started_at(self) -> float:
        """When it started, Redis time."""
        return self.worker.started_at

    @property
    def args(self) -> Any:
        """Its redacted arguments."""
        return self.worker.args

    @property
    def source(self) -> str | int | None:
        """Who the job is for."""
        return self.worker.source

    @property
    def timeout(self) -> float | None:
        """Seconds that it may run."""
        return self.worker.timeout

    @property
    def left(self) -> float | None:
        """Seconds until its timeout, negative after it; None if it has none."""
        return None if self.worker.timeout is None else self.worker.timeout - self.running_for

    @property
    def progress(self) -> float | None:
        """How much of the job is done, from 0 to 1; None unless the job reports both numbers."""
        done, total = self.worker.done, self.worker.total
        return min(1.0, max(0.0, done / total)) if done is not None and total else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One call in a stack."""

    file: str
    line: int
    function: str
    #: The line of source code; "" if it cannot be read.
    source: str = ""
    #: Whether it is code of the program, not of a library.
    own: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStack:
    """The stack of one worker; the handler first."""

    token: str
    name: str
    id: str
    worker_id: str = ""
    colour: Literal["sync", "async"] = "sync"
    running_for: float = 0.0
    frames: tuple[Frame, ...] = ()
    #: Whether frames before the first were left out.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of the busy workers of a pool, the longest running first. Of very many workers, only some."""

    pool_id: str
    at: float
    workers: tuple[WorkerStack, ...]


# Job types.


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a job type, for a form."""

    name: str
    #: As in Python: `int`, `str | None`.
    type: str
    required: bool
    #: A JSON value; None if there is none, or if it is hidden.
    default: Any
    kind: Literal["text", "integer", "number", "boolean", "choice", "json"]
    choices: tuple[str | int, ...]
    nullable: bool
    #: Whether its values are never shown.
    hidden: bool


@dataclass(frozen=True, slots=True)
class JobTypeView:
    """A job type as its pools describe it."""

    name: str
    arguments: tuple[Argument, ...]
    #: Whether it takes further arguments of any name.
    open: bool
    colour: Literal["sync", "async"]
    priority: int
    max_fails: int
    timeout: float | None
    max_concurrency: int | None
    keep: float | None
    unique_until: str
    redact: tuple[str, ...]
    #: How many records of its attempts the history keeps, and for how many seconds; None if an older release announced it.
    history_count: int | None
    history_age: float | None
    #: The first line of its docstring.
    doc: str
    signature: str
    #: When a pool last announced it, within a day.
    announced_at: float | None


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
    #: Schedules that tick so often that only their first ticks are in it.
    cut_schedules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """The figures of one job name."""

    name: str
    #: Attempts that ended, in each step.
    series: tuple[int, ...]
    runs: Quantiles
    waits: Quantiles
    #: The all-time total.
    totals: dict[str, int]
    #: Attempts that failed in each step, in all, and as a share from 0 to 1 of those that ended; None if none ended.
    fails: tuple[int, ...] = ()
    failed: int = 0
    failing: float | None = None
    #: Jobs that came into the queue in each step, as in QueueView; None if not known, as for the last step.
    incoming: tuple[int | None, ...] = ()
    #: Jobs that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()
    #: How its run and wait times are spread, as JobSpread has it; None unless this name alone was asked for.
    run_times: Histogram | None = None
    wait_times: Histogram | None = None


@dataclass(frozen=True, slots=True)
class JobSpread:
    """How the wait and run times of one job name are spread. Bucket b counts durations up to 0.1 ms * 2**(b/2)."""

    now: float
    name: str
    hours: int
    #: When each minute of the last hour begins.
    starts: tuple[int, ...]
    #: For each of these minutes.
    waits: tuple[Histogram, ...]
    runs: tuple[Histogram, ...]
    #: Over all the hours.
    all_waits: Histogram
    all_runs: Histogram


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures by job name over some hours."""

    now: float
    hours: int
    #: Seconds in one step of a series, and when each step begins.
    step: int
    starts: tuple[int, ...]
    #: Attempts of all jobs that ended in each step, and those of them that failed.
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    #: All known job names, and the figures of the chosen ones.
    names: tuple[str, ...]
    jobs: tuple[JobMetrics, ...]
    #: Round trips of the pools' exchanges.
    trips: Quantiles
    #: Jobs of all names that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Throughput:
    """What ended and what waited over time, of all job names together."""

    now: float
    #: Seconds in one step, and when each begins.
    step: int
    starts: tuple[int, ...]
    #: Attempts that ended in each step, and those of them that failed.
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    #: Jobs that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Vitals:
    """The server and the fleet over time; None where a number was not measured. Of a long step the largest number."""

    now: float
    #: Seconds in one step, and when each begins.
    step: int
    starts: tuple[int, ...]
    #: Memory that the server uses and may use (0 is no limit), in bytes; its connections; the commands it ran per second.
    memory: tuple[int | None, ...]
    max_memory: tuple[int | None, ...]
    clients: tuple[int | None, ...]
    commands: tuple[int | None, ...]
    #: Round trips of the pools' exchanges in the minute before, in seconds.
    trip_p50: tuple[float | None, ...]
    trip_p99: tuple[float | None, ...]
    #: Workers of live pools, and those of them that were busy.
    workers: tuple[int | None, ...]
    busy: tuple[int | None, ...]
    scheduled: tuple[int | None, ...]
    retry: tuple[int | None, ...]
    dead: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RedisView:
    """The state of the server."""

    #: The checks of the server and the namespace.
    findings: tuple[Finding, ...]
    health: Health
    #: Round trips of the pools' exchanges in the last ten minutes.
    trips: Quantiles

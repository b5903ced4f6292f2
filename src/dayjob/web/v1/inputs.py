"""The inputs of the API, with the bounds of each value. They are checked before an action starts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dayjob.admin import sorting
from dayjob.admin.records import Ending
from dayjob.admin.timeline_views import TimelineKind
from dayjob.admin.verbs import Verb
from dayjob.names import JOB_NAME
from dayjob.web.v1.input_parts import Input, Offset, Size, Slice, sort_by

#: An existing name may contain anything; the bound keeps keys and audit entries short.
Name = Annotated[str, Meta(min_length=1, max_length=300, description="A job name; each has its own queue.")]
#: A name that may become a new key.
NewName = Annotated[
    str,
    Meta(
        pattern=f"^{JOB_NAME.pattern}$",
        description="A job name: 1 to 200 characters without spaces or : / | { }.",
    ),
]
JobId = Annotated[str, Meta(min_length=1, max_length=1000, description="The id of a job.")]
PoolId = Annotated[str, Meta(min_length=1, max_length=300, description="The id of a worker pool.")]
Where = Annotated[
    str,
    Meta(
        max_length=2000,
        description="A filter like name=mail error~'timed out' args.user_id=7 age>1h; see the guide to the console.",
    ),
]
Moment = Annotated[
    float,
    Meta(
        ge=-1e15,
        le=1e15,
        description="The job's time in its set, as a page showed it; finds the job in sets of any size.",
    ),
]
Undo = Annotated[
    bool, Meta(description="Keep deleted jobs in the bin for ten minutes. False frees their memory at once.")
]
DryRun = Annotated[
    bool,
    Meta(
        description="Change nothing; the answer is one line with what would be changed and ten of the jobs."
    ),
]


Force = Annotated[bool, Meta(description="Accept the name of a queue that does not exist yet.")]
Listed = Literal["waiting", "running", "scheduled", "retry", "dead", "done"]


# Queues and pools.


class QueuesInput(Input):
    """The order of the queues."""

    sort: Annotated[str, sort_by("queues", sorting.QUEUES)] = ""


class PoolsInput(Input):
    """The order of the pools."""

    sort: Annotated[str, sort_by("pools", sorting.POOLS)] = ""


class BusyInput(Input):
    """The order of the busy workers."""

    sort: Annotated[str, sort_by("busy workers", sorting.BUSY)] = ""


class LimitsInput(Input):
    """The order of the rate limits."""

    sort: Annotated[str, sort_by("limits", sorting.LIMITS)] = ""


class PayloadsInput(Input):
    """The order of the names."""

    sort: Annotated[str, sort_by("names", sorting.PAYLOADS)] = ""


class OneQueue(Input):
    """A queue."""

    name: Name


class KeysInput(OneQueue, kw_only=True):
    """A queue, and the order of its keys, of which the first ones are listed."""

    most: Annotated[int, Meta(ge=1, le=5000, description="The most keys to return.")] = 100
    sort: Annotated[str, sort_by("keys", sorting.KEYS)] = ""


class NewQueue(Input):
    """A queue; with force it need not exist yet."""

    name: NewName
    force: Force = False


class Purged(OneQueue, kw_only=True):
    """A queue to purge."""

    undo: Undo = True
    dry_run: DryRun = False


class Pattern(Input):
    """Queues by a pattern."""

    pattern: Annotated[
        str, Meta(min_length=1, max_length=300, description="A pattern such as mail.*; * is every queue.")
    ]


class QueueLimit(Input):
    """How many jobs of a queue may run at once, over all pools; null removes the limit."""

    name: NewName
    limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None
    force: Force = False


LimitName = Annotated[str, Meta(min_length=1, max_length=500, description="The name of a rate limit.")]


LimitKey = Annotated[str, Meta(max_length=10_000, description="One key, if the limit counts by key.")] | None


class OneLimit(Input):
    """A rate limit, or one key of it."""

    name: LimitName
    key: LimitKey = None


class RateSetting(Input):
    """New values of a rate limit, for all pools."""

    name: LimitName
    n: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    per: (
        Annotated[float, Meta(ge=0.001, le=31_622_400, description="Seconds; as before unless given.")] | None
    ) = None
    burst: Annotated[int, Meta(ge=1, le=1_000_000_000, description="How many may start at once.")] | None = (
        None
    )
    key: LimitKey = None


class LimitHold(Input):
    """A rate limit, and for how many seconds it lets nothing start."""

    name: LimitName
    seconds: Annotated[float, Meta(ge=0.001, le=31_622_400)]
    key: LimitKey = None


class OnePool(Input):
    """A pool."""

    pool: PoolId


# Jobs.


class Matched(Input):
    """Jobs in one state, optionally of one name, that match a filter."""

    state: Listed
    name: Name | None = None
    where: Where = ""


After = Annotated[str, Meta(max_length=3000, description="The value of next in the answer before.")]


class CountInput(Matched, kw_only=True):
    """The jobs to count, and where to search on."""

    after: After = ""


class JobsInput(Matched, kw_only=True):
    """Jobs, and which page of them."""

    after: After = ""
    size: Size = 50
    newest_first: bool | None = None
    sort: Annotated[str, sort_by("jobs", *sorting.JOBS.values())] = ""


class OneJob(Input):
    """A job; its name helps to find it in a long queue."""

    id: JobId
    name: Name | None = None


class SeenJob(Input):
    """A job and the state in which it was seen: if it is in another state by now, nothing is changed."""

    id: Annotated[str, Meta(max_length=1000, description="The id of the job.")]
    state: Listed
    at: Moment | None = None
    name: Annotated[str, Meta(max_length=300)] | None = None


class DeletedJob(SeenJob, kw_only=True):
    """A job to delete, and the state in which it was seen."""

    undo: Undo = True


class Rescheduled(SeenJob, kw_only=True):
    """A job, and when it is due: a moment or a delay."""

    due_at: Annotated[float, Meta(ge=0, lt=1e12, description="Seconds since the epoch.")] | None = None
    delay: Annotated[float, Meta(ge=0, le=3.2e9, description="Seconds from now.")] | None = None


class MovedJob(SeenJob, kw_only=True):
    """A waiting job, and the queue to move it to."""

    to: NewName
    check: Annotated[bool, Meta(description="Refuse if its arguments do not fit that job type.")] = True


class MovedJobs(Input):
    """Waiting jobs that match a filter, and the queue to move them to."""

    to: NewName
    name: Name | None = None
    where: Where = ""
    most: Annotated[int, Meta(ge=1, description="Move at most this many jobs.")] | None = None
    check: Annotated[bool, Meta(description="Leave jobs whose arguments do not fit that job type.")] = True
    dry_run: DryRun = False


class Selected(Input):
    """An action and its jobs."""

    verb: Verb
    jobs: Annotated[list[SeenJob], Meta(min_length=1, max_length=500)]
    undo: Undo = True


class UndoInput(Input):
    """A deletion; without an id the last one of this user."""

    deletion: (
        Annotated[
            str, Meta(min_length=1, max_length=100, description="The id of a deletion, or its beginning.")
        ]
        | None
    ) = None


class SeenJobs(Input):
    """Some jobs, with the states in which they were seen."""

    jobs: Annotated[list[SeenJob], Meta(min_length=1, max_length=500)]


class Matching(Matched, kw_only=True):
    """An action on every job of a state that matches a filter."""

    verb: Verb
    most: Annotated[int, Meta(ge=1, description="Change at most this many jobs.")] | None = None
    undo: Undo = True
    dry_run: DryRun = False


class Waves(Input):
    """Dead jobs to retry in waves."""

    where: Where = ""
    size: (
        Annotated[int, Meta(ge=1, le=500, description="Jobs of each wave; null means 1, 2, 4, 8 and so on.")]
        | None
    ) = None
    stop_above: Annotated[
        float,
        Meta(ge=0, le=1, description="Stop when more than this share of those that ended failed again."),
    ] = 0.2


class FailureWindow(Input):
    """Within how many seconds, and the order of the groups."""

    window: Annotated[float, Meta(gt=0, le=1e10)] | None = None
    sort: Annotated[str, sort_by("groups", sorting.FAILURES)] = ""


class FailedGroup(Input):
    """An action on one group of failures."""

    verb: Literal["retry", "delete"]
    name: Annotated[str, Meta(max_length=300)]
    kind: Annotated[str, Meta(max_length=1000)]
    states: Annotated[list[Literal["dead", "retry"]], Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["dead", "retry"]
    )
    undo: Undo = True
    dry_run: DryRun = False


class OneGroup(Input):
    """A group of failures."""

    name: Annotated[str, Meta(max_length=300)]
    kind: Annotated[str, Meta(max_length=1000)]


class GroupNote(OneGroup, kw_only=True):
    """A note on a group of failures; "" removes it."""

    text: Annotated[str, Meta(max_length=500)]


class GroupIgnore(OneGroup, kw_only=True):
    """For how many seconds a group of failures is ignored; null shows it again."""

    seconds: Annotated[float, Meta(ge=1, le=31_622_400)] | None


class EnqueueInput(Input):
    """A job to enqueue."""

    name: NewName
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    delay: Annotated[float, Meta(ge=0, le=3.2e9, description="Seconds from now.")] = 0.0
    source: str | int | None = None
    check: Annotated[bool, Meta(description="Refuse arguments that do not fit the announced job type.")] = (
        True
    )


class JobTypesInput(Input):
    """The order of the job types."""

    sort: Annotated[str, sort_by("job types", sorting.JOB_TYPES)] = ""


# Others.


class SchedulesInput(Input):
    """The order of the schedules."""

    sort: Annotated[str, sort_by("schedules", sorting.PERIODIC)] = ""


class ScheduleInput(Input):
    """A schedule."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, description="The name of a schedule.")]


class Hours(Input):
    """A number of hours."""

    hours: Literal[1, 24, 72] = 1


class CalendarInput(Hours):
    """How many hours ahead, and the moment with which the list begins."""

    since: Annotated[float, Meta(ge=0, le=1e12, description="In seconds since the epoch.")] | None = None
    sort: Annotated[str, sort_by("entries", sorting.CALENDAR)] = ""


class MetricsInput(Hours):
    """One job name, or the first ones in the order of `sort`."""

    name: Name | None = None
    most: Size = 500
    sort: Annotated[str, sort_by("jobs", sorting.METRICS)] = ""


class SpreadInput(Hours, kw_only=True):
    """One job name."""

    name: Name


Instant = Annotated[float, Meta(ge=0, le=1e11, description="Redis time in seconds since the epoch.")]


class HistoryFilter(Input):
    """Which attempts that ended."""

    name: Name | None = None
    since: Instant | None = None
    until: Instant | None = None
    #: How they ended; `failed` for all that failed.
    outcome: Ending | Literal["failed"] | None = None
    source: Annotated[str, Meta(max_length=300)] | None = None
    pool: PoolId | None = None
    schedule: Annotated[str, Meta(max_length=1000, description="The schedule that enqueued them.")] | None = (
        None
    )


class HistoryInput(HistoryFilter, kw_only=True):
    """Attempts that ended, and which page of them."""

    sort: Annotated[str, sort_by("attempts", sorting.HISTORY)] = ""
    size: Size = 50
    after: After = ""


class HistorySteps(HistoryFilter, kw_only=True):
    """Attempts that ended, and into how many steps their span is divided."""

    steps: Annotated[int, Meta(ge=1, le=500)] = 60


class OneSource(Input):
    """A source."""

    source: Annotated[str, Meta(min_length=1, max_length=300)]


class SourceFilter(Input):
    """A span, and one source or all."""

    since: Instant | None = None
    until: Instant | None = None
    source: Annotated[str, Meta(max_length=300)] | None = None
    sort: Annotated[str, sort_by("sources", sorting.SOURCES)] = ""


class AuditSlice(Slice, kw_only=True):
    """Part of the audit; `about` finds entries that contain a text."""

    about: Annotated[str, Meta(max_length=300)] = ""
    sort: Annotated[str, sort_by("entries", sorting.AUDIT)] = ""


class BrokenSlice(Slice, kw_only=True):
    """Part of the broken entries, and their order."""

    sort: Annotated[str, sort_by("entries", sorting.BROKEN)] = ""


class EventsInput(Slice, kw_only=True):
    """Which events: all, or those that match every filter given."""

    sort: Annotated[str, sort_by("events", sorting.TIMELINE)] = ""
    kind: TimelineKind | None = None
    pool: Annotated[str, Meta(max_length=300, description="The beginning of a pool's id, or a host.")] = ""
    name: Annotated[str, Meta(max_length=1000, description="A job name or a schedule.")] = ""
    actor: Annotated[str, Meta(max_length=300, description="Part of the name of an operator.")] = ""
    since: Annotated[float, Meta(ge=0, le=1e11, description="Seconds since the epoch.")] | None = None
    until: Annotated[float, Meta(ge=0, le=1e11, description="Seconds since the epoch.")] | None = None


class OneBroken(Input):
    """A broken entry as it was seen."""

    index: Offset
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{24}$")]


class DeletedEntry(OneBroken, kw_only=True):
    """A broken entry to delete."""

    undo: Undo = True


class Repaired(OneBroken, kw_only=True):
    """The repaired version of a broken entry: the JSON of a job."""

    payload: Annotated[str, Meta(min_length=1, max_length=100_000)]


class Drain(Input):
    """In how many seconds the backlog should be cleared."""

    within: Annotated[float, Meta(ge=1, le=86_400)] = 60.0

"""Views: the frozen values that the admin layer returns, with everything that consoles show. No I/O."""

from __future__ import annotations

from dayjob.admin.findings import Finding
from dayjob.admin.records import AttemptRecord
from dayjob.admin.views.failures import FailedAttempts, FailureGroup, Failures
from dayjob.admin.views.job_types import Argument, JobTypeView
from dayjob.admin.views.jobs import Event, EventKind, JobDetail, JobPage, JobView, PastAttempt, Seen
from dayjob.admin.views.metrics import (
    JobMetrics,
    JobSpread,
    Metrics,
    Quantiles,
    RedisView,
    Throughput,
    Vitals,
)
from dayjob.admin.views.outcomes import (
    BulkProgress,
    Count,
    DeletionView,
    Outcome,
    OutcomeKind,
    Preview,
    Tally,
)
from dayjob.admin.views.pools import BusyWorker, Frame, PoolsView, Stacks, WorkerStack
from dayjob.admin.views.queues import DrainKind, DrainTime, QueueDetail, QueueMinute, QueuesView, QueueView
from dayjob.admin.views.schedules import Calendar, Coming, ComingKind, ComingName, Periodic
from dayjob.admin.views.search import SearchedPart, SearchHit, SearchKind, SearchView
from dayjob.admin.views.verdict import Level, Note, NoteKind, Verdict
from dayjob.store.ops.audit import AuditEntry
from dayjob.store.ops.broken import BrokenEntry, BrokenPage
from dayjob.store.ops.figures import Histogram
from dayjob.store.ops.find import State
from dayjob.store.ops.groups import GroupMark
from dayjob.store.ops.inspect import Queue, Sizes
from dayjob.store.ops.pools import Condemned, Pool, Status, WorkerStatus

__all__ = [
    "Argument", "AttemptRecord", "AuditEntry", "BrokenEntry", "BrokenPage", "BulkProgress", "BusyWorker", "Calendar",
    "Coming", "ComingKind", "ComingName", "Condemned", "Count", "DeletionView", "DrainKind", "DrainTime",
    "Event", "EventKind", "FailedAttempts", "FailureGroup", "Failures", "Finding", "Frame", "GroupMark",
    "Histogram", "JobDetail", "JobMetrics", "JobPage", "JobSpread", "JobTypeView", "JobView", "Level", "Line",
    "Metrics", "Note", "NoteKind", "Outcome", "OutcomeKind", "PastAttempt", "Periodic", "Pool", "PoolsView",
    "Preview", "Progress", "Quantiles", "Queue", "QueueDetail", "QueueMinute", "QueueView", "QueuesView",
    "RedisView", "SearchHit", "SearchKind", "SearchView", "SearchedPart", "Seen", "Sizes", "Stacks", "State",
    "Status", "Tally", "Throughput", "Verdict", "Vitals", "Worker", "WorkerStack", "WorkerStatus",
]  # fmt: skip

#: The names that programs imported before.
Line = AuditEntry
Progress = BulkProgress
Worker = WorkerStatus

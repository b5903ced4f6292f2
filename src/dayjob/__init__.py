"""Background jobs for Python on Redis and Valkey: jobs are queues, nothing accepted is ever lost."""

from dayjob.enqueue import AsyncEnqueuer, Enqueuer
from dayjob.errors import (
    BadArguments,
    BadOption,
    BadSchedule,
    BadSignature,
    DayjobError,
    Dead,
    Discard,
    Full,
    JobTimeout,
    Retry,
    Snooze,
    StoreError,
    Unavailable,
    Unknown,
    UnknownJob,
)
from dayjob.job import Job
from dayjob.pool import WorkerPool
from dayjob.version import __version__

__all__ = [
    "AsyncEnqueuer",
    "BadArguments",
    "BadOption",
    "BadSchedule",
    "BadSignature",
    "DayjobError",
    "Dead",
    "Discard",
    "Enqueuer",
    "Full",
    "Job",
    "JobTimeout",
    "Retry",
    "Snooze",
    "StoreError",
    "Unavailable",
    "Unknown",
    "UnknownJob",
    "WorkerPool",
    "__version__",
]

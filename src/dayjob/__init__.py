"""Background jobs for Python on Redis and Valkey: jobs are queues, nothing accepted is ever lost."""

from typing import TYPE_CHECKING, Any

from dayjob.errors import (
    BadArguments,
    BadOption,
    BadSchedule,
    BadSignature,
    DayjobError,
    Dead,
    Discard,
    Full,
    GiveBack,
    JobFailed,
    JobTimeout,
    NotReady,
    ResultTimeout,
    Retry,
    Snooze,
    StoreError,
    Throttled,
    Unavailable,
    Unknown,
    UnknownJob,
)
from dayjob.handlers.codecs import Codec
from dayjob.job import Job, current_job
from dayjob.limits import Concurrency, Rate, Window
from dayjob.pool import WorkerPool
from dayjob.version import __version__

if TYPE_CHECKING:
    from dayjob.admin.client import Admin, AsyncAdmin
    from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncEnqueuer",
    "BadArguments",
    "BadOption",
    "BadSchedule",
    "BadSignature",
    "Codec",
    "Concurrency",
    "DayjobError",
    "Dead",
    "Discard",
    "Enqueuer",
    "Full",
    "GiveBack",
    "Job",
    "JobFailed",
    "JobTimeout",
    "NotReady",
    "Rate",
    "ResultTimeout",
    "Retry",
    "Snooze",
    "StoreError",
    "Throttled",
    "Unavailable",
    "Unknown",
    "UnknownJob",
    "Window",
    "WorkerPool",
    "__version__",
    "current_job",
]


def __getattr__(name: str) -> Any:
    """Load the Redis client only where jobs are enqueued, run or looked at, not wherever a job is defined."""
    from dayjob.fork_safe import FORK_SAFE  # noqa: PLC0415 - not a public name of this package

    if name in ("Enqueuer", "AsyncEnqueuer"):
        with FORK_SAFE:
            from dayjob.enqueue import enqueuer  # noqa: PLC0415 - the reason is above

        return getattr(enqueuer, name)
    if name in ("Admin", "AsyncAdmin"):
        with FORK_SAFE:
            from dayjob.admin import client  # noqa: PLC0415 - the reason is above

        return getattr(client, name)
    raise AttributeError(f"module 'dayjob' has no attribute {name!r}")

"""TaskRecord: what Redis has of a task, beside its job: the status, the times, the errors of all attempts, the result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from dayjob.django.task_api import Task, TaskError, TaskResult, TaskResultStatus
from dayjob.store import codec

#: How many errors a record keeps, the last ones, and how many characters of each traceback.
MAX_ERRORS = 10
MAX_TRACEBACK = 20_000


class TaskRecord(msgspec.Struct):
    """One task on its way, as JSON."""

    id: str
    #: Where the Task is, such as "orders.tasks.ship".
    path: str
    #: What `using()` changed, or the Task itself has.
    queue: str
    priority: int
    backend: str
    run_after: float | None
    args: list[Any]
    kwargs: dict[str, Any]
    enqueued_at: float
    status: str = "READY"
    started_at: float | None = None
    finished_at: float | None = None
    attempted_at: float | None = None
    #: The class and the traceback of each error.
    errors: list[tuple[str, str]] = msgspec.field(default_factory=list)
    workers: list[str] = msgspec.field(default_factory=list)
    result: Any = None

    @classmethod
    def of(cls, job_id: str, task: Any, args: list[Any], kwargs: dict[str, Any], now: float) -> TaskRecord:
        """The record of a task that is enqueued now."""
        return cls(
            job_id, task.module_path, task.queue_name, task.priority, task.backend, due_of(task), args, kwargs, now
        )  # fmt: skip

    def add_error(self, error: BaseException, traceback: str) -> None:
        """Record the error of an attempt."""
        kind = type(error)
        self.errors.append((f"{kind.__module__}.{kind.__qualname__}", traceback[-MAX_TRACEBACK:]))
        del self.errors[:-MAX_ERRORS]

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def result_of_task(self) -> Any:
        """As Django's TaskResult. Raises SuspiciousOperation if the path leads to anything but a Task."""
        task = task_at(self.path).using(priority=self.priority, queue_name=self.queue, backend=self.backend)
        if self.run_after is not None:
            task = task.using(run_after=_moment(self.run_after))
        found = TaskResult(
            task=task,
            id=self.id,
            status=TaskResultStatus[self.status],
            enqueued_at=_moment(self.enqueued_at),
            started_at=_moment(self.started_at),
            finished_at=_moment(self.finished_at),
            last_attempted_at=_moment(self.attempted_at),
            args=self.args,
            kwargs=self.kwargs,
            backend=self.backend,
            errors=[
                TaskError(exception_class_path=path, traceback=traceback) for path, traceback in self.errors
            ],
            worker_ids=list(self.workers),
        )
        object.__setattr__(found, "_return_value", self.result)
        return found


_decode = msgspec.json.Decoder(TaskRecord).decode


def read_task_record(raw: bytes) -> TaskRecord | None:
    """The record in these bytes; None if they are none. Any program can write to Redis."""
    try:
        return _decode(raw)
    except codec.UNREADABLE:
        return None


def task_at(path: str) -> Any:
    """The Task at a path. Raises SuspiciousOperation: a path that Redis names must not make this process run anything."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise SuspiciousOperation(f"{path!r} cannot be imported: {error}") from None
    if not isinstance(found, Task):
        raise SuspiciousOperation(f"{path!r} is no Task")
    return found


def due_of(task: Any) -> float | None:
    """When a task may run at the earliest, in seconds since the epoch."""
    when = task.run_after
    if when is None:
        return None
    moment: float = (timezone.make_aware(when) if timezone.is_naive(when) else when).timestamp()
    return moment


def _moment(at: float | None) -> datetime | None:
    if at is None:
        return None
    found = datetime.fromtimestamp(at, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found)

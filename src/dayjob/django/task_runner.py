"""TaskRunner: runs the attempts of one task, and records them."""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable
from functools import partial
from traceback import format_exception
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async

from dayjob import retry
from dayjob.django.task_api import TaskContext, normalize_json, task_finished, task_started
from dayjob.django.task_records import TaskRecord, read_task_record
from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer
from dayjob.enqueue.pause import Pause
from dayjob.errors import GiveBack, StoreError, Unavailable
from dayjob.instruments import failure_of
from dayjob.job import Job
from dayjob.options import JobOptions
from dayjob.outcome import Dropped
from dayjob.safe_logging import SafeLogger
from dayjob.store.async_link import awalk
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.op import Op
from dayjob.store.ops.tasks import read_record, save_record
from dayjob.store.steps import Steps

logger = SafeLogger("dayjob.worker")

#: Seconds that the record of a task is kept after its end, unless `keep` is given.
KEEP_SECONDS = 86_400.0
#: Seconds that the record of a task is kept after it was enqueued, became due or was attempted.
MAX_WAIT_SECONDS = 30 * 86_400.0
#: Seconds between two requests while Redis cannot be reached. The pool fetches nothing then, so waiting keeps no job back.
RETRY_SECONDS = 0.2


class TaskCall(NamedTuple):
    """The arguments of the job of a task."""

    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: int


class FinishedSignal(NamedTuple):
    """A step that sends Django's signal for a task that has finished."""

    backend: type[Any]
    record: TaskRecord

    def run(self, _: object) -> None:
        """Send it from a plain function."""
        task_finished.send(self.backend, task_result=self.record.result_of_task())

    async def arun(self, _: object) -> None:
        """Send it from a coroutine. Its receivers are plain functions that may use the database."""
        await sync_to_async(self.run)(None)


class TaskRunner:
    """The handler of one task. An outage of Redis delays an attempt, and fails none."""

    def __init__(
        self,
        task: Any,
        options: JobOptions,
        backend: type[Any],
        enqueuer: Callable[[], Enqueuer],
        async_enqueuer: Callable[[], AsyncEnqueuer],
    ) -> None:
        self._task = task
        self._options = options
        self._backend = backend
        self._enqueuer = enqueuer
        self._async_enqueuer = async_enqueuer

    def run(self, job: Job, args: list[Any], kwargs: dict[str, Any], queue: str, priority: int) -> Any:
        """An attempt of a task that is a plain function."""
        record, call, link = None, TaskCall(args, kwargs, queue, priority), self._enqueuer().sender
        try:
            record = walk(link, self._start(job, call))
            result = record.result_of_task()
            task_started.send(self._backend, task_result=result)
            value = normalize_json(self._function(result)(*result.args, **result.kwargs))
        except BaseException as error:
            walk(link, self._end_failed(job, call, record, error))
            raise
        walk(link, self._end_completed(job, record, value))
        return value

    async def arun(self, job: Job, args: list[Any], kwargs: dict[str, Any], queue: str, priority: int) -> Any:
        """An attempt of a task that is a coroutine function."""
        record, call, link = None, TaskCall(args, kwargs, queue, priority), self._async_enqueuer().sender
        try:
            record = await awalk(link, self._start(job, call))
            result = record.result_of_task()
            await sync_to_async(task_started.send)(self._backend, task_result=result)
            value = normalize_json(await self._function(result)(*result.args, **result.kwargs))
        except BaseException as error:
            await awalk(link, self._end_failed(job, call, record, error))
            raise
        await awalk(link, self._end_completed(job, record, value))
        return value

    def _start(self, job: Job, call: TaskCall) -> Steps[TaskRecord]:
        """Record that an attempt runs. Raises GiveBack if Redis does not answer: such an attempt counts no failure."""
        try:
            raw: bytes | None = yield read_record(Keys(self._enqueuer().namespace), job.id)
            record = self._begin(job, raw, call)
            yield self._save(record)
        except Unavailable as error:
            raise GiveBack(f"the record of the task could not be reached: {error}") from error
        return record

    def _end_completed(self, job: Job, record: TaskRecord, value: Any) -> Steps[None]:
        record.status, record.finished_at, record.result = "SUCCESSFUL", time.time(), value
        yield from self._save_end(job, record)
        yield FinishedSignal(self._backend, record)

    def _end_failed(
        self, job: Job, call: TaskCall, record: TaskRecord | None, error: BaseException
    ) -> Steps[None]:
        if record is None and failure_of(error) is not None:
            # It passed its timeout before Redis answered. Its status matters more than what earlier attempts recorded.
            record = self._begin(job, None, call)
        if record is not None:
            finished = self._fail(record, job, error)
            yield from self._save_end(job, record)
            if finished:
                yield FinishedSignal(self._backend, record)

    def _save_end(self, job: Job, record: TaskRecord) -> Steps[None]:
        """Store how an attempt ended. While Redis cannot be reached, tries again until the attempt has to stop."""
        while True:
            try:
                yield self._save(record)
            except StoreError as error:
                if _gives_up(job, error):
                    return
            else:
                return
            yield Pause(RETRY_SECONDS)

    def _save(self, record: TaskRecord) -> Op[Any]:
        ended = record.finished_at is not None
        seconds = (self._options.keep or KEEP_SECONDS) if ended else MAX_WAIT_SECONDS
        return save_record(Keys(self._enqueuer().namespace), record.id, record.encode(), seconds)

    def _begin(self, job: Job, raw: bytes | None, call: TaskCall) -> TaskRecord:
        now = time.time()
        record = None if raw is None else read_task_record(raw)
        if record is None:
            # It has expired, or Redis has lost it. The job itself has all that is needed.
            task = self._task.using(queue_name=call.queue, priority=call.priority)
            record = TaskRecord.of(job.id, task, call.args, call.kwargs, job.enqueued_at)
        record.status, record.attempted_at = "RUNNING", now
        record.started_at = record.started_at or now
        record.finished_at = None
        record.workers.append(f"{platform.node()}/{os.getpid()}")
        return record

    def _function(self, result: Any) -> Callable[..., Any]:
        if self._task.takes_context:
            return partial(self._task.func, TaskContext(task_result=result))
        found: Callable[..., Any] = self._task.func
        return found

    def _fail(self, record: TaskRecord, job: Job, error: BaseException) -> bool:
        """Record an attempt that raised. Returns whether it was the last."""
        failed = failure_of(error)
        if failed is not None:
            error, finished = failed.error, failed.last
        else:
            # Cancelled, given back, snoozed or discarded.
            finished = job.stop_reason == "cancelled" or self._drops(error, job)
        if failed is not None or finished:
            record.add_error(error, "".join(format_exception(error)))
        record.status = "FAILED" if finished else "READY"
        record.finished_at = time.time() if finished else None
        return finished

    def _drops(self, error: BaseException, job: Job) -> bool:
        outcome = retry.decide(self._options, error, job.fails, random.Random())
        return isinstance(error, Exception) and isinstance(outcome, Dropped)


def _gives_up(job: Job, error: StoreError) -> bool:
    """Whether to leave an end unrecorded. Waiting keeps no other job back, because the pool cannot fetch either."""
    if isinstance(error, Unavailable) and job.stop_reason is None:
        return False
    logger.warning("task %s: Redis did not take the record of its end: %s", job.id, error)
    return True

"""DayjobBackend: runs the tasks of Django 6, or of the package django-tasks, as jobs of the project's pool.

TASKS = {"default": {"BACKEND": "dayjob.django.tasks.DayjobBackend", "OPTIONS": {"max_fails": 1, "keep": 86400}}}
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, make_dataclass
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from dayjob.django.project import commit_hook, project_pool, settings_of_project
from dayjob.django.task_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from dayjob.django.task_records import TaskRecord, due_of, read_task_record
from dayjob.django.task_runner import MAX_WAIT_SECONDS, TaskRunner
from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer
from dayjob.errors import BadOption, NotReady, StoreError
from dayjob.job import Job, new_id
from dayjob.options import JobOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops.tasks import read_record, save_record

logger = SafeLogger("dayjob.outbox")

#: The suffix of the queue for each band of priorities, from which priority on, and the weight of its queues.
BANDS = (("@high", 34, 100), ("", -33, 10), ("@low", -100, 1))

#: A Task of a DayjobBackend may also have the options of a job: `@task(max_fails=2, timeout=60)`.
DayjobTask = make_dataclass(
    "DayjobTask",
    [(one.name, Any, field(default=None)) for one in fields(JobOptions) if one.name != "priority"],
    bases=(Task,), frozen=True, slots=True, kw_only=True,
)  # fmt: skip
# For pickle, which Django promises for tasks.
DayjobTask.__module__ = __name__


class DayjobBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Each task is a job type of its own, named by the path of the task; high and low priorities have a queue each."""

    task_class = DayjobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        self._on_commit = bool(options.pop("enqueue_on_commit", settings_of_project().on_commit))
        try:
            self._job_options = JobOptions.of(options, f"TASKS[{alias!r}]: OPTIONS", project_pool().defaults)
        except BadOption as error:
            raise ImproperlyConfigured(str(error)) from error
        if "priority" in options:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: OPTIONS: a task has its priority itself")

    def validate_task(self, task: Any) -> None:
        """Django calls this for every new Task, so it also registers the job types of the task."""
        super().validate_task(task)
        try:
            _types.add(task, self._options_of(task), type(self))
        except BadOption as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task; in a transaction, at its commit. Returns Django's TaskResult."""
        self.validate_task(task)
        record = TaskRecord.of(
            new_id(), task, normalize_json(list(args)), normalize_json(dict(kwargs)), time.time()
        )
        result = record.result_of_task()
        # The result refers to the Task that was passed, not to a copy.
        object.__setattr__(result, "task", task)
        project = settings_of_project()
        if project.outbox and connections[project.database].in_atomic_block:
            self._enqueue_in_outbox(task, record, result, project.database)
        elif self._on_commit:
            commit_hook(project.database)(partial(self._send, task, record, result))
        else:
            self._send(task, record, result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The TaskResult with this id, wherever its job is. Raises TaskResultDoesNotExist."""
        record = self._read(result_id)
        if record.status == "RUNNING" and _is_dead(record):
            # It may have ended since the record was read.
            record = self._read(result_id)
            if record.status == "RUNNING":
                # Its process crashed too often, so nothing of the task could record the end.
                record.status, record.finished_at = "FAILED", record.attempted_at
                record.errors.append(("dayjob.errors.JobFailed", "The process that ran this task crashed."))
        return record.result_of_task()

    def _read(self, result_id: str) -> TaskRecord:
        enqueuer = _types.enqueuer()
        raw = enqueuer.run(read_record(Keys(enqueuer.namespace), str(result_id)))
        record = None if raw is None else read_task_record(raw)
        if record is None:
            raise TaskResultDoesNotExist(result_id)
        return record

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Django's system check of this backend."""
        found = [*super().check(**kwargs)]
        if not apps.is_installed("dayjob.django"):
            found.append(
                Error(
                    f"TASKS[{self.alias!r}] needs the app of dayjob, which finds tasks for workers.",
                    hint='Add "dayjob.django" to INSTALLED_APPS.',
                    id="dayjob.E002",
                )
            )
        return found

    def _enqueue_in_outbox(self, task: Any, record: TaskRecord, result: Any, database: str) -> None:
        """Keep the job as a row of the transaction. The record follows at the commit, before the outbox sends the row."""

        def at_commit() -> None:
            try:
                self._save_new(record)
            except StoreError as error:
                logger.warning(
                    "Redis did not take the record of a task, so its worker will write it: %s", error
                )
            task_enqueued.send(type(self), task_result=result)

        transaction.on_commit(at_commit, using=database)
        self._enqueue_job(task, record)

    def _send(self, task: Any, record: TaskRecord, result: Any) -> None:
        # First the record, so that whoever has the id finds it, and the worker too.
        self._save_new(record)
        self._enqueue_job(task, record)
        task_enqueued.send(type(self), task_result=result)

    def _save_new(self, record: TaskRecord) -> None:
        enqueuer = _types.enqueuer()
        wait = max(0.0, (record.run_after or 0.0) - time.time())
        keys, seconds = Keys(enqueuer.namespace), wait + MAX_WAIT_SECONDS
        # A relay may have sent the job already, so that a worker has begun the record.
        enqueuer.run(save_record(keys, record.id, record.encode(), seconds, new=True))

    def _enqueue_job(self, task: Any, record: TaskRecord) -> None:
        due = due_of(task)
        args = {
            "args": record.args,
            "kwargs": record.kwargs,
            "queue": record.queue,
            "priority": record.priority,
        }
        chosen = _types.enqueuer().using(id=record.id)
        if due is None:
            chosen.enqueue(_name(record), **args)
        else:
            chosen.enqueue_at(_name(record), datetime.fromtimestamp(due, UTC), **args)

    def _options_of(self, task: Any) -> JobOptions:
        own = {
            one.name: value
            for one in fields(JobOptions)
            if one.name != "priority" and (value := getattr(task, one.name, None)) is not None
        }
        return JobOptions.of(own, f"task {task.module_path!r}", self._job_options)


def _is_dead(record: TaskRecord) -> bool:
    return _types.enqueuer().state(Job(_name(record), id=record.id)) == "dead"


def _name(record: TaskRecord) -> str:
    """The queue of a task: its path, and the band of its priority."""
    suffix = next(suffix for suffix, least, _ in BANDS if record.priority >= least)
    return record.path + suffix


class _TaskTypes:
    """The job types of all tasks, and the enqueuers. Django makes a backend for each thread, so these are not the backend's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._enqueuer: Enqueuer | None = None
        self._async_enqueuer: AsyncEnqueuer | None = None

    def add(self, task: Any, options: JobOptions, backend: type[DayjobBackend]) -> None:
        """Register the job types of a task, unless they are. Raises BadOption."""
        with self._lock:
            if task.module_path in self._known:
                return
            pool = project_pool()
            settings = {one.name: getattr(options, one.name) for one in fields(options)}
            runner = TaskRunner(task, options, backend, self.enqueuer, self.async_enqueuer)
            handler = runner.arun if iscoroutinefunction(task.func) else runner.run
            try:
                for suffix, _, weight in BANDS:
                    pool.register(task.module_path + suffix, handler, **{**settings, "priority": weight})
            except NotReady:
                # Its module was imported by a job. The pool of this process cannot run it; it can be enqueued.
                return
            self._known.add(task.module_path)

    def enqueuer(self) -> Enqueuer:
        """Sends at once: the backend waits for commits itself, together with its record."""
        if self._enqueuer is None:
            pool = project_pool()
            self._enqueuer = Enqueuer(pool.namespace, **self._sending())
        return self._enqueuer

    def async_enqueuer(self) -> AsyncEnqueuer:
        """Like `enqueuer`, for async code."""
        if self._async_enqueuer is None:
            self._async_enqueuer = AsyncEnqueuer(project_pool().namespace, **self._sending())
        return self._async_enqueuer

    def _sending(self) -> dict[str, Any]:
        # A task that this process has not imported can be enqueued, so names are not checked.
        return {**project_pool()._sending(), "on_commit": None, "find": None}


_types = _TaskTypes()

"""Runner: runs one attempt in four steps: open the job, call its handler, judge the outcome, build the entries.

Sync and async attempts share all steps but the call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextvars import Context as Variables
from types import TracebackType
from typing import Any

import msgspec

from dayjob import retry
from dayjob.errors import DayjobError, GiveBack, JobTimeout, TooLarge
from dayjob.handlers.arguments import encode_result
from dayjob.handlers.redact import secrets_in, without
from dayjob.job import Job, running
from dayjob.middleware import SKIPPED
from dayjob.options import Hook
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec, fork
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import Entry
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.threads import raise_in

logger = SafeLogger("dayjob.job")

#: Files of this package that call handlers. Their frames are cut from stored tracebacks.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep  # noqa: PTH120
_OURS = tuple(_PACKAGE + part for part in (f"worker{os.sep}", f"handlers{os.sep}", "middleware.py"))
#: Seconds until the retry of an attempt whose failure could not be handled.
LAST_RESORT_SECONDS = 60.0

#: Seconds that a running pool waits before it returns a job that raised GiveBack. Otherwise the pool would fetch
#: the job again at once.
GIVE_BACK_SECONDS = 1.0

#: What the log calls an outcome that is neither a retry nor a death.
_LOGGED_AS: dict[retry.Kind, str] = {
    "snooze": "snoozed", "give back": "given back", "discard": "discarded", "drop": "dropped"
}  # fmt: skip


class Abandon(BaseException):
    """Raised inside a handler whose pool stops or whose job an operator cancelled.

    Not an Exception, so that handlers and libraries that catch Exception do not swallow it.
    """


class TimedOut(Abandon):
    """Raised inside a handler that passed its timeout. Hooks, logs and the stored job get a JobTimeout instead."""


class Runner:
    """Runs the attempts of one pool, and returns how each ended as a settlement."""

    def __init__(
        self,
        keys: Keys,
        pool_id: Callable[[], str],
        context: type,
        redis_now: Callable[[], float],
        rng: random.Random,
        max_result: int,
    ) -> None:
        self._keys = keys
        self._pool_id = pool_id
        self._context = context
        self._now = redis_now
        self._rng = rng
        self._max_result = max_result
        #: Read once, because checking the log level for each job would cost throughput.
        self._logs_done = logger.is_enabled(logging.DEBUG)
        self._forks = fork.number

    def run(self, attempt: Attempt) -> Settlement:
        """Run a sync attempt on this thread, to its settlement."""
        try:
            if attempt.cancelled or attempt.wire.expires:
                early = self._skip_start(attempt)
                if early is not None:
                    return early
            # A fresh context, so that context variables do not leak from job to job on this thread.
            result = Variables().run(self._call, attempt)
        except BaseException as error:  # whatever a handler raises must end only its own attempt
            _shield(attempt)
            if fork.number != self._forks:
                _end_child(error, attempt)
            return None if attempt.given_up else self._failed(attempt, error)
        _shield(attempt)
        if fork.number != self._forks:
            _end_child(None)
        if attempt.given_up:
            return None
        if attempt.cancelled:
            return self._cancelled(attempt)
        if self._logs_done:
            self._log_done(attempt)
        if attempt.job_type.plain and not attempt.wire.unique_until:
            return None
        return self._done(attempt, result)

    async def arun(self, attempt: Attempt) -> Settlement:
        """Run an async attempt in this task, to its settlement."""
        try:
            if attempt.cancelled or attempt.wire.expires:
                early = self._skip_start(attempt)
                if early is not None:
                    return early
            running.set(attempt)
            job_type = attempt.job_type
            if job_type.options.timeout is not None:
                result = await self._limited(attempt)
            elif job_type.direct is not None:
                result = await job_type.direct(attempt.wire.args)
            else:
                result = await job_type.call(self._context(), attempt.open())
        except BaseException as error:  # whatever a handler raises must end only its own attempt
            if fork.number != self._forks:
                _end_child(error)
            return self._failed(attempt, error)
        if fork.number != self._forks:
            _end_child(None)
        if attempt.cancelled:
            return self._cancelled(attempt)
        if self._logs_done:
            self._log_done(attempt)
        if job_type.plain and not attempt.wire.unique_until:
            return None
        return self._done(attempt, result)

    def give_up(self, attempt: Attempt, error: BaseException) -> Settlement:
        """The settlement of an attempt whose thread is stuck, or whose outcome could not be decided. Never raises."""
        try:
            if not attempt.given_up:
                _shield(attempt)
            return self._failed(attempt, error)
        except BaseException as problem:  # an attempt that is never settled would occupy its worker forever
            logger.exception(
                "job=%s id=%s: dayjob could not handle the failure of this job", attempt.name, attempt.wire.id
            )
            return self._last_resort(attempt, problem)

    def _last_resort(self, attempt: Attempt, problem: BaseException) -> Settlement:
        """Count a failure without calling user code: retry a minute later, or move to dead after the last failure."""
        message = f"dayjob could not handle the failure of this attempt: {type(problem).__name__}"
        last = attempt.wire.fails + 1 >= attempt.job_type.options.max_fails
        decision = retry.Decision("dead" if last else "retry", LAST_RESORT_SECONDS, counts=True, why=message)
        try:
            if last:
                return self._end(attempt, self._dead_entry(attempt, decision, message, ""))
            return [self._retry_entry(attempt, decision, message, "")]
        except codec.Broken as why:
            return self._break(attempt, why)
        except BaseException:  # for example out of memory: another pool may be able to run the job
            return [attempt.back()]

    def _skip_start(self, attempt: Attempt) -> Settlement:
        """The settlement of an attempt that was cancelled or expired before its start; None if it must run."""
        if attempt.cancelled:
            return self._cancelled(attempt)
        if self._expired(attempt):
            return self._discard(attempt, "expired before it could start")
        return None

    def _expired(self, attempt: Attempt) -> bool:
        return self._now() * 1000 > attempt.wire.expires

    def _discard(self, attempt: Attempt, why: str) -> Settlement:
        extra = {"job_id": attempt.wire.id, "job_name": attempt.name, "attempt": attempt.attempt}
        logger.info("job=%s id=%s discarded (%s)", attempt.name, attempt.wire.id, why, extra=extra)
        self._hook(attempt.job_type.options.on_discard, attempt.open(), why)
        return self._end(attempt, Entry("drop", attempt.name, attempt.token))

    def _call(self, attempt: Attempt) -> Any:
        running.set(attempt)
        job_type = attempt.job_type
        if job_type.direct is not None:
            result = job_type.direct(attempt.wire.args)
        else:
            result = job_type.call(self._context(), attempt.open())
        if result is not None and inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise DayjobError(
                f"{attempt.name} is a plain function but returned an awaitable. Make it `async def`, "
                "or return a value."
            )
        return result

    async def _limited(self, attempt: Attempt) -> Any:
        timeout = attempt.job_type.options.timeout
        try:
            async with asyncio.timeout(timeout) as limit:
                attempt.limit = limit
                return await attempt.job_type.call(self._context(), attempt.open())
        except GiveBack:
            attempt.timed_out = limit.expired()
            raise
        except TimeoutError:
            if limit.expired():
                attempt.timed_out = True
                raise JobTimeout(f"{attempt.name} ran longer than its timeout of {timeout:g} s") from None
            raise

    def _done(self, attempt: Attempt, result: Any) -> Settlement:
        options = attempt.job_type.options
        if options.on_done is not None and result is not SKIPPED:
            self._hook(options.on_done, attempt.open())
        if options.keep is None and not (attempt.wire.unique_key and self._until_done(attempt)):
            return None
        if options.keep is None:
            return self._end(attempt, None)
        try:
            return self._keep(attempt, result, options.keep)
        except codec.Broken as why:
            return self._failed(attempt, DayjobError(str(why)))

    def _keep(self, attempt: Attempt, result: Any, seconds: float) -> Settlement:
        value = None if result is SKIPPED else result
        try:
            answer = encode_result(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem: DayjobError = DayjobError(
                f"{attempt.name}: the result cannot be stored as JSON: {error}"
            )
            return self._failed(attempt, problem)
        if len(answer) > self._max_result:
            problem = TooLarge(
                f"{attempt.name}: the result has {len(answer):,} bytes as JSON, the limit is {self._max_result:,}. "
                "Store the data elsewhere and return a reference, or raise max_result."
            )
            return self._failed(attempt, problem)
        changes: dict[str, Any] = {
            "attempt": self._place(attempt),
            "done_at": int(self._now() * 1000),
            "ran": round(time.monotonic() - attempt.started_at, 6),
        }
        entry = Entry(
            "keep", attempt.name, attempt.token, codec.rewrite(attempt.payload, changes), int(seconds * 1000),
            self._keys.result(attempt.wire.id), answer,
        )  # fmt: skip
        return self._end(attempt, entry)

    def _failed(self, attempt: Attempt, error: BaseException) -> Settlement:
        """Settle an attempt that raised. A payload that cannot be rewritten goes to broken."""
        try:
            return self._judge(attempt, error)
        except codec.Broken as why:
            return self._break(attempt, why)

    def _break(self, attempt: Attempt, why: codec.Broken) -> Settlement:
        where = self._keys.queue(attempt.name)
        entry = codec.broken_entry(attempt.payload, at=self._now(), where=where, why=str(why))
        return [Entry("broken", attempt.name, attempt.token, entry)]

    def _cancelled(self, attempt: Attempt) -> Settlement:
        """Settle a job that an operator ended. The outcome of its handler does not matter."""
        how = "killed by an operator" if attempt.killed else "cancelled"
        logger.info("job=%s id=%s %s", attempt.name, attempt.wire.id, how)
        if not attempt.killed:
            self._hook(attempt.job_type.options.on_discard, attempt.open(), "cancelled")
        return self.cancellation(attempt)

    def cancellation(self, attempt: Attempt) -> Settlement:
        """The entries that end a cancelled or killed job. Calls no hook."""
        return attempt.cancellation(self._keys.unique_prefix, self._now())

    def _judge(self, attempt: Attempt, error: BaseException) -> Settlement:
        job_type, wire = attempt.job_type, attempt.wire
        if attempt.cancelled:
            return self._cancelled(attempt)
        if (
            isinstance(error, Abandon | asyncio.CancelledError)
            and not attempt.timed_out
            and (job_type.stopping or attempt.lost)
        ):
            return [Entry("back", attempt.name, attempt.token)]
        interrupted = isinstance(error, Abandon | asyncio.CancelledError | JobTimeout) and not str(error)
        # After a timeout `checkin` also returns True. A handler that then raises GiveBack has timed out:
        # given back, the job would run into its timeout again and again.
        if attempt.timed_out and (interrupted or isinstance(error, GiveBack)):
            text = f"{attempt.name} ran longer than its timeout of {job_type.options.timeout or 0:g} s"
            # The frames of the interrupt show where the handler was.
            error = JobTimeout(text).with_traceback(error.__traceback__)
        decision = retry.decide(job_type.options, error, wire.fails, self._rng)
        job = attempt.open()
        secrets = _secrets(job, job_type.options.redact)
        message, trace = _redacted(error, job)
        if decision.counts:
            job.fails, job.error = wire.fails + 1, message
        self._log_failure(attempt, decision, message, trace, _where(error))
        if decision.counts:
            self._hook(job_type.options.on_fail, job, error)
        if decision.kind == "snooze":
            return [self._snooze_entry(attempt, decision)]
        if decision.kind == "give back":
            if not job_type.stopping:
                attempt.hold_until = time.monotonic() + GIVE_BACK_SECONDS
            return [attempt.back()]
        if decision.kind == "retry":
            return [self._retry_entry(attempt, decision, message, trace)]
        if decision.kind == "dead":
            self._hook(job_type.options.on_dead, job, error)
            return self._end(attempt, self._dead_entry(attempt, decision, message, trace))
        self._hook(job_type.options.on_discard, job, without(decision.why, secrets) or message)
        return self._end(attempt, Entry("drop", attempt.name, attempt.token, b"", int(decision.counts)))

    def _snooze_entry(self, attempt: Attempt, decision: retry.Decision) -> Entry:
        changes = self._common_fields(attempt) | {"snoozes": attempt.wire.snoozes + 1}
        payload = codec.rewrite(attempt.payload, changes)
        return Entry("snooze", attempt.name, attempt.token, payload, _milliseconds(decision.after))

    def _retry_entry(self, attempt: Attempt, decision: retry.Decision, message: str, trace: str) -> Entry:
        changes = self._common_fields(attempt) | self._error_fields(attempt, message, trace)
        changes["fails"] = attempt.wire.fails + 1
        payload = codec.rewrite(attempt.payload, changes)
        return Entry("retry", attempt.name, attempt.token, payload, _milliseconds(decision.after))

    def _dead_entry(self, attempt: Attempt, decision: retry.Decision, message: str, trace: str) -> Entry:
        changes = self._common_fields(attempt) | self._error_fields(attempt, message, trace)
        if decision.counts:
            changes["fails"] = attempt.wire.fails + 1
        key, answer = "", b""
        if attempt.job_type.options.keep is not None:
            key, answer = self._keys.result(attempt.wire.id), msgspec.json.encode({"error": message})
        payload = codec.rewrite(attempt.payload, changes)
        return Entry("dead", attempt.name, attempt.token, payload, int(decision.counts), key, answer)

    def _common_fields(self, attempt: Attempt) -> dict[str, Any]:
        """Fields of every payload that goes to retry, scheduled or dead.

        They make the payload unique: two jobs with the same bytes would be one member of a sorted set.
        """
        wire = attempt.wire
        changes: dict[str, Any] = {"attempt": self._place(attempt), "at": int(self._now() * 1000)}
        changes |= codec.first_enqueued_field(wire)
        if wire.unique_key and not wire.unique_until and attempt.job_type.options.unique_until == "done":
            changes["unique_until"] = "done"
        return changes

    def _error_fields(self, attempt: Attempt, message: str, trace: str) -> dict[str, Any]:
        # Not 0, which would mean that the start of the attempt is unknown.
        now, ran = self._now(), max(0.001, time.monotonic() - attempt.started_at)
        past = codec.remember(attempt.wire, attempt=attempt.attempt, at=now, ran=ran, error=message)
        return {"err": message, "failed_at": int(now), "trace": trace, "past": past}

    def _end(self, attempt: Attempt, entry: Entry | None) -> Settlement:
        """The entries that end a job for good and release its unique key."""
        entries: list[Entry] = []
        wire = attempt.wire
        if wire.unique_key.startswith(self._keys.unique_prefix):
            entries.append(Entry("free", attempt.name, attempt.token, key=wire.unique_key, value=wire.id))
        if entry is not None:
            entries.append(entry)
        elif entries:
            # A completion without a stored result.
            entries.append(Entry("done", attempt.name, attempt.token))
        return entries or None

    @staticmethod
    def _until_done(attempt: Attempt) -> bool:
        return attempt.wire.unique_until == "done" or attempt.job_type.options.unique_until == "done"

    def _place(self, attempt: Attempt) -> str:
        return f"{self._pool_id()}/{attempt.token}"

    @staticmethod
    def _log_done(attempt: Attempt) -> None:
        extra = {"job_id": attempt.wire.id, "job_name": attempt.name, "attempt": attempt.attempt}
        ran = (time.monotonic() - attempt.started_at) * 1000
        logger.debug("job=%s id=%s done in %.1f ms", attempt.name, attempt.wire.id, ran, extra=extra)

    @staticmethod
    def _log_failure(
        attempt: Attempt, decision: retry.Decision, message: str, trace: str, where: str
    ) -> None:
        """Log a failed attempt.

        The traceback is part of the text: passed as exc_info it could show redacted values, or fail to format.
        """
        name, job_id = attempt.name, attempt.wire.id
        extra = {"job_id": job_id, "job_name": name, "attempt": attempt.attempt}
        if decision.kind == "retry":
            text = "job=%s id=%s failed (%s)%s, next run in %.1f s"
            logger.warning(text, name, job_id, message, where, decision.after or 0, extra=extra)
        elif decision.kind == "dead":
            logger.error("job=%s id=%s is dead (%s)\n%s", name, job_id, message, trace, extra=extra)
        else:
            logger.info("job=%s id=%s %s (%s)", name, job_id, _LOGGED_AS[decision.kind], message, extra=extra)

    @staticmethod
    def _hook(hook: Hook | None, job: Job, *args: Any) -> None:
        if hook is None:
            return
        try:
            hook(job, *args)
        except BaseException as error:  # a failing hook must not change the outcome of its job
            # As redacted text: passed as exc_info, its chain would show the handler's exception.
            message, trace = _redacted(error, job)
            name = getattr(hook, "__qualname__", hook)
            logger.error("hook %s failed (%s)\n%s", name, message, trace)  # noqa: TRY400 - see above


def _shield(attempt: Attempt) -> None:
    """Make sure that no exception is raised in this thread from here on.

    It could be raised while this thread holds the lock of a log handler, which would then never be released. An
    interrupt sets a flag of the attempt first and then checks `over`. This function sets `over` first and then checks
    the flags, so that attempts without a flag need no lock.
    """
    attempt.over = True
    if attempt.guard is not None and (
        attempt.timed_out or attempt.cancelled or attempt.job_type.pool.stopping
    ):
        with attempt.guard:
            raise_in(attempt.thread_id, None)


def _end_child(error: BaseException | None, attempt: Attempt | None = None) -> None:
    """End a process that a handler forked and that returned from the handler. The attempt belongs to its parent."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        _, trace = _redacted(error, attempt.open()) if attempt is not None else _explain(error)
        print(trace, file=sys.stderr)  # noqa: T201 - as the interpreter does for an uncaught exception
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _milliseconds(seconds: float | None) -> int:
    return max(0, round((seconds or 0) * 1000))


def _where(error: BaseException) -> str:
    """The file and line where an error was raised, for a log line."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _from_handler(error: BaseException) -> TracebackType | None:
    """The traceback without the frames that lead to the handler. None for an error that dayjob itself raised."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return frame if frame is not None or isinstance(error, DayjobError) else error.__traceback__


def _explain(error: BaseException) -> tuple[str, str]:
    """Message and traceback of an exception, even if its str() raises."""
    try:
        text = str(error)
    except BaseException:
        text = "(the message of this exception cannot be shown)"
    kind = type(error).__name__
    message = f"{kind}: {text}" if text else kind
    try:
        trace = "".join(traceback.format_exception(type(error), error, _from_handler(error)))
    except BaseException:
        # Formatting can fail, for example because of a `__cause__` whose str() raises. Extracting frames cannot.
        frames = traceback.extract_tb(error.__traceback__)
        lines = "".join(
            f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n' for frame in frames
        )
        trace = f"Traceback (most recent call last):\n{lines}{message}"
    return message, trace


def _redacted(error: BaseException, job: Job) -> tuple[str, str]:
    """Message and traceback of an error of a job, without redacted values, for storing and logging."""
    secrets = _secrets(job, tuple(job.redact))
    # Redacted before it is cut, because a secret that is cut in half would not be found.
    message, trace = (codec.cut(without(text, secrets)) for text in _explain(error))
    return message, trace


def _secrets(job: Job, redact: tuple[str, ...]) -> list[str]:
    """The values of redacted arguments, which must not be stored or logged."""
    try:
        return secrets_in(job.args, redact)
    except codec.UNREADABLE:
        return []

"""Runner: runs one attempt in four steps: open the job, call its handler, judge how it ended, settle the outcome.

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
from collections.abc import Callable
from contextvars import Context as Variables
from typing import Any

from dayjob import retry
from dayjob.errors import DayjobError, GiveBack, JobTimeout, TooLarge
from dayjob.job import running
from dayjob.middleware import SKIPPED
from dayjob.outcome import Died, Done, Dropped, GivenBack, Kept, Retried
from dayjob.store import codec, fork
from dayjob.store.keys import Keys
from dayjob.store.ops.workflows import MAX_RESULT
from dayjob.worker.running import node_results, report
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.failure import Failure, explain
from dayjob.worker.running.settler import Settler
from dayjob.worker.running.threads import clear_raise

#: Seconds until the retry of an attempt whose failure could not be handled.
LAST_RESORT_SECONDS = 60.0

#: Seconds that a running pool waits before it returns a job that raised GiveBack. Otherwise the pool would fetch
#: the job again at once.
GIVE_BACK_SECONDS = 1.0


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
        self._settler = Settler(keys, pool_id, redis_now)
        self._context = context
        self._now = redis_now
        self._rng = rng
        self._max_result = max_result
        #: Read once, because checking the log level for each job would cost throughput.
        self._logs_done = report.logger.is_enabled(logging.DEBUG)
        self._forks = fork.number

    def run(self, attempt: Attempt) -> Settlement:
        """Run a sync attempt on this thread, to its settlement."""
        try:
            if attempt.cancelled or attempt.wire.expires or attempt.job_type.pool.cancelled_batches:
                early = self._open(attempt)
                if early is not None:
                    return early
            if attempt.wire.takes is not codec.NULL:
                node_results.fill(attempt)
            # A fresh context, so that context variables do not leak from job to job on this thread.
            result = Variables().run(self._call, attempt)
        except BaseException as error:  # whatever a handler raises must end only its own attempt
            _shield(attempt)
            return self._raised(attempt, error)
        _shield(attempt)
        return self._returned(attempt, result)

    async def arun(self, attempt: Attempt) -> Settlement:
        """Run an async attempt in this task, to its settlement."""
        try:
            if attempt.cancelled or attempt.wire.expires or attempt.job_type.pool.cancelled_batches:
                early = self._open(attempt)
                if early is not None:
                    return early
            if attempt.wire.takes is not codec.NULL:
                await node_results.afill(attempt)
            running.set(attempt)
            job_type = attempt.job_type
            if job_type.direct is not None:
                result = await job_type.direct(attempt.wire.args)
            else:
                result = await job_type.call(self._context(), attempt.open())
        except BaseException as error:  # whatever a handler raises must end only its own attempt
            return self._raised(attempt, error)
        return self._returned(attempt, result)

    def give_up(self, attempt: Attempt, error: BaseException) -> Settlement:
        """The settlement of an attempt whose thread is stuck, or whose outcome could not be decided. Never raises."""
        try:
            if not attempt.given_up:
                _shield(attempt)
            return self._failed(attempt, error)
        except BaseException as problem:  # an attempt that is never settled would occupy its worker forever
            report.logger.exception(
                "job=%s id=%s: dayjob could not handle the failure of this job", attempt.name, attempt.wire.id
            )
            return self._last_resort(attempt, problem)

    def cancellation(self, attempt: Attempt) -> Settlement:
        """The settlement of a cancelled or killed job. Calls no hook."""
        return self._settler.settle_cancelled(attempt)

    # Open.

    def _open(self, attempt: Attempt) -> Settlement:
        """The settlement of an attempt that was cancelled or expired before its start; None if it must run."""
        if attempt.cancelled or attempt.of_cancelled_batch:
            attempt.cancelled = True
            return self._cancelled(attempt)
        if attempt.wire.expires and self._now() * 1000 > attempt.wire.expires:
            why = "expired before it could start"
            report.report_expired(attempt, why)
            return self._settler.settle(attempt, Dropped(counts_failure=False, why=why))
        return None

    # Call.

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

    # Judge, and settle.

    def _returned(self, attempt: Attempt, result: Any) -> Settlement:
        if fork.number != self._forks:
            _end_child(attempt, None)
        if attempt.given_up:
            return None
        if attempt.cancelled:
            return self._cancelled(attempt)
        if self._logs_done:
            report.log_done(attempt)
        wire = attempt.wire
        if (
            attempt.job_type.plain
            and not wire.unique_until
            and wire.reply is codec.NULL
            and attempt.stream is None
        ):
            if wire.membership is codec.NULL:
                return None
            # The places of a key are freed one by one.
            member = codec.plain_member(wire) if "|" not in attempt.token else None
            if member is not None:
                return member
        return self._done(attempt, result)

    def _raised(self, attempt: Attempt, error: BaseException) -> Settlement:
        if fork.number != self._forks:
            _end_child(attempt, error)
        return None if attempt.given_up else self._failed(attempt, error)

    def _done(self, attempt: Attempt, result: Any) -> Settlement:
        """Settle an attempt whose handler returned."""
        # From here on an atomic job keeps nothing that is enqueued: hooks send at once.
        attempt.over = True
        hooks = attempt.job_type.hooks
        if hooks.done and result is not SKIPPED:
            report.report_done(attempt)
        node = attempt.wire.membership is not codec.NULL and codec.node_of(attempt.wire) is not None
        kept = attempt.keeps_result()
        if kept is not None or node:
            return self._keep(attempt, result, kept, in_workflow=node)
        return self._settler.settle_completion(attempt)

    def _keep(self, attempt: Attempt, result: Any, seconds: float | None, *, in_workflow: bool) -> Settlement:
        """Settle a completion whose result is kept. An attempt whose result cannot be kept has failed."""
        name = attempt.name
        limit = min(self._max_result, MAX_RESULT) if in_workflow else self._max_result
        try:
            answer = attempt.job_type.type.encode_result(None if result is SKIPPED else result)
        except (TypeError, ValueError, RecursionError) as error:
            return self._failed(attempt, DayjobError(f"{name}: the result cannot be stored as JSON: {error}"))
        if len(answer) > limit:
            advice = "." if in_workflow else ", or raise max_result."
            text = (
                f"{name}: the result has {len(answer):,} bytes as JSON, the limit{' in a workflow' * in_workflow} is "
                f"{limit:,}. Store the data elsewhere and return a reference{advice}"
            )
            return self._failed(attempt, TooLarge(text))
        try:
            outcome = Done() if seconds is None else Kept(seconds)
            return self._settler.settle(attempt, outcome, result=answer)
        except codec.Broken as why:
            return self._failed(attempt, DayjobError(str(why)))

    def _failed(self, attempt: Attempt, error: BaseException) -> Settlement:
        """Settle an attempt that raised. A payload that cannot be rewritten goes to broken."""
        attempt.over = True
        try:
            if attempt.cancelled:
                return self._cancelled(attempt)
            if _was_stopped(attempt, error):
                return self._settler.settle(attempt, GivenBack())
            error = as_timeout(attempt, error)
            outcome = retry.decide(attempt.job_type.options, error, attempt.wire.fails, self._rng)
            failure = explain(error, attempt.open())
            report.report_error(attempt, outcome, failure)
            if isinstance(outcome, GivenBack) and not attempt.job_type.stopping:
                attempt.hold_until = time.monotonic() + GIVE_BACK_SECONDS
            return self._settler.settle(attempt, outcome, failure)
        except codec.Broken as why:
            return self._settler.settle_unreadable(attempt, why)

    def _cancelled(self, attempt: Attempt) -> Settlement:
        """Settle a job that an operator ended. How its handler ended does not matter."""
        report.report_cancelled(attempt)
        return self.cancellation(attempt)

    def _last_resort(self, attempt: Attempt, problem: BaseException) -> Settlement:
        """Count a failure without calling user code: retry a minute later, or move to dead after the last failure."""
        message = f"dayjob could not handle the failure of this attempt: {type(problem).__name__}"
        last = attempt.wire.fails + 1 >= attempt.job_type.options.max_fails
        outcome = Died(counts_failure=True) if last else Retried(LAST_RESORT_SECONDS)
        try:
            return self._settler.settle(attempt, outcome, Failure(problem, message, trace=""))
        except codec.Broken as why:
            return self._settler.settle_unreadable(attempt, why)
        except BaseException:  # for example out of memory: another pool may be able to run the job
            return attempt.back()


def _was_stopped(attempt: Attempt, error: BaseException) -> bool:
    """Whether a handler was interrupted because its pool stops, or because Redis no longer has the attempt.

    An async handler that swallows its cancellation gets a GeneratorExit when its task is deleted after the stop.
    """
    return (
        isinstance(error, Abandon | asyncio.CancelledError | GeneratorExit)
        and not attempt.timed_out
        and (attempt.job_type.stopping or attempt.lost)
    )


def as_timeout(attempt: Attempt, error: BaseException) -> BaseException:
    """A JobTimeout if the attempt ended because of its timeout, else `error`."""
    if not attempt.timed_out:
        return error
    interrupted = isinstance(error, Abandon | asyncio.CancelledError | JobTimeout) and not str(error)
    # After a timeout `checkin` also returns True. A handler that then raises GiveBack has timed out:
    # given back, the job would run into its timeout again and again.
    if interrupted or isinstance(error, GiveBack):
        # The frames of the interrupt show where the handler was.
        return JobTimeout(_timeout_text(attempt)).with_traceback(error.__traceback__)
    return error


def _timeout_text(attempt: Attempt) -> str:
    return f"{attempt.name} ran longer than its timeout of {attempt.job_type.options.timeout or 0:g} s"


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
            clear_raise(attempt.thread_id)


def _end_child(attempt: Attempt, error: BaseException | None) -> None:
    """End a process that a handler forked and that returned from the handler. The attempt belongs to its parent."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        # As the interpreter does for an uncaught exception.
        print(explain(error, attempt.open()).trace, file=sys.stderr)  # noqa: T201
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

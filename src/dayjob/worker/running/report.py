"""Report: logs the outcomes of attempts, and calls the hooks of their job types."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, assert_never

from dayjob.job import Job, running
from dayjob.options import Hook
from dayjob.outcome import Died, Dropped, ErrorOutcome, GivenBack, HeldBack, Retried, Snoozed, counts_failure
from dayjob.safe_logging import SafeLogger
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.failure import Failure, explain

logger = SafeLogger("dayjob.job")


def call_hooks(hooks: Sequence[Hook], job: Job, *args: Any) -> None:
    """Call hooks one after the other. A failing hook is logged, and does not change the outcome of its job."""
    for hook in hooks:
        _call_hook(hook, job, *args)


def _call_hook(hook: Hook, job: Job, *args: Any) -> None:
    try:
        hook(job, *args)
    except BaseException as error:
        # As redacted text: passed as exc_info, its chain would show the handler's exception.
        failure = explain(error, job)
        name = getattr(hook, "__qualname__", hook)
        logger.error("hook %s failed (%s)\n%s", name, failure.message, failure.trace)  # noqa: TRY400 - see above


@contextmanager
def _running(attempt: Attempt) -> Iterator[None]:
    """Let log records and hooks know the job: its handler has ended, and on a thread its context with it."""
    token = running.set(attempt)
    try:
        yield
    finally:
        running.reset(token)


def report_done(attempt: Attempt) -> None:
    """Call the hooks of a completed attempt."""
    with _running(attempt):
        call_hooks(attempt.job_type.hooks.done, attempt.open())


def report_error(attempt: Attempt, outcome: ErrorOutcome, failure: Failure) -> None:
    """Log an attempt that raised, and call the hooks for its outcome."""
    job, hooks = attempt.open(), attempt.job_type.hooks
    with _running(attempt):
        _log_error(attempt, outcome, failure)
        if counts_failure(outcome):
            job.fails, job.error, job._counted = attempt.wire.fails + 1, failure.message, 1
            call_hooks(hooks.fail, job, failure.error)
        if isinstance(outcome, Died):
            call_hooks(hooks.dead, job, failure.error)
        elif isinstance(outcome, Dropped):
            call_hooks(hooks.discard, job, failure.redacted(outcome.why) or failure.message)


def report_expired(attempt: Attempt, why: str) -> None:
    """Log a job that expired before it could start, and call its hook."""
    with _running(attempt):
        _log_info(attempt, "discarded", why)
        call_hooks(attempt.job_type.hooks.discard, attempt.open(), why)


def report_cancelled(attempt: Attempt) -> None:
    """Log a job that an operator ended, and call its hook unless the job goes to dead."""
    how = "killed by an operator" if attempt.killed else "cancelled"
    with _running(attempt):
        logger.info("job=%s id=%s %s", attempt.name, attempt.wire.id, how, extra=_extra(attempt))
        if not attempt.killed:
            call_hooks(attempt.job_type.hooks.discard, attempt.open(), "cancelled")


def log_done(attempt: Attempt) -> None:
    """Log a completed attempt."""
    ran = (time.monotonic() - attempt.started_at) * 1000
    with _running(attempt):
        logger.debug(
            "job=%s id=%s done in %.1f ms", attempt.name, attempt.wire.id, ran, extra=_extra(attempt)
        )


def _log_error(attempt: Attempt, outcome: ErrorOutcome, failure: Failure) -> None:
    """Log a failed attempt.

    The traceback is part of the text: passed as exc_info it could show redacted values, or fail to format.
    """
    name, job_id, message = attempt.name, attempt.wire.id, failure.message
    match outcome:
        case Retried(after=after):
            text = "job=%s id=%s failed (%s)%s, next run in %.1f s"
            logger.warning(text, name, job_id, message, failure.where, after, extra=_extra(attempt, failure))
        case Died():
            text = "job=%s id=%s is dead (%s)\n%s"
            logger.error(text, name, job_id, message, failure.trace, extra=_extra(attempt, failure))
        case Dropped(counts_failure=failed):
            _log_info(attempt, "dropped" if failed else "discarded", message)
        case Snoozed():
            _log_info(attempt, "snoozed", message)
        case HeldBack(limits=limits, after=after):
            _log_info(attempt, f"throttled: {', '.join(limits)} held for {after:g} s", message)
        case GivenBack():
            _log_info(attempt, "given back", message)
        case _ as unknown:
            assert_never(unknown)


def _log_info(attempt: Attempt, what: str, why: str) -> None:
    logger.info("job=%s id=%s %s (%s)", attempt.name, attempt.wire.id, what, why, extra=_extra(attempt))


def _extra(attempt: Attempt, failure: Failure | None = None) -> dict[str, Any]:
    fields = {"job_id": attempt.wire.id, "job_name": attempt.name, "attempt": attempt.attempt}
    if failure is not None:
        fields |= {"error_kind": type(failure.error).__name__, "error_message": failure.message}
    return fields

"""Instruments: what an integration installs for all pools and enqueuers of this process, such as tracing.

A pool takes the instruments that are installed when it starts; an enqueuer those that are installed when it enqueues.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from dayjob import retry
from dayjob.errors import BadOption, GiveBack, JobTimeout
from dayjob.handlers.periodic import PeriodicJob
from dayjob.handlers.redact import secrets_in
from dayjob.job import Job, running
from dayjob.middleware import EnqueueHook, FindServer, Middleware, Outgoing
from dayjob.names import check_headers
from dayjob.options import Hook


class Instrument(Protocol):
    """Wraps jobs and enqueue calls of every pool in the process. The namespace is that of the pool."""

    def around_job(
        self, namespace: str, periodics: Mapping[str, PeriodicJob], find_server: FindServer
    ) -> Callable[[Job], Generator[None]]:
        """A middleware, outside of all middlewares of the pool. `periodics` are the pool's schedules by name."""

    def around_enqueue(self, namespace: str) -> Callable[[Outgoing], Generator[None]]:
        """An enqueue hook, outside of all hooks of the pool."""

    def on_fail(self, job: Job, error: BaseException) -> None:
        """Called when an attempt has failed, after the middlewares, also if its handler did not end or raised nothing."""


class Instruments:
    """The instruments of this process."""

    def __init__(self) -> None:
        #: Replaced, never changed, so that readers need no lock and notice a change by identity.
        self.installed: tuple[Instrument, ...] = ()

    def install(self, instrument: Instrument) -> None:
        """Add an instrument, unless it is installed."""
        if instrument not in self.installed:
            self.installed = (*self.installed, instrument)

    def remove(self, instrument: Instrument) -> None:
        """Remove an instrument. Pools that run keep it until they stop."""
        self.installed = tuple(one for one in self.installed if one is not instrument)

    def middlewares(
        self, namespace: str, periodics: Mapping[str, PeriodicJob], find_server: FindServer
    ) -> list[Middleware]:
        """What to wrap around every job, the first outermost."""
        return [Middleware(one.around_job(namespace, periodics, find_server)) for one in self.installed]

    def enqueue_hooks(self, namespace: str) -> list[EnqueueHook]:
        """What to wrap around every enqueue call, the first outermost."""
        return [EnqueueHook(one.around_enqueue(namespace)) for one in self.installed]

    def hooks(self, pool: Mapping[str, Sequence[Hook]]) -> Mapping[str, Sequence[Hook]]:
        """The hooks of a pool by event, with those of the instruments after them."""
        if not self.installed:
            return pool
        return {**pool, "fail": [*pool.get("fail", ()), *(one.on_fail for one in self.installed)]}


#: Those of this process.
INSTRUMENTS = Instruments()


class FailedAttempt(NamedTuple):
    """How an attempt that raised has failed: by which exception, and whether the job is not retried."""

    error: BaseException
    last: bool


def failure_of(error: BaseException) -> FailedAttempt | None:
    """The failure that `error` means for the attempt that runs here; None if it counts none.

    Snooze, Discard and GiveBack count none, nor does what `discard_on` names. A handler that was interrupted has
    failed if it passed its timeout, and not if its pool stops or an operator cancelled it.
    """
    attempt = running.get()
    if attempt is None:
        return FailedAttempt(error, last=True)
    reason = attempt.stop_reason
    if reason == "cancelled":
        return None
    interrupted = not isinstance(error, Exception)
    if reason == "timeout" and (interrupted or isinstance(error, GiveBack)):
        error = JobTimeout(f"{attempt.name} ran longer than its timeout").with_traceback(error.__traceback__)
    elif interrupted and reason is not None:
        return None
    if not retry.counts_failure(attempt.options, error):
        return None
    return FailedAttempt(error, retry.is_last(attempt.options, error, attempt.open().fails))


def secrets_of(job: Job) -> list[str]:
    """The values of the job's redacted arguments, which no trace and no report may show."""
    try:
        return secrets_in(job.args, tuple(job.redact))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []  # arguments that cannot be read have no values to hide


def add_headers(outgoing: Outgoing, found: Mapping[str, str]) -> None:
    """Add headers to an enqueue call. One that cannot travel, or for which there is no room, is left out.

    Tracing must never keep a job from being enqueued, and baggage may have any size.
    """
    for name, value in found.items():
        try:
            outgoing.headers = check_headers({**outgoing.headers, name.lower(): value}, "headers")
        except BadOption:
            continue

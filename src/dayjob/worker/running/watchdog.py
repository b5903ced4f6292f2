"""Watchdog: ends attempts that passed their timeout or that an operator cancelled, and notices those that no worker starts.

An async attempt is cancelled through its task. A thread can only be interrupted by an exception, which user code may
swallow, so the watchdog raises it repeatedly until the attempt ends. If a thread does not end within the grace period,
its attempt is settled as failed, the thread keeps its slot, and the status shows it as stuck. In a supervised process,
the parent then kills the process.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from dayjob.errors import JobTimeout
from dayjob.options import PoolOptions
from dayjob.safe_logging import SafeLogger
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.running.loop_stall import LoopStallDetector
from dayjob.worker.running.runner import Abandon, Runner, TimedOut
from dayjob.worker.running.threads import ThreadExecutor

logger = SafeLogger("dayjob.worker.running.watchdog")

#: How often an attempt is interrupted within its grace. Between two interrupts the handler has time to clean up.
INTERRUPTS = 4


class Watchdog:
    """Checks the running attempts several times a second."""

    def __init__(
        self,
        runner: Runner,
        finish: Callable[[Attempt, Settlement], None],
        options: PoolOptions,
        *,
        wake_fetcher: Callable[[], None],
        threads: ThreadExecutor | None,
        loop: LoopExecutor | None,
        timeouts: list[float],
    ) -> None:
        self._runner = runner
        #: Reports the outcome of an attempt.
        self._finish = finish
        self._wake_fetcher = wake_fetcher
        self._options = options
        self._threads = threads
        self._loop = loop
        self._stall = None if loop is None else LoopStallDetector(loop)
        shortest = min(timeouts, default=2.5)
        self._period = min(0.25, max(0.02, shortest / 10))
        self._late_since: dict[Attempt, float] = {}
        #: When each attempt was last interrupted.
        self._interrupted: dict[Attempt, float] = {}
        self._pause = options.grace / INTERRUPTS
        #: Attempts on threads whose job was cancelled, and when the watchdog first saw that.
        self._cancelled_since: dict[Attempt, float] = {}

    def step(self) -> float:
        """Check every running attempt once."""
        now = time.monotonic()
        if any(one is not None and one.ready.attempts for one in (self._threads, self._loop)):
            # The listener hands over a single attempt without waking the fetcher, which must give it back if no worker
            # starts it, for example because a handler blocks the event loop.
            self._wake_fetcher()
        on_threads = [] if self._threads is None else self._threads.running()
        on_loop = [] if self._loop is None else self._loop.running()
        for attempt in on_threads:
            self._check_thread(attempt, now)
        if self._stall is not None:
            self._stall.look(now)
        for attempt in on_loop:
            self._check_task(attempt, now)
        running = {*on_threads, *on_loop}
        self._late_since = {attempt: when for attempt, when in self._late_since.items() if attempt in running}
        self._interrupted = {one: when for one, when in self._interrupted.items() if one in running}
        self._cancelled_since = {
            attempt: when for attempt, when in self._cancelled_since.items() if attempt in running
        }
        return self._period

    def blocked(self) -> tuple[float, Attempt | None] | None:
        """How long the event loop has been blocked, and by which attempt; None if it is not blocked."""
        return None if self._stall is None else self._stall.blocked(time.monotonic())

    def _check_thread(self, attempt: Attempt, now: float) -> None:
        over = bool(attempt.deadline) and now > attempt.deadline
        if not over:
            if attempt.cancelled:
                self._cancel(attempt, now)
            return
        late_since = self._late_since.setdefault(attempt, now)
        attempt.timed_out = True
        self._interrupt(self._threads, attempt, TimedOut, now)
        if not attempt.given_up and not attempt.settled and now - late_since > self._options.grace:
            text = (
                f"{attempt.name} ran longer than its timeout of {attempt.job_type.options.timeout or 0:g} s"
            )
            logger.error(
                "job=%s id=%s passed its timeout and does not end: its thread is stuck and keeps its slot",
                attempt.name,
                attempt.wire.id,
            )
            attempt.given_up = True
            # On its own thread: hooks are user code, and must not delay the timeouts of other jobs.
            error = JobTimeout(text + " and does not end")
            threading.Thread(
                target=self._give_up, args=(attempt, error), name="dayjob-give-up", daemon=True
            ).start()

    def _cancel(self, attempt: Attempt, now: float) -> None:
        """Interrupt a killed job at once, and a cancelled job that does not end by itself within the grace."""
        since = self._cancelled_since.setdefault(attempt, now)
        late = now - since > self._options.grace
        if attempt.killed or late:
            self._interrupt(self._threads, attempt, Abandon, now)
        if attempt.killed and late and attempt not in self._late_since:
            self._late_since[attempt] = now
            logger.error(
                "job=%s id=%s was killed by an operator and does not end. The job will not run again. "
                "`dayjob worker` replaces process %d within seconds. Without `dayjob worker`, end that process yourself.",
                attempt.name, attempt.wire.id, os.getpid(),
            )  # fmt: skip

    def _check_task(self, attempt: Attempt, now: float) -> None:
        """Cancel a task whose job was cancelled, or that swallowed the cancellation at its timeout."""
        late = bool(attempt.deadline) and now > attempt.deadline + self._pause
        if late:
            attempt.timed_out = True
        if attempt.cancelled or late:
            self._interrupt(self._loop, attempt, Abandon, now)

    def _interrupt(
        self,
        executor: ThreadExecutor | LoopExecutor | None,
        attempt: Attempt,
        kind: type[BaseException],
        now: float,
    ) -> None:
        """Interrupt an attempt, unless it was interrupted within the last `_pause` seconds."""
        if executor is None or now - self._interrupted.get(attempt, -math.inf) < self._pause:
            return
        if executor.interrupt(attempt, kind):
            self._interrupted[attempt] = now

    def _give_up(self, attempt: Attempt, error: JobTimeout) -> None:
        # Counted in the figures although its thread has not ended.
        attempt.ran = time.monotonic() - attempt.started_at
        self._finish(attempt, self._runner.give_up(attempt, error))

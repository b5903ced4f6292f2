"""Watchdog: ends attempts that passed their timeout, and those that an operator cancelled.

Async attempts are cancelled by their own task. A thread can only be interrupted by an exception, which user code may
swallow: so it is raised again until the attempt ends. A thread that does not end within the grace period is settled as
failed, keeps its slot, and is shown as stuck. In a supervised process the parent then kills the process.
"""

from __future__ import annotations

import math
import os
import threading
import time

from dayjob.errors import JobTimeout
from dayjob.options import PoolOptions
from dayjob.safe_logging import SafeLogger
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.running.loop_stall import LoopStallDetector
from dayjob.worker.running.runner import Abandon, Runner, TimedOut
from dayjob.worker.running.threads import ThreadExecutor

logger = SafeLogger("dayjob.worker.running.watchdog")

#: An attempt is interrupted so many times within its grace: each leaves its handler a part of the grace to clean up.
INTERRUPTS = 4


class Watchdog:
    """Looks at what runs, a few times a second while anything with a timeout may run."""

    def __init__(
        self,
        fetcher: Fetcher,
        runner: Runner,
        options: PoolOptions,
        *,
        threads: ThreadExecutor | None,
        loop: LoopExecutor | None,
        timeouts: list[float],
    ) -> None:
        self._fetcher = fetcher
        self._runner = runner
        self._options = options
        self._threads = threads
        self._loop = loop
        self._stall = None if loop is None else LoopStallDetector(loop)
        shortest = min(timeouts, default=2.5)
        self._period = min(0.25, max(0.02, shortest / 10))
        self._asked: dict[Attempt, float] = {}
        #: When each attempt was last interrupted.
        self._interrupted: dict[Attempt, float] = {}
        self._pause = options.grace / INTERRUPTS
        #: Threads whose job was cancelled, and since when they know.
        self._told: dict[Attempt, float] = {}

    def step(self) -> float:
        """Look once."""
        now = time.monotonic()
        if self._threads is not None:
            for attempt in self._threads.running():
                self._look(attempt, now)
        if self._stall is not None:
            self._stall.look(now)
        if self._loop is not None:
            for attempt in self._loop.running():
                self._look_at_task(attempt, now)
        running = set(self._fetcher.running())
        self._asked = {attempt: when for attempt, when in self._asked.items() if attempt in running}
        self._interrupted = {one: when for one, when in self._interrupted.items() if one in running}
        self._told = {attempt: when for attempt, when in self._told.items() if attempt in running}
        return self._period

    def blocked(self) -> tuple[float, Attempt | None] | None:
        """For how long the event loop has been blocked, and by which attempt; None while it is not."""
        return None if self._stall is None else self._stall.blocked(time.monotonic())

    def _look(self, attempt: Attempt, now: float) -> None:
        over = bool(attempt.deadline) and now > attempt.deadline
        if not over:
            if attempt.cancelled:
                self._cancel(attempt, now)
            return
        asked = self._asked.setdefault(attempt, now)
        attempt.timed_out = True
        self._interrupt(self._threads, attempt, TimedOut, now)
        if not attempt.given_up and not attempt.settled and now - asked > self._options.grace:
            text = (
                f"{attempt.name} ran longer than its timeout of {attempt.job_type.options.timeout or 0:g} s"
            )
            logger.error(
                "job=%s id=%s does not end: its thread is stuck and keeps its slot",
                attempt.name,
                attempt.wire.id,
            )
            attempt.given_up = True
            # On a thread of its own: hooks are user code, and must not end all other timeouts.
            error = JobTimeout(text + " and does not end")
            threading.Thread(
                target=self._give_up, args=(attempt, error), name="dayjob-give-up", daemon=True
            ).start()

    def _cancel(self, attempt: Attempt, now: float) -> None:
        """Interrupt a cancelled job whose check-ins did not end it within the grace; at once when it was killed."""
        told = self._told.setdefault(attempt, now)
        late = now - told > self._options.grace
        if attempt.killed or late:
            self._interrupt(self._threads, attempt, Abandon, now)
        if attempt.killed and late and attempt not in self._asked:
            self._asked[attempt] = now
            logger.error(
                "job=%s id=%s was killed by an operator and does not end. "
                "`dayjob worker` replaces process %d within seconds; without `dayjob worker`, restart the process yourself. "
                "The job will not run again.",
                attempt.name, attempt.wire.id, os.getpid(),
            )  # fmt: skip

    def _look_at_task(self, attempt: Attempt, now: float) -> None:
        """Cancel a task whose job was cancelled, or that swallowed the cancellation of its own timeout."""
        if attempt.deadline and now > attempt.deadline + self._pause:
            attempt.timed_out = True
        if attempt.cancelled or attempt.timed_out:
            self._interrupt(self._loop, attempt, Abandon, now)

    def _interrupt(
        self,
        executor: ThreadExecutor | LoopExecutor | None,
        attempt: Attempt,
        kind: type[BaseException],
        now: float,
    ) -> None:
        """Interrupt an attempt, unless that was done a moment ago."""
        if executor is None or now - self._interrupted.get(attempt, -math.inf) < self._pause:
            return
        if executor.interrupt(attempt, kind):
            self._interrupted[attempt] = now

    def _give_up(self, attempt: Attempt, error: JobTimeout) -> None:
        # Its thread does not end: for the figures, this is how long it ran.
        attempt.ran = time.monotonic() - attempt.started_at
        self._fetcher.finish(attempt, self._runner.give_up(attempt, error))

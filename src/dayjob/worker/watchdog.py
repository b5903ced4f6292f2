"""Watchdog: ends attempts that passed their timeout, and those that an operator cancelled.

Async attempts are cancelled by their own task. A thread can only be asked, by an exception; one that does not answer
within the grace period is settled as failed, keeps its slot, and is shown as stuck. In a supervised process the parent
then kills the process.
"""

from __future__ import annotations

import logging
import threading
import time

from dayjob.errors import JobTimeout
from dayjob.options import PoolOptions
from dayjob.worker.attempt import Attempt
from dayjob.worker.fetcher import Fetcher
from dayjob.worker.loop import LoopExecutor
from dayjob.worker.run import Abandon, Runner
from dayjob.worker.stall import Stall
from dayjob.worker.threads import ThreadExecutor

logger = logging.getLogger("dayjob.worker.watchdog")


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
        self._stall = None if loop is None else Stall(loop)
        shortest = min(timeouts, default=2.5)
        self._period = min(0.25, max(0.02, shortest / 10))
        self._asked: dict[Attempt, float] = {}
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
                if attempt.cancelled and attempt not in self._asked:
                    self._asked[attempt] = now
                    self._loop.interrupt(attempt, Abandon)
        running = set(self._fetcher.running())
        self._asked = {attempt: when for attempt, when in self._asked.items() if attempt in running}
        self._told = {attempt: when for attempt, when in self._told.items() if attempt in running}
        return self._period

    def _look(self, attempt: Attempt, now: float) -> None:
        over = bool(attempt.deadline) and now > attempt.deadline
        if not over:
            if attempt.cancelled:
                self._cancel(attempt, now)
            return
        asked = self._asked.get(attempt)
        if asked is None:
            attempt.timed_out = True
            self._asked[attempt] = now
            if self._threads is not None:
                self._threads.interrupt(attempt, JobTimeout)
        elif not attempt.given_up and not attempt.settled and now - asked > self._options.grace:
            text = f"{attempt.name} ran longer than its timeout of {attempt.lane.options.timeout or 0:g} s"
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
        """Its check-ins say so from now on; one that does not end by itself within the grace period gets an exception."""
        told = self._told.setdefault(attempt, now)
        if now - told > self._options.grace and attempt not in self._asked and self._threads is not None:
            self._asked[attempt] = now
            self._threads.interrupt(attempt, Abandon)

    def _give_up(self, attempt: Attempt, error: JobTimeout) -> None:
        # Its thread does not end: for the figures, this is how long it ran.
        attempt.ran = time.monotonic() - attempt.started_at
        self._fetcher.finish(attempt, self._runner.give_up(attempt, error))

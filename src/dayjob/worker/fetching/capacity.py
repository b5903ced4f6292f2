"""Capacity: what the executors are doing, and how much more the pool can take."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from dayjob.options import PoolOptions
from dayjob.worker.fetching import budget
from dayjob.worker.fetching.budget import FetchBudget
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.ready_queue import ReadyQueue


class Executor(Protocol):
    """What a pool asks of both its executors."""

    limit: int
    ready: ReadyQueue

    @property
    def busy(self) -> int: ...
    def give(self, attempts: Sequence[Attempt]) -> None: ...
    def nudge(self) -> None: ...
    def running(self) -> list[Attempt]: ...


class Loop(Executor, Protocol):
    """The executor of async attempts, which one handler can block."""

    @property
    def stalled(self) -> bool: ...


class Capacity:
    """The slots of one pool, over both colours."""

    def __init__(self, job_types: Mapping[str, PoolJobType], options: PoolOptions) -> None:
        self._job_types = job_types
        self._concurrency = options.concurrency
        self._threads: Executor | None = None
        self._loop: Loop | None = None
        self._executors: list[Executor] = []
        self._sync_names = frozenset(name for name, job_type in job_types.items() if not job_type.is_async)
        self._async_names = frozenset(job_types) - self._sync_names

    def attach(self, threads: Executor | None, loop: Loop | None) -> None:
        """Name the executors; a pool has one of them or both."""
        self._threads, self._loop = threads, loop
        self._executors = [executor for executor in (threads, loop) if executor is not None]

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Hand attempts to the executor of their colour, in order."""
        if len(self._executors) == 1:
            if attempts:
                self._executors[0].give(attempts)
            return
        sync = [attempt for attempt in attempts if not attempt.job_type.is_async]
        if sync and self._threads is not None:
            self._threads.give(sync)
        if len(sync) < len(attempts) and self._loop is not None:
            self._loop.give([attempt for attempt in attempts if attempt.job_type.is_async])

    def take_back(self, before: float) -> list[Attempt]:
        """Take back what was handed over before a monotonic time and not started."""
        return [attempt for executor in self._executors for attempt in executor.ready.take_back(before)]

    def nudge(self) -> None:
        """Wake a worker for everything that waits."""
        for executor in self._executors:
            executor.nudge()

    @property
    def ready(self) -> int:
        """Attempts handed over and not started."""
        return sum(len(executor.ready.attempts) for executor in self._executors)

    @property
    def stale(self) -> bool:
        """Whether something that was handed over has waited too long."""
        before = time.monotonic() - budget.GIVE_BACK_AFTER_SECONDS
        return any(oldest <= before for one in self._executors if (oldest := one.ready.oldest) is not None)

    def running(self) -> list[Attempt]:
        """The attempts that run now, those that were lost included: they keep their slots."""
        return [attempt for executor in self._executors for attempt in executor.running()]

    @property
    def idle(self) -> int:
        """Slots for which nothing runs and nothing is ready."""
        taken = sum(executor.busy + len(executor.ready.attempts) for executor in self._executors)
        return max(0, self._concurrency - taken)

    def room(self, live: Collection[str], coming: int) -> FetchBudget:
        """What may be fetched, with these names known to have work, and `coming` attempts about to be handed over."""
        free = max(0, self.idle - coming)
        closed = self.closed()
        threads = self._threads_free()
        if threads is not None and threads > 0:
            if not self._sync_names.isdisjoint(live):
                # Few threads: no more than they can take, and nothing ahead.
                return FetchBudget(min(threads, free), 0, closed=closed)
            closed |= self._sync_names
        now = time.monotonic()
        fast = {
            name: job_type.estimate
            for name, job_type in self._job_types.items()
            if job_type.estimate is not None
            and job_type.estimate <= budget.PREFETCH_SECONDS
            and job_type.slow_until <= now
            and not job_type.unique
        }
        if any(name not in fast for name in live):
            # A slow queue has work. It gets its share of slots as they come free: nothing is prefetched past it.
            fast = {}
        if not fast:
            return replace(budget.fetch_budget(free=free, ready=0, usable=0, fast=fast), closed=closed)
        # Slots that will not come free soon are no reason to prefetch.
        slow = sum(1 for attempt in self.running() if now - attempt.started_at > budget.PREFETCH_SECONDS)
        reckoned = budget.fetch_budget(
            free=free, ready=self.ready + coming, usable=self._concurrency - slow, fast=fast
        )
        return replace(reckoned, closed=closed)

    def threads(self) -> tuple[int, int]:
        """How many threads there may be for plain functions, and how many of them run one."""
        return (0, 0) if self._threads is None else (self._threads.limit, self._threads.busy)

    def closed(self) -> frozenset[str]:
        """Names that are not fetched now because no thread, or a loop that is blocked, could not run them."""
        free = self._threads_free()
        closed = frozenset() if free is None or free > 0 else self._sync_names
        if self._loop is not None and self._loop.stalled:
            closed |= self._async_names
        return closed

    def _threads_free(self) -> int | None:
        """How many more sync jobs the threads can take; None where they are as many as the slots."""
        threads = self._threads
        if threads is None or threads.limit >= self._concurrency:
            return None
        return threads.limit - threads.busy - len(threads.ready.attempts)

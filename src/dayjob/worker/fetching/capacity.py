"""Capacity: hands attempts to the executors, and computes how many more jobs the pool can fetch."""

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
    """The interface of both executors."""

    limit: int
    ready: ReadyQueue

    @property
    def busy(self) -> int: ...
    def give(self, attempts: Sequence[Attempt]) -> None: ...
    def nudge(self) -> None: ...
    def running(self) -> list[Attempt]: ...


class Loop(Executor, Protocol):
    """The executor of async attempts. A handler can block it."""

    @property
    def stalled(self) -> bool: ...


class Capacity:
    """The slots of one pool, for sync and async attempts together."""

    def __init__(self, job_types: Mapping[str, PoolJobType], options: PoolOptions) -> None:
        self._job_types = job_types
        self._concurrency = options.concurrency
        self._threads: Executor | None = None
        self._loop: Loop | None = None
        self._executors: list[Executor] = []
        self._sync_names = frozenset(name for name, job_type in job_types.items() if not job_type.is_async)
        self._async_names = frozenset(job_types) - self._sync_names

    def attach(self, threads: Executor | None, loop: Loop | None) -> None:
        """Set the executors. A pool has one of them or both."""
        self._threads, self._loop = threads, loop
        self._executors = [executor for executor in (threads, loop) if executor is not None]

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Hand sync attempts to the threads and async ones to the loop, in order."""
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
        """Take back attempts that were handed over before a monotonic time and have not started."""
        return [attempt for executor in self._executors for attempt in executor.ready.take_back(before)]

    def nudge(self) -> None:
        """Wake a worker for each waiting attempt."""
        for executor in self._executors:
            executor.nudge()

    @property
    def ready(self) -> int:
        """How many attempts were handed over and have not started."""
        return sum(len(executor.ready.attempts) for executor in self._executors)

    @property
    def stale(self) -> bool:
        """Whether an attempt that was handed over has waited too long for a worker."""
        before = time.monotonic() - budget.GIVE_BACK_AFTER_SECONDS
        return any(oldest <= before for one in self._executors if (oldest := one.ready.oldest) is not None)

    def running(self) -> list[Attempt]:
        """The attempts that run now. Includes lost attempts, because they occupy their slots."""
        return [attempt for executor in self._executors for attempt in executor.running()]

    @property
    def idle(self) -> int:
        """How many slots are free when all ready attempts have started."""
        taken = sum(executor.busy + len(executor.ready.attempts) for executor in self._executors)
        return max(0, self._concurrency - taken)

    def room(self, live: Collection[str], coming: int) -> FetchBudget:
        """How many jobs may be fetched. `live` names have jobs, and `coming` attempts will need a slot soon."""
        free = max(0, self.idle - coming)
        closed = self.closed()
        threads = self._threads_free()
        if threads is not None and threads > 0:
            if not self._sync_names.isdisjoint(live):
                # Fewer threads than slots: fetch no more than the threads can take, and prefetch nothing.
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
            # A slow queue has jobs. Prefetched jobs of fast queues would take its share of the slots.
            fast = {}
        if not fast:
            return replace(budget.fetch_budget(free=free, ready=0, usable=0, fast=fast), closed=closed)
        # Slots with slow jobs will not become free soon, so they do not count for the prefetch.
        slow = sum(1 for attempt in self.running() if now - attempt.started_at > budget.PREFETCH_SECONDS)
        result = budget.fetch_budget(
            free=free, ready=self.ready + coming, usable=self._concurrency - slow, fast=fast
        )
        return replace(result, closed=closed)

    def threads(self) -> tuple[int, int]:
        """How many threads there may be for plain functions, and how many are busy."""
        return (0, 0) if self._threads is None else (self._threads.limit, self._threads.busy)

    def closed(self) -> frozenset[str]:
        """Names that cannot run now, because no thread is free or the event loop is blocked."""
        free = self._threads_free()
        closed = frozenset() if free is None or free > 0 else self._sync_names
        if self._loop is not None and self._loop.stalled:
            closed |= self._async_names
        return closed

    def _threads_free(self) -> int | None:
        """How many more sync jobs the threads can take; None if there is a thread for each slot."""
        threads = self._threads
        if threads is None or threads.limit >= self._concurrency:
            return None
        return threads.limit - threads.busy - len(threads.ready.attempts)

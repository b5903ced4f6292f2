"""Executors: the threads and the event loop of a pool, seen as one set of slots. Hands attempts to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.awake_clock import AwakeClock
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS, ReadyQueue


class Executor(Protocol):
    """The interface of both executors."""

    limit: int
    ready: ReadyQueue

    @property
    def busy(self) -> int: ...
    def give(self, attempts: Sequence[Attempt]) -> None: ...
    def nudge(self) -> None: ...
    def running(self) -> list[Attempt]: ...
    def interrupt(self, attempt: Attempt, kind: type[BaseException]) -> bool: ...
    def close(self) -> None: ...


class Loop(Executor, Protocol):
    """The executor of async attempts. A handler can block it."""

    @property
    def stalled(self) -> bool: ...


class Executors:
    """The executors of one pool: threads for plain functions, an event loop for async ones, or both."""

    def __init__(self, job_types: Mapping[str, PoolJobType], concurrency: int) -> None:
        self.concurrency = concurrency
        #: How long attempts have waited for a worker.
        self.clock = AwakeClock()
        self._threads: Executor | None = None
        self._loop: Loop | None = None
        self._all: list[Executor] = []
        self.sync_names = frozenset(name for name, job_type in job_types.items() if not job_type.is_async)
        self._async_names = frozenset(job_types) - self.sync_names

    def attach(self, threads: Executor | None, loop: Loop | None) -> None:
        """Set the executors. A pool has one of them or both."""
        self._threads, self._loop = threads, loop
        self._all = [executor for executor in (threads, loop) if executor is not None]

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Hand sync attempts to the threads and async ones to the loop, in order."""
        now = self.clock.now()
        for attempt in attempts:
            attempt.given_at = now
        if len(self._all) == 1:
            if attempts:
                self._all[0].give(attempts)
            return
        sync = [attempt for attempt in attempts if not attempt.job_type.is_async]
        if sync and self._threads is not None:
            self._threads.give(sync)
        if len(sync) < len(attempts) and self._loop is not None:
            self._loop.give([attempt for attempt in attempts if attempt.job_type.is_async])

    def take_back(self, *, everything: bool) -> list[Attempt]:
        """Take back attempts that have not started: those of an executor whose oldest is stale, or all."""
        before = math.inf if everything else self.clock.now() - GIVE_BACK_AFTER_SECONDS
        return [attempt for executor in self._all for attempt in executor.ready.take_back(before)]

    def nudge(self) -> None:
        """Wake a worker for each waiting attempt."""
        for executor in self._all:
            executor.nudge()

    def interrupt(self, attempt: Attempt, kind: type[BaseException]) -> None:
        """Raise `kind` in the thread of a running attempt, or cancel its task."""
        executor = self._loop if attempt.job_type.is_async else self._threads
        if executor is not None:
            executor.interrupt(attempt, kind)

    def close(self) -> None:
        """End idle threads and the event loop."""
        for executor in self._all:
            executor.close()

    @property
    def ready(self) -> int:
        """How many attempts were handed over and have not started."""
        return sum(len(executor.ready.attempts) for executor in self._all)

    @property
    def stale(self) -> bool:
        """Whether an attempt that was handed over has waited too long for a worker."""
        before = self.clock.now() - GIVE_BACK_AFTER_SECONDS
        return any(oldest <= before for one in self._all if (oldest := one.ready.oldest) is not None)

    def running(self) -> list[Attempt]:
        """The attempts that run now. Includes lost attempts, because they occupy their slots."""
        return [attempt for executor in self._all for attempt in executor.running()]

    @property
    def idle(self) -> int:
        """How many slots are free when all ready attempts have started."""
        taken = sum(executor.busy + len(executor.ready.attempts) for executor in self._all)
        return max(0, self.concurrency - taken)

    def threads(self) -> tuple[int, int]:
        """How many threads there may be for plain functions, and how many are busy."""
        return (0, 0) if self._threads is None else (self._threads.limit, self._threads.busy)

    def threads_free(self) -> int | None:
        """How many more sync jobs the threads can take; None if there is a thread for each slot."""
        threads = self._threads
        if threads is None or threads.limit >= self.concurrency:
            return None
        return threads.limit - threads.busy - len(threads.ready.attempts)

    def closed(self) -> frozenset[str]:
        """Names that cannot run now, because no thread is free or the event loop is blocked."""
        free = self.threads_free()
        closed = frozenset() if free is None or free > 0 else self.sync_names
        if self._loop is not None and self._loop.stalled:
            closed |= self._async_names
        return closed

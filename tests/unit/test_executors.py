"""Executors by themselves: an attempt that was given back before it started is not started any more."""

from __future__ import annotations

import threading

import pytest

from dayjob import WorkerPool
from dayjob.store.codec import Wire
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.running.threads import ThreadExecutor
from dayjob.worker.state import PoolState
from server import wait_until


@pytest.fixture
def attempts() -> list[Attempt]:
    """Two attempts of one job type."""
    job_type = WorkerPool().register("a", lambda: None)
    job_type = PoolJobType(job_type, lambda *_: None, PoolState(), None)
    return [Attempt(f"{number}:a", "a", b"{}", Wire("a"), job_type) for number in (1, 2)]


@pytest.mark.parametrize("when", ["before it is taken", "before its first step"])
def test_an_async_attempt_that_was_given_back_is_not_started(attempts, when):
    one, other = attempts
    ran: list[Attempt] = []

    async def run(attempt):
        ran.append(attempt)

    executor = LoopExecutor(run, lambda *_: None, lambda *_: None, limit=2, on_room=lambda: None)
    try:
        blocked, go = threading.Event(), threading.Event()
        executor._loop.call_soon_threadsafe(lambda: (blocked.set(), go.wait(60)))
        assert blocked.wait(60)
        executor.give([one])
        if when == "before it is taken":
            one.settled = True
        else:
            # Behind the call that makes its task, and before that task's first step.
            executor._loop.call_soon_threadsafe(lambda: setattr(one, "settled", True))
        go.set()
        wait_until(lambda: not executor.ready.attempts)
        executor.give([other])
        wait_until(lambda: other in ran)
        assert one not in ran
        wait_until(lambda: executor.busy == 0)
    finally:
        executor.close()


def test_a_sync_attempt_that_was_given_back_is_not_started(attempts):
    one, other = attempts
    ran: list[Attempt] = []
    executor = ThreadExecutor(ran.append, lambda *_: None, lambda *_: None, limit=1, on_room=lambda: None)
    try:
        one.settled = True
        executor.give([one, other])
        wait_until(lambda: other in ran)
        assert one not in ran
    finally:
        executor.close()

"""A worker that becomes free, however late, takes the next job: a pool never sleeps on jobs that it could run."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from dayjob import WorkerPool
from dayjob.handlers.registry import JobType
from server import wait_until


def asleep(pool: WorkerPool) -> bool:
    """Whether its fetcher has nothing more to send, not even figures, and waits until something wakes it."""
    fetcher = pool._runtime.fetcher
    return fetcher.all_reported and fetcher._sleeping


def test_a_worker_that_was_stuck_past_its_timeout_takes_the_next_job(new_pool, look):
    pool = new_pool(concurrency=1, grace=0.1)
    release = threading.Event()

    @pool.job(timeout=0.1, max_fails=1)
    def stuck() -> None:
        while not release.is_set():
            # It swallows every interrupt, as code in C does.
            with contextlib.suppress(BaseException):
                release.wait(60)

    @pool.job
    def other() -> None: ...

    with pool:
        stuck.enqueue()
        wait_until(lambda: look.total("dead:stuck") == 1)
        wait_until(lambda: asleep(pool))
        other.enqueue()
        release.set()
        wait_until(lambda: look.total("done:other") == 1)


def test_jobs_that_were_given_back_run_when_the_event_loop_is_free_again(new_pool, look):
    """No attempt runs meanwhile, so that the end of none of them wakes the pool."""
    pool = new_pool(concurrency=5)
    blocked, release = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        release.wait(60)

    @pool.job
    async def leaves_a_callback() -> None:
        asyncio.get_running_loop().call_later(0.01, block)

    @pool.job
    async def other() -> None: ...

    with pool:
        leaves_a_callback.enqueue()
        assert blocked.wait(60)
        other.enqueue_many([{}, {}, {}])
        wait_until(lambda: look.total("given_back:other") == 3)
        wait_until(lambda: asleep(pool))
        release.set()
        wait_until(lambda: look.total("done:other") == 3)


def test_a_single_job_does_not_wait_for_a_blocked_event_loop_while_another_pool_is_free(new_pool, look):
    pools = [new_pool(concurrency=5) for _ in range(2)]
    blocked, release = threading.Event(), threading.Event()
    ran_in: list[int] = []

    def define(number: int) -> list[JobType]:
        pool = pools[number]

        @pool.job
        async def blocks() -> None:
            blocked.set()
            release.wait(60)

        @pool.job
        async def other() -> None:
            ran_in.append(number)

        return [blocks, other]

    blocks, other = define(0)
    define(1)
    try:
        with pools[0]:
            blocks.enqueue()
            assert blocked.wait(60)
            # Its fetcher sleeps: the listener makes the exchange that fetches the next job.
            wait_until(lambda: pools[0]._runtime.fetcher._sleeping)
            other.enqueue()
            wait_until(lambda: pools[0]._runtime.state.fetched == 2)
            with pools[1]:
                wait_until(lambda: ran_in)
                assert ran_in == [1]
                release.set()
    finally:
        release.set()

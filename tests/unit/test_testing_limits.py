"""Limits in a testing block: off unless asked for, and by the moved clock if they are on."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from dayjob import Concurrency, Job, Rate, Throttled, Window, WorkerPool
from dayjob.errors import NotReady
from dayjob.testing import FakeClock, testing

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def pool() -> WorkerPool:
    return WorkerPool(namespace="shop", redis="redis://127.0.0.1:1")


@pytest.fixture
def ran() -> list:
    return []


@pytest.fixture
def block(pool):
    """A block in which limits hold, with a clock that stands still."""
    with testing(pool, limits=True, clock=FakeClock(START)) as jobs:
        yield jobs


def times(jobs) -> float:
    """Seconds since the start of the block."""
    return jobs.clock.now() - START.timestamp()


def rated(pool, ran, *limits, **options):
    @pool.job(limits=list(limits), **options)
    def call(n: int) -> None:
        ran.append(n)

    return call


def test_without_limits_every_job_runs_at_once_and_a_throttled_one_waits_its_time(pool, ran):
    call = rated(pool, ran, Rate(1, per=60), Window(1, per=60))

    @pool.job(limits=[Rate(1, per=60)])
    def busy() -> None:
        raise Throttled(after=30)

    with testing(pool) as jobs:
        for n in range(5):
            call.enqueue(n=n)
        busy.enqueue()
        assert jobs.drain() == 6
        assert ran == [0, 1, 2, 3, 4]
        assert len(jobs.scheduled) == 1


def test_a_rate_lets_its_burst_through_and_then_one_job_per_interval(pool, ran, block):
    call = rated(pool, ran, Rate(2, per=1, burst=3))
    for n in range(6):
        call.enqueue(n=n)
    assert block.drain() == 3
    assert [job.args["n"] for job in block.queued] == [3, 4, 5]
    block.advance(0.499)
    assert block.drain() == 0
    block.advance(0.001)
    assert block.drain() == 1
    block.advance()
    assert times(block) == pytest.approx(1.0)
    assert block.drain() == 1
    block.advance(60)
    assert block.drain() == 1
    assert ran == list(range(6))
    assert all(job.fails == 0 and job.snoozes == 0 for job in block.done)


def test_a_bucket_is_never_fuller_than_its_burst(pool, ran, block):
    call = rated(pool, ran, Rate(10, per=1, burst=2))
    block.advance(3600)
    for n in range(5):
        call.enqueue(n=n)
    assert block.drain() == 2


def test_a_window_never_has_more_starts_than_it_allows(pool, ran, block):
    call = rated(pool, ran, Window(2, per=10))
    call.enqueue(n=0)
    assert block.drain() == 1
    block.advance(9)
    for n in range(1, 4):
        call.enqueue(n=n)
    assert block.drain() == 1
    block.advance()
    assert times(block) == pytest.approx(10.0)
    assert block.drain() == 1
    assert block.drain() == 0
    block.advance()
    assert times(block) == pytest.approx(19.0)
    assert block.drain() == 1


def test_job_types_share_a_limit_and_others_do_not_wait_for_it(pool, ran, block):
    stripe = pool.limit("stripe", Rate(1, per=1))
    call = rated(pool, ran, stripe)

    @pool.job(limits=[stripe])
    def refund() -> None:
        ran.append("refund")

    @pool.job
    def free() -> None:
        ran.append("free")

    call.enqueue(n=1)
    refund.enqueue()
    free.enqueue()
    assert block.drain() == 2
    assert ran == [1, "free"]
    block.advance()
    block.drain()
    assert ran == [1, "free", "refund"]


def test_a_throttled_job_waits_at_the_head_of_its_queue_and_its_limit_is_held_for_all(pool, ran, block):
    stripe = pool.limit("stripe", Rate(100, per=1))
    answers = [429]

    @pool.job(limits=[stripe])
    def charge(job: Job, n: int) -> None:
        if answers:
            raise Throttled(f"{answers.pop()}", limit=stripe, after=30)
        ran.append((n, job.fails, job.snoozes))

    @pool.job(limits=[stripe])
    def refund() -> None:
        ran.append("refund")

    charge.enqueue(n=1)
    charge.enqueue(n=2)
    refund.enqueue()
    assert block.drain() == 1
    assert [job.args.get("n") for job in block.queued] == [1, 2, None]
    block.advance(29.9)
    assert block.drain() == 0
    block.advance()
    assert times(block) == pytest.approx(30.0)
    assert block.drain() == 3
    assert ran == [(1, 0, 0), (2, 0, 0), "refund"]


@pytest.mark.parametrize(("used", "wait"), [(10, 10.0), (2, 2.0), (25, 25.0), (0, 0.0)])
def test_what_a_job_spent_replaces_what_it_was_charged(pool, block, used, wait):
    @pool.job(limits=[Rate(60, per=60, burst=10)], cost=10)
    def ask(job: Job) -> None:
        job.spend(used)

    ask.enqueue()
    ask.enqueue()
    assert block.drain() == (2 if wait == 0 else 1)
    if wait:
        block.advance()
        assert times(block) == pytest.approx(wait)
        assert block.drain() == 1


def test_a_retry_counts_again(pool, block):
    @pool.job(limits=[Window(1, per=60)], backoff=5)
    def fails() -> None:
        raise ValueError("no")

    fails.enqueue()
    block.drain(reraise=False)
    block.advance(5)
    assert block.drain(reraise=False) == 0
    assert len(block.queued) == 1
    block.advance()
    assert times(block) == pytest.approx(60.0)
    assert block.drain(reraise=False) == 1


def test_run_ignores_limits_but_counts(pool, ran, block):
    call = rated(pool, ran, Window(1, per=60))
    first, second, third = (call.enqueue(n=n) for n in range(3))
    block.run(first)
    block.run(second)
    assert block.drain() == 0
    assert [job.id for job in block.queued] == [third.id]


def test_an_inline_job_over_its_limit_waits_for_its_turn(pool, ran):
    call = rated(pool, ran, Rate(1, per=10))
    with testing(pool, inline=True, limits=True, clock=FakeClock(START)) as jobs:
        for n in range(3):
            call.enqueue(n=n)
        assert ran == [0]
        jobs.advance(10)
        call.enqueue(n=3)
        assert ran == [0], "a job must not overtake those that wait"
        jobs.drain()
        assert ran == [0, 1]


def test_concurrency_counts_the_attempts_that_run(pool, ran):
    @pool.job(limits=[Concurrency(1)])
    def nested(n: int) -> None:
        ran.append(n)
        if n == 0:
            nested.enqueue(n=1)

    with testing(pool, inline=True, limits=True) as jobs:
        nested.enqueue(n=0)
        assert ran == [0]
        with pytest.raises(NotReady, match="or a limit"):
            jobs.advance()
        assert jobs.drain() == 1
        assert ran == [0, 1]


def test_each_key_has_its_own_rate_and_waits_without_the_others(pool, ran, block):
    @pool.job(limits=[Rate(1, per=10, by="account")])
    def charge(account: str = "acme", n: int = 0) -> None:
        ran.append((account, n))

    for n in range(2):
        charge.enqueue(n=n)
        charge.enqueue(account="zeta", n=n)
    assert block.drain() == 2
    assert ran == [("acme", 0), ("zeta", 0)]
    charge.enqueue(account="new")
    assert block.drain() == 1
    block.advance()
    assert times(block) == 10
    assert block.drain() == 2
    assert ran[2:] == [("new", 0), ("acme", 1), ("zeta", 1)]


def test_a_throttled_job_holds_only_its_key(pool, ran, block):
    stripe = pool.limit("stripe", Rate(100, per=1, by="account"))
    refused = ["acme"]

    @pool.job(limits=[stripe])
    def charge(account: str, n: int) -> None:
        if account in refused:
            refused.remove(account)
            raise Throttled(limit=stripe, after=30)
        ran.append((account, n))

    for n in range(2):
        charge.enqueue(account="acme", n=n)
        charge.enqueue(account="zeta", n=n)
    block.drain()
    assert ran == [("zeta", 0), ("zeta", 1)]
    block.advance()
    assert times(block) == 30
    block.drain()
    assert ran[2:] == [("acme", 0), ("acme", 1)]


def test_a_window_by_source_counts_each_source(pool, ran, block):
    call = rated(pool, ran, Window(2, per=60, by="source"))
    for n in range(3):
        call.using(source="acme").enqueue(n=n)
    call.enqueue(n=9)
    block.drain()
    assert ran == [0, 1, 9]


def test_concurrency_by_key_counts_the_attempts_of_each_key(pool, ran):
    @pool.job(limits=[Concurrency(1, by="account")])
    def nested(account: str, other: str = "") -> None:
        ran.append(account)
        if other:
            nested.enqueue(account=other)

    with testing(pool, inline=True, limits=True) as jobs:
        nested.enqueue(account="acme", other="zeta")
        assert ran == ["acme", "zeta"]
        nested.enqueue(account="acme", other="acme")
        assert ran == ["acme", "zeta", "acme"]
        assert jobs.drain() == 1


def test_threads_together_never_exceed_a_limit(pool, ran):
    call = rated(pool, ran, Window(5, per=60))
    with testing(pool, inline=True, limits=True, clock=FakeClock(START)) as jobs:
        threads = [threading.Thread(target=call.enqueue, kwargs={"n": n}) for n in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ran) <= 5
        jobs.drain()
        assert len(ran) == 5


async def count_async(jobs, ask, ran) -> None:
    for n in range(3):
        await ask.aenqueue(n=n)
    assert await jobs.adrain() == 2
    assert ran == [0, 1]


def test_async_jobs_wait_for_limits_too(pool, ran, block):
    import asyncio

    @pool.job(limits=[Rate(2, per=1)])
    async def ask(n: int) -> None:
        ran.append(n)

    asyncio.run(count_async(block, ask, ran))

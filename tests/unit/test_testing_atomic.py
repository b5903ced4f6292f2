"""Atomic jobs in a testing block: what they enqueue waits for their completion, as on a server."""

from __future__ import annotations

import asyncio

import pytest

from dayjob import Enqueuer, Job, Retry, WorkerPool
from dayjob.testing import testing


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pool(ran):
    pool = WorkerPool(namespace="atomic", redis="redis://127.0.0.1:1")

    @pool.job(atomic=True, backoff=0)
    def parent(job: Job, fails: int = 0) -> None:
        ran.append(("parent", job.attempt))
        child.enqueue(n=job.attempt)
        child.enqueue_unique(n=0)
        child.enqueue_unique(n=0)
        child.enqueue_in(60, n=9)
        ran.append(pool.enqueuer.state(child.enqueue(n=5)))
        child.using(now=True).enqueue(n=7)
        if job.fails < fails:
            raise Retry("again", after=0)

    @pool.job(atomic=True)
    async def aparent() -> None:
        await child.aenqueue(n=1)
        await pool.async_enqueuer.enqueue_many("child", [{"n": 2}, {"n": 3}])
        ran.append("aparent")

    @pool.job
    def child(n: int) -> None:
        ran.append(n)

    return pool


def test_children_exist_when_their_job_completed_and_only_those_of_that_attempt(pool, ran):
    with testing(pool) as jobs:
        pool.enqueuer.enqueue("parent", fails=2)
        jobs.drain(reraise=False)
        assert [job.args["n"] for job in jobs.scheduled] == [9]
    assert [one for one in ran if one not in (7, "pending")] == [
        ("parent", 1), ("parent", 2), ("parent", 3), 3, 0, 5,
    ]  # fmt: skip
    # Those that were sent at once exist for every attempt.
    assert ran.count(7) == 3
    assert ran.count("pending") == 3


def test_inline_runs_the_children_after_their_job(pool, ran):
    with testing(pool, inline=True):
        pool.enqueuer.enqueue("aparent")
        assert ran == ["aparent", 1, 2, 3]


def test_inline_in_async_code_runs_them_too(pool, ran):
    async def main() -> None:
        with testing(pool, inline=True):
            await pool.async_enqueuer.enqueue("aparent")
            assert ran == ["aparent", 1, 2, 3]

    asyncio.run(main())


def test_an_enqueuer_of_the_block_is_part_of_the_job_and_one_outside_of_it_is_not(pool, ran):
    other = Enqueuer("atomic", redis="redis://127.0.0.1:1")

    @pool.job(atomic=True, max_fails=1)
    def fails() -> None:
        other.enqueue("child", n=1)
        raise ValueError

    with testing(pool, other) as jobs:
        pool.enqueuer.enqueue("fails")
        jobs.drain(reraise=False)
        assert jobs.enqueued("child") == []

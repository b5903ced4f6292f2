"""Calls and maps in a testing block: the job runs inside the block, as its caller waits for it."""

from __future__ import annotations

import asyncio

import pytest

from dayjob import Job, JobFailed, Retry, WorkerPool
from dayjob.errors import ResultTimeout
from dayjob.testing import testing

pool = WorkerPool(namespace="results", redis="redis://127.0.0.1:1")


@pool.job(backoff=0)
def double(job: Job, n: int) -> int:
    if n == 7 and job.fails < 2:
        raise Retry("again")
    return 2 * n


@pool.job(max_fails=1)
async def fail() -> None:
    raise ValueError("no good")


@pytest.mark.parametrize("inline", [False, True])
def test_a_call_runs_its_job(inline):
    with testing(pool, inline=inline) as jobs:
        assert double.call(n=2, timeout=1) == 4
        assert len(jobs.enqueued("double")) == 1


def test_a_call_runs_retries_until_there_is_a_result():
    with testing(pool):
        assert double.call(n=7) == 14
        assert asyncio.run(double.acall(n=7)) == 14


def test_a_call_raises_the_error_of_a_dead_job():
    with testing(pool), pytest.raises(JobFailed, match="no good"):
        fail.call()


def test_a_call_of_a_job_that_the_block_cannot_run_times_out():
    with testing(pool.enqueuer), pytest.raises(ResultTimeout, match="cannot run"):
        double.call(n=1)


def test_maps_run_their_jobs():
    async def main():
        return [value async for _, value in double.amap([{"n": 1}, {"n": 7}])]

    with testing(pool):
        assert list(double.map([{"n": 1}, {"n": 2}])) == [({"n": 1}, 2), ({"n": 2}, 4)]
        assert asyncio.run(main()) == [2, 14]

"""Workflows in a testing block go on as they do on a server."""

from __future__ import annotations

import asyncio

import pytest

from dayjob import Dead, Discard, Job, WorkerPool
from dayjob.errors import BadOption, NotReady
from dayjob.testing import testing


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pool(ran):
    pool = WorkerPool(namespace="flows", redis="redis://127.0.0.1:1")

    @pool.job(max_fails=1)
    def step(n: int | None) -> int:
        ran.append(n)
        if n == 13:
            raise Dead("no")
        if n == 14:
            raise Discard("no")
        return (n or 0) + 1

    @pool.job
    async def total(numbers: list[int | None]) -> int:
        ran.append(numbers)
        return sum(one or 0 for one in numbers)

    @pool.job
    def alarm() -> None:
        ran.append("alarm")

    @pool.job
    def split(job: Job) -> None:
        parts = [job.workflow.add(step, n=n) for n in (1, 2)]
        job.workflow.add(total, numbers=[part.result for part in parts])

    return pool


def joined(pool, first, on_failure):
    step, total, alarm = map(pool.registry.get, ("step", "total", "alarm"))
    flow = pool.workflow("join")
    one = flow.add(step, n=first, on_failure=on_failure)
    two = flow.add(step, n=one.result)
    three = flow.add(step, n=5)
    last = flow.add(total, numbers=[two.result, three.result])
    flow.add(alarm, on_failure_of=[one])
    return flow.start(), last


@pytest.mark.parametrize(
    ("first", "on_failure", "expected", "state"),
    [
        (1, "stop", [1, 5, 2, [3, 6]], "succeeded"), (13, "stop", [13, 5, "alarm"], "failed"),
        (13, "continue", [13, 5, None, "alarm", [1, 6]], "succeeded"),
        (13, "skip", [13, 5, "alarm", [None, 6]], "succeeded"), (14, "stop", [14, 5, [None, 6]], "succeeded"),
    ],
)  # fmt: skip
def test_the_policy_of_a_node_decides_what_its_failure_does(pool, ran, first, on_failure, expected, state):
    with testing(pool) as jobs:
        flow, last = joined(pool, first, on_failure)
        jobs.drain(reraise=False)
        assert ran == expected
        assert flow.progress().state == state
        assert flow.result(last) == (sum(one or 0 for one in expected[-1]) if state == "succeeded" else None)


def test_nodes_add_nodes_and_inline_blocks_run_them(pool, ran):
    with testing(pool, inline=True):
        flow = pool.workflow("grows")
        flow.add(pool.registry.get("split"))
        flow.start()
        assert ran == [1, 2, [2, 3]]
        assert flow.progress().total == 4


def test_a_cancelled_workflow_runs_nothing_more(pool, ran):
    with testing(pool) as jobs:
        flow, _ = joined(pool, 1, "stop")
        assert flow.cancel()
        assert not flow.cancel()
        jobs.drain()
        assert (ran, flow.progress().state) == ([], "cancelled")
        with pytest.raises(NotReady, match="no workflow"):
            pool.enqueuer.workflow("wnone").progress()
        with pytest.raises(BadOption, match="has started"):
            flow.start()


def test_async_code_has_the_same(pool, ran):
    step = pool.registry.get("step")

    async def main(jobs):
        flow = await step.then(step).aenqueue(n=3)
        await jobs.adrain()
        return await flow.aprogress()

    with testing(pool) as jobs:
        assert asyncio.run(main(jobs)).completed == 2
    assert ran == [3, 4]

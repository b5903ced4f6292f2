"""Batches in a testing block end as they do on a server."""

from __future__ import annotations

import pytest

from dayjob import Dead, Discard, Job, WorkerPool
from dayjob.errors import BadOption, NotReady
from dayjob.testing import testing


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pool(ran):
    pool = WorkerPool(namespace="batched", redis="redis://127.0.0.1:1")

    @pool.job(max_fails=2, backoff=0)
    def member(job: Job, n: int) -> None:
        ran.append(n)
        if n == 1 and job.fails == 0:
            raise ValueError
        if n == 2:
            raise Dead("no")
        if n == 3:
            raise Discard("no")
        if n == 4:
            with job.batch:
                member.enqueue(n=5)

    def callback(job: Job) -> None:
        ran.append((job.name, job.batch.progress().left))

    for event in ("success", "complete", "dead"):
        pool.register(event, callback)
    return pool


def callbacks(pool):
    return {f"on_{event}": pool.registry.get(event) for event in ("success", "complete", "dead")}


def test_callbacks_come_once_for_what_became_of_the_members(pool, ran):
    member = pool.registry.get("member")
    with testing(pool) as jobs:
        with pool.batch(**callbacks(pool)) as good:
            member.enqueue_many([{"n": n} for n in (0, 1, 3, 4)])
        with pool.batch(**callbacks(pool)) as bad:
            member.enqueue(n=2)
            with pool.batch(**callbacks(pool)) as inner:
                pass
        jobs.drain(reraise=False)
        assert (good.progress().total, good.progress().completed) == (5, 5)
        assert (bad.progress().total, bad.progress().dead, inner.progress().total) == (2, 1, 0)
        with pytest.raises(BadOption, match="has ended"), good:
            member.enqueue(n=6)
        with pytest.raises(NotReady, match="no batch"):
            pool.enqueuer.batch("none").progress()
    events = sorted(one[0] for one in ran if isinstance(one, tuple))
    assert events == ["complete", "complete", "complete", "dead", "success", "success"]
    assert sorted(one for one in ran if isinstance(one, int)) == [0, 1, 1, 2, 3, 4, 5]


def test_a_cancelled_batch_runs_no_member_and_an_inline_one_runs_its_callbacks(pool, ran):
    member = pool.registry.get("member")
    with testing(pool) as jobs:
        with pool.batch(**callbacks(pool)) as batch:
            member.enqueue(n=0)
        assert batch.cancel()
        assert not batch.cancel()
        jobs.drain()
        assert ran == [("complete", 0)]
    ran.clear()
    with testing(pool, inline=True), pool.batch(**callbacks(pool)):
        member.enqueue(n=0)
        assert ran == []
    assert [one for one in ran if one != 0] == [("complete", 0), ("success", 0)]


@pytest.mark.parametrize(
    ("begin", "problem"),
    [
        (lambda pool: pool.batch(on_success="success"), "on_success=.*: 'success' is no job"),
        (lambda pool: pool.batch(on_dead=lambda job: None), "on_dead=.*is no job"),
        (lambda pool: pool.batch(args=[1]), "args=.*: \\[1\\] is no dict"),
        (lambda pool: pool.batch(description=5), "description: 5 is a int, not a string"),
        (lambda pool: pool.enqueuer.batch(None), "the id of a batch: None is a NoneType"),
        (lambda pool: pool.workflow(None), "name: None is a NoneType"),
        (lambda pool: pool.enqueuer.workflow(5), "the id of a workflow: 5 is a int"),
        (lambda pool: pool.workflow("w").add("member"), "add.*: 'member' is no job"),
        (lambda pool: pool.registry.get("member").then("member"), "then.*: 'member' is no job"),
        (
            lambda pool: pool.registry.get("member").then(pool.registry.get("member")).then(5),
            "then.*: 5 is no job",
        ),
        (lambda pool: pool.enqueuer.progress(7), "the id of a job: 7 is a int"),
    ],
)
def test_what_is_no_batch_job_or_id_is_refused_in_words(pool, begin, problem):
    with testing(pool), pytest.raises(BadOption, match=problem):
        begin(pool)

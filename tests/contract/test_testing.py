"""What happens to jobs in a testing block is what happens to them on a server."""

from __future__ import annotations

import pytest

from dayjob import Dead, Discard, Job, Retry, Snooze, WorkerPool
from dayjob.errors import NotReady
from dayjob.store import codec
from dayjob.testing import testing
from server import wait_until


def program(redis: str, namespace: str) -> tuple[WorkerPool, list]:
    """Jobs that end in every way there is, and the log that they write."""
    pool = WorkerPool(namespace=namespace, redis=redis, concurrency=1)
    log: list = []

    @pool.middleware
    def trace(job: Job):
        log.append(("attempt", job.name, job.args, job.attempt, job.fails, job.snoozes, job.source))
        yield

    @pool.job(max_fails=3, backoff=0, on_dead=lambda job, error: log.append(("dead", job.name, job.error)))
    def fails(pair: list[int]) -> None:
        raise ValueError(f"no {pair}")

    @pool.job(max_fails=2)
    def signals(number: int) -> None:
        raise (Dead("now"), Discard("done with"), Retry("again", after=0))[number]

    @pool.job
    def snoozes(job: Job) -> None:
        if job.snoozes < 2:
            raise Snooze("later", after=0)

    @pool.job(keep=60)
    async def adds(a: int, b: int) -> tuple[int, int]:
        child.enqueue()
        return (a, b)

    @pool.job
    def child() -> None: ...

    @pool.job(unique_until="done")
    def alone(n: int) -> None:
        log.append(("taken", alone.enqueue_unique(n=n)))

    @pool.job
    def free(job: Job) -> None:
        if job.source is None:
            log.append(("not taken", free.using(source="second").enqueue_unique() is not None))

    return pool, log


def enqueue_all(pool: WorkerPool) -> list:
    """Enqueue the same each time; what the enqueues answered."""
    put = pool.enqueuer
    return [
        put.enqueue("fails", pair=(1, 2)).args,
        *[put.enqueue("signals", number=number).args for number in range(3)],
        put.enqueue("snoozes").args,
        put.using(source="acme", id="sum").enqueue("adds", a=1, b=2).id,
        essence(put.using(source="other", id="sum").enqueue_in("adds", 60, a=5, b=6)),
        put.enqueue_unique("alone", n=1) is None,
        put.enqueue_unique("alone", n=1) is None,
        put.enqueue_unique("free") is None,
        put.using(expires=3600).enqueue_in("child", 3600).fails,
    ]


def essence(job: Job) -> tuple:
    return (job.name, job.args, job.fails, job.snoozes, job.source, job.error, job.attempt)


def by_text(items) -> list:
    return sorted(items, key=repr)


def test_jobs_end_in_a_testing_block_as_they_do_on_a_server(redis_url, namespace, keys, call):
    fake, expected = program("redis://127.0.0.1:1", namespace)
    with testing(fake) as jobs:
        answers = enqueue_all(fake)
        jobs.drain(reraise=False)
        result = fake.enqueuer.result("sum")
    assert len(expected) > 15

    pool, log = program(redis_url, namespace)
    assert enqueue_all(pool) == answers
    with pool:
        wait_until(lambda: len(log) >= len(expected))
        assert pool.drain(60)
        assert pool.enqueuer.result("sum", timeout=60) == result
    pool.enqueuer.close()
    assert by_text(log) == by_text(expected)
    assert held(call, keys.dead) == by_text(map(essence, jobs.dead))
    assert held(call, keys.scheduled) == by_text(map(essence, jobs.scheduled))
    assert held(call, keys.retry) == by_text(map(essence, jobs.retry)) == []


def held(call, key: str) -> list:
    return by_text(essence(codec.job_of(codec.read(raw))) for raw in call("ZRANGE", key, 0, -1))


def test_a_pool_that_is_started_is_refused(redis_url, namespace):
    pool, _ = program(redis_url, namespace)
    with pool, pytest.raises(NotReady, match="stop\\(\\) it before"), testing(pool):
        pass
    with testing(pool) as jobs:
        assert jobs.enqueued() == []

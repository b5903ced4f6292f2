"""The clock of a host decides nothing: an hour ahead or behind, jobs run when Redis says so, and leases hold."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from dayjob import AsyncEnqueuer, Enqueuer, Job, WorkerPool
from dayjob.store.op import plain
from server import wait_until

real = time.time


@pytest.fixture(params=[3600.0, -3600.0], ids=["ahead", "behind"])
def skewed(request, monkeypatch):
    """A host whose clock is wrong. Only wall time is: waits are measured by the other clock."""
    monkeypatch.setattr(time, "time", lambda: real() + request.param)
    return request.param


@pytest.fixture
def redis_now(call):
    def read() -> float:
        seconds, micros = call("TIME")
        return int(seconds) + int(micros) / 1e6

    return read


@pytest.fixture
def pool(skewed, namespace, redis_url):
    found = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2, lease=30.0, beat=0.5)
    yield found
    found.stop(timeout=0)


def test_a_delay_is_kept_by_redis_time(pool, namespace, redis_url, redis_now):
    ran: list[float] = []

    @pool.job
    def a(job: Job) -> None:
        ran.append(redis_now())

    enqueuer = Enqueuer(namespace, redis=redis_url)
    before = redis_now()
    job = enqueuer.enqueue_in("a", 0.4)
    assert before + 0.399 <= job.scheduled_at <= redis_now() + 0.401
    pool.start()
    wait_until(lambda: ran)
    assert ran[0] >= job.scheduled_at
    enqueuer.close()


def in_a_moment() -> datetime:
    return datetime.fromtimestamp(real(), UTC) + timedelta(milliseconds=10)


WAYS = {
    "enqueue": lambda q: [q.enqueue("a")],
    "enqueue_in": lambda q: [q.enqueue_in("a", 0.01)],
    "enqueue_at": lambda q: [q.enqueue_at("a", in_a_moment())],
    "enqueue_unique": lambda q: [q.enqueue_unique("a")],
    "enqueue_unique_in": lambda q: [q.enqueue_unique_in("a", 0.01)],
    "an id": lambda q: [q.using(id="mine").enqueue("a")],
    "enqueue_many": lambda q: q.enqueue_many("a", [{}] * 3),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_job_of_a_process_expires_by_redis_time(way, pool, namespace, redis_url, redis_now):
    seen: list[Job] = []

    @pool.job
    def a(job: Job) -> None:
        seen.append(job)

    before = redis_now()
    enqueuer = Enqueuer(namespace, redis=redis_url)
    jobs = WAYS[way](enqueuer.using(expires=60))
    after = redis_now()
    pool.start()
    wait_until(lambda: len(seen) == len(jobs))
    for job in (*jobs, *seen):
        assert before + 59.99 <= job.expires_at <= after + 60.01
    enqueuer.close()


def test_a_job_from_a_handle_and_one_from_a_loop_expire_by_redis_time(pool, namespace, redis_url):
    seen: list[Job] = []

    @pool.job
    def a(job: Job) -> None:
        seen.append(job)

    a.using(expires=60).enqueue()
    asyncio.run(AsyncEnqueuer(namespace, redis=redis_url).using(expires=timedelta(minutes=1)).enqueue("a"))
    pool.start()
    wait_until(lambda: len(seen) == 2)


def test_a_clock_that_is_set_while_the_process_runs_changes_no_expiry(
    pool, namespace, redis_url, monkeypatch
):
    seen: list[Job] = []

    @pool.job
    def a(job: Job) -> None:
        seen.append(job)

    enqueuer = Enqueuer(namespace, redis=redis_url)
    enqueuer.enqueue("a")
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    enqueuer.using(expires=60).enqueue("a")
    pool.start()
    wait_until(lambda: len(seen) == 2)
    enqueuer.close()


def test_a_retry_waits_as_long_as_it_says(pool, redis_now):
    ran: list[float] = []

    @pool.job(max_fails=2, backoff=0.3)
    def a(job: Job) -> None:
        ran.append(redis_now())
        if not job.fails:
            raise ValueError("again")

    pool.start()
    a.enqueue()
    wait_until(lambda: len(ran) == 2)
    assert ran[1] - ran[0] >= 0.3


def test_a_schedule_ticks_at_redis_time(pool, redis_now):
    ticks: list[tuple[int, float]] = []

    @pool.job
    def tick(job: Job) -> None:
        ticks.append((int(job.enqueued_at), redis_now()))

    pool.periodic("* * * * * *", tick)
    pool.start()
    wait_until(lambda: len(ticks) >= 3)
    assert len({due for due, _ in ticks}) == len(ticks)
    assert all(due <= ran for due, ran in ticks)


def nothing() -> None: ...


def test_a_pool_with_a_wrong_clock_reaps_nobody_and_is_not_reaped(pool, link, keys, redis_url, namespace):
    """Leases are looked at again and again, and by an hour none would hold."""
    other = WorkerPool(namespace=namespace, redis=redis_url, concurrency=1, lease=30.0, beat=0.5)
    for one in (pool, other):
        one.register("a", nothing)
    with pool, other:
        ids = {one._runtime.state.pool_id for one in (pool, other)}
        passes = {link.run(plain("HGET", keys.watch, "last"))}

        def judged() -> bool:
            passes.add(link.run(plain("HGET", keys.watch, "last")))
            return len(passes) > 4

        wait_until(judged)
        assert {one.decode() for one in link.run(plain("ZRANGE", keys.pools, 0, -1))} == ids
        assert {one._runtime.state.pool_id for one in (pool, other)} == ids

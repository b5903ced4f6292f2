"""What becomes of attempts: fetched ahead or not, settled once, rescued in their old order."""

from __future__ import annotations

import asyncio
import json
import random
import threading

import pytest

import pools
from crashes import dial, fill
from dayjob import Job, WorkerPool
from dayjob.errors import JobTimeout
from dayjob.options import JobOptions
from dayjob.store.op import plain
from dayjob.store.ops import membership
from dayjob.store.scripts import load
from dayjob.worker.chores.reaper import MAX_SWEEP_BYTES, MAX_SWEPT, Reaper
from pools import Pool
from proxy import Proxy, proxied
from server import Server, wait_until


@pytest.fixture
def proxy(server: Server) -> Proxy:
    with proxied(server.port) as found:
        yield found


def fetched_ahead(proxy: Proxy) -> dict[str, int]:
    """The names that some exchange asked for beyond what there was a free worker for, and how many more it asked for at most."""
    found: dict[str, int] = {}
    for words in list(proxy.requests):
        if words[0] != b"EVALSHA" or words[1] != load("exchange").sha.encode():
            continue
        args = words[3 + int(words[2]) :]
        extra, names = int(args[4]), int(args[8])
        wants = args[14 : 14 + 3 * names]
        if extra:
            for name in (wants[i].decode() for i in range(0, len(wants), 3) if wants[i + 2] == b"2"):
                found[name] = max(found.get(name, 0), extra)
    return found


def test_quick_jobs_are_fetched_ahead_and_one_unique_job_for_each_worker(proxy, namespace, call, keys):
    """Many of them would wait with their keys in this pool, while the workers of others are free."""
    pool = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=1)

    @pool.job
    def plain(n: int) -> None: ...

    @pool.job
    def single(n: int) -> None: ...

    def done(name: str) -> int:
        return int(call("HGET", keys.totals, f"done:{name}") or 0)

    with pool:
        for n in range(300):
            single.enqueue_unique(n=n)
        wait_until(lambda: done("single") == 300)
        assert fetched_ahead(proxy) == {"single": 1}
        pool.enqueuer.enqueue_many("plain", [{"n": n} for n in range(2000)])
        wait_until(lambda: done("plain") == 2000)
        # The same pool does fetch ahead where it may, or the above would mean nothing.
        assert fetched_ahead(proxy)["plain"] > 1


def test_an_attempt_that_is_reported_twice_is_settled_once_and_nothing_is_late(new_pool, look):
    """A timeout and the end of its handler may come at the same moment: the second never leaves the process."""
    pool = new_pool(concurrency=1)
    started, release = threading.Event(), threading.Event()

    @pool.job
    def hold(job: Job) -> None:
        if job.id in seen:
            return
        seen.add(job.id)
        started.set()
        release.wait(60)

    seen: set[str] = set()
    with pool:
        hold.enqueue()
        assert started.wait(60)
        fetcher = pool._runtime.fetcher
        (attempt,) = pool._runtime.state.held.values()
        for _ in range(2):
            fetcher.finish(attempt, attempt.back())
        release.set()
        wait_until(lambda: look.total("done:hold") == 1)
    # A second report would be counted as late.
    assert look.totals() == {"done:hold": 1}
    assert look.total("given_back:hold") >= 1


def test_what_a_dead_pool_held_waits_in_its_old_order_ahead_of_what_came_since(keys, link, call):
    """More than one sweep moves at once."""
    old = fill(keys, link, "a", 2 * MAX_SWEPT + 5)
    pool = Pool(keys, link, names=["a"])
    assert len(pool.fetch("a")) == len(old)
    new = fill(keys, link, "a", 3)
    reaper = Reaper(
        keys, link, lease=15.0, options=lambda name: JobOptions(), on_dead=None, rng=random.Random(0)
    )
    assert reaper.reap([pool.id]) == len(old)
    waiting = [json.loads(raw)["id"] for raw in reversed(call("LRANGE", keys.queue("a"), 0, -1))]
    assert waiting == [json.loads(raw)["id"] for raw in (*old, *new)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (JobOptions(), {"failed:a": 1, "retried:a": 1}),
        (JobOptions(max_fails=1), {"failed:a": 1, "dead:a": 1}),
        (JobOptions(max_fails=1, skip_dead=True), {"failed:a": 1, "discarded:a": 1}),
        (JobOptions(discard_on=(JobTimeout,)), {"discarded:a": 1}),
    ],
    ids=["retried", "dead", "dropped", "discarded"],
)
def test_a_job_whose_process_was_killed_for_its_timeout_ends_like_one_that_raised(
    keys, link, look, options, expected
):
    fill(keys, link, "a", 1)
    pool = Pool(keys, link, names=["a"])
    (token,) = pool.fetch("a")
    link.run(membership.set_cause(keys, pool.id, token, "ran longer than its timeout"))
    dead: list[str] = []
    reaper = Reaper(
        keys, link, lease=15.0, options=lambda name: options, on_dead=lambda job, _: dead.append(job.name),
        rng=random.Random(0),
    )  # fmt: skip
    assert reaper.reap([pool.id]) == 1
    assert look.totals() == expected
    assert len(dead) == expected.get("dead:a", 0)


def sweeps(proxy: Proxy) -> list[list[bytes]]:
    """The payloads of each sweep that was sent and moved something."""
    found: list[list[bytes]] = []
    for words in list(proxy.requests):
        if words[0] == b"EVALSHA" and words[1] == load("sweep").sha.encode():
            args = words[3 + int(words[2]) :]
            found.append(args[2 + int(args[1]) + 3 :: 16])
    return [payloads for payloads in found if payloads]


def test_large_jobs_of_a_dead_pool_are_rescued_in_order_by_sweeps_of_bounded_size(proxy, keys, link, call):
    """One job may be larger than a sweep should be: it goes alone."""
    kib = [1, 300, 400, 500, 600, 3000, 2, 3, 900, 4, 5, 1024, *[100] * 12]
    old = [f'{{"name":"a","id":"{n}","args":{{"x":"{"x" * size * 1024}"}}}}' for n, size in enumerate(kib)]
    for payload in old:
        pools.fill(keys, link, "a", payload)
    pool = Pool(keys, link, names=["a"])
    while call("LLEN", keys.queue("a")):
        pool.fetch("a")
    through = dial(proxy.url, keys)
    link.run(plain("SCRIPT", "LOAD", load("sweep").source))
    reaper = Reaper(
        keys, through, lease=15.0, options=lambda name: JobOptions(), on_dead=None, rng=random.Random(0)
    )
    assert reaper.reap([pool.id]) == len(old)
    through.close()

    waiting = [json.loads(raw) for raw in reversed(call("LRANGE", keys.queue("a"), 0, -1))]
    assert [job["id"] for job in waiting] == [str(n) for n in range(len(old))]
    assert [len(job["args"]["x"]) for job in waiting] == [size * 1024 for size in kib]
    assert call("EXISTS", keys.held(pool.id), keys.condemned) == 0
    sent = sweeps(proxy)
    assert sum(map(len, sent)) == len(old)
    # A rescued job has some fields more than the pool held.
    assert [len(one) for one in sent if sum(map(len, one)) > MAX_SWEEP_BYTES + MAX_SWEPT * 1024] == [1]
    # What is read of the pool at once is bounded alike.
    read = [words for words in list(proxy.requests) if words[:2] == [b"HMGET", keys.held(pool.id).encode()]]
    assert [len(words) - 2 for words in read] == [len(one) for one in sent]


def test_an_attempt_that_cancels_itself_because_its_pool_stops_is_given_back_and_has_not_failed(
    new_pool, look
):
    pool = new_pool(concurrency=1)
    started = threading.Event()

    @pool.job(max_fails=1)
    async def polite(job: Job) -> None:
        started.set()
        while not job.stopping:  # noqa: ASYNC110 - what a handler does
            await asyncio.sleep(0.005)
        raise asyncio.CancelledError

    pool.start()
    polite.enqueue()
    assert started.wait(60)
    pool.stop(timeout=60)
    assert look.totals() == {}
    assert look.total("given_back:polite") >= 1
    (job,) = look.queue("polite")
    assert "fails" not in job

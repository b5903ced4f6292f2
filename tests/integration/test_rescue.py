"""Pools that die, sleep, stop or lose their connections: nothing is lost, and every repeat has one recorded cause."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import msgspec
import pytest

from dayjob import Job
from dayjob.errors import JobFailed
from dayjob.store.ops import maintain
from dayjob.worker import shutdown
from server import sooner_than, wait_until

#: Leases stay long: a pool that is paused for a moment must not be taken for a dead one.
QUICK = {"beat": 0.3}


# Death.


def test_what_a_dead_pool_held_is_run_by_another_with_one_death_each(new_pool, new_ghost, look, call, keys):
    pool = new_pool(concurrency=2, **QUICK)
    lock, ran = threading.Lock(), []

    @pool.job
    def work(job: Job, number: int):
        with lock:
            ran.append((number, job.deaths, job.fails, job.attempt))

    pool.enqueuer.enqueue_many("work", [{"number": i} for i in range(150)])
    ghost = new_ghost()
    assert len(ghost.take("work", room=120)) == 120
    with pool:
        wait_until(lambda: len(ran) == 150)
        assert pool.drain(60)
        assert call("EXISTS", keys.held(ghost.id), keys.state(ghost.id)) == 0
        assert call("ZCARD", keys.condemned) == 0
    assert sorted(ran) == [(i, 1, 0, 2) if i < 120 else (i, 0, 0, 1) for i in range(150)]
    assert look.totals() == {"reaped:work": 120, "done:work": 150}


def test_a_pool_that_is_alive_but_has_nothing_to_do_keeps_its_lease(new_pool, look):
    pool = new_pool(lease=3.0, beat=0.3)
    pool.register("nothing", lambda: None)
    with pool:
        (first,) = look.pools()
        beat_at = wait_until(look.status)[0]["beat_at"]
        wait_until(lambda: any(one["beat_at"] > beat_at + 4 for one in look.status()))
        assert look.pools() == [first]


def test_a_job_that_kills_its_pools_is_dead_at_the_third_death_and_takes_nobody_with_it(
    new_pool, new_ghost, look, keys, call
):
    chores = new_pool(**QUICK)
    chores.register("other", lambda: None)
    pool = new_pool(**QUICK)
    lock, ran = threading.Lock(), []

    @pool.job
    def work(job: Job, kind: str):
        with lock:
            ran.append((kind, job.deaths))

    def die(named):
        """Take everything, start the named job, and never be heard of again."""
        ghost = new_ghost(lease=60)
        jobs = ghost.take("work")
        for token, payload in jobs:
            if payload["args"]["kind"] == named:
                ghost.suspect(token)
        ghost.die()
        wait_until(lambda: call("ZSCORE", keys.pools, ghost.id) is None)
        wait_until(lambda: call("EXISTS", keys.held(ghost.id)) == 0)
        return ghost.id, len(jobs)

    for kind in ("one", "poison", "two", "three"):
        pool.enqueuer.enqueue("work", kind=kind)
    with chores:
        assert die(None)[1] == 4
        assert {job["args"]["kind"]: job["deaths"] for job in look.queue("work")} == dict.fromkeys(
            ("one", "poison", "two", "three"), 1
        )
        assert die(None)[1] == 4
        last, count = die("poison")
        assert count == 4
        wait_until(look.dead)
        assert die(None)[1] == 3
    (dead,) = look.dead()
    assert (dead["args"]["kind"], dead["deaths"], dead.get("fails", 0)) == ("poison", 3, 0)
    assert "died 3 times" in dead["err"]
    assert last in dead["err"]
    assert dead["attempt"].startswith(last + "/")
    with pool:
        wait_until(lambda: len(ran) == 3)
        assert pool.drain(60)
    assert sorted(ran) == [("one", 2), ("three", 2), ("two", 2)]
    assert look.total("dead:work") == 1
    assert look.total("failed:work") == 0


def test_the_dead_hook_is_told_of_a_job_that_died_with_its_pools(new_pool, new_ghost, look, keys, call):
    pool = new_pool(**QUICK)
    told = []

    @pool.job(on_dead=lambda job, error: told.append((job.id, job.args, str(error))))
    def work(user: int):
        raise AssertionError("must not run")

    call("LPUSH", keys.queue("work"), '{"name":"work","id":"p","t":1,"args":{"user":1},"deaths":2}')
    ghost = new_ghost()
    ((token, _),) = ghost.take("work")
    ghost.suspect(token)
    with pool:
        wait_until(lambda: told)
    assert told[0][:2] == ("p", {"user": 1})
    assert "died 3 times" in told[0][2]
    assert len(look.dead()) == 1


@pytest.mark.parametrize("known", [True, False], ids=["its own pool", "a pool of another program"])
def test_the_result_of_a_job_that_crashed_its_pools_raises(new_pool, new_ghost, keys, call, known):
    owner = new_pool(**QUICK)
    work = owner.register("work", lambda: None, keep=60)
    with owner:  # announces that it keeps results
        pass
    reaper = owner if known else new_pool(**QUICK)
    reaper.register("other", lambda: None)
    call("LPUSH", keys.queue("work"), '{"name":"work","id":"p","t":1,"args":{},"deaths":2}')
    ghost = new_ghost()
    ((token, _),) = ghost.take("work")
    ghost.suspect(token)
    with reaper, pytest.raises(JobFailed, match="p: its process died 3 times"):
        work.result("p", timeout=60)


def test_jobs_that_died_once_run_side_by_side_again(new_pool, keys, call, look):
    """A process that is killed costs its jobs a moment, and not their turn one after the other."""
    pool = new_pool(concurrency=4)
    together = threading.Barrier(4, timeout=60)
    pool.register("work", lambda: together.wait() and None)
    for i in range(4):
        call("LPUSH", keys.queue("work"), look.payload("work", f"s{i}", deaths=1))
    with pool:
        assert pool.drain(60)
    assert look.total("done:work") == 4


def test_suspects_run_one_at_a_time_and_named_before_they_start(new_pool, keys, call, look):
    pool = new_pool(concurrency=8)
    lock, inside, peak, named = threading.Lock(), [0], [0], []
    pause = threading.Event()

    @pool.job
    def work(job: Job):
        with lock:
            inside[0] += 1
            peak[0] = max(peak[0], inside[0])
            (pool_id,) = look.pools()
            token = call("HGET", keys.state(pool_id), "suspect")
            held = call("HGET", keys.held(pool_id), token) if token else b"{}"
            named.append(msgspec.json.decode(held).get("id") == job.id)
        pause.wait(0.002)
        with lock:
            inside[0] -= 1

    for i in range(20):
        call("LPUSH", keys.queue("work"), look.payload("work", f"s{i}", deaths=2))
    with pool:
        wait_until(lambda: len(named) == 20)
        assert pool.drain(60)
        (pool_id,) = look.pools()
        assert call("HEXISTS", keys.state(pool_id), "suspect") == 0
    assert peak[0] == 1
    assert all(named)


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_a_suspect_that_finds_no_free_worker_is_run_later(new_pool, keys, call, look, colour):
    pool = new_pool(concurrency=1)
    ran, done = [], threading.Event()

    @pool.job(priority=100_000)
    def plain():
        ran.append("suspect")
        done.set()

    @pool.job(priority=100_000)
    async def coloured():
        ran.append("suspect")
        done.set()

    @pool.job
    def long():
        ran.append("long")
        done.wait(0.3)

    for i in range(2):
        call("LPUSH", keys.queue(colour), look.payload(colour, f"s{i}", deaths=2))
        pool.enqueuer.enqueue("long")
    with pool:
        wait_until(lambda: len(ran) == 4)
    assert sorted(ran) == ["long", "long", "suspect", "suspect"]


# Sleep.


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_pool_that_was_reaped_while_it_slept_goes_on_under_a_new_id_and_its_late_outcome_changes_nothing(
    new_pool, look, keys, link, end
):
    pool = new_pool(concurrency=3, **QUICK)
    gate, runs, ended = threading.Event(), [], []

    @pool.job(max_fails=1)
    def work(job: Job):
        runs.append(job)
        if job.deaths == 0:
            gate.wait(60)
            ended.append(job.stopping)
            if end == "raises":
                raise ValueError("late")

    @pool.job
    def other():
        pass

    with pool:
        work.enqueue()
        wait_until(lambda: runs)
        (first,) = look.pools()
        link.run(maintain.condemn(keys, lease=1.0, proven=[first], judge=False))
        wait_until(lambda: look.total("done:work") == 1)
        (second,) = look.pools()
        assert second != first
        assert [job.deaths for job in runs] == [0, 1]
        assert runs[0].id == runs[1].id
        assert runs[0].stopping
        assert not runs[1].stopping
        gate.set()
        wait_until(lambda: ended)
        for _ in range(5):
            other.enqueue()
        assert pool.drain(60)
        assert look.pools() == [second]
    assert ended == [True]
    totals = look.totals()
    assert totals.pop("late:work", 0) <= 1
    assert totals == {"reaped:work": 1, "done:work": 1, "done:other": 5}
    assert look.dead() == look.retry() == look.queue("work") == []


def test_an_outcome_whose_attempt_is_no_longer_held_is_counted_as_late_and_changes_nothing(
    new_pool, look, keys, call
):
    pool = new_pool()
    gate, started = threading.Event(), []

    @pool.job(max_fails=1)
    def work():
        started.append(1)
        gate.wait(60)
        raise ValueError("late")

    with pool:
        work.enqueue()
        wait_until(lambda: started)
        (pool_id,) = look.pools()
        (token,) = call("HKEYS", keys.held(pool_id))
        call("HDEL", keys.held(pool_id), token)
        gate.set()
        wait_until(lambda: look.total("late:work"))
        assert pool.drain(60)
    assert look.totals() == {"late:work": 1}
    assert look.dead() == []


# Stop.


@pytest.mark.parametrize("style", ["loops", "blocks", "awaits", "swallows"])
def test_stop_gives_back_what_does_not_end_in_time_uncounted_and_in_order(
    new_pool, look, call, keys, style, monkeypatch
):
    # So that a server that is paused for a moment does not keep the pool from giving back.
    monkeypatch.setattr(shutdown, "SETTLE_SECONDS", 3.0)
    pool = new_pool(concurrency=3)
    gate, started, pause = threading.Event(), [], threading.Event()

    @pool.job
    def loops(number: int):
        started.append(number)
        while not gate.is_set():
            pause.wait(0.005)

    @pool.job
    def blocks(number: int):
        started.append(number)
        gate.wait()

    @pool.job
    async def awaits(number: int):
        started.append(number)
        while not gate.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.005)

    @pool.job
    async def swallows(number: int):
        started.append(number)
        while not gate.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                pass

    pool.enqueuer.enqueue_many(style, [{"number": i} for i in range(8)])
    before = call("LRANGE", keys.queue(style), 0, -1)
    pool.start()
    wait_until(lambda: len(started) == 3)
    # A slow machine may have given back some that no worker had started in time.
    earlier = look.total(f"given_back:{style}")
    began = time.monotonic()
    with sooner_than(20):
        pool.stop(timeout=0.3)
    try:
        assert time.monotonic() - began >= 0.3
        assert [job["args"]["number"] for job in look.queue(style)] == list(range(8))
        assert call("LRANGE", keys.queue(style), 0, -1) == before
        assert look.total(f"given_back:{style}") == earlier + 3
        assert look.totals() == {}
        assert look.pools() == []
        assert call("ZCARD", keys.condemned) == 0
    finally:
        gate.set()
    # What ended after that has no say any more.
    with pool:
        assert pool.drain(60)
    assert look.totals() == {f"done:{style}": 8}


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_stop_in_the_middle_of_a_backlog_leaves_the_rest_in_order(new_pool, look, colour):
    pool = new_pool(concurrency=4)
    ran, pause = [], threading.Event()

    # After so many they wait for the stop, so that some are left however late it comes.
    @pool.job
    def plain(job: Job, number: int):
        while len(ran) > 5000 and not job.stopping:
            pause.wait(0.005)
        ran.append(number)

    @pool.job
    async def coloured(job: Job, number: int):
        while len(ran) > 5000 and not job.stopping:  # noqa: ASYNC110 - the way to ask
            await asyncio.sleep(0.005)
        ran.append(number)

    pool.enqueuer.enqueue_many(colour, [{"number": i} for i in range(20_000)])
    pool.start()
    wait_until(lambda: len(ran) > 1000)
    pool.stop()
    left = [job["args"]["number"] for job in look.queue(colour)]
    assert left
    assert left == sorted(left)
    assert sorted(ran + left) == list(range(20_000))
    assert look.total(f"done:{colour}") == len(ran)
    assert look.retry() == look.dead() == []


def test_stop_lets_what_runs_end_within_its_time(new_pool, look):
    pool = new_pool(concurrency=2)
    gate, started = threading.Event(), []

    @pool.job
    def plain(job: Job):
        started.append(1)
        while not job.stopping:
            gate.wait(0.005)
        gate.wait(0.1)

    @pool.job
    async def coloured(job: Job):
        started.append(1)
        while not job.stopping:  # noqa: ASYNC110 - the way to ask
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)

    pool.start()
    for _ in range(2):
        plain.enqueue()
        coloured.enqueue()
    wait_until(lambda: len(started) == 2)
    pool.stop(timeout=20)
    totals = look.totals()
    assert totals.pop("done:plain", 0) + totals.pop("done:coloured", 0) == 2
    assert totals == {}
    assert len(look.queue("plain")) + len(look.queue("coloured")) == 2


# Entries that are not jobs.

NO_JOBS = [
    b"no JSON", b"", b"\xff\xfe\x00", b"[1]", b"7", b"null", b'{"args":{}}', b'{"name":"work","args":[1]}',
    b'{"name":"work","args":7}', b'{"name":7,"args":{}}', b'{"name":"work","args":{}', b"[" * 100_000,
    b'{"name":"work","args":{},"fails":"many"}',
]  # fmt: skip


def broken(look):
    """What is kept in broken: (header, bytes)."""
    found = []
    for entry in look.call("LRANGE", look.keys.broken, 0, -1):
        header, _, payload = entry.partition(b"\n")
        found.append((msgspec.json.decode(header), payload))
    return found


def test_entries_of_a_queue_that_are_not_jobs_are_kept_in_broken_and_stop_nobody(new_pool, look, keys, call):
    pool = new_pool()
    lock, ran = threading.Lock(), []

    @pool.job
    def work(number: int):
        with lock:
            ran.append(number)

    bad = [*NO_JOBS, b'{"name":"other","id":"o","args":{}}']
    for i, payload in enumerate(bad):
        call("LPUSH", keys.queue("work"), payload)
        pool.enqueuer.enqueue("work", number=i)
    with pool:
        wait_until(lambda: look.total("broken:work") == len(bad))
        assert pool.drain(60)
    assert sorted(ran) == list(range(len(bad)))
    kept = broken(look)
    assert Counter(payload for _, payload in kept) == Counter(bad)
    assert {header["where"] for header, _ in kept} == {keys.queue("work")}
    assert all(header["why"] and header["at"] > 0 for header, _ in kept)
    assert look.held() == 0


@pytest.mark.parametrize("place", ["retry", "scheduled"])
def test_entries_of_the_side_sets_that_are_not_jobs_are_kept_in_broken_and_stop_nobody(
    new_pool, look, keys, call, place
):
    pool = new_pool()
    lock, ran = threading.Lock(), []

    @pool.job
    def work(number: int):
        with lock:
            ran.append(number)

    source = getattr(keys, place)
    for i, payload in enumerate(NO_JOBS):
        call("ZADD", source, i + 1, payload)
        call("ZADD", source, i + 1.5, look.payload("work", f"w{i}", args={"number": i}))
    with pool:
        wait_until(lambda: len(ran) == len(NO_JOBS))
        wait_until(lambda: call("ZCARD", source) == 0)
        assert pool.drain(60)
    assert sorted(ran) == list(range(len(NO_JOBS)))
    kept = broken(look)
    assert Counter(payload for _, payload in kept) == Counter(NO_JOBS)
    assert {header["where"] for header, _ in kept} == {source}


def test_an_entry_that_is_not_a_job_and_was_held_by_a_dead_pool_is_kept_in_broken(
    new_pool, new_ghost, look, keys, call
):
    pool = new_pool(**QUICK)
    pool.register("work", lambda: None)
    ghost = new_ghost()
    call("LPUSH", keys.queue("work"), b'{"name":"work","args":{}}')
    ((token, _),) = ghost.take("work")
    call("HSET", keys.held(ghost.id), token, b"\xffno job")
    with pool:
        wait_until(lambda: broken(look))
    assert [payload for _, payload in broken(look)] == [b"\xffno job"]


# Trouble with the server.


def disturb(pool, done, trouble):
    """Work through a backlog of both colours while `trouble` is made again and again; how often each job ran."""
    lock, runs = threading.Lock(), Counter()

    def note(number):
        with lock:
            runs[number] += 1

    pause = threading.Event()

    @pool.job
    def plain(number: int):
        pause.wait(0.001)
        note(number)

    @pool.job
    async def coloured(number: int):
        await asyncio.sleep(0.001)
        note(number)

    @pool.job(backoff=0)
    def twice(job: Job, number: int):
        if job.fails:
            note(number)
        else:
            raise ValueError("first")

    pool.enqueuer.enqueue_many("plain", [{"number": i} for i in range(1000)])
    pool.enqueuer.enqueue_many("coloured", [{"number": i} for i in range(1000, 2000)])
    pool.enqueuer.enqueue_many("twice", [{"number": i} for i in range(2000, 2300)])
    with pool:
        while not done():
            trouble()
        assert pool.drain(60)
    return runs


@pytest.mark.parametrize("kind", ["flush", "kill"])
def test_every_job_runs_once_whatever_happens_to_scripts_and_connections(new_pool, look, call, kind):
    pool = new_pool(concurrency=8)
    made = Counter()
    pause = threading.Event()

    def flush():
        call("SCRIPT", "FLUSH")
        made["flush"] += 1
        pause.wait(0.01)

    def kill():
        for line in call("CLIENT", "LIST").decode().splitlines():
            words = dict(word.partition("=")[::2] for word in line.split())
            if words["name"] in ("dayjob:exchange", "dayjob:bell", "dayjob:chores"):
                made[words["name"]] += call("CLIENT", "KILL", "ID", words["id"])
        pause.wait(0.02)

    def done():
        totals = look.totals()
        ended = sum(totals.get(f"done:{name}", 0) for name in ("plain", "coloured", "twice"))
        # Listening begins when a pool has room: on a quick machine, when nearly all is done.
        return ended == 2300 and sum(made.values()) >= 10 and (kind == "flush" or made["dayjob:bell"] >= 5)

    runs = disturb(pool, done, {"flush": flush, "kill": kill}[kind])
    assert set(runs) == set(range(2300))
    assert set(runs.values()) == {1}
    assert min(made.values()) >= 1, made
    assert look.totals() == {
        "done:plain": 1000, "done:coloured": 1000, "done:twice": 300, "failed:twice": 300, "retried:twice": 300,
    }  # fmt: skip

"""What can be seen of a pool and its jobs: totals, figures, status, results, and what is kept of completed jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import Counter

import msgspec
import pytest

from dayjob import AsyncEnqueuer, Discard, Enqueuer, Job, Snooze
from dayjob.errors import JobFailed, NotReady, ResultTimeout
from dayjob.options import PoolOptions
from dayjob.worker.chores.trimmer import Trimmer
from dayjob.worker.running.report import call_hooks
from dayjob.worker.shared_link import SharedLink
from server import wait_until

QUICK = {"beat": 0.3}


def test_totals_are_exact_for_every_name_and_outcome(new_pool, look):
    pool = new_pool(concurrency=8)

    def act(job):
        match job.args["number"] % 5:
            case 1 if job.fails == 0:
                raise ValueError("once")
            case 2:
                raise ValueError("always")
            case 3:
                raise Discard("no")
            case 4 if job.snoozes == 0:
                raise Snooze("later", after=0.01)

    @pool.job(max_fails=2, backoff=0)
    def plain(job: Job):
        act(job)

    @pool.job(max_fails=2, backoff=0)
    async def coloured(job: Job):
        act(job)

    pool.enqueuer.enqueue_many("plain", [{"number": i} for i in range(500)])
    pool.enqueuer.enqueue_many("coloured", [{"number": i} for i in range(250)])
    with pool:
        wait_until(lambda: look.total("done:plain") == 300 and look.total("done:coloured") == 150)
        wait_until(lambda: len(look.dead()) == 150)
        assert pool.drain(60)
    expected = {}
    for name, fifth in (("plain", 100), ("coloured", 50)):
        expected |= {
            f"done:{name}": 3 * fifth, f"failed:{name}": 3 * fifth, f"retried:{name}": 2 * fifth,
            f"dead:{name}": fifth, f"discarded:{name}": fifth, f"snoozed:{name}": fifth,
        }  # fmt: skip
    assert look.totals() == expected


def figures(look):
    """Sums of the histograms of the last minutes: by name and letter."""
    found = Counter()
    minute = int(look.now() // 60)
    for one in range(minute - 2, minute + 1):
        raw = look.call("HGETALL", look.keys.minute(one))
        for field, count in zip(raw[::2], raw[1::2], strict=True):
            name, _, rest = field.decode().rpartition("|")
            found[name, rest[0]] += int(count)
    return found


def test_the_figures_of_each_minute_count_every_run_and_every_wait(new_pool, look):
    pool = new_pool(concurrency=8)
    pool.register("plain", lambda: None)

    @pool.job
    async def coloured():
        pass

    pool.enqueuer.enqueue_many("plain", [{}] * 3000)
    pool.enqueuer.enqueue_many("coloured", [{}] * 2000)
    with pool:
        assert pool.drain(60)
    found = figures(look)
    assert found["plain", "r"] == found["plain", "w"] == 3000
    assert found["coloured", "r"] == found["coloured", "w"] == 2000
    assert found["", "x"] > 0


def test_the_figures_of_a_quiet_pool_are_sent_while_it_runs(new_pool, look):
    pool = new_pool()
    pool.register("plain", lambda: None)
    with pool:
        pool.enqueuer.enqueue("plain")
        wait_until(lambda: figures(look)["plain", "r"] == 1)


def test_the_status_says_who_a_pool_is_and_what_it_does(new_pool, look):
    pool = new_pool(concurrency=7, **QUICK)
    gate, started = threading.Event(), []

    @pool.job(timeout=60)
    def long(user: int):
        started.append(1)
        gate.wait(60)

    pool.register("idle", lambda: None)
    before = look.now()
    with pool:
        jobs = [long.using(source="acme").enqueue(user=i) for i in range(2)]
        wait_until(lambda: len(started) == 2)
        (status,) = wait_until(lambda: [one for one in look.status() if len(one["workers"]) == 2])
        gate.set()
        (pool_id,) = look.pools()
    assert status["id"] == pool_id
    assert status["pid"] == os.getpid()
    assert status["host"]
    assert status["concurrency"] == 7
    assert status["names"] == ["idle", "long"]
    assert status["running"] == {"long": 2}
    assert status["held"] == 2
    assert status["quiet"] is False
    assert status["leads"] is True
    assert status["rss"] > 1_000_000
    assert before - 1 < status["started_at"] <= status["beat_at"] <= look.now() + 1
    assert {worker["id"] for worker in status["workers"]} == {job.id for job in jobs}
    for worker in status["workers"]:
        assert worker["name"] == "long"
        assert worker["source"] == "acme"
        assert worker["args"]["user"] in (0, 1)
        assert worker["timeout"] == 60
        assert worker["worker_id"] in status["worker_ids"]
        assert before <= worker["started_at"] + 1
    assert look.call("EXISTS", look.keys.pool(pool_id)) == 0


def test_redacted_arguments_show_neither_in_the_status_nor_in_errors(new_pool, look):
    pool = new_pool(**QUICK)
    gate = threading.Event()

    @pool.job(redact=["card"], max_fails=1)
    def pay(user: int, card: str):
        gate.wait(60)
        raise ValueError(f"card {card} refused")

    with pool:
        pay.enqueue(user=1, card="4111-1111")
        (worker,) = wait_until(look.workers)
        gate.set()
        wait_until(look.dead)
    assert worker["args"]["user"] == 1
    assert "4111" not in msgspec.json.encode(worker).decode()
    (dead,) = look.dead()
    assert "4111" not in dead["err"] + dead["trace"] + dead["past"][0][3]
    assert dead["err"].startswith("ValueError: card ")


@pytest.mark.parametrize("colour", ["plain", "coloured"])
@pytest.mark.parametrize("hook", ["on_fail", "on_dead"])
def test_a_hook_that_fails_is_logged_without_the_redacted_arguments(new_pool, look, caplog, colour, hook):
    """Its own error has the handler's in its chain and in a note, and an argument as its cause."""
    pool = new_pool(**QUICK)

    def break_down(job: Job, error: BaseException) -> None:
        problem = LookupError(f"no account for {job.args['card']}")
        problem.add_note(f"the card was {job.args['card']}")
        raise problem from error

    def plain(card: str) -> None:
        raise ValueError(f"card {card} refused")

    async def coloured(card: str) -> None:
        raise ValueError(f"card {card} refused")

    pay = pool.register(
        "pay",
        {"plain": plain, "coloured": coloured}[colour],
        redact=["card"],
        max_fails=1,
        **{hook: break_down},
    )
    with pool:
        pay.enqueue(card="4111-1111")
        wait_until(look.dead)
    (line,) = [record for record in caplog.records if "hook" in record.getMessage()]
    text = logging.Formatter().format(line)
    assert "4111" not in text
    assert "LookupError: no account for [redacted]" in text
    assert "ValueError: card [redacted] refused" in text
    assert "break_down" in text


def test_a_hook_that_fails_for_a_job_of_a_dead_process_is_logged_without_the_redacted_arguments(caplog):
    """The reaper calls on_dead for jobs that it finds with a dead pool."""

    def break_down(job: Job, error: BaseException) -> None:
        raise LookupError(job.args["card"])

    job = Job("pay", {"card": "4111-1111"})
    job.redact = ("card",)
    call_hooks([break_down], job, ValueError())
    assert "4111" not in caplog.text
    assert "LookupError: [redacted]" in caplog.text


# Results.


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_results_are_kept_where_asked_and_can_be_waited_for(new_pool, colour, namespace, redis_url):
    pool = new_pool()

    @pool.job(keep=60)
    def plain(number: int) -> dict[str, int]:
        return {"double": number * 2}

    @pool.job(keep=60)
    async def coloured(number: int) -> dict[str, int]:
        return {"double": number * 2}

    handle = {"plain": plain, "coloured": coloured}[colour]
    stranger = Enqueuer(namespace, redis=redis_url)

    async def from_async_code():
        async_stranger = AsyncEnqueuer(namespace, redis=redis_url)
        job = await async_stranger.enqueue(colour, number=4)
        own = await handle.aenqueue(number=5)
        found = [
            await async_stranger.result(job, timeout=60),
            await async_stranger.result(job.id, timeout=60),
            await handle.aresult(own, timeout=60),
            await pool.async_enqueuer.result(own.id, timeout=60),
        ]
        await async_stranger.close()
        await pool.async_enqueuer.close()
        return found

    with pool:
        job = handle.enqueue(number=3)
        assert handle.result(job, timeout=60) == {"double": 6}
        assert handle.result(job.id, timeout=60) == {"double": 6}
        assert pool.enqueuer.result(job, timeout=60) == {"double": 6}
        assert stranger.result(job.id, timeout=60) == {"double": 6}
        assert asyncio.run(from_async_code()) == [
            {"double": 8},
            {"double": 8},
            {"double": 10},
            {"double": 10},
        ]
    stranger.close()


def test_asking_for_the_result_of_a_dead_job_raises_its_error(new_pool):
    pool = new_pool()

    @pool.job(keep=60, max_fails=2, backoff=0)
    def fails():
        raise ValueError("no")

    async def ask(job):
        try:
            with pytest.raises(JobFailed, match="ValueError: no"):
                await fails.aresult(job, timeout=60)
        finally:
            await pool.async_enqueuer.close()

    with pool:
        job = fails.enqueue()
        with pytest.raises(JobFailed, match="ValueError: no"):
            fails.result(job, timeout=60)
        asyncio.run(ask(job))


def test_asking_for_a_result_gives_up_in_time_and_refuses_what_is_never_kept(new_pool):
    pool = new_pool()
    kept = pool.register("kept", lambda: None, keep=60)
    plain = pool.register("plain", lambda: None)
    job = kept.enqueue()
    with pytest.raises(ResultTimeout, match=job.id):
        kept.result(job, timeout=0.05)
    with pytest.raises(ResultTimeout):
        pool.enqueuer.result(job, timeout=0)
    with pytest.raises(NotReady, match="keep="):
        plain.result(plain.enqueue(), timeout=1)

    async def ask():
        try:
            with pytest.raises(ResultTimeout):
                await kept.aresult(job, timeout=0.05)
        finally:
            await pool.async_enqueuer.close()

    asyncio.run(ask())


def test_a_result_that_json_cannot_carry_fails_the_job_in_words(new_pool, look):
    pool = new_pool()

    @pool.job(keep=60, max_fails=1)
    def opaque():
        return object()

    with pool:
        job = opaque.enqueue()
        with pytest.raises(JobFailed, match="cannot be stored as JSON"):
            opaque.result(job, timeout=60)
    assert "opaque" in look.dead()[0]["err"]


def test_results_expire_after_their_time(new_pool, keys, call):
    pool = new_pool()
    kept = pool.register("kept", lambda: 7, keep=600)
    with pool:
        job = kept.enqueue()
        assert kept.result(job, timeout=60) == 7
        assert 500_000 < call("PTTL", keys.result(job.id)) <= 600_000


def test_completed_jobs_are_in_done_where_their_type_asks_for_it(new_pool, look, keys):
    pool = new_pool(concurrency=4)
    kept = pool.register("kept", lambda number: number, keep=60)
    plain = pool.register("plain", lambda: None)
    before = look.now()
    with pool:
        jobs = [kept.enqueue(number=i) for i in range(20)]
        same = [plain.enqueue() for _ in range(3)]
        assert pool.drain(60)
    done = look.members(keys.done)
    assert {job["id"] for job in done} == {job.id for job in jobs}
    assert same
    assert {job["args"]["number"] for job in done} == set(range(20))
    # By the pool's own estimate of Redis time, which is behind by as long as an answer takes.
    assert all(job["ran"] >= 0 and (before - 60) * 1000 <= job["done_at"] for job in done)
    assert look.totals() == {"done:kept": 20, "done:plain": 3}


def test_completed_jobs_over_the_cap_are_trimmed_oldest_first_and_counted(new_pool, look, keys, link):
    pool = new_pool(concurrency=1)
    kept = pool.register("kept", lambda number: None, keep=3600)
    with pool:
        for i in range(30):
            kept.enqueue(number=i)
        assert pool.drain(60)
    before = [job["args"]["number"] for job in look.members(keys.done)]
    trimmer = Trimmer(keys, SharedLink(link), PoolOptions(done_count=10))
    assert trimmer.trim(look.now()) == 20
    assert [job["args"]["number"] for job in look.members(keys.done)] == before[-10:]
    assert look.total("trimmed:done") == 20


def test_completed_jobs_are_kept_as_long_as_their_type_says(new_pool, look, keys, link):
    pool = new_pool()
    short = pool.register("short", lambda: None, keep=600)
    long = pool.register("long", lambda: None, keep=3600)
    with pool:
        short.enqueue()
        long.enqueue()
        assert pool.drain(60)
    trimmer = Trimmer(keys, SharedLink(link), PoolOptions())
    assert trimmer.trim(look.now()) == 0
    trimmer.trim(look.now() + 1200)
    assert [job["name"] for job in look.members(keys.done)] == ["long"]


def test_the_state_of_a_job_is_told_by_its_id_from_its_queue_to_its_end(new_pool, redis_url, namespace):
    pool = new_pool()
    started, go = threading.Event(), threading.Event()

    def work(fail: bool = False):
        started.set()
        go.wait(60)
        if fail:
            raise ValueError("no")

    work_type = pool.register("work", work, keep=60, max_fails=1)
    enqueuer = pool.enqueuer
    later = work_type.enqueue_in(600)
    job = work_type.enqueue()
    assert enqueuer.state(later) == "scheduled"
    assert enqueuer.state(job.id) == enqueuer.state(job) == "waiting"

    async def ask() -> str | None:
        try:
            return await pool.async_enqueuer.state(job)
        finally:
            await pool.async_enqueuer.close()

    assert asyncio.run(ask()) == "waiting"
    with pool:
        assert started.wait(60)
        assert enqueuer.state(job) == "running"
        go.set()
        doomed = work_type.enqueue(fail=True)
        assert pool.drain(60)
        assert enqueuer.state(job) == "done"
        assert enqueuer.state(doomed.id) == "dead"
    assert enqueuer.state("nobody") is None

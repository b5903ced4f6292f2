"""Rate limits of running pools: nothing starts over a limit, everything that may starts soon, and nothing polls."""

from __future__ import annotations

import threading
import time

import pytest

from dayjob import BadOption, Concurrency, Job, Rate, Throttled, Window
from dayjob.store import codec
from dayjob.store.ops import rates
from dayjob.worker.chores import chores
from dayjob.worker.fetching import names
from pools import fill
from server import wait_until


class Starts:
    """When jobs started, by this machine's clock."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def note(self) -> None:
        self.at.append(time.monotonic())

    def __len__(self) -> int:
        return len(self.at)


def test_a_window_holds_over_two_pools_and_its_slots_are_used(new_pool, keys, call):
    starts = Starts()
    pools = [new_pool(concurrency=5) for _ in range(2)]
    for pool in pools:
        pool.register("work", lambda n: starts.note(), limits=[Window(5, per=0.5)])
    pools[0].enqueuer.enqueue_many("work", [{"n": n} for n in range(20)])
    # By Redis time: a handler may note its start late. What is over is forgotten, so it is read again and again.
    found: dict[bytes, float] = {}

    def all_started() -> bool:
        read = call("ZRANGE", keys.window("work/window"), 0, -1, "WITHSCORES")
        found.update(zip(read[::2], map(float, read[1::2]), strict=True))
        return len(starts) == 20

    with pools[0], pools[1]:
        wait_until(all_started)
    at = sorted(found.values())
    assert all(later - first >= 500_000 for first, later in zip(at, at[5:], strict=False))
    assert len(at) > 5


def test_a_shared_limit_counts_the_jobs_of_all_its_names(new_pool, look):
    pool, starts = new_pool(concurrency=5), Starts()
    api = pool.limit("api", Rate(3, per=3600))
    for name in ("a", "b"):
        pool.register(name, starts.note, limits=[api])
    for _ in range(4):
        pool.enqueuer.enqueue("a")
        pool.enqueuer.enqueue("b")
    with pool:
        assert pool.drain(60)
        assert len(starts) == 3
    assert len(look.queue("a")) + len(look.queue("b")) == 5
    assert look.totals().keys() <= {"done:a", "done:b"}


def test_a_pool_that_waits_for_a_limit_sends_no_more_than_an_idle_one(new_pool, keys, call):
    pool = new_pool(concurrency=5)
    pool.register("work", lambda: None, limits=[Rate(1, per=3600)])
    for _ in range(9):
        pool.enqueuer.enqueue("work")
    with pool:
        assert pool.drain(60)
        wait_until(lambda: call("ZSCORE", keys.parked, "work") is not None)
        before, rounds = pool._runtime.state.exchanges, pool._runtime._chores._next
        # Two rounds of the leader, which ring every queue that could be fetched from.
        for _ in range(2):
            seen = rounds.get("round")
            wait_until(lambda seen=seen: rounds.get("round") != seen)
        assert pool._runtime.state.exchanges - before <= 1, "figures may be flushed once"


def test_throttled_holds_the_limit_and_burns_nothing(new_pool, look, keys, call):
    pool, tries = new_pool(concurrency=2), []
    api = pool.limit("api", Rate(1000, per=1))

    def work(job: Job, n: int) -> None:
        tries.append((n, job.attempt, time.monotonic()))
        if len(tries) == 1:
            raise Throttled("429", limit=api, after=0.6)

    pool.register("work", work, limits=[api, Concurrency(1)])
    pool.enqueuer.enqueue_many("work", [{"n": n} for n in range(3)])
    with pool:
        wait_until(lambda: len(tries) == 4)
    assert [n for n, _, _ in tries] == [0, 0, 1, 2], "it goes back to the head of its queue"
    assert {attempt for _, attempt, _ in tries} == {1}
    assert tries[1][2] - tries[0][2] >= 0.59
    assert (look.total("held_back:work"), look.total("failed:work")) == (1, 0)


def test_spend_corrects_what_the_job_was_charged(new_pool, keys, link, call):
    pool, starts = new_pool(concurrency=1), Starts()

    def ask(job: Job, tokens: int) -> None:
        starts.note()
        job.spend(tokens)

    pool.register("ask", ask, limits=[Rate(1000, per=3600)], cost=400)
    pool.enqueuer.enqueue_many("ask", [{"tokens": 100}] * 3 + [{"tokens": 5000}] + [{"tokens": 1}] * 3)
    with pool:
        assert pool.drain(60)
    # 300 were used after three jobs, so that a fourth one fits; its debt keeps back the rest.
    assert len(starts) == 4
    state = link.run(rates.limit_states(keys, {"ask/rate": "rate"}, cost=400))["ask/rate"]
    assert 5200 < state.used <= 5300
    assert state.wait > 3600


def test_what_a_job_did_not_use_lets_another_name_of_its_limit_start(new_pool, keys, call, monkeypatch):
    """The request that settles the first name must wake the second one, which would wait an hour."""
    # A pool asks for all its names from time to time, which would hide the defect.
    monkeypatch.setattr(names, "ALL_NAMES_INTERVAL_SECONDS", 3600.0)
    pool, starts, gate = new_pool(concurrency=2), Starts(), threading.Event()
    api = pool.limit("api", Rate(1, per=3600))

    def ask(job: Job) -> None:
        gate.wait(60)
        job.spend(0)

    pool.register("ask", ask, limits=[api])
    pool.register("other", starts.note, limits=[api])
    pool.enqueuer.enqueue("ask")
    with pool:
        wait_until(lambda: call("EXISTS", keys.rate("api")))
        pool.enqueuer.enqueue("other")
        wait_until(lambda: call("ZSCORE", keys.parked, "other"))
        gate.set()
        wait_until(lambda: len(starts) == 1)


def test_what_never_started_is_refunded_when_a_pool_stops(new_pool, keys, link, call, look):
    """Two suspects are fetched, and run one after the other: the second is given back before it starts."""
    pool, gate, running = new_pool(concurrency=2), threading.Event(), threading.Event()
    pool.register(
        "work", lambda: (running.set(), gate.wait(60)), limits=[Rate(10, per=3600), Window(10, per=3600)]
    )
    suspects = [codec.write(codec.quoted("work"), f"id{n}", 1.0, b"{}", {"deaths": 2}) for n in range(2)]
    fill(keys, link, "work", *suspects)
    pool.start()
    try:
        assert running.wait(60)
        wait_until(lambda: call("ZCARD", keys.window("work/window")) == 2)
        stopping = threading.Thread(target=pool.stop, kwargs={"timeout": 10})
        stopping.start()
        wait_until(lambda: len(look.queue("work")) == 1)
    finally:
        gate.set()
    stopping.join()
    states = link.run(rates.limit_states(keys, {"work/rate": "rate", "work/window": "window"}, cost=1))
    assert [one.used for one in states.values()] == [1, 1]


def test_an_attempt_that_redis_lost_is_charged_again(new_pool, keys, call):
    """A failover that lost the last writes: the handler runs on, and has called the API."""
    pool, gate, starts = new_pool(concurrency=2), threading.Event(), Starts()
    pool.register(
        "work", lambda: (starts.note(), gate.wait(60)), limits=[Window(1, per=3600), Rate(1, per=3600)]
    )
    pool.register("other", lambda: None)
    pool.enqueuer.enqueue("work")
    with pool:
        wait_until(lambda: len(starts) == 1)
        (pool_id,) = (one.decode() for one in call("ZRANGE", keys.pools, 0, -1))
        call(
            "DEL",
            keys.held(pool_id),
            keys.window("work/window"),
            keys.rate("work/rate"),
            keys.held_of("work"),
        )
        pool.enqueuer.enqueue("other")
        wait_until(lambda: call("EXISTS", keys.window("work/window"), keys.rate("work/rate")) == 2)
        pool.enqueuer.enqueue("work")
        wait_until(lambda: call("ZSCORE", keys.parked, "work"))
        gate.set()
    assert len(starts) == 1


@pytest.mark.parametrize("by", [None, "account"])
def test_a_key_of_a_limit_that_is_deleted_heals(new_pool, keys, call, monkeypatch, by):
    monkeypatch.setattr(chores, "REPAIR_INTERVAL_SECONDS", 0.2)
    pool, gate, starts = new_pool(concurrency=3), threading.Event(), Starts()
    limits = [Window(2, per=3600, by=by), Rate(2, per=3600, by=by)]
    pool.register("work", lambda account: (starts.note(), gate.wait(60)), limits=limits)
    key = "" if by is None else "|acme"
    window, rate = keys.window(f"work/window{key}"), keys.rate(f"work/rate{key}")
    for _ in range(2):
        pool.enqueuer.enqueue("work", account="acme")
    with pool:
        wait_until(lambda: len(starts) == 2)
        call("DEL", window, rate)
        wait_until(lambda: call("EXISTS", window, rate) == 2)
        wait_until(lambda: call("ZCARD", window) == 2)
        pool.enqueuer.enqueue("work", account="acme")
        wait_until(lambda: call("ZSCORE", keys.parked, "work"))
        gate.set()
    assert len(starts) == 2


def test_a_pool_of_other_code_obeys_limits_that_it_learns(new_pool, keys, link, look):
    """A rolling deploy: the old code has no limit, the new one has."""
    old, new, starts = new_pool(concurrency=5), new_pool(concurrency=5), Starts()
    old.register("work", starts.note)
    new.register("work", starts.note, limits=[Window(2, per=3600)])
    with old:
        old.enqueuer.enqueue("work")
        assert old.drain(60)
        with new:
            for _ in range(6):
                old.enqueuer.enqueue("work")
            wait_until(lambda: len(starts) == 3)
            assert old.drain(60)
            assert new.drain(60)
    assert len(starts) == 3
    assert len(look.queue("work")) == 4


def test_limits_that_redis_lost_are_written_again_before_anything_starts(new_pool, keys, link, call, look):
    pool, starts = new_pool(concurrency=5, beat=0.3), Starts()
    pool.register("work", starts.note, limits=[Window(2, per=3600)])
    with pool:
        first = pool._runtime.state.pool_id
        call("DEL", keys.limits, keys.pools)
        wait_until(lambda: pool._runtime.state.pool_id != first)
        for _ in range(5):
            pool.enqueuer.enqueue("work")
        wait_until(lambda: len(starts) == 2)
        assert pool.drain(60)
    assert len(starts) == 2


def test_throttled_with_a_limit_of_another_job_snoozes(new_pool, look, caplog):
    pool, tries = new_pool(), []
    other = pool.limit("other", Rate(1))

    def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Throttled("429", limit=other, after=0.05)

    pool.register("work", work, limits=[Rate(100)])
    pool.enqueuer.enqueue("work")
    with pool:
        wait_until(lambda: len(tries) == 2)
    assert look.total("snoozed:work") == 1


def test_named_limits_of_one_pool_have_one_value(new_pool):
    pool = new_pool()
    stripe = pool.limit("stripe", Rate(5))
    assert pool.limit("stripe", Rate(5)) == stripe
    with pytest.raises(BadOption, match="exists with other values"):
        pool.limit("stripe", Rate(6))
    with pytest.raises(BadOption, match="this pool has no limit 'stripe'"):
        new_pool().register("work", lambda: None, limits=[stripe])

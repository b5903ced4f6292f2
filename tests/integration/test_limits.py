"""Queues that are paused or limited: nothing starts that must not, and all that may starts soon."""

from __future__ import annotations

import threading

from dayjob.store.link import walk
from dayjob.store.ops import maintain, operate
from server import wait_until


class Gauge:
    """Counts how many are inside at once."""

    def __init__(self):
        self.lock = threading.Lock()
        self.inside = self.peak = self.passed = 0

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.peak = max(self.peak, self.inside)

    def __exit__(self, *_):
        with self.lock:
            self.inside -= 1
            self.passed += 1


def test_a_paused_queue_waits_and_its_neighbours_do_not(new_pool, look, keys, call):
    pool = new_pool()
    ran = []
    pool.register("held_up", lambda: ran.append("held_up"))
    pool.register("neighbour", lambda: ran.append("neighbour"))
    call("SET", keys.paused("held_up"), "1")
    with pool:
        for _ in range(5):
            pool.enqueuer.enqueue("held_up")
            pool.enqueuer.enqueue("neighbour")
        assert pool.drain(60)
        assert ran == ["neighbour"] * 5
        assert len(look.queue("held_up")) == 5
        # By hand, with no bell: the leader's round finds it.
        call("DEL", keys.paused("held_up"))
        wait_until(lambda: ran.count("held_up") == 5)
        call("SET", keys.paused("held_up"), "")
        pool.enqueuer.enqueue("held_up")
        assert pool.drain(60)
        assert len(look.queue("held_up")) == 1


def test_a_limit_holds_over_two_pools_and_is_used_in_full(new_pool, look, keys, call):
    gauge, pause = Gauge(), threading.Event()
    both = threading.Barrier(2)

    def work(meet: bool):
        with gauge:
            if meet:
                both.wait(60)
            pause.wait(0.002)

    pools = [new_pool(concurrency=5) for _ in range(2)]
    for pool in pools:
        pool.register("work", work, max_concurrency=2)
    pools[0].enqueuer.enqueue_many("work", [{"meet": True}] * 2 + [{"meet": False}] * 150)
    with pools[0], pools[1]:
        wait_until(lambda: gauge.passed == 152)
        assert pools[0].drain(60)
    assert gauge.peak == 2
    assert look.total("done:work") == 152
    assert call("SCARD", keys.held_of("work")) == 0


def test_what_a_dead_pool_holds_counts_for_the_limit_until_it_is_rescued(
    new_pool, new_ghost, look, keys, link, call, namespace
):
    pool = new_pool(concurrency=5, beat=0.3)
    gauge, pause, taken, deaths = Gauge(), threading.Event(), [], []

    @pool.job(max_concurrency=2)
    def work(number: int):
        with gauge:
            taken.append(pool.enqueuer.run(maintain.held_members(keys, "work")))
            pause.wait(0.005)

    walk(link, operate.set_concurrency_limit(keys, "work", 2, by="code"))
    pool.enqueuer.enqueue_many("work", [{"number": i} for i in range(40)])
    ghost = new_ghost(lease=0.8)
    assert len(ghost.take("work", room=10)) == 2
    with pool:
        assert pool.drain(60), "at its limit there is nothing to fetch"
        passed = gauge.passed
        if call("ZSCORE", keys.pools, ghost.id) is not None:
            assert passed == 0
        wait_until(lambda: gauge.passed == 40)
        assert pool.drain(60)
        deaths.append(look.total("reaped:work"))
    assert deaths == [2]
    assert gauge.peak <= 2
    assert max(len(members) for members in taken) <= 2
    assert look.total("done:work") == 40
    assert call("SCARD", keys.held_of("work")) == 0


def test_a_limit_that_is_set_while_attempts_run_counts_them(new_pool, look, keys, link, call):
    pool = new_pool(concurrency=5)
    gauge, gates = Gauge(), [threading.Event() for _ in range(5)]

    @pool.job
    def work(number: int):
        with gauge:
            gates[number].wait(60)

    with pool:
        for i in range(3):
            work.enqueue(i)
        wait_until(lambda: gauge.inside == 3)
        walk(link, operate.set_concurrency_limit(keys, "work", 2, by="operator"))
        assert call("SCARD", keys.held_of("work")) == 3
        work.enqueue(3)
        work.enqueue(4)
        for i, running in ((0, 2), (1, 2), (2, 2), (3, 1), (4, 0)):
            gates[i].set()
            wait_until(lambda: look.total("done:work") == i + 1)
            wait_until(lambda: gauge.inside == running)
            assert call("SCARD", keys.held_of("work")) == running
    assert gauge.passed == 5
    assert gauge.peak == 3


def test_a_limit_that_is_set_counts_what_condemned_pools_still_hold(
    new_pool, new_ghost, look, keys, link, call
):
    pool = new_pool()
    pool.register("work", lambda: None)
    pool.enqueuer.enqueue_many("work", [{}] * 3)
    ghost = new_ghost(lease=60)
    assert len(ghost.take("work", room=1)) == 1
    link.run(maintain.condemn(keys, lease=60, proven=[ghost.id], judge=False))
    walk(link, operate.set_concurrency_limit(keys, "work", 1, by="operator"))
    assert call("SCARD", keys.held_of("work")) == 1
    assert new_ghost(lease=60).take("work", room=5) == []


def test_raising_and_lifting_a_limit_lets_what_waits_start_at_once(new_pool, look, keys, link):
    pool = new_pool(concurrency=8)
    gauge, gate = Gauge(), threading.Event()

    @pool.job(max_concurrency=1)
    def work():
        with gauge:
            gate.wait(60)

    with pool:
        pool.enqueuer.enqueue_many("work", [{}] * 6)
        wait_until(lambda: gauge.inside == 1)
        assert len(look.queue("work")) == 5
        walk(link, operate.set_concurrency_limit(keys, "work", 3, by="operator"))
        wait_until(lambda: gauge.inside == 3)
        assert len(look.queue("work")) == 3
        walk(link, operate.set_concurrency_limit(keys, "work", None, by="operator"))
        wait_until(lambda: gauge.inside == 6)
        gate.set()
        assert pool.drain(60)
    assert gauge.peak == 6


def test_a_limit_that_an_operator_set_outlives_the_start_of_a_pool_that_says_otherwise(
    new_pool, keys, link, call
):
    pool = new_pool()
    pool.register("work", lambda: None, max_concurrency=5)
    walk(link, operate.set_concurrency_limit(keys, "work", 2, by="operator"))
    with pool:
        assert call("HGET", keys.limits, "work") == b"2"
    walk(link, operate.set_concurrency_limit(keys, "work", 2, by="code"))
    with pool:
        assert call("HGET", keys.limits, "work") == b"5"

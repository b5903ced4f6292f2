"""The fetch budget: how many jobs an exchange may fetch, and of which names."""

from __future__ import annotations

import math
import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attempts import new_attempt, new_job_type
from dayjob.options import PoolOptions
from dayjob.store.ops.consume import MAX_FETCHED
from dayjob.worker.fetching.budget import (
    GIVE_BACK_AFTER_SECONDS,
    PREFETCH_SECONDS,
    FetchBudget,
    fetch_budget,
    sample,
)
from dayjob.worker.fetching.capacity import Capacity
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.ready_queue import ReadyQueue


def test_without_fast_job_types_a_pool_fetches_for_its_free_slots_only():
    assert fetch_budget(free=7, ready=3, usable=10, fast={}) == FetchBudget(7, 0)


def test_an_exchange_never_fetches_more_than_its_maximum():
    budget = fetch_budget(free=MAX_FETCHED + 1, ready=0, usable=10_000, fast={"a": 1e-9})
    assert budget == FetchBudget(MAX_FETCHED, 0, frozenset({"a"}))


def test_a_pool_prefetches_what_its_slots_finish_in_time():
    budget = fetch_budget(free=0, ready=0, usable=4, fast={"a": PREFETCH_SECONDS / 5})
    assert (budget.free, budget.extra) == (0, 20)


def test_the_slowest_of_the_fast_job_types_decides():
    budget = fetch_budget(
        free=0, ready=0, usable=4, fast={"a": PREFETCH_SECONDS / 100, "b": PREFETCH_SECONDS / 2}
    )
    assert (budget.extra, budget.fast) == (8, frozenset({"a", "b"}))


def test_attempts_that_wait_count_against_the_prefetch():
    assert fetch_budget(free=0, ready=15, usable=4, fast={"a": PREFETCH_SECONDS / 5}).extra == 5
    assert fetch_budget(free=0, ready=99, usable=4, fast={"a": PREFETCH_SECONDS / 5}).extra == 0


def test_at_most_two_batches_wait():
    assert fetch_budget(free=0, ready=2 * MAX_FETCHED - 3, usable=1000, fast={"a": 1e-9}).extra == 3


@settings(deadline=None)
@given(
    free=st.integers(0, 2000),
    ready=st.integers(0, 2000),
    usable=st.integers(0, 2000),
    fast=st.dictionaries(st.sampled_from("abc"), st.floats(0, PREFETCH_SECONDS)),
)
def test_a_budget_is_never_negative_and_fits_into_an_exchange(free, ready, usable, fast):
    budget = fetch_budget(free=free, ready=ready, usable=usable, fast=fast)
    assert budget.free == min(free, MAX_FETCHED)
    assert budget.extra >= 0
    assert budget.free + budget.extra <= MAX_FETCHED
    assert budget.extra == 0 or ready + budget.extra <= 2 * MAX_FETCHED


@settings(deadline=None)
@given(
    weights=st.dictionaries(st.text(max_size=3), st.integers(1, 1000), min_size=1),
    draws=st.integers(1, 100),
    seed=st.integers(),
)
def test_a_sample_gives_each_name_its_share_rounded_up_or_down(weights, draws, seed):
    found = sample(weights, draws, random.Random(seed))
    total = sum(weights.values())
    for name, weight in weights.items():
        share = weight * draws / total
        assert math.floor(share - 1e-6) <= found.get(name, 0) <= math.ceil(share + 1e-6)


def test_over_many_samples_a_light_name_gets_its_share():
    weights = {"heavy": 97, "a": 1, "b": 1, "c": 1}
    drawn: Counter[str] = Counter()
    for seed in range(2000):
        drawn.update(sample(weights, 5, random.Random(seed)))
    assert drawn.total() == 10_000
    assert all(50 < drawn[name] < 150 for name in "abc")


class FakeExecutor:
    """An executor that only counts."""

    def __init__(self, limit: int, busy: int = 0) -> None:
        self.limit, self.busy = limit, busy
        self.ready = ReadyQueue()
        self.stalled = False
        self.nudged = 0
        self.attempts: list[Attempt] = []

    def give(self, attempts):
        self.ready.put(attempts)

    def nudge(self):
        self.nudged += 1

    def running(self):
        return self.attempts


SYNC, ASYNC = new_job_type("s"), new_job_type("a", is_async=True)


def new_capacity(threads=None, loop=None, *, concurrency=10, job_types=(SYNC, ASYNC)) -> Capacity:
    capacity = Capacity({one.name: one for one in job_types}, PoolOptions(concurrency=concurrency))
    capacity.attach(threads, loop)
    return capacity


def test_attempts_go_to_the_executor_of_their_kind_in_order():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    attempts = [new_attempt(number, (SYNC, ASYNC)[number % 2]) for number in range(6)]
    new_capacity(threads, loop).give(attempts)
    assert list(threads.ready.attempts) == attempts[::2]
    assert list(loop.ready.attempts) == attempts[1::2]


def test_busy_and_ready_attempts_take_slots():
    threads, loop = FakeExecutor(10, busy=3), FakeExecutor(10, busy=2)
    capacity = new_capacity(threads, loop)
    assert (capacity.idle, capacity.ready) == (5, 0)
    loop.give([new_attempt(1, ASYNC)])
    assert (capacity.idle, capacity.ready) == (4, 1)
    threads.busy = 12
    assert capacity.idle == 0


def test_attempts_about_to_be_handed_over_take_slots_of_the_budget():
    capacity = new_capacity(FakeExecutor(10, busy=3))
    assert capacity.room(["s"], 2) == FetchBudget(5, 0)
    assert capacity.room(["s"], 20) == FetchBudget(0, 0)


def test_only_fast_job_types_are_prefetched():
    fast, slow = new_job_type("fast"), new_job_type("slow")
    fast.estimate, slow.estimate = PREFETCH_SECONDS / 2, PREFETCH_SECONDS * 2
    capacity = new_capacity(FakeExecutor(10, busy=10), job_types=(fast, slow))
    assert capacity.room(["fast"], 0) == FetchBudget(0, 20, frozenset({"fast"}))
    assert capacity.room(["fast", "slow"], 0) == FetchBudget(0, 0), (
        "the slow queue has work and waits for its share"
    )


@pytest.mark.parametrize("change", [{"slow_until": math.inf}, {"unique": True}, {"estimate": None}])
def test_a_job_type_is_not_prefetched(change):
    fast = new_job_type("fast")
    fast.estimate = PREFETCH_SECONDS / 2
    for key, value in change.items():
        setattr(fast, key, value)
    assert new_capacity(FakeExecutor(10, busy=10), job_types=(fast,)).room(["fast"], 0) == FetchBudget(0, 0)


def test_slots_of_long_attempts_are_not_counted_for_the_prefetch():
    fast = new_job_type("fast")
    fast.estimate = PREFETCH_SECONDS / 2
    threads = FakeExecutor(10, busy=10)
    threads.attempts = [new_attempt(number, fast) for number in range(10)]
    for attempt in threads.attempts:
        attempt.started_at = time.monotonic() + 100 if attempt.token == "0:fast" else 0.0
    assert new_capacity(threads, job_types=(fast,)).room(["fast"], 0).extra == 2


def test_sync_names_are_closed_when_all_threads_are_taken():
    threads = FakeExecutor(2, busy=1)
    capacity = new_capacity(threads, FakeExecutor(10))
    assert capacity.closed() == frozenset()
    threads.give([new_attempt(1, SYNC)])
    assert capacity.closed() == {"s"}
    assert capacity.room(["a"], 0) == FetchBudget(8, 0, closed=frozenset({"s"}))


def test_with_few_threads_no_more_is_fetched_than_they_can_take():
    capacity = new_capacity(FakeExecutor(3, busy=1), FakeExecutor(10))
    assert capacity.room(["s", "a"], 0) == FetchBudget(2, 0)
    assert capacity.room(["a"], 0) == FetchBudget(9, 0, closed=frozenset({"s"})), (
        "sync names may have work by then"
    )
    assert capacity.threads() == (3, 1)


def test_async_names_are_closed_while_a_handler_blocks_the_loop():
    loop = FakeExecutor(10)
    capacity = new_capacity(FakeExecutor(10), loop)
    loop.stalled = True
    assert capacity.closed() == {"a"}
    loop.stalled = False
    assert capacity.closed() == frozenset()


def test_attempts_that_wait_too_long_are_stale_and_taken_back():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    capacity = new_capacity(threads, loop)
    old, new = new_attempt(1, ASYNC), new_attempt(2, SYNC)
    capacity.give([old, new])
    now = time.monotonic()
    new.given_at = now + 100
    old.given_at = now + 100
    assert not capacity.stale
    old.given_at = now - GIVE_BACK_AFTER_SECONDS
    assert capacity.stale
    assert capacity.take_back(now) == [old]
    assert list(threads.ready.attempts) == [new]


def test_a_nudge_reaches_both_executors():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    new_capacity(threads, loop).nudge()
    assert (threads.nudged, loop.nudged) == (1, 1)

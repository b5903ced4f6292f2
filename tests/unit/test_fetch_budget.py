"""The fetch budget, and the executors whose slots it counts."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attempts import new_attempt, new_job_type
from dayjob.store.ops.consume import MAX_FETCHED
from dayjob.worker.fetching.budget import (
    PACED_SECONDS,
    PREFETCH_SECONDS,
    FetchBudget,
    Pace,
    fetch_budget,
    prefetch,
)
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.executors import Executors
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS, ReadyQueue


def test_a_pool_prefetches_what_its_slots_finish_in_time():
    assert prefetch(free=0, ready=0, usable=4, slowest=PREFETCH_SECONDS / 5) == 20


def test_attempts_that_wait_count_against_the_prefetch():
    assert prefetch(free=0, ready=15, usable=4, slowest=PREFETCH_SECONDS / 5) == 5
    assert prefetch(free=0, ready=99, usable=4, slowest=PREFETCH_SECONDS / 5) == 0


def test_at_most_two_batches_wait():
    assert prefetch(free=0, ready=2 * MAX_FETCHED - 3, usable=1000, slowest=1e-9) == 3


def test_a_pool_prefetches_no_more_than_it_ended_lately_in_such_a_time():
    pace = PACED_SECONDS / 6
    assert prefetch(free=0, ready=0, usable=4, slowest=PREFETCH_SECONDS / 5, pace=pace) == 6
    assert prefetch(free=0, ready=0, usable=1, slowest=PREFETCH_SECONDS / 5, pace=pace) == 5


def test_the_pace_is_measured_while_the_workers_have_something_to_do():
    pace = Pace()
    pace.sent(ended=0, ready=0, now=10.0)
    pace.answered(now=11.0)
    pace.sent(ended=100, ready=20, now=12.0)
    assert pace.seconds == pytest.approx(0.01), "they had nothing to do before the answer"
    pace.answered(now=12.5)
    pace.sent(ended=50, ready=20, now=13.0)
    assert pace.seconds == pytest.approx(0.015)
    pace.sent(ended=0, ready=0, now=14.0)
    pace.answered(now=20.0)
    pace.sent(ended=200, ready=0, now=21.0)
    assert pace.seconds == pytest.approx(0.01)


@settings(deadline=None)
@given(
    free=st.integers(0, MAX_FETCHED),
    ready=st.integers(0, 2000),
    usable=st.integers(0, 2000),
    slowest=st.floats(0, PREFETCH_SECONDS),
    pace=st.floats(0, 1, allow_subnormal=False),
)
def test_a_prefetch_is_never_negative_and_fits_into_an_exchange(free, ready, usable, slowest, pace):
    extra = prefetch(free=free, ready=ready, usable=usable, slowest=slowest, pace=pace)
    assert 0 <= extra <= MAX_FETCHED - free
    assert extra == 0 or ready + extra <= 2 * MAX_FETCHED


class FakeExecutor:
    """An executor that only counts."""

    def __init__(self, limit: int, busy: int = 0) -> None:
        self.limit, self.busy = limit, busy
        self.ready = ReadyQueue()
        self.stalled = False
        self.nudged = 0
        self.attempts: list[Attempt] = []
        self.interrupted: list[Attempt] = []
        self.closed = False

    def give(self, attempts):
        self.ready.put(attempts)

    def nudge(self):
        self.nudged += 1

    def running(self):
        return self.attempts

    def interrupt(self, attempt, kind):
        self.interrupted.append(attempt)
        return True

    def close(self):
        self.closed = True


SYNC, ASYNC = new_job_type("s"), new_job_type("a", is_async=True)


def new_executors(threads=None, loop=None, *, concurrency=10, job_types=(SYNC, ASYNC)) -> Executors:
    executors = Executors({one.name: one for one in job_types}, concurrency)
    executors.attach(threads, loop)
    return executors


def budget_of(executors, live, coming=0, job_types=(SYNC, ASYNC)) -> FetchBudget:
    return fetch_budget(executors, {one.name: one for one in job_types}, live, coming)


def test_a_pool_with_no_executor_fetches_for_its_slots():
    assert budget_of(new_executors(), []) == FetchBudget(10, 0)


def test_an_exchange_never_fetches_more_than_its_maximum():
    executors = new_executors(FakeExecutor(MAX_FETCHED + 1), concurrency=MAX_FETCHED + 1)
    assert budget_of(executors, ["s"]) == FetchBudget(MAX_FETCHED, 0)


def test_the_slowest_of_the_fast_job_types_decides():
    a, b = new_job_type("a"), new_job_type("b")
    a.estimate, b.estimate = PREFETCH_SECONDS / 100, PREFETCH_SECONDS / 2
    executors = new_executors(FakeExecutor(4, busy=4), concurrency=4, job_types=(a, b))
    assert budget_of(executors, ["a"], job_types=(a, b)) == FetchBudget(0, 8, frozenset({"a", "b"}))


def test_attempts_go_to_the_executor_of_their_kind_in_order():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    attempts = [new_attempt(number, (SYNC, ASYNC)[number % 2]) for number in range(6)]
    new_executors(threads, loop).give(attempts)
    assert list(threads.ready.attempts) == attempts[::2]
    assert list(loop.ready.attempts) == attempts[1::2]


def test_busy_and_ready_attempts_take_slots():
    threads, loop = FakeExecutor(10, busy=3), FakeExecutor(10, busy=2)
    executors = new_executors(threads, loop)
    assert (executors.idle, executors.ready) == (5, 0)
    loop.give([new_attempt(1, ASYNC)])
    assert (executors.idle, executors.ready) == (4, 1)
    threads.busy = 12
    assert executors.idle == 0


def test_attempts_about_to_be_handed_over_take_slots_of_the_budget():
    executors = new_executors(FakeExecutor(10, busy=3))
    assert budget_of(executors, ["s"], 2) == FetchBudget(5, 0)
    assert budget_of(executors, ["s"], 20) == FetchBudget(0, 0)


def test_only_fast_job_types_are_prefetched():
    fast, slow = new_job_type("fast"), new_job_type("slow")
    fast.estimate, slow.estimate = PREFETCH_SECONDS / 2, PREFETCH_SECONDS * 2
    executors = new_executors(FakeExecutor(10, busy=10), job_types=(fast, slow))
    assert budget_of(executors, ["fast"], job_types=(fast, slow)) == FetchBudget(0, 20, frozenset({"fast"}))
    assert budget_of(executors, ["fast", "slow"], job_types=(fast, slow)) == FetchBudget(0, 0), (
        "the slow queue has work and waits for its share"
    )


@pytest.mark.parametrize("change", [{"slow_until": math.inf}, {"rated": True}, {"estimate": None}])
def test_a_job_type_is_not_prefetched(change):
    fast = new_job_type("fast")
    fast.estimate = PREFETCH_SECONDS / 2
    for key, value in change.items():
        setattr(fast, key, value)
    assert budget_of(
        new_executors(FakeExecutor(10, busy=10), job_types=(fast,)), ["fast"], job_types=(fast,)
    ) == FetchBudget(0, 0)


def test_of_unique_jobs_one_for_each_worker_is_prefetched():
    plain, unique = new_job_type("plain"), new_job_type("unique")
    plain.estimate = unique.estimate = PREFETCH_SECONDS / 100
    unique.unique = True
    names = frozenset({"plain", "unique"})
    busy = new_executors(FakeExecutor(10, busy=10), job_types=(plain, unique))
    assert budget_of(busy, ["unique"], 0, (plain, unique)) == FetchBudget(0, 10, names)
    assert budget_of(busy, ["unique"], 4, (plain, unique)) == FetchBudget(0, 6, names)
    assert budget_of(busy, ["unique"], 10, (plain, unique)) == FetchBudget(0, 0, names)
    idle = new_executors(FakeExecutor(10), job_types=(plain, unique))
    assert budget_of(idle, ["unique"], 10, (plain, unique)) == FetchBudget(0, 10, names), (
        "those whose keys are being released have a worker each"
    )
    assert budget_of(busy, ["plain"], 0, (plain, unique)) == FetchBudget(
        0, MAX_FETCHED, frozenset({"plain"})
    ), "a name with unique jobs does not slow down others while it has none"


def test_slots_of_long_attempts_are_not_counted_for_the_prefetch():
    fast = new_job_type("fast")
    fast.estimate = PREFETCH_SECONDS / 2
    threads = FakeExecutor(10, busy=10)
    threads.attempts = [new_attempt(number, fast) for number in range(10)]
    for attempt in threads.attempts:
        attempt.started_at = time.monotonic() + 100 if attempt.token == "0:fast" else 0.0
    assert budget_of(new_executors(threads, job_types=(fast,)), ["fast"], job_types=(fast,)).extra == 2


def test_sync_names_are_closed_when_all_threads_are_taken():
    threads = FakeExecutor(2, busy=1)
    executors = new_executors(threads, FakeExecutor(10))
    assert executors.closed() == frozenset()
    threads.give([new_attempt(1, SYNC)])
    assert executors.closed() == {"s"}
    assert budget_of(executors, ["a"]) == FetchBudget(8, 0, closed=frozenset({"s"}))


def test_with_few_threads_no_more_is_fetched_than_they_can_take():
    executors = new_executors(FakeExecutor(3, busy=1), FakeExecutor(10))
    assert budget_of(executors, ["s", "a"]) == FetchBudget(2, 0)
    assert budget_of(executors, ["a"]) == FetchBudget(9, 0, closed=frozenset({"s"})), (
        "sync names may have work by then"
    )
    assert executors.threads() == (3, 1)


def test_async_names_are_closed_while_a_handler_blocks_the_loop():
    loop = FakeExecutor(10)
    executors = new_executors(FakeExecutor(10), loop)
    loop.stalled = True
    assert executors.closed() == {"a"}
    loop.stalled = False
    assert executors.closed() == frozenset()


def test_attempts_that_wait_too_long_are_stale_and_taken_back():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    executors = new_executors(threads, loop)
    old, new = new_attempt(1, ASYNC), new_attempt(2, SYNC)
    executors.give([old, new])
    now = executors.clock.now()
    new.given_at = now + 100
    old.given_at = now + 100
    assert not executors.stale
    assert executors.take_back(everything=False) == []
    old.given_at = now - GIVE_BACK_AFTER_SECONDS
    assert executors.stale
    assert executors.take_back(everything=False) == [old]
    assert list(threads.ready.attempts) == [new]
    assert executors.take_back(everything=True) == [new]


def test_a_nudge_reaches_both_executors():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    new_executors(threads, loop).nudge()
    assert (threads.nudged, loop.nudged) == (1, 1)


def test_an_attempt_is_interrupted_by_the_executor_that_runs_it_and_both_are_closed():
    threads, loop = FakeExecutor(10), FakeExecutor(10)
    executors = new_executors(threads, loop)
    sync, coroutine = new_attempt(1, SYNC), new_attempt(2, ASYNC)
    executors.interrupt(sync, KeyboardInterrupt)
    executors.interrupt(coroutine, KeyboardInterrupt)
    assert (threads.interrupted, loop.interrupted) == ([sync], [coroutine])
    executors.close()
    assert threads.closed
    assert loop.closed

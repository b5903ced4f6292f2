"""The fetcher and the parts that it consists of: its requests, its replies, and the wait between two exchanges."""

from __future__ import annotations

import gc
import random
import threading
import time
from typing import Any

import pytest

from attempts import new_attempt, new_job_type
from dayjob.errors import Unavailable
from dayjob.limits import KeyRule
from dayjob.outcome import Dropped, Retried
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import Entry, FetchedJobs, Reply
from dayjob.store.ops.rates import RateRule
from dayjob.worker.fetching import fetcher, start_gate
from dayjob.worker.fetching.budget import PREFETCH_PAUSE_SECONDS, FetchBudget
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.fetching.keys_with_jobs import KeysWithJobs
from dayjob.worker.fetching.requests import RequestSequence
from dayjob.worker.fetching.rules import RuleBook
from dayjob.worker.running import awake_clock, executors
from dayjob.worker.running.executors import Executors
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS, ReadyQueue
from dayjob.worker.state import PoolState, RedisClock
from server import wait_until

KEYS = Keys("test")
HOUR = 3600.0


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Attempts wait for a worker for an hour: a test can be suspended for longer than a pool would let them wait."""
    for module in (start_gate, executors):
        monkeypatch.setattr(module, "GIVE_BACK_AFTER_SECONDS", HOUR)


def new_reply(status: Any = "ok", **changes: Any) -> Reply:
    fields: dict[str, Any] = {
        "now": 5000.0, "held": 0, "late": 0, "live": [], "released": {}, "stuck": [], "wrong": [], "batches": []
    }  # fmt: skip
    return Reply(status=status, **(fields | changes))


def jobs(name: str, first: int, count: int) -> FetchedJobs:
    numbers = range(first, first + count)
    payloads = [codec.write(codec.quoted(name), f"id{number}", 1.0, b"{}") for number in numbers]
    return FetchedJobs(name, [f"{number}:{name}" for number in numbers], payloads)


class FakeLink:
    """A connection whose answers a test chooses. An exception is raised instead of an answer."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.answers: list[Any] = []

    def run(self, op):
        self.sent.append(op)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class FakeThreads:
    """An executor that starts nothing by itself."""

    def __init__(self, limit: int) -> None:
        self.limit, self.busy = limit, 0
        self.ready = ReadyQueue()

    def give(self, attempts):
        self.ready.put(attempts)

    def nudge(self): ...

    def running(self):
        return []


class FakeMembership:
    """Registers nothing, and numbers the ids."""

    def __init__(self, state: PoolState) -> None:
        self.state = state
        self.calls: list[str] = []
        self.problem: Exception | None = None

    def join(self):
        self.calls.append("join")
        self.state.pool_id = f"pool{len(self.calls)}"

    def condemn(self):
        self.calls.append("condemn")

    def rejoin(self):
        if self.problem is not None:
            raise self.problem
        self.join()


class Pool:
    """A fetcher with a fake connection and a fake executor."""

    def __init__(self, *names: str, concurrency: int = 2) -> None:
        self.state = PoolState()
        self.job_types = {name: new_job_type(name) for name in names or ("a",)}
        self.link = FakeLink()
        self.threads = FakeThreads(concurrency)
        self.armed: list[set[str]] = []
        self.membership = FakeMembership(self.state)
        executors = Executors(self.job_types, concurrency)
        executors.attach(self.threads, None)  # type: ignore[arg-type]
        self.fetcher = Fetcher(
            KEYS, self.link, self.job_types, self.state,  # type: ignore[arg-type]
            executors=executors, membership=self.membership, lease=15.0, rng=random.Random(1),  # type: ignore[arg-type]
            arm=lambda names: self.armed.append(set(names)),
        )  # fmt: skip
        self.fetcher.join()

    def exchange(self, *answers: Any) -> None:
        self.link.answers = list(answers)
        self.fetcher.exchange_once()

    def finish_all(self) -> None:
        for attempt in self.threads.ready.take_back(time.monotonic()):
            self.fetcher.finish(attempt, None)

    @property
    def held(self) -> set[str]:
        return set(self.state.held)


def test_the_clock_follows_redis_and_not_the_host():
    clock = RedisClock()
    clock.note(500.0)
    assert 500.0 <= clock.now() < 560.0
    clock.note(100.0)
    assert 100.0 <= clock.now() < 160.0


# Requests.


@pytest.fixture
def requests() -> RequestSequence:
    state = PoolState()
    state.pool_id = "p"
    rules = RuleBook(KEYS, FakeLink(), {})  # type: ignore[arg-type]
    keys_with_jobs = KeysWithJobs(KEYS, FakeLink(), {})  # type: ignore[arg-type]
    return RequestSequence(KEYS, state, rules, keys_with_jobs, lease=15.0, rng=random.Random(1))


def test_requests_are_numbered_when_they_are_sent(requests):
    first = requests.build({"a": 1}, FetchBudget(1))
    assert requests.build({"a": 1}, FetchBudget(1)).request.number == first.request.number == 1
    requests.send(first)
    assert requests.current is first
    requests.answered()
    assert requests.current is None
    assert requests.build({"a": 1}, FetchBudget(1)).request.number == 2
    requests.start_over()
    assert requests.build({"a": 1}, FetchBudget(1)).request.number == 1


def test_a_request_fetches_names_with_a_weight_that_do_not_rest(requests):
    budget = FetchBudget(3, 4, frozenset({"fast"}))
    request = requests.build({"fast": 2, "settled": 0, "resting": 5}, budget, {"resting"}).request
    assert (request.room, request.extra) == (3, 4)
    wants = {one.name: (one.weight, one.fetch, one.fast) for one in request.wants}
    assert wants == {"fast": (2, True, True), "settled": (1, False, False), "resting": (5, False, False)}


def test_a_request_passes_fewer_keys_while_jobs_are_prefetched():
    rules = {name: RateRule(1, (), KeyRule(("key",), 0)) for name in "abcde"}
    keys_with_jobs = KeysWithJobs(KEYS, FakeLink(), {})  # type: ignore[arg-type]
    keys_with_jobs.learn({name: [str(n) for n in range(64)] for name in rules}, ())
    assert {len(one.heads) for one in keys_with_jobs.of(rules, [], {}, 500, 0).values()} == {29}
    assert {len(one.heads) for one in keys_with_jobs.of(rules, [], {}, 10, 490).values()} == {16}
    assert {len(one.heads) for one in keys_with_jobs.of(rules, [], {}, 10, 0).values()} == {7}


def test_the_idle_request_is_returned_once(requests):
    assert requests.take_idle() is None
    requests.prepare_idle({"a": 1}, FetchBudget(1))
    assert requests.take_idle() is not None
    assert requests.take_idle() is None


@pytest.mark.parametrize("change", ["number", "token", "pool", "start over"])
def test_an_idle_request_that_no_longer_continues_the_sequence_is_dropped(requests, change):
    requests.prepare_idle({"a": 1}, FetchBudget(1))
    if change == "number":
        requests.send(requests.build({"a": 1}, FetchBudget(1)))
    elif change == "token":
        requests.first_token += 1
    elif change == "pool":
        requests._state.pool_id = "q"
    else:
        requests.start_over()
    assert requests.take_idle() is None


# Exchanges.


def test_fetched_jobs_are_held_and_handed_over_in_order():
    pool = Pool("a", "b")
    pool.exchange(new_reply(batches=[jobs("a", 1, 2), jobs("b", 3, 1)], held=3, live=["b"]))
    assert [one.token for one in pool.threads.ready.attempts] == ["1:a", "2:a", "3:b"]
    assert pool.held == {"1:a", "2:a", "3:b"}
    assert (pool.state.exchanges, pool.state.fetched) == (1, 3)
    assert pool.fetcher.busy


def test_completions_are_reported_with_the_next_exchange_and_then_forgotten():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 2)], held=2))
    pool.finish_all()
    assert pool.fetcher.unsettled == 2
    pool.exchange(new_reply())
    request = pool.link.sent[-1]
    assert [part for part in request.args if part in ("1:a", "2:a")] == ["1:a", "2:a"]
    assert not pool.held
    assert not pool.fetcher.unsettled
    assert not pool.fetcher.busy


def test_after_an_error_the_same_bytes_are_sent_until_redis_answers():
    pool = Pool()
    with pytest.raises(Unavailable):
        pool.exchange(Unavailable("away"))
    assert pool.fetcher.unsettled == 1
    pool.fetcher.finish(new_attempt(9, pool.job_types["a"]), None)
    pool.exchange(new_reply())
    first, second = pool.link.sent
    assert first is second
    pool.exchange(new_reply())
    third = pool.link.sent[-1]
    assert (first.args[1], third.args[1]) == (1, 2)


def test_a_pool_is_busy_until_the_jobs_of_a_reply_are_held():
    """Otherwise drain() would return while the jobs that the last exchange fetched have not run."""
    pool, busy = Pool(), []

    class WatchingClock(RedisClock):
        __slots__ = ()

        def note(self, redis_now):
            busy.append(pool.fetcher.busy)

    pool.exchange(new_reply())
    assert not pool.fetcher.busy
    pool.state.clock = WatchingClock()
    pool.fetcher.ask_for_all()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    assert busy == [True]


def test_a_quiet_pool_fetches_nothing_and_gives_back_what_has_not_started():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 2)], held=2))
    pool.state.quiet = True
    assert pool.fetcher._due()
    pool.exchange(new_reply())
    request = pool.link.sent[-1]
    assert [part for part in request.args if part in ("given_back", "1:a", "2:a")] == [
        "given_back",
        "2:a",
        "given_back",
        "1:a",
    ], "the oldest goes back last, to the head of its queue"
    assert not pool.held
    assert not pool.fetcher._due()


def test_an_attempt_that_no_worker_starts_in_time_is_given_back_and_its_name_rests():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    assert not pool.fetcher._due()
    (attempt,) = pool.threads.ready.attempts
    attempt.given_at -= 2 * HOUR
    assert pool.fetcher._due()
    before = time.monotonic()
    pool.exchange(new_reply())
    assert "given_back" in pool.link.sent[-1].args
    assert attempt.settled
    assert pool.job_types["a"].slow_until >= before + PREFETCH_PAUSE_SECONDS


def test_an_attempt_is_not_given_back_because_the_process_was_paused(monkeypatch):
    for module in (start_gate, executors):
        monkeypatch.setattr(module, "GIVE_BACK_AFTER_SECONDS", GIVE_BACK_AFTER_SECONDS)
    real = 100.0
    monkeypatch.setattr(awake_clock, "monotonic", lambda: real)
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    real += 60
    assert not pool.fetcher._due(), "its workers were paused too"
    while real < 160 + 2 * GIVE_BACK_AFTER_SECONDS and not pool.fetcher._due():
        real += fetcher.HANDOVER_CHECK_SECONDS
    assert 160 < real < 160 + 2 * GIVE_BACK_AFTER_SECONDS
    pool.exchange(new_reply())
    assert "given_back" in pool.link.sent[-1].args


def test_a_second_outcome_of_an_attempt_is_ignored():
    pool = Pool()
    attempt = new_attempt(1, pool.job_types["a"])
    dropped = Entry("a", "1:a", Dropped(counts_failure=False))
    pool.fetcher.finish(attempt, dropped)
    pool.fetcher.finish(attempt, None)
    assert attempt.settlement == dropped
    assert pool.fetcher.unsettled == 1


def test_an_attempt_that_ended_and_its_job_are_freed_without_the_garbage_collector():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    (attempt,) = pool.state.held.values()
    job = attempt.open()
    pool.fetcher.finish(attempt, None)
    pool.exchange(new_reply())
    assert pool.held == set()
    assert job.line is attempt
    assert job not in gc.get_referents(attempt)


@pytest.mark.parametrize("status", ["refused", "late"])
def test_a_refused_pool_makes_no_exchange_before_it_has_a_new_id(status):
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    (attempt,) = pool.state.held.values()
    pool.fetcher.finish(attempt, None)
    pool.exchange(new_reply(status))
    sent = len(pool.link.sent)
    pool.exchange()
    assert len(pool.link.sent) == sent
    pool.membership.problem = Unavailable("away")
    with pytest.raises(Unavailable):
        pool.fetcher.step()
    assert attempt.lost
    assert not pool.held
    pool.membership.problem = None
    pool.fetcher.step()
    assert pool.membership.calls == ["join", "condemn", "condemn", "join"]
    pool.exchange(new_reply())
    assert pool.link.sent[-1].args[:3] == ["pool4", 1, 1], "a new id begins at the first number"


def test_a_pool_that_holds_other_attempts_than_redis_compares_them():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    (attempt,) = pool.state.held.values()
    pool.fetcher.ask_for_all()
    pool.exchange(new_reply("rewound", held=1), ["7:a"])
    assert attempt.lost
    assert pool.held == {"7:a"}
    pool.exchange(new_reply())
    assert {"rewound", "7:a"} <= {part for part in pool.link.sent[-1].args if isinstance(part, str)}
    pool.fetcher.ask_for_all()
    pool.exchange(new_reply())
    assert pool.link.sent[-1].args[2] == 8, "its tokens are above all that Redis has seen"


def test_an_unreadable_job_goes_to_broken():
    pool = Pool()
    pool.exchange(new_reply(batches=[FetchedJobs("a", ["1:a"], [b"not JSON"])], held=1))
    assert not pool.threads.ready.attempts
    pool.exchange(new_reply())
    assert {"unreadable", "1:a"} <= {part for part in pool.link.sent[-1].args if isinstance(part, str)}
    assert not pool.held


def test_an_outcome_that_redis_cannot_store_stays_held():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 1)], held=1))
    (attempt,) = pool.state.held.values()
    pool.fetcher.finish(attempt, Entry("a", "1:a", Retried(1.0), b"{}"))
    pool.exchange(new_reply(stuck=["1:a"], held=1))
    assert pool.held == {"1:a"}
    assert not pool.fetcher.all_reported


# The wait between two exchanges.


def test_an_idle_pool_arms_the_listener_and_has_its_request_ready():
    pool = Pool("a", "b")
    pool.exchange(new_reply())
    assert not pool.fetcher._due()
    pool.fetcher._listen()
    assert pool.armed == [{"a", "b"}]
    idle = pool.fetcher._requests._idle
    pool.fetcher._names.rung.add("a")
    pool.exchange(new_reply())
    assert pool.link.sent[-1] is idle.op


@pytest.mark.parametrize("change", ["outcome", "quiet", "flush", "figures"])
def test_the_idle_request_is_not_sent_if_there_is_more_to_send(change):
    pool = Pool()
    pool.exchange(new_reply())
    pool.fetcher._listen()
    idle = pool.fetcher._requests._idle
    pool.fetcher._names.rung.add("a")
    if change == "outcome":
        pool.fetcher.finish(new_attempt(9, pool.job_types["a"]), None)
    elif change == "quiet":
        pool.state.quiet = True
    elif change == "flush":
        pool.fetcher.flush()
    else:
        pool.job_types["a"].fails = 1
        pool.fetcher._counts._next = 0.0
    pool.exchange(new_reply())
    assert pool.link.sent[-1] is not idle.op


def test_a_pool_without_a_free_worker_does_not_listen():
    pool = Pool()
    pool.exchange(new_reply(live=["a"]))
    assert pool.fetcher._due(), "jobs wait and workers are free"
    pool.threads.busy = 2
    assert not pool.fetcher._due()
    pool.fetcher._listen()
    assert pool.armed == []


def test_a_busy_pool_prefetches_jobs_of_fast_types_only():
    pool = Pool()
    pool.exchange(new_reply(live=["a"]))
    pool.threads.busy = 2
    pool.job_types["a"].estimate = 0.001
    assert pool.fetcher._due()
    pool.job_types["a"].estimate = 1.0
    assert not pool.fetcher._due()


def test_a_prefetch_waits_until_it_brings_as_much_as_is_ready():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 30)], live=["a"], held=30))
    pool.threads.busy = 2
    # Both workers together finish 40 of these within the time for which jobs are prefetched.
    pool.job_types["a"].estimate = 0.001
    assert not pool.fetcher._due()
    for _ in range(10):
        pool.threads.ready.attempts.popleft()
    assert pool.fetcher._due()


def test_outcomes_are_gathered_while_the_workers_have_attempts_to_start():
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 8)], held=8))
    ready = pool.threads.ready.attempts
    pool.fetcher.finish(ready.popleft(), None)
    assert not pool.fetcher._due()
    pool.fetcher.finish(ready.popleft(), None)
    pool.fetcher.finish(ready.popleft(), None)
    assert pool.fetcher._due(), "the workers have used up enough"


@pytest.mark.parametrize("change", ["nothing is ready", "quiet"])
def test_outcomes_are_sent_at_once_if_nothing_will_start(change):
    pool = Pool()
    pool.exchange(new_reply(batches=[jobs("a", 1, 8)], held=8))
    ready = pool.threads.ready.attempts
    pool.fetcher.finish(ready.popleft(), None)
    assert not pool.fetcher._outcomes_due()
    if change == "quiet":
        pool.state.quiet = True
    else:
        ready.clear()
    assert pool.fetcher._outcomes_due()


class Sleeper:
    """The fetcher's loop on its own thread."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.awake: list[int] = []

    def _loop(self) -> None:
        fetcher = self.pool.fetcher
        fetcher.wait_for_work()
        while not fetcher._closing:
            self.awake.append(1)
            with fetcher._turn:
                fetcher.exchange_once()
            fetcher.wait_for_work()

    def __enter__(self):
        self.thread.start()
        wait_until(lambda: self.pool.fetcher._sleeping and self.pool.armed)
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.fetcher.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_while_the_loop_sleeps_the_listener_makes_the_exchange_on_its_own_thread():
    pool = Pool()
    pool.exchange(new_reply())
    with Sleeper(pool) as loop:
        pool.link.answers = [new_reply(batches=[jobs("a", 1, 1)], held=1)]
        pool.fetcher.ring("a")
        assert pool.held == {"1:a"}, "the jobs are there when the call returns"
        assert loop.awake == []
        # The loop arms it too as it falls asleep, perhaps a moment after the exchange.
        wait_until(lambda: len(pool.armed) >= 2)


def test_gathered_outcomes_are_sent_though_no_more_of_them_come():
    pool = Pool()
    pool.exchange(new_reply())
    with Sleeper(pool):
        pool.link.answers = [new_reply(batches=[jobs("a", 1, 8)], held=8), new_reply(held=7)]
        pool.fetcher.ring("a")
        pool.fetcher.finish(pool.threads.ready.attempts.popleft(), None)
        wait_until(lambda: len(pool.held) == 7)


def test_the_loop_wakes_up_if_the_exchange_of_the_listener_fails():
    pool = Pool()
    pool.exchange(new_reply())
    with Sleeper(pool):
        pool.link.answers = [Unavailable("away"), new_reply(batches=[jobs("a", 1, 1)], held=1)]
        pool.fetcher.ring("a")
        wait_until(lambda: pool.held == {"1:a"})
        assert pool.link.sent[-1] is pool.link.sent[-2]


def test_the_loop_makes_the_exchange_for_a_bell_while_it_is_awake():
    pool = Pool()
    pool.exchange(new_reply())
    sent = len(pool.link.sent)
    pool.fetcher.ring("a")
    assert len(pool.link.sent) == sent
    assert pool.fetcher._due()

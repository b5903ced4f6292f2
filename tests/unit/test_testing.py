from __future__ import annotations

import asyncio
import re
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from dayjob import AsyncEnqueuer, Dead, Discard, Enqueuer, GiveBack, Job, Retry, Snooze, WorkerPool
from dayjob.errors import (
    BadArguments,
    BadOption,
    JobFailed,
    NotReady,
    ResultTimeout,
    TooLarge,
    UnknownJob,
)
from dayjob.testing import FakeClock, fake_store, testing

#: Nothing listens there: whatever reaches for a server fails at once.
NOWHERE = "redis://127.0.0.1:1"
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Context:
    note: str = ""


@pytest.fixture
def pool() -> WorkerPool[Context]:
    return WorkerPool(Context, namespace="shop", redis=NOWHERE)


@pytest.fixture
def ran() -> list:
    return []


@pytest.fixture
def mail(pool, ran):
    """A job that notes its arguments."""

    @pool.job
    def send_mail(to: str, subject: str = "Hello") -> str:
        ran.append((to, subject))
        return f"sent to {to}"

    return send_mail


# What was enqueued.


def test_an_enqueue_is_recorded_and_neither_run_nor_sent(pool, mail, ran):
    with testing(pool) as jobs:
        job = mail.enqueue(to="a@b.c")
        assert [(one.name, one.args, one.id) for one in jobs.enqueued()] == [
            ("send_mail", {"to": "a@b.c"}, job.id)
        ]
    assert ran == []


def test_every_way_to_enqueue_is_caught(pool, mail):
    async def in_async_code():
        await mail.aenqueue(to="3@b.c")
        await pool.async_enqueuer.enqueue_many("send_mail", [{"to": "4@b.c"}])

    with testing(pool) as jobs:
        mail.enqueue("1@b.c")
        pool.enqueuer.sourced(7).enqueue("send_mail", to="2@b.c")
        asyncio.run(in_async_code())
        pool.enqueuer.enqueue_many("send_mail", [{"to": "5@b.c"}, {"to": "6@b.c"}])
        assert [job.args["to"][0] for job in jobs.enqueued("send_mail")] == list("123456")


def test_a_copy_made_before_the_block_is_caught_too(pool, mail):
    copy = pool.enqueuer.using(source=1)
    with testing(pool) as jobs:
        copy.enqueue("send_mail", to="a@b.c")
        assert jobs.assert_enqueued("send_mail").source == 1


def test_an_enqueue_after_the_block_goes_to_the_server_again(pool, mail):
    with testing(pool):
        mail.enqueue(to="a@b.c")
    assert pool.enqueuer._builder.sink is None
    assert pool.async_enqueuer._builder.sink is None


def test_arguments_are_checked_and_become_json_at_enqueue(pool, mail):
    with testing(pool) as jobs:
        with pytest.raises(BadArguments, match="unexpected argument"):
            mail.enqueue(too="a@b.c")
        with pytest.raises(BadArguments):
            pool.enqueuer.enqueue("send_mail", to=object())
        with pytest.raises(UnknownJob):
            pool.enqueuer.enqueue("send_male", to="a@b.c")
        assert jobs.enqueued() == []


def test_a_payload_above_the_limit_is_refused(ran):
    pool = WorkerPool(namespace="shop", redis=NOWHERE, max_payload=1024)
    pool.register("note", lambda **args: None)
    with testing(pool) as jobs:
        with pytest.raises(TooLarge):
            pool.enqueuer.enqueue("note", text="x" * 1024)
        assert jobs.enqueued() == []


def test_a_handler_gets_what_json_makes_of_its_arguments(pool, ran):
    @pool.job
    def keep(job: Job) -> None:
        ran.append(job.args)

    with testing(pool) as jobs:
        pool.enqueuer.enqueue("keep", pair=(1, 2), when=START)
        jobs.drain()
    assert ran == [{"pair": [1, 2], "when": "2026-01-01T00:00:00Z"}]


def test_enqueues_from_many_threads_are_all_recorded(pool, mail, ran):
    with testing(pool) as jobs:
        threads = [
            threading.Thread(target=lambda: [mail.enqueue(to="a@b.c") for _ in range(50)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(jobs.enqueued()) == 400
        assert jobs.drain() == 400


# Assertions.


def test_assert_enqueued_matches_some_of_the_arguments_and_returns_the_newest(pool, mail):
    with testing(pool) as jobs:
        mail.enqueue(to="a@b.c", subject="Hi")
        second = mail.enqueue(to="a@b.c", subject="Ho")
        assert jobs.assert_enqueued("send_mail", to="a@b.c").id == second.id
        assert jobs.assert_enqueued(mail, subject="Hi").args["to"] == "a@b.c"


def test_an_argument_that_was_not_sent_has_the_default_of_the_handler(pool, mail):
    with testing(pool) as jobs:
        mail.enqueue(to="a@b.c")
        jobs.assert_enqueued("send_mail", subject="Hello")
        jobs.assert_not_enqueued("send_mail", subject="")


def test_expected_values_may_be_what_was_passed_or_anything_that_compares(pool):
    @pool.job
    def remind(at: datetime, tags: tuple[str, ...]) -> None: ...

    with testing(pool) as jobs:
        remind.enqueue(at=START, tags=("a", "b"))
        jobs.assert_enqueued("remind", at=START, tags=("a", "b"))
        jobs.assert_enqueued("remind", at=ANY, tags=["a", "b"])
        jobs.assert_not_enqueued("remind", at=START + timedelta(seconds=1))


def test_assert_enqueued_says_what_was_enqueued_instead(pool, mail):
    @pool.job
    def charge(user_id: int) -> None: ...

    with testing(pool, clock=FakeClock(START)) as jobs:
        with pytest.raises(AssertionError, match=r"Nothing was enqueued in this block"):
            jobs.assert_enqueued("charge")
        charge.enqueue_in(300, user_id=7)
        mail.using(source="acme").enqueue(to="x@y.z")
        with pytest.raises(AssertionError) as failure:
            jobs.assert_enqueued("send_mail", to="a@b.c")
    assert str(failure.value).splitlines() == [
        "send_mail(to='a@b.c') was not enqueued. Enqueued in this block:",
        "    send_mail(to='x@y.z')    source 'acme'",
        "    charge(user_id=7)    scheduled in 300 s",
    ]


def test_a_long_listing_is_cut(pool, mail):
    with testing(pool) as jobs:
        pool.enqueuer.enqueue_many("send_mail", [{"to": f"{i}@b.c"} for i in range(100)])
        with pytest.raises(AssertionError, match="and 80 more"):
            jobs.assert_enqueued("send_mail", to="a@b.c")


def test_assert_not_enqueued_fails_when_it_was(pool, mail):
    with testing(pool) as jobs:
        jobs.assert_not_enqueued("send_mail")
        mail.enqueue(to="a@b.c")
        jobs.assert_not_enqueued("send_mail", to="x@y.z")
        with pytest.raises(AssertionError, match=r"send_mail\(\) was enqueued"):
            jobs.assert_not_enqueued("send_mail")


def test_a_misspelt_name_or_argument_is_an_error_rather_than_a_test_that_always_passes(pool, mail):
    with testing(pool) as jobs:
        with pytest.raises(UnknownJob, match="did you mean 'send_mail'"):
            jobs.assert_not_enqueued("send_male")
        with pytest.raises(BadArguments, match="has no argument 'too'"):
            jobs.assert_not_enqueued("send_mail", too="a@b.c")
        with pytest.raises(UnknownJob):
            jobs.enqueued("send_male")


def test_what_must_not_be_shown_is_not_shown(pool):
    @pool.job(redact=["card"])
    def pay(card: str, api_key: str) -> None: ...

    with testing(pool) as jobs:
        pay.enqueue(card="4111", api_key="s3cret")
        with pytest.raises(AssertionError) as failure:
            jobs.assert_enqueued("pay", card="4242")
    text = str(failure.value)
    assert "4111" not in text
    assert "4242" not in text
    assert "s3cret" not in text


def test_what_was_enqueued_can_be_asked_after_the_block(pool, mail):
    with testing(pool) as jobs:
        mail.enqueue(to="a@b.c")
        jobs.drain()
    jobs.assert_enqueued("send_mail")
    assert len(jobs.done) == 1


# Drain.


def test_drain_runs_jobs_in_order_and_those_they_enqueue(pool, ran):
    @pool.job
    def outer(number: int) -> None:
        ran.append(f"outer {number}")
        inner.enqueue(number=number)

    @pool.job
    def inner(number: int) -> None:
        ran.append(f"inner {number}")

    with testing(pool) as jobs:
        outer.enqueue(number=1)
        outer.enqueue(number=2)
        assert jobs.drain() == 4
        assert jobs.drain() == 0
        assert len(jobs.done) == 4
    assert ran == ["outer 1", "outer 2", "inner 1", "inner 2"]


def test_jobs_get_a_context_of_their_own_middleware_and_the_job(pool, ran):
    @pool.middleware
    def label(ctx: Context, job: Job):
        ctx.note = f"{job.name} {job.id}"
        yield

    @pool.job
    def show(ctx: Context, job: Job, number: int) -> None:
        ran.append((ctx.note, number, job.checkin("half", done=1, total=2)))

    with testing(pool) as jobs:
        show.using(id="s-1").enqueue(number=1)
        show.using(id="s-2").enqueue(number=2)
        jobs.drain()
    assert ran == [("show s-1", 1, False), ("show s-2", 2, False)]


def test_a_job_that_middleware_skips_does_not_run(pool, mail, ran):
    @pool.middleware
    def never():
        if ran is None:
            yield

    with testing(pool) as jobs:
        job = mail.enqueue(to="a@b.c")
        assert jobs.run(job) is None
    assert ran == []


def test_a_failed_job_is_kept_for_retry_and_its_error_is_raised_at_the_end(pool, mail, ran):
    @pool.job
    def fails() -> None:
        raise ValueError("no")

    with testing(pool) as jobs:
        job = fails.enqueue()
        mail.enqueue(to="a@b.c")
        with pytest.raises(ValueError, match="no") as failure:
            jobs.drain()
        assert failure.value.__notes__ == [f"in job 'fails', id {job.id}, attempt 1"]
        assert [(one.fails, one.error) for one in jobs.retry] == [(1, "ValueError: no")]
    assert ran == [("a@b.c", "Hello")]


def test_without_reraise_a_failed_job_is_only_kept(pool):
    @pool.job
    def fails() -> None:
        raise ValueError("no")

    with testing(pool) as jobs:
        fails.enqueue()
        assert jobs.drain(reraise=False) == 1
        assert len(jobs.retry) == 1


def test_a_second_error_is_named_beside_the_first(pool):
    @pool.job
    def fails(why: str) -> None:
        raise ValueError(why)

    with testing(pool) as jobs:
        fails.enqueue(why="one")
        fails.enqueue(why="two")
        with pytest.raises(ValueError, match="one") as failure:
            jobs.drain()
    assert failure.value.__notes__[1:] == ["another job failed after it: ValueError: two"]


def test_retries_run_when_time_has_come_until_the_job_is_dead(pool, ran):
    @pool.job(max_fails=3, backoff=60, on_dead=lambda job, error: ran.append(("dead", job.fails)))
    def fails(job: Job) -> None:
        ran.append(job.attempt)
        raise ValueError("no")

    with testing(pool, clock=FakeClock(START)) as jobs:
        fails.enqueue()
        jobs.drain(reraise=False)
        assert jobs.drain(reraise=False) == 0
        jobs.advance(59)
        assert jobs.drain(reraise=False) == 0
        jobs.advance(1)
        assert jobs.drain(reraise=False) == 1
        jobs.advance()
        with pytest.raises(ValueError, match="no"):
            jobs.drain()
        assert jobs.retry == []
        assert [(one.fails, one.error) for one in jobs.dead] == [(3, "ValueError: no")]
    assert ran == [1, 2, 3, ("dead", 3)]


def test_the_jitter_of_a_backoff_is_the_same_in_every_run(pool):
    @pool.job
    def fails() -> None:
        raise ValueError

    waits = []
    for _ in range(2):
        with testing(pool, clock=FakeClock(START)) as jobs:
            fails.enqueue()
            jobs.drain(reraise=False)
            waits.append(jobs.retry[0].scheduled_at)
    assert waits[0] == waits[1]


def test_signals_do_as_they_say_and_are_no_errors(pool, ran):
    signals = [Retry("r", after=5), Snooze("s", after=10), Discard("d"), Dead("x")]

    @pool.job(on_discard=lambda job, why: ran.append(why))
    def signal(number: int) -> None:
        raise signals[number]

    with testing(pool, clock=FakeClock(START)) as jobs:
        for number in range(4):
            signal.enqueue(number=number)
        assert jobs.drain() == 4
        now = START.timestamp()
        assert [(job.fails, job.scheduled_at) for job in jobs.retry] == [(1, now + 5)]
        assert [(job.fails, job.snoozes, job.scheduled_at) for job in jobs.scheduled] == [(0, 1, now + 10)]
        assert [job.args["number"] for job in jobs.discarded] == [2]
        assert [job.error for job in jobs.dead] == ["Dead: x"]
    assert len(ran) == 1


def test_a_job_that_gives_itself_back_is_the_next_to_run_and_counts_no_attempt(pool, ran):
    @pool.job
    def shy(job: Job, number: int) -> None:
        ran.append((number, job.attempt))
        if len(ran) == 1:
            raise GiveBack("stopping")

    with testing(pool) as jobs:
        shy.enqueue(number=1)
        shy.enqueue(number=2)
        assert jobs.drain() == 3
        assert jobs.queued == []
    assert ran == [(1, 1), (1, 1), (2, 1)]


def test_what_discard_on_names_is_no_error(pool):
    @pool.job(discard_on=KeyError)
    def look() -> None:
        raise KeyError("gone")

    with testing(pool) as jobs:
        look.enqueue()
        assert jobs.drain() == 1
        assert len(jobs.discarded) == 1


def test_a_job_that_enqueues_itself_for_ever_is_found_out(pool, monkeypatch):
    monkeypatch.setattr(fake_store, "MAX_ATTEMPTS", 100)

    @pool.job
    def again() -> None:
        again.enqueue()

    with testing(pool) as jobs:
        again.enqueue()
        with pytest.raises(NotReady, match="does 'again' enqueue itself"):
            jobs.drain()


def test_what_is_not_the_jobs_own_passes_through_drain(pool):
    @pool.job
    def interrupted() -> None:
        raise KeyboardInterrupt

    @pool.job
    def judged() -> None:
        pytest.fail("seen in the handler")

    with testing(pool) as jobs:
        interrupted.enqueue()
        with pytest.raises(KeyboardInterrupt):
            jobs.drain(reraise=False)
        judged.enqueue()
        with pytest.raises(pytest.fail.Exception, match="seen in the handler"):
            jobs.drain(reraise=False)


def test_arguments_that_do_not_fit_fail_in_the_worker_like_any_other_error(pool, mail):
    free = Enqueuer("shop", redis=NOWHERE)
    with testing(pool, free) as jobs:
        free.enqueue("send_mail", to=7)
        with pytest.raises(BadArguments, match="expected str"):
            jobs.drain()
        assert jobs.retry[0].error.startswith("BadArguments")


# Time.


def test_a_scheduled_job_runs_when_it_is_due_and_not_before(pool, mail, ran):
    with testing(pool, clock=FakeClock(START)) as jobs:
        job = mail.enqueue_in(3600, to="late@b.c")
        mail.enqueue_at(START + timedelta(minutes=1), to="soon@b.c")
        assert job.scheduled_at == START.timestamp() + 3600
        assert [one.args["to"] for one in jobs.scheduled] == ["soon@b.c", "late@b.c"]
        assert jobs.drain() == 0
        jobs.advance(timedelta(hours=1))
        assert jobs.drain() == 2
    assert [to for to, _ in ran] == ["soon@b.c", "late@b.c"]


def test_advance_without_seconds_goes_to_the_next_job_that_is_due(pool, mail):
    with testing(pool, clock=FakeClock(START)) as jobs:
        with pytest.raises(NotReady, match="no job is scheduled"):
            jobs.advance()
        for days in (2, 1):
            mail.enqueue_in(timedelta(days=days), to=f"{days}@b.c")
        jobs.advance()
        assert jobs.drain() == 1
        assert [job.args["to"] for job in jobs.done] == ["1@b.c"]


def test_a_job_that_was_due_at_some_time_counts_from_then(pool, ran):
    @pool.job
    def when(job: Job) -> None:
        ran.append(job.enqueued_at)

    with testing(pool, clock=FakeClock(START)) as jobs:
        when.enqueue_in(60)
        jobs.advance(3600)
        jobs.drain()
    assert ran == [START.timestamp() + 60]


def test_a_job_that_expired_is_discarded(pool, mail, ran):
    with testing(pool, clock=FakeClock(START)) as jobs:
        mail.using(expires=60).enqueue(to="a@b.c")
        jobs.advance(61)
        jobs.drain()
        assert len(jobs.discarded) == 1
    assert ran == []


def test_a_clock_with_a_time_stands_still_until_it_is_moved():
    clock = FakeClock(START)
    assert clock.now() == START.timestamp()
    before = clock.monotonic()
    assert clock.wait(threading.Event(), 30) is False
    assert clock.now() == START.timestamp() + 30
    assert clock.monotonic() == before + 30


def test_a_wait_for_what_has_happened_takes_no_time():
    clock, event = FakeClock(1_000), threading.Event()
    event.set()
    assert clock.wait(event, 30) is True
    assert clock.now() == 1_000


def test_a_clock_without_a_time_follows_the_machine(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 50.0)
    clock = FakeClock()
    clock.advance(10)
    assert clock.now() == 60.0
    monkeypatch.setattr("time.time", lambda: 51.0)
    assert clock.now() == 61.0


@pytest.mark.parametrize("by", [-1, timedelta(seconds=-1), "1", None])
def test_a_clock_goes_forward_only(by):
    with pytest.raises(BadOption):
        FakeClock().advance(by)


def test_a_clock_wants_a_time_zone():
    with pytest.raises(BadOption, match="time zone"):
        FakeClock(START.replace(tzinfo=None))


# Unique jobs, ids, sources, results.


def test_a_unique_job_blocks_others_like_it_until_it_starts(pool, ran):
    @pool.job
    def sync(shop: int) -> None:
        ran.append(sync.enqueue_unique(shop=shop) is not None)
        if len(ran) > 1:
            raise Discard

    with testing(pool) as jobs:
        assert sync.enqueue_unique(shop=1) is not None
        assert sync.enqueue_unique(shop=1) is None
        assert sync.enqueue_unique(shop=2) is not None
        assert len(jobs.enqueued()) == 2
        jobs.run(jobs.enqueued()[0])
    assert ran == [True]


def test_a_unique_job_until_done_blocks_others_through_its_retries(pool, ran):
    @pool.job(unique_until="done", backoff=10)
    def sync(job: Job) -> None:
        ran.append(sync.enqueue_unique())
        if job.fails == 0:
            raise ValueError

    with testing(pool) as jobs:
        sync.enqueue_unique()
        jobs.drain(reraise=False)
        assert sync.enqueue_unique() is None
        jobs.advance(10)
        jobs.drain()
        assert sync.enqueue_unique() is not None
    assert ran == [None, None]


def test_a_dead_job_frees_its_unique_key(pool):
    @pool.job(unique_until="done", max_fails=1)
    def sync() -> None:
        raise ValueError

    with testing(pool) as jobs:
        sync.enqueue_unique()
        jobs.drain(reraise=False)
        assert len(jobs.dead) == 1
        assert sync.enqueue_unique() is not None


def test_a_unique_key_lives_as_long_as_it_was_given(pool, mail):
    with testing(pool) as jobs:
        once = mail.using(unique_key="welcome", unique_for=60)
        assert once.enqueue_unique(to="a@b.c") is not None
        jobs.drain()
        assert once.enqueue_unique(to="x@y.z") is None
        jobs.advance(61)
        assert once.enqueue_unique(to="x@y.z") is not None


def test_a_second_job_with_a_chosen_id_is_not_stored(pool, mail):
    with testing(pool) as jobs:
        first = mail.using(id="m-1").enqueue(to="a@b.c")
        again = mail.using(id="m-1").enqueue(to="a@b.c")
        assert first.id == again.id == "m-1"
        assert len(jobs.enqueued()) == 1
        jobs.advance(timedelta(days=1, seconds=1))
        mail.using(id="m-1").enqueue(to="a@b.c")
        assert len(jobs.enqueued()) == 2


def test_a_job_inherits_the_source_of_the_job_that_enqueues_it(pool, mail):
    @pool.job
    async def outer() -> None:
        mail.enqueue(to="kept@b.c")
        await mail.using(source=None).aenqueue(to="dropped@b.c")

    with testing(pool) as jobs:
        outer.using(source=42).enqueue()
        jobs.drain()
        assert jobs.assert_enqueued("send_mail", to="kept@b.c").source == 42
        assert jobs.assert_enqueued("send_mail", to="dropped@b.c").source is None


def test_a_result_is_there_once_the_job_has_run_in_the_type_of_its_annotation(pool):
    @pool.job(keep=60)
    def add(a: int, b: int) -> tuple[int, ...]:
        return (a, b, a + b)

    with testing(pool) as jobs:
        job = add.enqueue(1, 2)
        with pytest.raises(ResultTimeout, match="drain"):
            add.result(job)
        jobs.drain()
        assert add.result(job) == (1, 2, 3)
        assert pool.enqueuer.result(job) == [1, 2, 3]
        assert asyncio.run(add.aresult(job)) == (1, 2, 3)
        jobs.advance(61)
        with pytest.raises(ResultTimeout):
            add.result(job)


@pytest.mark.parametrize("value", [object(), float("nan"), [1.0, {"a": float("inf")}]])
def test_a_result_that_json_cannot_carry_fails_the_job(pool, value):
    @pool.job(keep=60, max_fails=1)
    def make() -> object:
        return value

    with testing(pool) as jobs:
        job = make.enqueue()
        with pytest.raises(Exception, match="cannot be stored as JSON"):
            jobs.drain()
        with pytest.raises(JobFailed):
            make.result(job)


# Run one job.


def test_run_runs_one_job_due_or_not_and_returns_what_it_returned(pool, mail, ran):
    with testing(pool) as jobs:
        mail.enqueue(to="first@b.c")
        later = mail.enqueue_in(3600, to="later@b.c")
        assert jobs.run(later) == "sent to later@b.c"
        assert [job.args["to"] for job in jobs.queued] == ["first@b.c"]
        with pytest.raises(NotReady, match="does not wait here"):
            jobs.run(later)
    assert ran == [("later@b.c", "Hello")]


def test_run_raises_what_the_handler_raised_and_the_job_waits_for_its_retry(pool):
    @pool.job
    def fails() -> None:
        raise ValueError("no")

    with testing(pool) as jobs:
        job = fails.enqueue()
        with pytest.raises(ValueError, match="no"):
            jobs.run(job.id)
        with pytest.raises(ValueError, match="no"):
            jobs.run(job.id)
        assert jobs.retry[0].fails == 2


# Inline.


def test_inline_runs_a_job_before_its_enqueue_returns(pool, mail, ran):
    with testing(pool, inline=True) as jobs:
        mail.enqueue(to="a@b.c")
        assert ran == [("a@b.c", "Hello")]
        jobs.assert_enqueued("send_mail", to="a@b.c")
        assert len(jobs.done) == 1


def test_inline_raises_the_error_of_the_job_where_it_was_enqueued(pool, mail, ran):
    @pool.job
    def fails() -> None:
        raise ValueError("no")

    with testing(pool, inline=True) as jobs:
        with pytest.raises(ValueError, match="no"):
            fails.enqueue()
        assert [job.fails for job in jobs.retry] == [1]


def test_inline_does_not_run_a_job_again_that_was_stored_before(pool, ran):
    @pool.job
    def fails() -> None:
        ran.append("ran")
        raise ValueError

    with testing(pool, inline=True):
        with pytest.raises(ValueError):
            fails.using(id="f-1").enqueue()
        fails.using(id="f-1").enqueue()
    assert ran == ["ran"]


def test_inline_keeps_what_is_not_due_for_a_drain(pool, mail, ran):
    with testing(pool, inline=True) as jobs:
        mail.enqueue_in(60, to="later@b.c")
        mail.enqueue_in(0, to="now@b.c")
        mail.enqueue_at(datetime.now(UTC) - timedelta(days=1), to="past@b.c")
        assert [to for to, _ in ran] == ["now@b.c", "past@b.c"]
        jobs.advance(60)
        jobs.drain()
    assert [to for to, _ in ran] == ["now@b.c", "past@b.c", "later@b.c"]


def test_inline_obeys_signals(pool):
    @pool.job
    def later(job: Job) -> None:
        if job.snoozes == 0:
            raise Snooze("not yet", after=60)

    with testing(pool, inline=True) as jobs:
        later.enqueue()
        assert len(jobs.scheduled) == 1


def test_inline_runs_all_of_a_bulk_and_raises_the_first_error(pool, ran):
    @pool.job
    def odd(number: int) -> None:
        ran.append(number)
        if number % 2:
            raise ValueError(number)

    with testing(pool, inline=True), pytest.raises(ValueError, match="1"):
        pool.enqueuer.enqueue_many("odd", [{"number": number} for number in range(4)])
    assert ran == [0, 1, 2, 3]


def test_inline_jobs_of_both_colours_run_one_another(pool, ran):
    @pool.job
    async def first() -> None:
        await second.aenqueue()
        ran.append("first")

    @pool.job
    def second() -> None:
        third.enqueue()
        ran.append("second")

    @pool.job
    async def third() -> None:
        fourth.enqueue()  # a plain call on the loop
        ran.append("third")

    @pool.job
    async def fourth() -> None:
        ran.append("fourth")

    with testing(pool, inline=True):
        first.enqueue()
        assert ran == ["fourth", "third", "second", "first"]
        asyncio.run(first.aenqueue())
    assert ran == ["fourth", "third", "second", "first"] * 2


def test_an_inline_job_that_enqueues_itself_is_found_out(pool):
    @pool.job
    def again() -> None:
        again.enqueue()

    with testing(pool, inline=True), pytest.raises(NotReady, match="does one enqueue itself"):
        again.enqueue()


def test_inline_in_many_threads_runs_each_job_once(pool, ran):
    @pool.job
    def plain(number: int) -> None:
        ran.append(number)

    @pool.job
    async def awaited(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    def enqueue(start: int) -> None:
        for number in range(start, start + 10):
            plain.enqueue(number=number)
            awaited.enqueue(number=number + 1000)

    with testing(pool, inline=True) as jobs:
        threads = [threading.Thread(target=enqueue, args=(start,)) for start in range(0, 40, 10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(jobs.done) == 80
    assert sorted(ran) == [*range(40), *range(1000, 1040)]


# Async.


@pytest.fixture
def without_django(monkeypatch):
    """Another test may have loaded Django, for which a block runs async jobs as Django's own tests do."""
    monkeypatch.delitem(sys.modules, "django.db", raising=False)


def test_async_jobs_of_one_block_share_a_loop_when_drained_from_plain_code(pool, ran, without_django):
    @pool.job
    async def note() -> None:
        await asyncio.sleep(0)
        ran.append(asyncio.get_running_loop())

    with testing(pool) as jobs:
        note.enqueue()
        jobs.drain()
        note.enqueue()
        jobs.drain()
    assert ran[0] is ran[1]
    assert ran[0].is_closed()


def test_adrain_runs_async_jobs_on_the_callers_loop_and_sync_ones_beside_it(pool, ran):
    @pool.job
    async def awaited() -> None:
        ran.append(asyncio.get_running_loop())

    @pool.job
    def plain() -> int:
        ran.append(threading.current_thread())
        return asyncio.run(asyncio.sleep(0, 7))

    async def main():
        with testing(pool) as jobs:
            await awaited.aenqueue()
            job = await plain.aenqueue()
            assert await jobs.arun(job) == 7
            assert await jobs.adrain() == 1
            await plain.aenqueue()
            assert await jobs.adrain() == 1
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert ran[1] is loop
    assert threading.current_thread() not in ran


def test_drain_in_async_code_runs_jobs_where_no_loop_runs(pool, ran):
    @pool.job
    async def awaited() -> None:
        ran.append("awaited")

    @pool.job
    def plain() -> None:
        asyncio.run(asyncio.sleep(0))
        ran.append("plain")

    async def main():
        with testing(pool) as jobs:
            awaited.enqueue()
            plain.enqueue()
            jobs.drain()

    asyncio.run(main())
    assert ran == ["awaited", "plain"]


def test_adrain_that_is_cancelled_gives_the_job_back(pool):
    async def main():
        started = asyncio.Event()

        @pool.job
        async def slow() -> None:
            started.set()
            await asyncio.Event().wait()

        with testing(pool) as jobs:
            await slow.aenqueue()
            task = asyncio.create_task(jobs.adrain())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [(job.name, job.fails) for job in jobs.queued] == [("slow", 0)]

    asyncio.run(main())


def test_an_async_job_that_takes_too_long_fails(pool):
    @pool.job(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with testing(pool) as jobs:
        slow.enqueue()
        with pytest.raises(TimeoutError, match=r"timeout of 0\.01 s"):
            jobs.drain()


def test_variables_of_the_test_do_not_reach_a_job(pool, ran):
    var = ContextVar("var", default="none")

    @pool.job
    def plain() -> None:
        ran.append(var.get())

    @pool.job
    async def awaited() -> None:
        ran.append(var.get())

    async def main(jobs):
        awaited.enqueue()
        await jobs.adrain()

    token = var.set("test")
    with testing(pool) as jobs:
        plain.enqueue()
        awaited.enqueue()
        jobs.drain()
        asyncio.run(main(jobs))
    var.reset(token)
    assert ran == ["none"] * 3


# Enqueuers, commits, blocks.


def test_enqueuers_of_the_same_namespace_are_caught_when_passed(pool, mail, ran):
    free, afree = Enqueuer("shop:", redis=NOWHERE), AsyncEnqueuer("shop", redis=NOWHERE)
    with testing(pool, free, afree) as jobs:
        free.using(source=1).enqueue("send_mail", to="a@b.c")
        asyncio.run(afree.enqueue("send_mail", to="b@b.c"))
        free.enqueue("of.another.program", n=1)
        jobs.assert_enqueued("of.another.program", n=1)
        jobs.assert_not_enqueued("of.no.program")
        assert jobs.drain() == 2
        assert [job.name for job in jobs.queued] == ["of.another.program"]
    assert [to for to, _ in ran] == ["a@b.c", "b@b.c"]


def test_an_enqueuer_alone_records_and_says_that_it_cannot_run():
    free = Enqueuer("shop", redis=NOWHERE)
    with testing(free) as jobs:
        job = free.enqueue("send_mail", to="a@b.c")
        jobs.assert_enqueued("send_mail", to="a@b.c")
        with pytest.raises(NotReady, match=r"testing\(pool, enqueuer\)"):
            jobs.drain()
        with pytest.raises(NotReady, match="no handlers"):
            jobs.run(job)


def test_wrong_targets_are_refused_in_words(pool):
    other = Enqueuer("other", redis=NOWHERE)
    with pytest.raises(BadOption, match="namespaces 'shop' and 'other' differ"):
        testing(pool, other)
    with pytest.raises(BadOption, match="give a WorkerPool"):
        testing(pool, "shop")
    with pytest.raises(BadOption, match="a block for each pool"):
        testing(pool, WorkerPool(namespace="other"))
    with pytest.raises(BadOption, match="give one pool"):
        testing()
    with pytest.raises(BadOption, match="give the pool too"):
        testing(other, inline=True)


def test_a_job_is_enqueued_when_its_commit_comes(mail_on_commit):
    pool, mail, commits = mail_on_commit
    with testing(pool) as jobs:
        mail.enqueue(to="a@b.c")
        assert jobs.enqueued() == []
        commits.pop()()
        jobs.assert_enqueued("send_mail", to="a@b.c")


def test_a_failed_assertion_names_the_jobs_whose_commit_did_not_come(mail_on_commit):
    pool, mail, commits = mail_on_commit
    with testing(pool) as jobs:
        mail.enqueue(to="a@b.c")
        mail.enqueue_in(60, to="d@b.c")
        asyncio.run(mail.aenqueue(to="e@b.c"))
        commits.pop(1)()
        with pytest.raises(AssertionError) as failed:
            jobs.assert_enqueued("send_mail", to="a@b.c")
        assert re.sub(r"in \d+ s", "in 60 s", str(failed.value)) == (
            "send_mail(to='a@b.c') was not enqueued. Enqueued in this block:\n"
            "    send_mail(to='d@b.c')    scheduled in 60 s\n"
            "Not sent, because no commit of its transaction came in this block:\n"
            "    send_mail(to='a@b.c')\n"
            "    send_mail(to='e@b.c')"
        )
        for commit in commits:
            commit()
        jobs.assert_enqueued("send_mail", to="a@b.c")
        with pytest.raises(AssertionError) as failed:
            jobs.assert_enqueued("send_mail", to="nobody")
        assert "Not sent" not in str(failed.value)


def test_a_commit_after_the_block_is_refused_rather_than_sent(mail_on_commit):
    pool, mail, commits = mail_on_commit
    with testing(pool):
        mail.enqueue(to="a@b.c")
    with pytest.raises(NotReady, match="commit inside the block"):
        commits.pop()()


@pytest.fixture
def mail_on_commit():
    commits = []
    pool = WorkerPool(namespace="shop", redis=NOWHERE, on_commit=commits.append)

    @pool.job
    def send_mail(to: str) -> None: ...

    return pool, send_mail, commits


def test_of_nested_blocks_the_innermost_gets_the_jobs(pool, mail, ran):
    with testing(pool) as outer:
        mail.enqueue(to="1@b.c")
        with testing(pool, inline=True) as inner:
            mail.enqueue(to="2@b.c")
        mail.enqueue(to="3@b.c")
    assert [job.args["to"] for job in outer.enqueued()] == ["1@b.c", "3@b.c"]
    assert [job.args["to"] for job in inner.enqueued()] == ["2@b.c"]


def test_blocks_that_overlap_leave_nothing_behind(pool, mail):
    first, second = testing(pool), testing(pool)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    mail.enqueue(to="a@b.c")
    second.__exit__(None, None, None)
    assert len(second.enqueued()) == 1
    assert pool.enqueuer._builder.sink is None


def test_blocks_of_two_pools_are_apart(pool, mail):
    other = WorkerPool(namespace="other", redis=NOWHERE)

    @other.job
    def bill() -> None:
        mail.enqueue(to="a@b.c")

    with testing(pool) as jobs, testing(other) as others:
        bill.enqueue()
        others.drain()
        assert [job.name for job in jobs.enqueued()] == ["send_mail"]
        assert [job.name for job in others.enqueued()] == ["bill"]


def test_a_block_on_the_same_pool_in_another_thread_is_refused(pool):
    refusals = []

    def open_block():
        try:
            with testing(pool):
                refusals.append(None)
        except NotReady as error:
            refusals.append(str(error))

    with testing(pool):
        thread = threading.Thread(target=open_block)
        thread.start()
        thread.join()
    assert "another thread has a testing block open" in refusals[0]
    thread = threading.Thread(target=open_block)
    thread.start()
    thread.join()
    assert refusals[1] is None


def test_a_block_is_used_once_and_works_inside_only(pool, mail):
    block = testing(pool)
    with pytest.raises(NotReady, match="inside the block"):
        block.drain()
    with block as jobs:
        job = mail.enqueue(to="a@b.c")
    with pytest.raises(NotReady, match="inside the block"):
        jobs.drain()
    with pytest.raises(NotReady, match="inside the block"):
        jobs.run(job)
    with pytest.raises(NotReady, match="used once"):
        block.__enter__()


def test_a_job_cannot_drain_its_own_block(pool, ran):
    blocks = []

    @pool.job
    def greedy() -> None:
        blocks[0].drain()

    with testing(pool) as jobs:
        blocks.append(jobs)
        greedy.enqueue()
        with pytest.raises(NotReady, match="drain\\(\\) is under way"):
            jobs.drain()


def test_the_block_ends_when_the_test_fails(pool):
    with pytest.raises(RuntimeError), testing(pool):
        raise RuntimeError
    assert pool.enqueuer._builder.sink is None


def test_pytest_does_not_take_testing_for_a_test():
    assert testing.__test__ is False


def test_states_and_progress_are_those_of_the_block(pool):
    seen = []

    @pool.job(keep=60, max_fails=1)
    def count(job: Job, fail: bool = False) -> None:
        job.checkin("rows", done=1, total=2)
        progress = pool.enqueuer.progress(job)
        seen.append((pool.enqueuer.state(job), progress.message, progress.done, progress.total))
        if fail:
            raise ValueError

    with testing(pool) as jobs:
        good, bad, later = count.enqueue(), count.enqueue(fail=True), count.enqueue_in(60)
        states = pool.enqueuer.state
        assert (states(good), states(later.id), states("none")) == ("waiting", "scheduled", None)
        assert pool.enqueuer.progress(good) is None
        jobs.drain(reraise=False)
        assert seen == [("running", "rows", 1, 2)] * 2
        assert (states(good), states(bad)) == ("done", "dead")
        assert pool.enqueuer.progress(good) is None

"""What a handler is given, what may be wrapped around it, and every way in which it can end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
from dataclasses import dataclass, field

import pytest

from dayjob import Job
from dayjob.errors import JobFailed
from server import wait_until

#: So that a status comes soon after each event.
QUICK = {"beat": 0.3}


@dataclass
class Context:
    notes: list[str] = field(default_factory=list)


# Context and middleware.


def test_every_job_has_a_fresh_context_that_its_middleware_and_its_handler_share(new_pool):
    pool = new_pool(Context)
    seen = []

    @pool.middleware
    def mark(ctx: Context, job: Job):
        assert ctx.notes == []
        ctx.notes.append(job.id)
        yield
        seen.append((ctx, job.id))

    @pool.job
    def plain(ctx: Context, job: Job):
        assert ctx.notes == [job.id]
        ctx.notes.append("plain")

    @pool.job
    async def coloured(ctx: Context, job: Job):
        assert ctx.notes == [job.id]
        ctx.notes.append("coloured")

    with pool:
        ids = {type_.enqueue().id for type_ in (plain, coloured) for _ in range(20)}
        assert pool.drain(60)
    assert {job_id for _, job_id in seen} == ids
    assert all(ctx.notes[0] == job_id and len(ctx.notes) == 2 for ctx, job_id in seen)
    assert len({id(ctx) for ctx, _ in seen}) == 40


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_middleware_wraps_both_colours_in_the_order_it_was_given(new_pool, colour):
    pool = new_pool()
    log = []

    @pool.middleware
    def outer(job: Job):
        log.append("outer in")
        yield
        log.append("outer out")

    @pool.middleware(only="async")
    async def loop_only():
        log.append("async in")
        yield
        log.append("async out")

    @pool.middleware
    def inner():
        log.append("inner in")
        yield
        log.append("inner out")

    @pool.job
    def plain():
        log.append("job")

    @pool.job
    async def coloured():
        log.append("job")

    with pool:
        pool.enqueuer.enqueue(colour)
        assert pool.drain(60)
    narrow = colour == "coloured"
    assert log == [
        "outer in", *(["async in"] * narrow), "inner in", "job", "inner out", *(["async out"] * narrow), "outer out",
    ]  # fmt: skip


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_a_middleware_may_catch_what_a_job_raises_and_may_skip_the_job(new_pool, look, colour):
    pool = new_pool()
    log = []

    @pool.middleware
    def guard(job: Job):
        if job.id == "skip":
            return
        try:
            yield
        except ValueError as error:
            log.append(f"caught {error}")

    def act(job):
        log.append(f"ran {job.id}")
        raise ValueError(job.id)

    @pool.job(max_fails=1)
    def plain(job: Job):
        act(job)

    @pool.job(max_fails=1)
    async def coloured(job: Job):
        act(job)

    with pool:
        pool.enqueuer.using(id="skip").enqueue(colour)
        pool.enqueuer.using(id="catch").enqueue(colour)
        assert pool.drain(60)
    assert log == ["ran catch", "caught catch"]
    assert look.totals() == {f"done:{colour}": 2}


def test_an_exception_in_a_middleware_fails_the_job_like_one_in_its_handler(new_pool, look):
    pool = new_pool()

    @pool.middleware
    def broken():
        yield
        raise LookupError("after the job")

    @pool.job(max_fails=1)
    def plain():
        pass

    with pool:
        plain.enqueue()
        assert pool.drain(60)
    (dead,) = look.dead()
    assert dead["err"] == "LookupError: after the job"


def test_lifespans_of_both_colours_wrap_every_life_of_the_pool(new_pool):
    pool = new_pool()
    log = []

    @pool.lifespan
    def outer():
        log.append("outer in")
        yield
        log.append("outer out")

    @pool.lifespan
    async def inner():
        asyncio.get_running_loop()
        log.append("inner in")
        yield
        log.append("inner out")

    @pool.job
    def plain():
        log.append("job")

    for _ in range(2):
        with pool:
            plain.enqueue()
            assert pool.drain(60)
    assert log == ["outer in", "inner in", "job", "inner out", "outer out"] * 2


def test_a_lifespan_that_fails_at_the_start_leaves_no_pool_behind(new_pool, look):
    pool = new_pool()
    log = []

    @pool.lifespan
    def fine():
        log.append("in")
        yield
        log.append("out")

    @pool.lifespan
    def failing():
        raise OSError("no database")
        yield

    pool.register("nothing", lambda: None)
    with pytest.raises(OSError, match="no database"):
        pool.start()
    assert log == ["in", "out"]
    assert look.pools() == []


# What a handler can ask of its job.


def test_typed_getters_give_values_or_name_the_key_the_value_and_its_type(new_pool, look):
    pool = new_pool()
    seen = []

    @pool.job(max_fails=1)
    def read(job: Job):
        seen.append((job.get_str("s"), job.get_int("i"), job.get_float("f"), job.get_bool("b")))
        seen.append((job.get_list("l"), job.get_dict("d")))
        job.get_int("s")

    with pool:
        read.enqueue(s="seven", i=7, f=0.5, b=True, l=[1], d={"k": None})
        assert pool.drain(60)
    assert seen == [("seven", 7, 0.5, True), ([1], {"k": None})]
    (dead,) = look.dead()
    assert dead["err"] == "BadArguments: read: argument 's' is 'seven' (str), not an integer"


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_a_checkin_shows_in_the_status_within_two_seconds(new_pool, look, colour):
    pool = new_pool()
    gate = threading.Event()

    @pool.job
    def plain(job: Job, user: int):
        assert job.checkin("row 3000", done=3000, total=9000) is False
        gate.wait(60)

    @pool.job
    async def coloured(job: Job, user: int):
        assert job.checkin("row 3000", done=3000, total=9000) is False
        while not gate.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.01)

    with pool:
        wait_until(look.status)
        job = pool.enqueuer.sourced("acme").enqueue(colour, user=7)
        wait_until(look.held)
        worker = wait_until(lambda: [one for one in look.workers() if one["checkin"]])[0]
        gate.set()
    assert worker["checkin"] == "row 3000"
    assert (worker["done"], worker["total"]) == (3000, 9000)
    assert (worker["name"], worker["id"], worker["args"], worker["source"]) == (
        colour,
        job.id,
        {"user": 7},
        "acme",
    )
    assert worker["attempt"] == 1
    assert worker["stuck"] is False


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_checkin_and_stopping_tell_a_job_that_its_pool_stops_so_that_it_can_end_well(new_pool, look, colour):
    pool = new_pool()
    pause, answers = threading.Event(), []

    @pool.job
    def plain(job: Job):
        answers.append((job.checkin(), job.stopping))
        while not job.checkin("busy"):
            pause.wait(0.005)
        answers.append((job.checkin(), job.stopping))

    @pool.job
    async def coloured(job: Job):
        answers.append((job.checkin(), job.stopping))
        while not job.stopping:  # noqa: ASYNC110 - the way to ask
            await asyncio.sleep(0.005)
        answers.append((job.checkin(), job.stopping))

    pool.start()
    pool.enqueuer.enqueue(colour)
    wait_until(lambda: answers)
    pool.stop(timeout=60)
    assert answers == [(False, False), (True, True)]
    assert look.totals() == {f"done:{colour}": 1}


# Timeouts.


def test_an_async_job_that_runs_too_long_is_cancelled_and_fails(new_pool, look):
    pool = new_pool(concurrency=1)
    seen = []

    @pool.job(timeout=0.2, max_fails=1)
    async def endless():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @pool.job
    async def after():
        seen.append("after")

    with pool:
        endless.enqueue()
        wait_until(look.dead)
        after.enqueue()
        assert pool.drain(60)
    assert seen == ["cancelled", "after"]
    (dead,) = look.dead()
    assert dead["err"] == "JobTimeout: endless ran longer than its timeout of 0.2 s"
    assert dead["fails"] == 1


def test_a_sync_job_that_runs_too_long_gets_an_exception_and_fails(new_pool, look):
    pool = new_pool(concurrency=1)
    seen, pause = [], threading.Event()

    @pool.job(timeout=0.5, max_fails=1)
    def endless(job: Job):
        try:
            while True:
                pause.wait(0.005)
        except BaseException:
            seen.append(("timeout", job.stopping))
            raise

    @pool.job
    def after():
        seen.append("after")

    with pool:
        endless.enqueue()
        wait_until(look.dead)
        after.enqueue()
        assert pool.drain(60)
    assert seen == [("timeout", True), "after"]
    (dead,) = look.dead()
    assert dead["err"] == "JobTimeout: endless ran longer than its timeout of 0.5 s"


def test_a_stuck_thread_is_settled_once_keeps_its_slot_and_its_outcome_never_leaves(new_pool, look):
    pool = new_pool(concurrency=1, grace=0.2, **QUICK)
    gate, seen = threading.Event(), []

    @pool.job(timeout=0.5, max_fails=1, on_done=lambda job: seen.append("done hook"))
    def stuck():
        seen.append("in")
        # No exception reaches a thread that waits in C. It may come before the wait has begun.
        while not gate.is_set():
            with contextlib.suppress(BaseException):
                gate.wait()

    @pool.job
    def after():
        seen.append("after")

    with pool:
        stuck.enqueue()
        wait_until(look.dead)
        assert look.held() == 0
        after.enqueue()
        shown = wait_until(lambda: [one for one in look.workers() if one["stuck"]])
        assert [one["name"] for one in shown] == ["stuck"]
        assert seen == ["in"]
        assert len(look.queue("after")) == 1
        gate.set()
        assert pool.drain(60)
    assert seen == ["in", "after"]
    assert look.totals() == {"failed:stuck": 1, "dead:stuck": 1, "done:after": 1}
    (dead,) = look.dead()
    assert dead["err"].startswith("JobTimeout: stuck ran longer than its timeout of 0.5 s")
    assert dead["fails"] == 1


def test_a_timeout_that_strikes_after_the_handler_ended_never_ends_the_worker(new_pool, look):
    pool = new_pool(concurrency=1)
    ran, slow = [], []

    @pool.job(timeout=0.1, max_fails=1)
    def fails(job: Job):
        slow.append(job)
        raise ValueError("no")

    @pool.job
    def after():
        ran.append(1)

    def slow_log(record):
        # Code of the user's that runs on the worker's thread after the handler has ended.
        while slow and not slow[0].stopping:
            pass
        return True

    logger = logging.getLogger("dayjob.job")
    logger.addFilter(slow_log)
    try:
        with pool:
            fails.enqueue()
            wait_until(look.dead)
            after.enqueue()
            assert pool.drain(60)
    finally:
        logger.removeFilter(slow_log)
    assert ran == [1]
    assert look.total("failed:fails") == 1
    assert len(look.dead()) == 1


# Exceptions of every kind.


class Hostile(Exception):
    def __str__(self):
        raise ValueError("not even this")


class MoreHostile(Exception):
    def __str__(self):  # noqa: PLE0307 - that is the point
        sys.exit("not even this")


class Basic(BaseException):
    pass


#: Made anew in each test: a report of pytest's must never have to show the hostile ones.
ERRORS = {
    "exception": lambda: ValueError("why"),
    "base exception": lambda: Basic("why"),
    "SystemExit": lambda: SystemExit("why"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("why"),
    "GeneratorExit": lambda: GeneratorExit("why"),
    "CancelledError": lambda: asyncio.CancelledError("why"),
    "group": lambda: ExceptionGroup("why", [ValueError(1)]),
    "str raises": Hostile,
    "str exits": MoreHostile,
    "lone surrogate": lambda: ValueError("\ud800"),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_whatever_a_handler_raises_ends_its_attempt_and_never_its_worker(new_pool, look, colour, kind):
    pool = new_pool(concurrency=1)
    ran = []

    def explode():
        error = ERRORS[kind]()
        raise error

    @pool.job(max_fails=1)
    def plain():
        explode()

    @pool.job(max_fails=1)
    async def coloured():
        explode()

    @pool.job
    def after():
        ran.append("plain")

    @pool.job
    async def after_async():
        ran.append("coloured")

    with pool:
        pool.enqueuer.enqueue(colour)
        wait_until(look.dead)
        after.enqueue()
        after_async.enqueue()
        assert pool.drain(60)
    assert sorted(ran) == ["coloured", "plain"]
    (dead,) = look.dead()
    assert dead["err"].startswith(type(ERRORS[kind]()).__name__)
    assert "in explode" in dead["trace"]
    assert dead["fails"] == 1
    assert look.total(f"failed:{colour}") == 1


def test_a_sync_handler_that_returns_something_to_await_fails_in_words(new_pool, look):
    pool = new_pool()

    async def elsewhere():
        pass

    @pool.job(max_fails=1)
    def forgot():
        return elsewhere()

    with pool:
        forgot.enqueue()
        assert pool.drain(60)
    (dead,) = look.dead()
    assert "forgot is a plain function but returned an awaitable" in dead["err"]
    assert "async def" in dead["err"]


# What travels with a job, and what does not.


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_jobs_enqueued_by_a_job_inherit_its_source_unless_it_is_dropped(new_pool, colour):
    pool = new_pool()
    sources = {}

    @pool.job
    def child(job: Job, label: str):
        sources[label] = job.source

    @pool.job
    def plain(job: Job):
        child.enqueue(label="inherited")
        child.using(source=None).enqueue(label="dropped")
        child.using(source="other").enqueue(label="other")

    @pool.job
    async def coloured(job: Job):
        await child.aenqueue(label="inherited")
        await child.using(source=None).aenqueue(label="dropped")
        await child.using(source="other").aenqueue(label="other")
        await pool.async_enqueuer.close()

    with pool:
        pool.enqueuer.sourced(42).enqueue(colour)
        assert pool.drain(60)
        assert sources == {"inherited": 42, "dropped": None, "other": "other"}
        child.enqueue(label="outside")
        assert pool.drain(60)
    assert sources["outside"] is None


@pytest.mark.parametrize("colour", ["plain", "coloured"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_context_variables_do_not_leak_from_job_to_job(new_pool, colour, concurrency):
    pool = new_pool(concurrency=concurrency)
    var = contextvars.ContextVar("var", default="clean")
    seen = []

    @pool.job
    def plain(number: int):
        seen.append(var.get())
        var.set(f"dirty {number}")

    @pool.job
    async def coloured(number: int):
        seen.append(var.get())
        var.set(f"dirty {number}")
        await asyncio.sleep(0)

    pool.enqueuer.enqueue_many(colour, [{"number": i} for i in range(300)])
    with pool:
        assert pool.drain(60)
    assert seen == ["clean"] * 300


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_result_above_max_result_fails_the_attempt_and_names_its_size(new_pool, look, colour):
    pool = new_pool(max_result=2000)

    if colour == "plain":

        @pool.job(keep=60, max_fails=1)
        def answer(size: int) -> str:
            return "x" * size

    else:

        @pool.job(keep=60, max_fails=1)
        async def answer(size: int) -> str:
            return "x" * size

    with pool:
        # {"result":"..."} takes 13 bytes more.
        fits, large = answer.enqueue(1987), answer.enqueue(1988)
        assert answer.result(fits, timeout=60) == "x" * 1987
        with pytest.raises(JobFailed) as caught:
            answer.result(large, timeout=60)
        assert pool.drain(60)
    words = "answer: the result has 2,001 bytes as JSON, the limit is 2,000."
    assert words in str(caught.value)
    assert words in look.dead()[0]["err"]
    assert look.totals() == {"done:answer": 1, "failed:answer": 1, "dead:answer": 1}

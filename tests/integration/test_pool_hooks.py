"""What a pool sets for all its jobs: hooks and default options; and what code inside a job can ask about it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dayjob import BadOption, Dead, Discard, Job, NotReady, WorkerPool, current_job
from dayjob.options import JobOptions
from dayjob.testing import testing
from server import wait_until


def test_hooks_of_the_pool_are_called_for_every_job_after_those_of_the_job_type(new_pool, look):
    pool = new_pool()
    seen: list[tuple[str, str, str]] = []
    pool.on_done(lambda job: seen.append(("pool", "done", job.name)))
    pool.on_fail(lambda job, error: seen.append(("pool", "fail", str(error))))
    pool.on_dead(lambda job, error: seen.append(("pool", "dead", str(error))))
    pool.on_discard(lambda job, why: seen.append(("pool", "discard", why)))

    @pool.job(on_done=lambda job: seen.append(("own", "done", job.name)))
    def good() -> None: ...

    @pool.job
    async def bad() -> None:
        raise Dead("broken for good")

    @pool.job
    def dropped() -> None:
        raise Discard("not needed")

    with pool:
        good.enqueue()
        wait_until(lambda: len(seen) == 2)
        bad.enqueue()
        wait_until(lambda: len(seen) == 4)
        dropped.enqueue()
        wait_until(lambda: len(seen) == 5)
    assert seen[:2] == [("own", "done", "good"), ("pool", "done", "good")]
    assert seen[2:4] == [("pool", "fail", "broken for good"), ("pool", "dead", "broken for good")]
    assert seen[4] == ("pool", "discard", "discarded: not needed")


def test_a_hook_that_raises_does_not_keep_the_next_one_from_being_called(new_pool):
    pool = new_pool()
    called = threading.Event()

    @pool.on_done
    def broken(job: Job) -> None:
        raise RuntimeError("hook")

    @pool.on_done
    def second(job: Job) -> None:
        called.set()

    @pool.job
    def good() -> None: ...

    with pool:
        good.enqueue()
        assert called.wait(60)


def test_a_hook_is_refused_once_the_pool_has_started(new_pool):
    pool = new_pool()
    pool.job(lambda_job)
    with pool, pytest.raises(NotReady, match="on_dead"):
        pool.on_dead(print)
    with pytest.raises(BadOption, match="on_dead: 7 is no function"):
        pool.on_dead(7)  # type: ignore[type-var]


def lambda_job() -> None: ...


@pytest.mark.parametrize("defaults", [{"max_fails": 9, "timeout": 30}, JobOptions(max_fails=9, timeout=30)])
def test_job_types_take_the_defaults_of_the_pool_unless_they_set_an_option(defaults):
    pool = WorkerPool(defaults=defaults)

    @pool.job
    def plain() -> None: ...

    @pool.job(max_fails=2, timeout=None)
    def own() -> None: ...

    assert (plain.options.max_fails, plain.options.timeout) == (9, 30)
    assert (own.options.max_fails, own.options.timeout) == (2, None)
    with pytest.raises(
        BadOption, match="WorkerPool: defaults: no option 'max_fail'. Did you mean 'max_fails'"
    ):
        WorkerPool(defaults={"max_fail": 9})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(BadOption, match="WorkerPool: defaults: timeout"):
        WorkerPool(defaults={"timeout": -1})
    with pytest.raises(
        BadOption, match=r"WorkerPool: 'max_fails' is an option of jobs: write defaults=\{'max_fails': 9\}"
    ):
        WorkerPool(max_fails=9)  # type: ignore[call-arg]


def test_the_current_job_is_known_in_both_kinds_of_handlers_and_nowhere_else(new_pool):
    pool = new_pool(concurrency=4)
    found: dict[str, Job | None] = {}

    @pool.job
    def sync_job() -> None:
        found["sync"] = current_job()
        thread = threading.Thread(target=lambda: found.update(thread=current_job()))
        thread.start()
        thread.join()

    @pool.job
    async def async_job() -> None:
        found["async"] = current_job()
        await asyncio.create_task(in_task())

    async def in_task() -> None:
        found["task"] = current_job()

    with pool:
        first, second = sync_job.enqueue(), async_job.enqueue()
        wait_until(lambda: {"thread", "task"} <= set(found))
    assert current_job() is None
    assert found["sync"] is not None
    assert found["sync"].id == first.id
    assert found["async"] is not None
    assert found["async"].id == second.id
    assert found["task"] is found["async"]
    assert found["thread"] is None


def test_a_job_knows_whether_this_attempt_is_its_last_one(new_pool, look):
    pool = new_pool()
    last: list[bool] = []

    @pool.job(max_fails=2, backoff=0)
    def fails(job: Job) -> None:
        last.append(job.last_attempt)
        raise ValueError("no")

    with pool:
        fails.enqueue()
        wait_until(look.dead)
    assert last == [False, True]
    assert not Job("fails").last_attempt


def test_a_hook_sees_the_attempt_that_failed_and_not_the_next_one(new_pool, look):
    pool = new_pool()
    seen: list[tuple[str, int, int, bool]] = []

    @pool.on_fail
    def note_fail(job: Job, error: BaseException) -> None:
        seen.append(("fail", job.attempt, job.fails, job.last_attempt))

    @pool.on_dead
    def note_dead(job: Job, error: BaseException) -> None:
        seen.append(("dead", job.attempt, job.fails, job.last_attempt))

    @pool.job(max_fails=2, backoff=0)
    def fails() -> None:
        raise ValueError("no")

    with pool:
        fails.enqueue()
        wait_until(look.dead)
    assert seen == [("fail", 1, 1, False), ("fail", 2, 2, True), ("dead", 2, 2, True)]


def test_a_periodic_job_knows_its_schedule_and_its_tick(new_pool):
    pool = new_pool()
    seen: list[Job] = []

    @pool.job
    def tidy(job: Job) -> None:
        seen.append(job)

    pool.periodic("* * * * * *", tidy, name="every second")
    with pool:
        wait_until(lambda: seen)
        tidy.enqueue()
        wait_until(lambda: any(job.schedule is None for job in seen))
    ticked = next(job for job in seen if job.schedule)
    assert ticked.schedule == "every second"
    assert ticked.tick is not None
    assert ticked.tick == int(ticked.tick)
    plain = next(job for job in seen if job.schedule is None)
    assert plain.tick is None


def test_hooks_of_the_pool_are_called_in_tests_too():
    pool = WorkerPool(defaults={"max_fails": 1})
    dead: list[str] = []
    pool.on_dead(lambda job, error: dead.append(job.id))

    @pool.job
    def fails() -> None:
        raise ValueError("no")

    with testing(pool) as jobs:
        job = fails.enqueue()
        jobs.drain(reraise=False)
    assert dead == [job.id]

"""Testing blocks: check-ins, stops, ticks, and jobs that are broken off and run twice."""

from __future__ import annotations

import pytest

from dayjob import BadOption, GiveBack, Job, WorkerPool
from dayjob.testing import FakeClock, testing


@pytest.fixture
def pool() -> WorkerPool:
    return WorkerPool(namespace="probes")


def test_check_ins_are_recorded_and_can_be_asserted(pool):
    @pool.job
    def work(job: Job) -> None:
        for number in (1, 2):
            job.checkin(f"step {number}", done=number, total=2)

    with testing(pool) as jobs:
        job = work.enqueue()
        jobs.drain()
        assert jobs.checkins(job) == [("step 1", 1, 2), ("step 2", 2, 2)]
        jobs.assert_checked_in(job, "step 2")
        jobs.assert_checked_in(job.id, done=1, total=2)
        with pytest.raises(AssertionError, match="'step 1', done=1, total=2"):
            jobs.assert_checked_in(job, "step 3")
        assert jobs.checkins("unknown") == []


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    ("stop", "ends"),
    [("shutdown", "queued"), ("cancelled", "discarded"), ("timeout", "retry"), ("lost", "queued")],
)
def test_a_job_is_asked_to_stop_at_a_check_in(pool, colour, stop, ends):
    seen: list[tuple[bool, str | None]] = []

    def work(job: Job) -> None:
        while True:
            seen.append((job.checkin("on"), job.stop_reason))
            if job.stopping:
                raise GiveBack("asked to stop")

    async def awork(job: Job) -> None:
        work(job)

    handler = pool.register("work", work if colour == "sync" else awork, timeout=60)
    with testing(pool) as jobs:
        job = handler.enqueue()
        jobs.run(job, stop=stop, stop_after=3)
        assert seen == [(False, None), (False, None), (True, stop)]
        assert [one.id for one in getattr(jobs, ends)] == [job.id]


def test_a_wrong_stop_is_refused(pool):
    pool.register("work", lambda: None)
    with testing(pool) as jobs:
        job = pool.enqueuer.enqueue("work")
        with pytest.raises(BadOption, match="'shutdown', 'cancelled'"):
            jobs.run(job, stop="tired")
        with pytest.raises(BadOption, match="from 1 on"):
            jobs.run(job, stop="lost", stop_after=0)


def test_a_tick_moves_the_clock_and_enqueues_as_the_schedule_does(pool):
    seen: list[tuple[str | None, float | None, int]] = []

    @pool.job
    def report(job: Job, days: int) -> None:
        seen.append((job.schedule, job.tick, days))

    daily = pool.periodic("0 9 * * *", report, {"days": 1}, name="daily")
    with testing(pool, clock=FakeClock(0)) as jobs:
        jobs.tick("daily")
        jobs.tick(daily)
        jobs.tick(report)
        assert jobs.clock.now() == 2 * 86_400 + 9 * 3600
        jobs.drain()
    assert seen == [("daily", 9 * 3600.0 + day * 86_400, 1) for day in range(3)]


def test_a_tick_of_no_or_several_schedules_is_refused(pool):
    report = pool.register("report", lambda: None)
    pool.periodic("0 9 * * *", report, name="nine")
    pool.periodic("0 10 * * *", report, name="ten")
    with testing(pool) as jobs:
        with pytest.raises(BadOption, match="no schedule 'eleven'; the pool has 'nine', 'ten'"):
            jobs.tick("eleven")
        with pytest.raises(BadOption, match="'report' has 2 schedules"):
            jobs.tick(report)


def shop(pool: WorkerPool, charged: list[int], safe: bool) -> None:
    @pool.job
    def order(job: Job, n: int) -> None:
        if not safe or n not in charged:
            charged.append(n)
        job.checkin("charged")
        receipt = pool.enqueuer.using(id=f"receipt-{n}") if safe else pool.enqueuer
        receipt.enqueue("receipt", n=n)
        job.checkin("done")

    @pool.job
    def receipt(n: int) -> None: ...


def test_with_twice_a_handler_that_may_run_twice_leaves_the_same_as_one_run(pool):
    charged: list[int] = []
    shop(pool, charged, safe=True)
    with testing(pool, twice=True) as jobs:
        pool.enqueuer.enqueue("order", n=7)
        assert jobs.drain() == 2
        assert len(jobs.enqueued("receipt")) == 1
        assert [job.name for job in jobs.done] == ["order", "receipt"]
    assert charged == [7]


def test_with_twice_a_handler_that_may_not_run_twice_is_found_out(pool):
    charged: list[int] = []
    shop(pool, charged, safe=False)
    with testing(pool, twice=True) as jobs:
        pool.enqueuer.enqueue("order", n=7)
        jobs.drain()
        # Broken off at a check-in, the enqueue and the second check-in; then run to the end twice.
        assert charged == [7] * 5
        assert len(jobs.enqueued("receipt")) == 4


@pytest.mark.parametrize("inline", [True, False])
def test_with_twice_async_jobs_are_broken_off_too(pool, inline):
    import asyncio

    runs: list[str] = []

    @pool.job
    async def work(job: Job) -> None:
        runs.append("begin")
        job.checkin()
        runs.append("end")

    async def main() -> None:
        with testing(pool, twice=True, inline=inline) as jobs:
            await work.aenqueue()
            if not inline:
                await jobs.adrain()

    asyncio.run(main())
    assert runs == ["begin", "begin", "end", "begin", "end"]


def test_with_twice_errors_count_once_and_failures_of_the_test_itself_pass_through(pool):
    @pool.job(max_fails=1)
    def broken() -> None:
        raise ValueError("no")

    @pool.job
    def fails() -> None:
        pytest.fail("seen in a handler")

    with testing(pool, twice=True) as jobs:
        broken.enqueue()
        assert jobs.drain(reraise=False) == 1
        assert len(jobs.dead) == 1
        fails.enqueue()
        with pytest.raises(pytest.fail.Exception):
            jobs.drain()


def test_twice_needs_a_pool():
    from dayjob import Enqueuer

    with pytest.raises(BadOption, match="twice=True"):
        testing(Enqueuer("probes", redis="redis://127.0.0.1:1"), twice=True)

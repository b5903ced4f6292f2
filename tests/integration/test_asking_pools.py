"""What an operator asks of a pool from afar: to go quiet, to stop, to say where its workers are, to end a job."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dayjob import AsyncAdmin, Job
from server import wait_until
from workers import PATIENT_JOBS, WorkerCommand, is_gone

#: The lease is the usual one: a pool that is paused for a second must not lose it.
QUICK = {"beat": 0.2}


@pytest.fixture
def gate():
    """Opened after the test, so that no thread is left behind."""
    found = threading.Event()
    yield found
    found.set()


def status_of(admin, pool_id):
    return next((pool.status for pool in admin.pools().pools if pool.id == pool_id), None)


# Quiet and stop.


def test_a_pool_that_is_asked_to_go_quiet_ends_what_runs_and_fetches_nothing_more(
    admin, new_pool, gate, look
):
    pool = new_pool(concurrency=2, **QUICK)
    began = threading.Event()

    @pool.job
    def work(n: int) -> None:
        began.set()
        gate.wait(60)

    pool.start()
    work.enqueue(n=1)
    assert began.wait(60)
    (pool_id,) = look.pools()
    wait_until(lambda: status_of(admin, pool_id))
    done = admin.quiet(pool_id)
    assert done.done
    assert "at its next heartbeat, within 0.2 s" in done.message
    wait_until(lambda: status_of(admin, pool_id).quiet)
    work.enqueue(n=2)
    gate.set()
    wait_until(lambda: look.total("done:work") == 1)
    wait_until(lambda: look.held() == 0)
    assert len(look.queue("work")) == 1
    again = admin.quiet(pool_id)
    assert (again.done, again.message) == (False, "It was asked that already. Nothing was changed.")
    lines = admin.audit(about=pool_id)
    assert [(line.actor, line.action) for line in lines] == [("ada", "quiet"), ("ada", "quiet")]


def test_an_embedded_pool_that_is_asked_to_stop_stops_itself_in_order(admin, new_pool, gate, look):
    pool = new_pool(concurrency=2, **QUICK)
    began, stopping = threading.Event(), threading.Event()

    @pool.job
    def work(job: Job) -> None:
        began.set()
        wait_until(lambda: job.stopping)
        stopping.set()
        gate.wait(60)

    pool.start()
    work.enqueue()
    assert began.wait(60)
    (pool_id,) = look.pools()
    assert admin.stop(pool_id).done
    assert stopping.wait(60)
    # A pool that has just registered may not have published its status yet.
    wait_until(lambda: (status := status_of(admin, pool_id)) is not None and status.stopping)
    gate.set()
    wait_until(lambda: look.pools() == [])
    assert look.total("done:work") == 1
    # It can be started again, as after a stop of its own.
    pool.stop()
    pool.start()
    assert len(look.pools()) == 1


def test_of_a_pool_that_is_gone_the_answer_says_so_and_nothing_is_changed(admin, call, keys):
    for ask in (admin.quiet, admin.stop):
        done = ask("nobody")
        assert not done.done
        assert "no such pool any more" in done.message
    assert admin.stacks("nobody") is None
    assert call("EXISTS", keys.state("nobody")) == 0
    assert [line.action for line in admin.audit()] == ["stop", "quiet"]


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    command.write(PATIENT_JOBS)
    yield command
    command.close()


def test_supervised_pools_that_are_asked_to_stop_are_not_replaced_and_the_last_one_ends_the_parent(
    worker, admin, enqueuer, look
):
    pids = worker.started(processes=2)
    first, second = wait_until(lambda: len(found := look.status()) == 2 and found)
    assert {first["pid"], second["pid"]} == set(pids)
    assert admin.stop(first["id"]).done
    wait_until(lambda: is_gone(first["pid"]))
    worker.wait_for_log("was asked to stop by an operator")
    wait_until(lambda: look.pools() == [second["id"]])
    # It goes on with those that are left, and starts no other.
    for n in range(3):
        enqueuer.enqueue("quick", n=n)
    assert {line[2] for line in worker.wait_for("quick", 3)} == {str(second["pid"])}
    wait_until(lambda: worker.children() == [second["pid"]])
    assert worker.log.count("started:") == 2
    assert admin.stop(second["id"]).done
    assert worker.wait() == 0
    assert look.pools() == []


def test_a_supervised_pool_that_is_stopped_from_afar_waits_for_what_runs(worker, admin, enqueuer, look):
    worker.started()
    enqueuer.enqueue("hold", n=1)
    worker.wait_for("begin")
    (pool_id,) = look.pools()
    assert admin.stop(pool_id).done
    # A pool that has just registered may not have published its status yet.
    wait_until(lambda: (status := status_of(admin, pool_id)) is not None and status.stopping)
    worker.open_gate()
    assert worker.wait() == 0
    assert look.total("done:hold") == 1
    assert look.total("given_back:hold") == 0


# Stacks.


def waits_in_a_thread(gate):
    secret_value = "must not be shown"  # noqa: F841 - a local variable
    gate.wait(60)


async def waits_in_a_task(event):
    await event.wait()


def test_the_stack_of_each_busy_worker_is_shown_on_request(admin, new_pool, gate, look):
    pool = new_pool(concurrency=3, **QUICK)
    loops = []
    ready = threading.Semaphore(0)

    @pool.job
    def sync(password: str) -> None:
        ready.release()
        waits_in_a_thread(gate)

    @pool.job
    async def coloured() -> None:
        event = asyncio.Event()
        loops.append((asyncio.get_running_loop(), event))
        ready.release()
        await waits_in_a_task(event)

    pool.start()
    job = sync.enqueue(password="hunter2hunter2")
    coloured.enqueue()
    for _ in range(2):
        assert ready.acquire(timeout=60)
    (pool_id,) = look.pools()

    def both_wait():
        """The stacks, once both jobs are where they wait."""
        found = admin.stacks(pool_id)
        shown = [frame.source for worker in found.workers for frame in worker.frames] if found else []
        return found if {"gate.wait(60)", "await event.wait()"} <= set(shown) else None

    found = wait_until(both_wait)
    try:
        workers = {worker.name: worker for worker in found.workers}
        assert (workers["sync"].id, workers["sync"].colour) == (job.id, "sync")
        assert workers["coloured"].colour == "async"
        assert workers["sync"].running_for > 0
        frames = [frame.function.rpartition(".")[2] for frame in workers["sync"].frames]
        assert frames[:2] == ["sync", "waits_in_a_thread"]
        assert [frame.own for frame in workers["sync"].frames[:3]] == [True, True, False]
        assert workers["sync"].frames[0].file == __file__
        assert workers["sync"].frames[1].source == "gate.wait(60)"
        frames = [frame.function.rpartition(".")[2] for frame in workers["coloured"].frames]
        assert frames[:2] == ["coloured", "waits_in_a_task"]
        assert workers["coloured"].frames[1].source == "await event.wait()"
        assert "hunter2" not in repr(found)
        assert "must not be shown" not in repr(found)
        assert abs(found.at - look.now()) < 60
    finally:
        for loop, event in loops:
            loop.call_soon_threadsafe(event.set)


def test_a_handler_that_blocks_the_loop_is_shown_where_it_blocks(new_pool, gate, look, namespace, redis_url):
    pool = new_pool(concurrency=2, **QUICK)
    began = threading.Event()

    @pool.job
    async def blocks() -> None:
        began.set()
        waits_in_a_thread(gate)

    pool.start()
    blocks.enqueue()
    assert began.wait(60)
    (pool_id,) = look.pools()

    async def ask():
        async with AsyncAdmin(namespace, redis=redis_url) as admin:
            return await admin.stacks(pool_id, wait=60)

    def functions():
        (worker,) = asyncio.run(ask()).workers
        return [frame.function.rpartition(".")[2] for frame in worker.frames[:2]]

    # It may be on its way there.
    wait_until(lambda: functions() == ["blocks", "waits_in_a_thread"])


def test_a_pool_with_nothing_to_do_has_no_stacks_to_show(admin, new_pool, look):
    pool = new_pool(**QUICK)
    pool.register("work", lambda: None)
    pool.start()
    (pool_id,) = look.pools()
    assert admin.stacks(pool_id, wait=60).workers == ()


def test_many_deep_stacks_are_cut_to_a_bounded_size(admin, new_pool, gate, look, call, keys):
    pool = new_pool(concurrency=60, **QUICK)
    ready = threading.Semaphore(0)

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            ready.release()
            gate.wait(60)

    pool.register("deep", lambda: descend(100))
    pool.enqueuer.enqueue_many("deep", [{} for _ in range(60)])
    pool.start()
    for _ in range(60):
        assert ready.acquire(timeout=60)
    (pool_id,) = look.pools()
    found = admin.stacks(pool_id, wait=60)
    assert found.workers
    assert all(worker.cut for worker in found.workers)
    assert len(call("LINDEX", keys.stacks(pool_id), 0)) <= 65_536


# Cancel.


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_sync_job_that_is_cancelled_learns_it_by_its_check_in_and_is_gone(admin, new_pool, look, ends):
    pool = new_pool(concurrency=1, **QUICK)
    began, told = threading.Event(), []

    @pool.job(on_discard=lambda job, why: told.append((job.id, why)))
    def work(job: Job) -> None:
        began.set()
        wait_until(lambda: job.checkin("on it", done=1, total=3))
        if ends == "raises":
            raise ValueError("stopped half way")

    pool.start()
    job = work.enqueue()
    assert began.wait(60)
    done = admin.cancel(job.id, state="running")
    assert done.done
    assert "stops it at its next heartbeat" in done.message
    wait_until(lambda: look.total("cancelled:work") == 1)
    assert pool.drain(60)
    # Neither done, nor failed, nor kept.
    assert look.totals() == {"cancelled:work": 1}
    assert (look.dead(), look.retry(), look.queue("work")) == ([], [], [])
    assert told == [(job.id, "cancelled")]
    assert admin.audit(about=job.id)[0].action == "cancel"


def test_an_async_job_that_is_cancelled_is_cancelled_at_its_await(admin, new_pool, look):
    pool = new_pool(concurrency=1, **QUICK)
    began, cleaned = threading.Event(), threading.Event()

    @pool.job
    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    pool.start()
    job = work.enqueue()
    assert began.wait(60)
    assert admin.cancel(job.id).done
    assert cleaned.wait(60)
    wait_until(lambda: look.total("cancelled:work") == 1)
    assert pool.drain(60)
    assert look.totals() == {"cancelled:work": 1}


def test_a_sync_job_that_does_not_check_in_gets_an_exception_after_the_grace(admin, new_pool, look):
    pool = new_pool(concurrency=1, grace=0.3, **QUICK)
    began, forever = threading.Event(), threading.Event()

    @pool.job
    def deaf() -> None:
        began.set()
        while not forever.wait(0.01):
            pass

    pool.start()
    job = deaf.enqueue()
    assert began.wait(60)
    assert admin.cancel(job.id).done
    wait_until(lambda: look.total("cancelled:deaf") == 1)
    assert look.dead() == []


def test_while_it_winds_up_a_cancelled_job_is_shown_as_told(admin, new_pool, gate, look):
    pool = new_pool(concurrency=1, **QUICK)
    pool.register("slow", lambda: gate.wait(60), timeout=60)
    pool.start()
    job = pool.enqueuer.using(source="acme").enqueue("slow")
    (busy,) = wait_until(admin.busy)
    assert not busy.worker.cancelled
    assert (busy.timeout, busy.source, busy.args) == (60, "acme", {})
    assert 0 < busy.left <= 60
    assert abs(busy.started_at - look.now()) < 60
    assert admin.cancel(job.id).done
    wait_until(lambda: any(one.worker.cancelled for one in admin.busy()))


def test_a_cancelled_job_that_did_not_end_by_a_stop_does_not_run_again(admin, new_pool, gate, look):
    pool = new_pool(concurrency=1, **QUICK)
    pool.register("slow", lambda: gate.wait(60))
    pool.start()
    job = pool.enqueuer.enqueue("slow")
    wait_until(admin.busy)
    assert admin.cancel(job.id).done
    wait_until(lambda: any(one.worker.cancelled for one in admin.busy()))
    pool.stop(0)
    assert look.queue("slow") == []
    assert look.totals() == {"cancelled:slow": 1}


def test_what_waits_is_cancelled_where_it_waits_and_counted_as_such(admin, enqueuer, look, keys):
    jobs = [enqueuer.enqueue("mail", n=n) for n in range(3)]
    later = enqueuer.enqueue_in("mail", 3600, n=4)
    for job in (jobs[1], later):
        done = admin.cancel(job.id)
        assert (done.done, done.message) == (True, "Cancelled.")
    assert [job["id"] for job in look.queue("mail")] == [jobs[0].id, jobs[2].id]
    assert look.members(keys.scheduled) == []
    assert look.totals() == {"cancelled:mail": 2}


def test_everything_that_matches_is_cancelled_in_every_state_where_it_can_be(
    admin, enqueuer, new_pool, look, gate
):
    pool = new_pool(concurrency=3, **QUICK)
    began = threading.Semaphore(0)

    @pool.job
    def work(job: Job, n: int) -> None:
        began.release()
        wait_until(lambda: job.stopping or gate.is_set())

    for n in range(3):
        enqueuer.using(source=n).enqueue("work", n=n)
    pool.start()
    for _ in range(3):
        assert began.acquire(timeout=60)
    running = admin.jobs("running")
    assert (running.total, len(running.jobs), running.next) == (3, 3, "")
    assert {job.state for job in running.jobs} == {"running"}
    assert all(job.pool_id and job.token for job in running.jobs)
    first = admin.jobs("running", size=2)
    assert len(first.jobs) == 2
    assert len(admin.jobs("running", after=first.next, size=2).jobs) == 1
    assert admin.count("running", where="source=1").matched == 1
    tally = admin.apply("cancel", "running", where="source=1")
    assert (tally.searched, tally.matched, tally.changed) == (3, 1, 1)
    assert "cancelling at their pool's next heartbeat" in tally.message
    wait_until(lambda: look.total("cancelled:work") == 1)
    assert sorted(job.source for job in admin.jobs("running").jobs) == [0, 2]
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(4)])
    for n in range(4):
        enqueuer.enqueue_in("mail", 3600, n=n)
    assert admin.apply("cancel", "waiting", where="name=mail", most=3).changed == 3
    assert admin.apply("cancel", "scheduled", where="name=mail").changed == 4
    assert look.total("cancelled:mail") == 7
    assert len(look.queue("mail")) == 1


def test_work_on_many_jobs_stops_when_the_one_who_looks_on_says_so(admin, enqueuer, look):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(350)])
    seen = []

    def report(progress):
        seen.append(progress)
        return len(seen) < 2

    tally = admin.apply("cancel", "waiting", where="name=mail", progress=report)
    assert tally.changed == 200
    assert "Stopped after 200 of 350." in tally.message
    assert len(look.queue("mail")) == 150
    assert admin.purge("mail", progress=lambda _: False).changed == 150

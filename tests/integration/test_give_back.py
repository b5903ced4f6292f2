"""GiveBack and stop_reason: a job that winds up at a stop runs again, and knows why it is asked to."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time

import pytest

from dayjob import Admin, Discard, Enqueuer, GiveBack, Job, Snooze
from dayjob.worker.running.runner import GIVE_BACK_SECONDS
from server import wait_until
from workers import JOBS, WorkerCommand

COUNT = """
from dayjob import GiveBack

@pool.job
def count(job: Job, n: int) -> None:
    say("begin", n, os.getpid(), job.attempt)
    while not (HERE / "gate").exists():
        if job.checkin("counting"):
            say("stopped", n, job.stop_reason)
            raise GiveBack("stopping")
        threading.Event().wait(0.01)
    say("end", n)
"""


def test_a_job_that_gives_itself_back_at_a_stop_runs_again_in_the_next_worker(
    tmp_path, redis_url, namespace, look
):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(JOBS.replace("lease=4.0, beat=0.3", "lease=60") + COUNT)
    enqueuer = Enqueuer(namespace, redis=redis_url)
    try:
        worker.started()
        enqueuer.enqueue("count", n=1)
        worker.wait_for("begin")
        enqueuer.enqueue_many("count", [{"n": 2}])
        worker.wait_for("begin", 2)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert sorted(words[1:] for words in worker.said("stopped")) == [["1", "shutdown"], ["2", "shutdown"]]
        assert look.totals() == {}
        assert look.total("given_back:count") >= 2
        worker.started()
        worker.wait_for("begin", 4)
        worker.open_gate()
        wait_until(lambda: look.total("done:count") == 2)
        assert {words[3] for words in worker.said("begin")} == {"1"}
    finally:
        enqueuer.close()
        worker.close()


def test_a_job_that_gives_itself_back_goes_to_the_head_of_its_queue(new_pool, look):
    pool = new_pool(concurrency=1)
    begun = threading.Event()

    @pool.job
    def held(job: Job, n: int):
        begun.set()
        wait_until(lambda: job.stopping)
        raise GiveBack("stopping")

    with pool:
        pool.enqueuer.enqueue_many("held", [{"n": n} for n in (1, 2, 3)])
        assert begun.wait(60)
        pool.stop(timeout=60)
    assert [job["args"]["n"] for job in look.queue("held")] == [1, 2, 3]
    assert "fails" not in look.queue("held")[0]
    assert look.total("given_back:held") >= 1
    assert look.total("done:held") == 0


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_job_that_gives_itself_back_while_its_pool_goes_on_runs_again_and_does_not_spin(
    new_pool, look, colour
):
    pool = new_pool(concurrency=2)
    seen, quick, gate = [], [], threading.Event()

    def shy(job: Job):
        seen.append(job.attempt)
        if not gate.is_set():
            raise GiveBack("not now")

    async def async_shy(job: Job):
        shy(job)

    pool.register("shy", shy if colour == "plain" else async_shy)

    @pool.job
    def other():
        quick.append(1)

    with pool:
        pool.enqueuer.enqueue("shy")
        wait_until(lambda: len(seen) > 1)
        before, began = len(seen), time.monotonic()
        for _ in range(500):
            other.enqueue()
        wait_until(lambda: len(quick) == 500)
        # A job that comes back at once would have run hundreds of times by now.
        assert len(seen) - before <= 2 + (time.monotonic() - began) / GIVE_BACK_SECONDS
        gate.set()
        assert pool.drain(60)
    assert set(seen) == {1}
    assert (look.total("done:shy"), look.total("done:other")) == (1, 500)
    # On a busy machine a pool also gives back what no worker started in time.
    assert look.total("given_back:shy") >= len(seen) - 1


def test_a_stop_does_not_wait_for_a_job_that_was_given_back_before(new_pool, look):
    pool = new_pool(concurrency=1)
    seen = threading.Event()

    @pool.job
    def shy():
        seen.set()
        raise GiveBack("not now")

    with pool:
        shy.enqueue()
        assert seen.wait(60)
    assert len(look.queue("shy")) == 1
    assert look.held() == 0
    assert look.totals() == {}
    assert look.total("given_back:shy") >= 1


@pytest.mark.parametrize(
    ("signal_raised", "logged"),
    [
        (GiveBack("not now"), "given back (GiveBack: not now)"),
        (Snooze("busy", after=60), "snoozed (Snooze: busy)"),
        (Discard("too old"), "discarded (Discard: too old)"),
    ],
)
def test_the_log_names_an_outcome_in_the_past_tense(new_pool, caplog, signal_raised, logged):
    caplog.set_level(logging.INFO, "dayjob.job")
    pool = new_pool(concurrency=1)

    @pool.job
    def shy():
        raise signal_raised

    with pool:
        job = shy.enqueue()
        wait_until(lambda: f"job=shy id={job.id} {logged}" in caplog.text)


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_job_that_gives_itself_back_because_of_its_timeout_has_failed(new_pool, look, colour):
    pool = new_pool(concurrency=1, grace=5.0)
    reasons = []

    def plain(job: Job):
        try:
            while True:
                threading.Event().wait(0.005)
        finally:
            reasons.append(job.stop_reason)
            raise GiveBack("stopping")

    async def coroutine(job: Job):
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.stop_reason)
            assert job.checkin("cleaning up")
            raise GiveBack("stopping")

    pool.register("late", plain if colour == "plain" else coroutine, timeout=0.5, max_fails=1)
    with pool:
        pool.enqueuer.enqueue("late")
        (dead,) = wait_until(look.dead)
    assert dead["err"] == "JobTimeout: late ran longer than its timeout of 0.5 s"
    assert reasons == ["timeout"]
    assert look.totals() == {"failed:late": 1, "dead:late": 1}


def test_a_cancelled_job_that_gives_itself_back_is_cancelled(new_pool, look, redis_url, namespace):
    pool = new_pool(concurrency=1, beat=0.1)
    reasons, begun = [], threading.Event()

    @pool.job
    def long(job: Job):
        assert job.stop_reason is None
        begun.set()
        wait_until(lambda: job.checkin("on and on"))
        reasons.append(job.stop_reason)
        raise GiveBack("stopping")

    with pool:
        job = long.enqueue()
        assert begun.wait(60)
        with Admin(namespace, redis=redis_url) as admin:
            assert admin.cancel(job.id).done
        assert pool.drain(60)
    assert reasons == ["cancelled"]
    assert look.totals() == {"cancelled:long": 1}

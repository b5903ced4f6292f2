"""A cancelled job never runs again, and a job that does not stop can be ended: by real commands on real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from dayjob import Admin, Enqueuer, Retry, Snooze, WorkerPool
from dayjob.errors import JobFailed
from dayjob.outcome import Cancelled
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.runner import Runner
from dayjob.worker.state import PoolState
from server import wait_until
from workers import PATIENT_JOBS, WorkerCommand


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    command.write(PATIENT_JOBS)
    yield command
    command.close()


@pytest.fixture
def enqueue(redis_url, namespace):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    yield enqueuer.enqueue
    enqueuer.close()


@pytest.fixture
def dayjob(redis_url, namespace):
    """Run a command of operators; the answer is what it printed."""

    def run(*words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "dayjob", *words, "--redis", redis_url, "--namespace", namespace],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    return run


def test_a_cancelled_job_whose_process_is_killed_never_runs_again(worker, enqueue, dayjob, look):
    (child,) = worker.started()
    job = enqueue("deaf", n=1)
    enqueue("hold", n=2)
    worker.wait_for("begin", 2)
    dayjob("jobs", "cancel", job.id, "--yes")
    assert "An operator asked it to end" in dayjob("jobs", "explain", job.id)
    assert "An operator asked it to end" in dayjob("jobs", "show", job.id)
    os.kill(child, signal.SIGKILL)
    # Its neighbour is put back by the same sweep.
    worker.wait_for("begin", 3)
    worker.open_gate()
    wait_until(lambda: look.total("done:hold") == 1)
    assert look.total("cancelled:deaf") == 1
    assert look.total("reaped:deaf") == 0
    assert look.queue("deaf") == []
    assert [words[1] for words in worker.said("begin")].count("1") == 1


def test_a_cancelled_job_stays_cancelled_when_its_process_is_killed_for_another_jobs_timeout(
    worker, enqueue, dayjob, look
):
    worker.started()
    job = enqueue("deaf", n=1)
    worker.wait_for("begin")
    dayjob("jobs", "cancel", job.id, "--yes")
    enqueue("overrun_without_gil")
    wait_until(lambda: look.total("cancelled:deaf") == 1)
    wait_until(lambda: look.total("failed:overrun_without_gil") == 1)
    assert look.queue("deaf") == []
    assert len(worker.said("begin")) == 1


@pytest.mark.parametrize("name", ["deaf", "holds_the_gil"])
def test_kill_running_ends_a_job_that_is_stuck_and_costs_its_neighbours_no_fail(
    worker, enqueue, dayjob, look, call, keys, name
):
    worker.write(
        PATIENT_JOBS
        + """
@pool.job(keep=60)
def holds_the_gil(n: int) -> None:
    say("begin", n, os.getpid())
    ctypes.PyDLL(None).usleep(60_000_000)
"""
    )
    (child,) = worker.started()
    enqueue("hold", n=2)
    worker.wait_for("begin")
    job = enqueue(name, n=1)
    worker.wait_for("begin", 2)
    assert "--running" in dayjob("jobs", "kill", job.id, "--yes", code=1)
    said = dayjob("jobs", "kill", job.id, "--running", "--yes")
    assert "its process is replaced" in said
    *_, (_, n, pid, deaths) = worker.wait_for("begin", 3)
    assert (n, deaths) == ("2", "0")
    assert pid != str(child)
    (dead,) = wait_until(look.dead)
    assert (dead["id"], dead["err"]) == (job.id, "killed by an operator while it ran")
    result = {"error": dead["err"]} if name == "holds_the_gil" else None
    assert json.loads(call("GET", keys.result(job.id)) or b"null") == result
    assert dead.get("fails", 0) == 0
    worker.open_gate()
    wait_until(lambda: look.total("done:hold") == 1)
    assert look.total(f"dead:{name}") == 1
    assert look.queue(name) == []
    assert len(worker.said("begin")) == 3
    assert f"killing process {child}" in worker.log


def test_kill_running_interrupts_a_handler_and_leaves_its_process_alone(worker, enqueue, dayjob, look):
    (child,) = worker.started()
    job = enqueue("hold", n=1)
    worker.wait_for("begin")
    dayjob("jobs", "kill", job.id, "--running", "--yes")
    (dead,) = wait_until(look.dead)
    assert dead["id"] == job.id
    enqueue("quick", n=1)
    worker.wait_for("quick")
    assert worker.children() == [child]


def test_kill_of_a_job_in_a_pool_without_a_parent_says_that_its_process_is_ended_by_hand(
    new_pool, look, redis_url, namespace
):
    pool = new_pool(concurrency=1, grace=0.1, beat=0.1)
    gate, begun = threading.Event(), threading.Event()

    @pool.job(keep=60)
    def stuck():
        begun.set()
        gate.wait()

    with pool:
        job = stuck.enqueue()
        assert begun.wait(60)
        wait_until(look.workers)
        with Admin(namespace, redis=redis_url) as admin:
            outcome = admin.kill(job.id, state="running")
            assert outcome.done
            assert f"end its process {os.getpid()} on" in outcome.message
            assert "by hand" in outcome.message
            assert "An operator asked it to end" in admin.explain(job.id)
        wait_until(lambda: [one for one in look.workers() if one["cancelled"]])
        gate.set()
        with pytest.raises(JobFailed, match="killed by an operator"):
            stuck.result(job, 60)
        (dead,) = look.dead()
        assert dead["id"] == job.id
        assert pool.drain(60)
    assert look.totals() == {"dead:stuck": 1}


@pytest.mark.parametrize("how", ["give back", "retry", "snooze"])
@pytest.mark.parametrize("kill", [False, True])
def test_a_cancel_that_the_pool_has_not_learned_yet_holds_however_the_attempt_ends(
    new_pool, look, redis_url, namespace, how, kill
):
    # Not one beat comes between the cancel and the end of the attempt.
    pool = new_pool(concurrency=1, lease=600, beat=300)
    gate, begun, runs = threading.Event(), threading.Event(), []

    @pool.job(max_fails=5, unique_until="done")
    def held():
        runs.append(1)
        begun.set()
        gate.wait()
        raise {"retry": Retry("again", after=0), "snooze": Snooze("again", after=0)}.get(how, RuntimeError())

    with pool:
        job = held.enqueue_unique()
        assert begun.wait(60)
        with Admin(namespace, redis=redis_url) as admin:
            assert (admin.kill(job.id, state="running") if kill else admin.cancel(job.id)).done
        if how == "give back":
            pool.stop(timeout=0)
            gate.set()
        else:
            gate.set()
            assert pool.drain(60)
    assert look.totals() == ({"dead:held": 1} if kill else {"cancelled:held": 1})
    assert look.queue("held") == []
    assert len(look.dead()) == int(kill)
    assert runs == [1]
    # Its unique key went with it.
    assert held.enqueue_unique() is not None


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_cancelled_job_that_waits_in_its_pool_for_a_worker_never_starts(colour):
    pool, ran = WorkerPool(), []

    async def later(_context, _job):
        ran.append("async")

    job_type = pool.register("late", later if colour == "async" else lambda: None)
    call = later if colour == "async" else lambda _context, _job: ran.append("plain")
    attempt = Attempt("1:late", "late", b"{}", codec.Wire("late"), PoolJobType(job_type, call, PoolState()))
    attempt.cancelled = True
    runner = Runner(Keys("n"), lambda: "pool", object, time.time, random.Random(), max_result=1 << 20)
    settlement = asyncio.run(runner.arun(attempt)) if colour == "async" else runner.run(attempt)
    assert settlement is not None
    assert settlement.outcome == Cancelled()
    assert ran == []

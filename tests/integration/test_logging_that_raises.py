"""Log handlers, filters and record factories of the program that raise: no job, no worker and no loop is lost to them."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from dayjob import Enqueuer, WorkerPool
from server import running, wait_until
from workers import JOBS, PATIENT_JOBS, WorkerCommand, is_gone


class Shipper(logging.Handler):
    """A log shipper whose collector is away."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.calls += 1
        raise self.error


@pytest.fixture(params=["handler", "exit", "filter", "record factory"])
def broken_logging(request):
    """Logging that raises at every line of dayjob, in each of the ways that a program can bring about."""
    logger = logging.getLogger("dayjob")
    handler = Shipper(SystemExit(3) if request.param == "exit" else OSError("the collector is away"))
    before = logging.getLogRecordFactory()
    if request.param == "filter":
        handler.addFilter(lambda record: 1 / 0)  # type: ignore[arg-type,return-value]

    def factory(*args, **kwargs):
        record = before(*args, **kwargs)
        record.job_id = "set by the program"
        return record

    if request.param == "record factory":
        logging.setLogRecordFactory(factory)
    else:
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logging.setLogRecordFactory(before)
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_failing_jobs_are_settled_and_cost_no_worker(new_pool, look, broken_logging, colour):
    pool = new_pool(concurrency=2)

    def fail_to_hear(job, error):
        raise RuntimeError("a hook that fails too")

    if colour == "plain":

        @pool.job(max_fails=1, on_fail=fail_to_hear)
        def fail():
            raise ValueError("no")

        @pool.job
        def work():
            pass

    else:

        @pool.job(max_fails=1, on_fail=fail_to_hear)
        async def fail():
            raise ValueError("no")

        @pool.job
        async def work():
            pass

    with pool:
        for _ in range(6):
            fail.enqueue()
        for _ in range(6):
            work.enqueue()
        assert pool.drain(60)
        assert look.totals() == {"failed:fail": 6, "dead:fail": 6, "done:work": 6}
        assert look.held() == 0


def test_an_entry_that_cannot_be_read_goes_to_broken_and_the_next_job_runs(
    new_pool, look, call, keys, broken_logging
):
    pool = new_pool()

    @pool.job
    def work():
        pass

    with pool:
        call("LPUSH", keys.queue("work"), b"junk")
        work.enqueue()
        wait_until(lambda: look.total("done:work") == 1)
        wait_until(lambda: call("LLEN", keys.broken) == 1)


def test_the_loops_outlive_a_restart_of_redis(tmp_path, namespace, broken_logging):
    with running(tmp_path, "--appendonly", "yes") as server:
        pool = WorkerPool(namespace=namespace, redis=server.url)
        ran = []

        @pool.job
        def work(number: int):
            ran.append(number)

        with pool:
            work.enqueue(1)
            wait_until(lambda: ran == [1])
            server.kill()
            # Longer away than what counts as a cut connection, so that lines are logged.
            wait_until(lambda: pool._runtime.outage.away > 0.5)
            server.start()
            wait_until(lambda: not pool._runtime.outage.away)
            work.enqueue(2)
            wait_until(lambda: ran == [1, 2])
        pool.enqueuer.close()


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_failure_that_cannot_be_handled_is_counted_and_costs_no_worker(new_pool, look, colour):
    pool = new_pool(concurrency=1)

    def backoff(fails):
        raise KeyboardInterrupt

    if colour == "plain":

        @pool.job(max_fails=2, backoff=backoff)
        def fail():
            raise ValueError("no")

        @pool.job
        def work():
            pass

    else:

        @pool.job(max_fails=2, backoff=backoff)
        async def fail():
            raise ValueError("no")

        @pool.job
        async def work():
            pass

    with pool:
        fail.enqueue()
        assert pool.drain(60)
        work.enqueue()
        assert pool.drain(60)
    assert look.totals() == {"failed:fail": 1, "retried:fail": 1, "done:work": 1}
    (job,) = look.retry()
    assert job["fails"] == 1
    assert job["err"] == "dayjob could not handle the failure of this attempt: KeyboardInterrupt"


#: Loaded by every interpreter of the command, the parent included: logging that raises at every line.
CUSTOMIZE = """
import logging

def refuse(*args, **kwargs):
    raise OSError("the collector is away")

logging.setLogRecordFactory(refuse)
"""


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    command.write(PATIENT_JOBS)
    yield command
    command.close()


@pytest.fixture
def enqueue(redis_url, namespace):
    return Enqueuer(namespace, redis=redis_url).enqueue


def test_the_command_supervises_though_each_log_line_raises_in_parent_and_child(worker, enqueue, call, keys):
    worker.write(CUSTOMIZE, "sitecustomize.py")
    worker.start("--timeout", "5", PYTHONPATH=str(worker.folder))
    call("LPUSH", keys.queue("quick"), b"junk")
    enqueue("quick", n=1)
    ((_, _, first),) = worker.wait_for("quick")
    wait_until(lambda: call("HGET", keys.totals, "done:quick") == b"1")
    # A child may run jobs before it logs that it has started.
    worker.wait_for_log("a log line could not be written", 2)
    os.kill(int(first), signal.SIGKILL)
    enqueue("quick", n=2)
    _, (_, _, second) = worker.wait_for("quick", 2)
    assert second != first
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    # Once by the parent, and once by each of its children.
    assert worker.log.count("a log line could not be written") == 3
    assert call("LLEN", keys.broken) == 1


#: A pool whose fetcher dies while a job runs, in a process that then cannot stop: as two bugs would.
DYING = """
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.runtime import Runtime

step = Fetcher.step


def hang(self, timeout=25.0):
    say("hanging", os.getpid())
    threading.Event().wait()


def die(self):
    if (HERE / "die").exists():
        (HERE / "die").unlink()
        Runtime.stop = hang
        raise ZeroDivisionError("as a bug would")
    return step(self)


Fetcher.step = die
"""


def test_a_child_whose_loop_died_and_that_does_not_stop_is_killed_and_its_jobs_run_again(worker, enqueue):
    # With a lease that would let the test fail.
    worker.write(JOBS.replace("lease=4.0, beat=0.3", "lease=60") + DYING)
    (child,) = worker.started("--timeout", "1")
    enqueue("hold_once", n=1)
    worker.wait_for("begin")
    (worker.folder / "die").touch()
    enqueue("quick", n=1)
    worker.wait_for("hanging")
    wait_until(lambda: is_gone(child))
    worker.open_gate()
    worker.wait_for("quick")
    worker.wait_for("end")
    assert "its fetcher loop died (ZeroDivisionError); it is stopping" in worker.log

"""A timeout ends a handler whatever it is doing: enqueueing, logging, catching exceptions. Its neighbours run on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from dayjob import Enqueuer
from dayjob.retry import constant
from server import wait_until
from workers import JOBS, WorkerCommand

#: Handlers that never end by themselves, each with a timeout.
ENDLESS = """
import logging, time

log = logging.getLogger("endless")
ENDLESS = dict(timeout=0.3, max_fails=1)


@pool.job
def sink(n: int) -> None:
    pass


@pool.job(**ENDLESS)
def enqueues(n: int) -> None:
    while True:
        sink.enqueue(n=n)


@pool.job(**ENDLESS)
def logs(n: int) -> None:
    while True:
        log.warning("still here %d", n)


@pool.job(**ENDLESS)
def catches(n: int) -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            pass


@pool.job(**ENDLESS)
def catches_all_but_the_third(n: int) -> None:
    caught = 0
    while True:
        try:
            time.sleep(0.001)
        except BaseException:
            caught += 1
            if caught == 3:
                raise


@pool.job(**ENDLESS)
async def catches_all_but_the_third_cancel(n: int) -> None:
    import asyncio

    caught = 0
    while True:
        try:
            await asyncio.sleep(0.001)
        except BaseException:
            caught += 1
            if caught == 3:
                raise
"""


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    jobs = JOBS.replace("concurrency=4, lease=4.0, beat=0.3, grace=0.3", "concurrency=6, lease=60, grace=10")
    command.write(jobs + ENDLESS)
    yield command
    command.close()


@pytest.fixture
def enqueue(redis_url, namespace):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    yield enqueuer.enqueue
    enqueuer.close()


@pytest.mark.parametrize(
    "name",
    ["enqueues", "logs", "catches", "catches_all_but_the_third", "catches_all_but_the_third_cancel"],
)
def test_a_timeout_ends_a_handler_that_never_lets_an_error_out_and_costs_its_process_nothing(
    worker, enqueue, call, keys, name
):
    (child,) = worker.started()
    enqueue("hold", n=0)
    worker.wait_for("begin")
    count = 8
    for n in range(count):
        enqueue(name, n=n)
    wait_until(lambda: call("ZCARD", keys.dead) == count)
    failed = [json.loads(member) for member in call("ZRANGE", keys.dead, 0, -1)]
    assert {one["err"] for one in failed} == {f"JobTimeout: {name} ran longer than its timeout of 0.3 s"}
    assert {one["fails"] for one in failed} == {1}
    # The thread that was interrupted, its log handlers and the enqueuer's connections still work.
    enqueue("quick", n=1)
    worker.wait_for("quick")
    worker.open_gate()
    wait_until(lambda: int(call("HGET", keys.totals, "done:hold") or 0) == 1)
    assert worker.children() == [child]
    assert len(worker.said("begin")) == 1
    assert "killing process" not in worker.log


def test_an_enqueue_that_a_timeout_interrupts_is_not_sent_again_and_spoils_no_connection(
    new_pool, look, redis_url, namespace
):
    pool = new_pool(concurrency=4, grace=2.0)
    enqueuer = Enqueuer(namespace, redis=redis_url)
    acknowledged = []

    @pool.job(timeout=0.1, max_fails=10, backoff=constant(0))
    def busy():
        while True:
            acknowledged.append(enqueuer.enqueue("elsewhere").id)

    with pool:
        for _ in range(4):
            busy.enqueue()
        wait_until(lambda: len(look.dead()) == 4)
    stored = [job["id"] for job in look.queue("elsewhere")]
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    # At most the one under way was stored without an answer, each time.
    assert len(stored) - len(acknowledged) <= 40
    assert enqueuer.enqueue("elsewhere").id == look.queue("elsewhere")[-1]["id"]
    enqueuer.close()


def test_the_error_of_a_timeout_shows_where_the_handler_was(new_pool, look):
    pool = new_pool(concurrency=1)

    @pool.job(timeout=0.5, max_fails=1)
    def endless():
        while True:
            pass

    with pool:
        endless.enqueue()
        (dead,) = wait_until(look.dead)
    assert "in endless" in dead["trace"]
    assert dead["trace"].strip().endswith("JobTimeout: endless ran longer than its timeout of 0.5 s")


def test_async_attempts_with_other_timeouts_end_each_at_their_own(new_pool, look):
    pool = new_pool(concurrency=5, grace=60.0)
    started: list[str] = []
    ended: list[str] = []

    @pool.job(timeout=3600, max_fails=1)
    async def patient() -> None:
        started.append("patient")
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("patient")

    @pool.job(timeout=0.1, max_fails=1)
    async def hasty(i: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("hasty")
            # Cleaning up may take longer than until the watchdog looks again.
            await asyncio.sleep(0.3)
            ended.append("cleaned up")

    @pool.job(timeout=0.4, max_fails=1)
    async def slow() -> None:
        await asyncio.sleep(3600)

    with pool:
        patient.enqueue()
        wait_until(lambda: started)
        slow.enqueue()
        for i in range(2):
            hasty.enqueue(i=i)
        wait_until(lambda: len(look.dead()) == 3)
        hasty.enqueue(i=2)
        wait_until(lambda: len(look.dead()) == 4)
        assert sorted(ended) == ["cleaned up"] * 3 + ["hasty"] * 3
        pool.stop(timeout=0.1)
    assert all("ran longer than its timeout" in one["err"] for one in look.dead())


PROFILED = """
import sys, time
from dayjob import WorkerPool

pool = WorkerPool(namespace={namespace!r}, redis={redis!r}, concurrency=1)

@pool.job(timeout=0.2, max_fails=1)
def endless() -> None:
    while True:
        time.sleep(0.001)

endless.enqueue()
with pool:
    assert pool.drain(60)
    sys.setprofile(lambda *_: None)
    time.strftime("%H")
    (lambda: None)()
    sys.setprofile(None)
print("profiled")
"""


def test_after_a_timeout_the_process_can_be_profiled(redis_url, namespace):
    """Clearing the exception of a thread used to leave a flag of the interpreter up, and a profiled call never returned."""
    program = PROFILED.format(namespace=namespace, redis=redis_url)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "profiled", done.stderr

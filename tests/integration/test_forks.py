"""A process that an async handler forks never runs on as a second worker, and a signal ends it."""

from __future__ import annotations

import os
import signal

import pytest

from dayjob import Enqueuer
from server import wait_until
from workers import JOBS, WorkerCommand, is_gone

FORKS = """
import asyncio, itertools, time

async def by_callback():
    ended = asyncio.Event()
    pids = []
    def fork():
        pids.append(os.fork())
        ended.set()
    asyncio.get_running_loop().call_soon(fork)
    await ended.wait()
    return pids[0]


async def by_task():
    async def fork():
        pid = os.fork()
        await asyncio.sleep(0)
        return pid
    return await asyncio.create_task(fork())


@pool.job
async def forks(how: str) -> None:
    parent = os.getpid()
    pid = await {"callback": by_callback, "task": by_task}.get(how, at_once)()
    if pid == 0:
        say("child", how, os.getpid())
        if how == "awaits":
            await asyncio.sleep(0.001)
        elif how == "stays":
            time.sleep(600)
        elif how == "raises":
            raise ValueError("in the child")
        elif how == "exits":
            raise SystemExit(7)
        return
    say("forked", how, pid)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    say("ended", how, os.waitstatus_to_exitcode(status), os.getpid() == parent)


@pool.job
def forks_in_a_thread() -> None:
    pid = os.fork()
    if pid == 0:
        say("child", "thread", os.getpid())
        # Code in C that never looks for signals: only a default action ends it.
        sum(itertools.repeat(1, 10**11))
    say("forked", "thread", pid)
    _, status = os.waitpid(pid, 0)
    say("ended", "thread", os.waitstatus_to_exitcode(status))


async def at_once():
    return os.fork()


@pool.job
async def tick(n: int) -> None:
    for step in range(20):
        await asyncio.sleep(0.001)
    say("tick", n, os.getpid())
"""

#: How a child goes on, and the exit code that its parent sees.
WAYS = {
    "returns": "0", "awaits": "1", "raises": "1", "exits": "7", "stays": "-15", "callback": "1", "task": "1",
}  # fmt: skip


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("how", WAYS)
def test_a_process_that_an_async_handler_forks_ends_and_runs_no_job(
    tmp_path, redis_url, namespace, look, how, loop
):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    text = JOBS.replace("concurrency=4", "concurrency=30").replace("lease=4.0, beat=0.3", "lease=60") + FORKS
    worker.write(text)
    if loop == "asyncio":
        # Where it cannot be imported, the pool uses the loop of asyncio.
        worker.write("raise ImportError\n", "uvloop.py")
    enqueuer = Enqueuer(namespace, redis=redis_url)
    try:
        (child,) = worker.started()
        count = 20
        for n in range(count):
            enqueuer.enqueue("tick", n=n)
        enqueuer.enqueue("forks", how=how)
        for n in range(count, 2 * count):
            enqueuer.enqueue("tick", n=n)
        ((_, _, pid),) = worker.wait_for("forked")
        if how == "stays":
            worker.wait_for("child")
            os.kill(int(pid), signal.SIGTERM)
        ((_, _, code, is_parent),) = worker.wait_for("ended")
        assert (code, is_parent) == (WAYS[how], "True")
        wait_until(lambda: look.total("done:tick") == 2 * count)
        wait_until(lambda: look.total("done:forks") == 1)
        assert is_gone(int(pid))
        ticks = worker.said("tick")
        assert sorted(int(words[1]) for words in ticks) == list(range(2 * count))
        assert {words[2] for words in ticks} == {str(child)}
        assert worker.children() == [child]
    finally:
        enqueuer.close()
        worker.close()


def test_a_term_ends_a_process_that_a_plain_handler_forked(tmp_path, redis_url, namespace, look):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(JOBS.replace("lease=4.0, beat=0.3", "lease=60") + FORKS)
    enqueuer = Enqueuer(namespace, redis=redis_url)
    try:
        worker.started()
        enqueuer.enqueue("forks_in_a_thread")
        ((_, _, pid),) = worker.wait_for("child")
        os.kill(int(pid), signal.SIGTERM)
        ((_, _, code),) = worker.wait_for("ended")
        assert code == "-15"
        wait_until(lambda: look.total("done:forks_in_a_thread") == 1)
    finally:
        enqueuer.close()
        worker.close()


PAYS = """
@pool.job(redact=["card"])
async def pays(card: str) -> None:
    if os.fork() == 0:
        raise ValueError(card)


@pool.job(redact=["card"])
def pays_in_a_thread(card: str) -> None:
    if os.fork() == 0:
        raise ValueError(card)
"""


@pytest.mark.parametrize("name", ["pays", "pays_in_a_thread"])
def test_the_traceback_that_a_forked_process_prints_shows_no_redacted_arguments(
    tmp_path, redis_url, namespace, name
):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(JOBS.replace("lease=4.0, beat=0.3", "lease=60") + PAYS)
    enqueuer = Enqueuer(namespace, redis=redis_url)
    try:
        worker.started()
        enqueuer.enqueue(name, card="4111-1111")
        worker.wait_for_log("ValueError: [redacted]")
        assert "4111" not in worker.log
    finally:
        enqueuer.close()
        worker.close()

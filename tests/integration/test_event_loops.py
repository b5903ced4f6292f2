"""Connections belong to an event loop, and go when it goes: short loops leave no socket behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import psutil
import pytest

from dayjob import AsyncAdmin, AsyncEnqueuer, Enqueuer
from server import wait_until
from workers import WorkerCommand

#: One loop more or less may be on its way out.
SLACK = 3


@pytest.fixture
def clients(call):
    """How many connections of dayjob the server has."""
    return lambda: call("CLIENT", "LIST").count(b"name=dayjob")


def loops() -> int:
    gc.collect()
    # By its type: lazy objects of other libraries, such as Django's settings, load something when they are asked for their class.
    return sum(issubclass(type(one), asyncio.AbstractEventLoop) for one in gc.get_objects())


@pytest.mark.parametrize("kind", [AsyncEnqueuer, AsyncAdmin])
def test_a_loop_for_each_call_leaves_no_connection_and_no_loop_behind(kind, redis_url, namespace, clients):
    mine = kind(namespace, redis=redis_url)
    work = (lambda: mine.enqueue("a")) if kind is AsyncEnqueuer else mine.queues
    asyncio.run(work())
    files, kept, connected = psutil.Process().num_fds(), loops(), clients()
    for _ in range(300):
        asyncio.run(work())
    wait_until(lambda: psutil.Process().num_fds() <= files + SLACK)
    wait_until(lambda: loops() <= kept + SLACK)
    wait_until(lambda: clients() <= connected + SLACK)


def test_an_enqueuer_made_for_one_call_leaves_no_connection_behind(redis_url, namespace, clients):
    before = clients()
    for _ in range(20):
        asyncio.run(AsyncEnqueuer(namespace, redis=redis_url).enqueue("a"))
    wait_until(lambda: clients() <= before)


#: Asyncio warns of each loop that is closed without a shutdown, hence a process of its own.
ROUGH = """
import asyncio, sys

import psutil

from dayjob import AsyncAdmin, AsyncEnqueuer

enqueuer = AsyncEnqueuer(sys.argv[2], redis=sys.argv[1])
admin = AsyncAdmin(sys.argv[2], redis=sys.argv[1])
files = []
for _ in range(100):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(enqueuer.enqueue("a"))
    loop.run_until_complete(admin.queues())
    loop.close()
    files.append(psutil.Process().num_fds())
print(files[-1] - files[0])
"""


def test_loops_that_are_closed_without_a_shutdown_leave_no_connection_either(redis_url, namespace):
    script = [sys.executable, "-W", "ignore", "-c", ROUGH, redis_url, namespace]
    assert int(subprocess.check_output(script)) <= SLACK


def test_loops_in_many_threads_leave_no_connection_behind(redis_url, namespace, clients, call, keys):
    mine = AsyncEnqueuer(namespace, redis=redis_url)
    asyncio.run(mine.enqueue("a"))
    files, connected = psutil.Process().num_fds(), clients()

    def work() -> None:
        for _ in range(30):
            asyncio.run(mine.enqueue("a"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert call("LLEN", keys.queue("a")) == 241
    asyncio.run(mine.enqueue("a"))
    wait_until(lambda: psutil.Process().num_fds() <= files + SLACK)
    wait_until(lambda: clients() <= connected + SLACK)


def test_an_admin_that_moves_between_two_open_loops_keeps_working(redis_url, namespace, clients):
    admin = AsyncAdmin(namespace, redis=redis_url)
    before = clients()
    with asyncio.Runner() as one, asyncio.Runner() as other:
        for _ in range(20):
            one.run(admin.queues())
            other.run(admin.queues())
        other.run(admin.close())
    wait_until(lambda: clients() <= before)


JOBS = """
import asyncio, resource

from dayjob import WorkerPool

resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
pool = WorkerPool(concurrency=4)


@pool.job
def leaf() -> None: ...


@pool.job(max_fails=1)
def branch() -> None:
    asyncio.run(leaf.aenqueue())
"""


def test_a_worker_with_few_descriptors_survives_a_loop_for_each_job(
    tmp_path, redis_url, namespace, call, keys
):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    command.write(JOBS)

    Enqueuer(namespace, redis=redis_url).enqueue_many("branch", [{}] * 300)
    try:
        command.started()
        wait_until(lambda: int(call("HGET", keys.totals, "done:leaf") or 0) == 300)
        assert call("ZCARD", keys.dead) == 0
    finally:
        command.close()

"""taskiq under the contract of contract.py: list or stream broker, one process; best: 100 at once, quiet.

socket_timeout=None is a departure from how it comes: without it the list broker's worker dies when idle for 5 s.
"""

from __future__ import annotations

import asyncio
import os
import sys

from taskiq_redis import ListQueueBroker, RedisStreamBroker

from contract import CONCURRENCY, CONFIG, NAMES, URL, aenqueue, ahandle

kind, _, setting = CONFIG.partition("-")
if kind == "stream":
    more = {"xread_count": 1000} if setting == "best" else {}
    broker = RedisStreamBroker(URL, socket_timeout=None, **more)
else:
    broker = ListQueueBroker(URL, socket_timeout=None)


async def job(i: int) -> None:
    await ahandle(i)


tasks = {name: broker.register_task(job, task_name=name) for name in NAMES}


async def send() -> None:
    await broker.startup()
    await aenqueue(lambda name, i: tasks[name].kiq(i))
    await broker.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        asyncio.run(send())
    else:
        best = ["--max-async-tasks", "100", "--max-prefetch", "100", "--log-level", "WARNING"]
        usual = ["--max-async-tasks", str(CONCURRENCY)]
        command = ["-m", "taskiq", "worker", "program:broker", "--workers", "1"]
        os.execv(sys.executable, [sys.executable, *command, *(best if setting == "best" else usual)])

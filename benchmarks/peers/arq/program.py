"""arq under the contract of contract.py. best: 100 jobs at once, read 1000, polled every 10 ms, no results kept."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

from arq import create_pool, func, run_worker
from arq.connections import RedisSettings

from contract import CONCURRENCY, CONFIG, NAMES, URL, aenqueue, ahandle

settings = RedisSettings.from_dsn(URL)


async def job(_context, i: int) -> None:
    await ahandle(i)


class WorkerSettings:
    redis_settings = settings
    functions: ClassVar = [
        func(job, name=name, keep_result=0 if CONFIG == "best" else None) for name in NAMES
    ]
    max_jobs = 100 if CONFIG == "best" else CONCURRENCY
    if CONFIG == "best":
        poll_delay = 0.01
        queue_read_limit = 1000


async def send() -> None:
    pool = await create_pool(settings)
    await aenqueue(pool.enqueue_job)


if __name__ == "__main__":
    if CONFIG == "best":
        import uvloop

        uvloop.install()
    if sys.argv[1] == "enqueue":
        asyncio.run(send())
    else:
        asyncio.set_event_loop(asyncio.new_event_loop())
        run_worker(WorkerSettings)

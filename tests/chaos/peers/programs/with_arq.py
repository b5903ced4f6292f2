"""arq: jobs stay in the queue until they are done; a short timeout, since a lost job waits for it and ten seconds."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

from arq import create_pool, func, run_worker
from arq.connections import RedisSettings

from contract import CONCURRENCY, LEASE, URL, ahandle, aproduce

settings = RedisSettings.from_dsn(URL)
settings.conn_retries = 100


async def job(_context, number: int) -> None:
    await ahandle(number)


class WorkerSettings:
    redis_settings = settings
    functions: ClassVar = [func(job, name="job", keep_result=0, timeout=LEASE, max_tries=20)]
    max_jobs = CONCURRENCY
    job_timeout = LEASE
    max_tries = 20


async def send() -> None:
    pool = await create_pool(settings)
    await aproduce(lambda number: pool.enqueue_job("job", number))


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        asyncio.run(send())
    else:
        asyncio.set_event_loop(asyncio.new_event_loop())
        run_worker(WorkerSettings)

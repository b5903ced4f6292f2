"""streaQ: nothing ahead, a short idle timeout, twenty tries."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from streaq import Worker

from contract import CONCURRENCY, LEASE, URL, ahandle, aproduce

worker = Worker(redis_url=URL, concurrency=CONCURRENCY, prefetch=0, idle_timeout=LEASE)


@worker.task(name="job", max_tries=20, ttl=0)
async def job(number: int) -> None:
    await ahandle(number)


async def send() -> None:
    async with worker:

        async def one(number: int) -> None:
            await job.enqueue(number)

        await aproduce(one)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        asyncio.run(send())
    else:
        script = str(Path(sys.executable).parent / "streaq")
        os.execv(script, [script, "run", "with_streaq:worker"])  # noqa: S606 - it becomes the worker

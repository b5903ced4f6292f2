"""streaQ under the contract of contract.py. best: 50 at once, prefetch 1000, nothing kept, silent."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from streaq import Worker

from contract import CONCURRENCY, CONFIG, NAMES, URL, aenqueue, ahandle

best = CONFIG == "best"
more = {"prefetch": 1000} if best else {}
worker = Worker(redis_url=URL, concurrency=50 if best else CONCURRENCY, **more)
tasks = {}


async def job(i: int) -> None:
    await ahandle(i)


for _name in NAMES:
    options = {"ttl": 0, "silent": True} if best else {}
    tasks[_name] = worker.task(name=_name, **options)(job)


async def send() -> None:
    async with worker:

        async def one(name: str, i: int) -> None:
            await tasks[name].enqueue(i)

        async def many(name: str, batch: list[int]) -> None:
            await worker.enqueue_many([tasks[name].enqueue(i) for i in batch])

        await aenqueue(one, many)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        asyncio.run(send())
    else:
        script = str(Path(sys.executable).parent / "streaq")
        os.execv(script, [script, "run", "program:worker"])

"""SAQ under the contract of contract.py. best: 50 at once, nothing kept, quiet, uvloop."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from saq import Queue, Worker

from contract import CONCURRENCY, CONFIG, DUE, NAMES, PATH, URL, aenqueue, atake, first_run

HOW: dict[str, dict[str, Any]] = {"retry": {"retries": 2}, "scheduled": {"scheduled": int(DUE)}}
how = {**({"ttl": -1} if CONFIG == "best" else {}), **HOW.get(PATH, {})}


async def job(_context, *, i: int) -> int:
    return await atake(i)


async def parent(context, *, i: int) -> None:
    first_run(i)
    await context["worker"].queue.enqueue("child", i=i)


async def send() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    await aenqueue(lambda name, i: queue.enqueue(name, i=i, **how))
    await queue.disconnect()


async def work() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    worker = Worker(
        queue,
        functions=[("child", job), *((name, parent if PATH == "nested" else job) for name in NAMES)],
        concurrency=50 if CONFIG == "best" else CONCURRENCY,
    )
    await worker.start()


if __name__ == "__main__":
    if CONFIG == "best":
        import uvloop

        uvloop.install()
        logging.disable(logging.INFO)
    else:
        logging.basicConfig(level=logging.WARNING if PATH else logging.INFO)
    asyncio.run(send() if sys.argv[1] == "enqueue" else work())

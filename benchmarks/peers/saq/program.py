"""SAQ under the contract of contract.py. best: 50 at once, nothing kept, quiet, uvloop."""

from __future__ import annotations

import asyncio
import logging
import sys

from saq import Queue, Worker

from contract import CONCURRENCY, CONFIG, NAMES, URL, aenqueue, ahandle

keep = {"ttl": -1} if CONFIG == "best" else {}


async def job(_context, *, i: int) -> None:
    await ahandle(i)


async def send() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    await aenqueue(lambda name, i: queue.enqueue(name, i=i, **keep))
    await queue.disconnect()


async def work() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    worker = Worker(
        queue,
        functions=[(name, job) for name in NAMES],
        concurrency=50 if CONFIG == "best" else CONCURRENCY,
    )
    await worker.start()


if __name__ == "__main__":
    if CONFIG == "best":
        import uvloop

        uvloop.install()
        logging.disable(logging.INFO)
    else:
        logging.basicConfig(level=logging.INFO)
    asyncio.run(send() if sys.argv[1] == "enqueue" else work())

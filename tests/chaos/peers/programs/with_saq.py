"""SAQ: jobs with a timeout, a heartbeat and retries, swept every five seconds."""

from __future__ import annotations

import asyncio
import sys

from saq import Queue, Worker

from contract import CONCURRENCY, LEASE, URL, ahandle, aproduce


async def job(_context, *, number: int) -> None:
    await ahandle(number)


async def send() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    await aproduce(
        lambda number: queue.enqueue("job", number=number, timeout=LEASE, heartbeat=LEASE, retries=20)
    )
    await queue.disconnect()


async def work() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    await Worker(queue, functions=[("job", job)], concurrency=CONCURRENCY, timers={"sweep": 5}).start()


if __name__ == "__main__":
    asyncio.run(send() if sys.argv[1] == "enqueue" else work())

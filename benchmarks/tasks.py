"""The limit of the event loop: as many tasks as a pool would run, each as long, with no server and no pool."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextvars import Context

from contract import CONCURRENCY, COUNT, ahandle


async def main() -> None:
    loop = asyncio.get_running_loop()
    numbers = iter(range(COUNT))
    running: set[asyncio.Task[None]] = set()

    def start() -> None:
        for number in numbers:
            # Fresh variables and a task for each, as a pool gives every job.
            task = loop.create_task(ahandle(number), context=Context())
            running.add(task)
            task.add_done_callback(ended)
            return

    def ended(task: asyncio.Task[None]) -> None:
        running.discard(task)
        start()

    for _ in range(CONCURRENCY):
        start()
    # Until the driver has seen enough.
    await loop.create_future()


if __name__ == "__main__" and sys.argv[1] == "work":
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(main())

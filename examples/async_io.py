"""Many waits at once, beside a job that blocks: `python examples/async_io.py`."""

import asyncio
import time
from collections.abc import AsyncIterator

from dayjob import WorkerPool

pool = WorkerPool(namespace="example-async", concurrency=100, threads=2)


@pool.lifespan
async def client() -> AsyncIterator[None]:
    print("a client is opened, on the loop that the jobs run on")
    yield
    print("and closed")


@pool.job
async def fetch_page(number: int) -> None:
    await asyncio.sleep(0.2)


@pool.job
def write_file(number: int) -> None:
    time.sleep(0.2)


async def enqueue() -> None:
    await asyncio.gather(*(fetch_page.aenqueue(number=n) for n in range(50)))
    await pool.async_enqueuer.enqueue("write_file", number=1)
    await pool.async_enqueuer.close()


if __name__ == "__main__":
    asyncio.run(enqueue())
    with pool:
        started = time.monotonic()
        pool.drain()
        print(f"51 jobs of 0.2 s each took {time.monotonic() - started:.1f} s")

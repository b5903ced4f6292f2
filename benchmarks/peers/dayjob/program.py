"""dayjob itself, by its public face. `work` runs one pool, or several where BENCH_POOLS says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from contract import CONCURRENCY, CONFIG, NAMES, PACE, RULES, URL, aenqueue, ahandle, enqueue, handle
from dayjob import Concurrency, Rate, WorkerPool

POOLS = int(os.environ.get("BENCH_POOLS", "1"))


def job(i: int) -> None:
    handle(i)


async def async_job(i: int) -> None:
    await ahandle(i)


#: What the job names have by RULES. The rate of "rate" is one that no machine reaches.
LIMITS: dict[str, dict[str, Any]] = {
    "rate": {"limits": [Rate(1_000_000, per=1)]},
    "concurrency": {"limits": [Concurrency(CONCURRENCY)]},
    "paced": {"limits": [Rate(PACE, per=1, burst=10)]},
}


def new_pool() -> WorkerPool[Any]:
    pool = WorkerPool(namespace="bench", redis=URL, concurrency=CONCURRENCY)
    for name in NAMES:
        pool.register(name, async_job if CONFIG == "async" else job, **LIMITS.get(RULES, {}))
    if RULES == "beside":
        pool.register("beside", job, limits=[Rate(1, per=1)])
    return pool


def send() -> None:
    pool = new_pool()
    types = {name: pool.find(name) for name in NAMES}
    enqueue(
        lambda name, i: types[name].enqueue(i=i),
        lambda name, batch: pool.enqueuer.enqueue_many(name, [{"i": i} for i in batch]),
    )


async def asend() -> None:
    pool = new_pool()
    types = {name: pool.find(name) for name in NAMES}
    await aenqueue(
        lambda name, i: types[name].aenqueue(i=i),
        lambda name, batch: pool.async_enqueuer.enqueue_many(name, [{"i": i} for i in batch]),
    )


def work() -> None:
    if POOLS == 1:
        new_pool().run()
        return
    pools = [new_pool() for _ in range(POOLS)]
    for pool in pools:
        pool.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for pool in pools:
        pool.stop(1)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        if POOLS > 1:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        work()
    elif CONFIG == "async":
        asyncio.run(asend())
    else:
        send()

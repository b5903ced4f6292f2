"""What one attempt costs inside a pool, in microseconds, without a server: decode, middleware, call, settle.

Uses the pool's own parts: Attempt, Runner and the lanes that the runtime builds.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dayjob import Job, WorkerPool
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.handler import new_pool_job_type
from dayjob.worker.running.runner import Runner
from dayjob.worker.state import PoolState

ROUNDS = 7


class Context:
    """What each job gets a fresh one of."""


def plain(i: int) -> None:
    pass


def full(ctx: Context, job: Job, i: int) -> None:
    pass


async def plain_async(i: int) -> None:
    pass


async def full_async(ctx: Context, job: Job, i: int) -> None:
    pass


def around(ctx: Context, job: Job) -> Iterator[None]:
    yield


def lane_of(fn: Callable[..., Any], *, middleware: int) -> tuple[PoolJobType, WorkerPool[Any]]:
    """A lane as the runtime makes it."""
    pool: WorkerPool[Any] = WorkerPool(Context, namespace="bench")
    for _ in range(middleware):
        pool.middleware(around)
    pool.register("job", fn)
    pool.prepare()
    job_type = pool.find("job")
    return new_pool_job_type(pool, job_type, PoolState()), pool


def measure(fn: Callable[..., Any], count: int, *, middleware: int = 0) -> float:
    """Microseconds for one attempt: the median of several rounds."""
    lane, pool = lane_of(fn, middleware=middleware)
    runner = Runner(
        Keys("bench"), lambda: "pool", pool.context, time.time, random.Random(1), max_result=1 << 20
    )
    payload = codec.write(codec.quoted("job"), new_id(), time.time(), b'{"i":7}')
    settled: list[Any] = []

    def attempt() -> Attempt:
        return Attempt("1:job", "job", payload, codec.read(payload, "job"), lane)

    def run() -> None:
        settled.extend(runner.run(attempt()) for _ in range(count))

    async def arun() -> None:
        settled.extend([await runner.arun(attempt()) for _ in range(count)])

    rounds = []
    for _ in range(ROUNDS):
        settled.clear()
        started = time.perf_counter()
        if lane.is_async:
            asyncio.run(arun())
        else:
            run()
        rounds.append((time.perf_counter() - started) / count * 1e6)
        assert settled == [None] * count, "every attempt must end as a plain completion"
    return round(statistics.median(rounds), 3)


def main(count: int) -> dict[str, float]:
    return {
        "sync": measure(plain, count),
        "sync, context and job": measure(full, count),
        "sync, context, job, 1 middleware": measure(full, count, middleware=1),
        "sync, context, job, 3 middlewares": measure(full, count, middleware=3),
        "async": measure(plain_async, count),
        "async, context, job, 1 middleware": measure(full_async, count, middleware=1),
    }


if __name__ == "__main__":
    print(json.dumps({"micros": main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)}))

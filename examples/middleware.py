"""Around every job: `python examples/middleware.py`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dayjob import Job, WorkerPool


@dataclass
class Context:
    customer: str = ""


pool = WorkerPool(Context, namespace="example-middleware", concurrency=1)


@pool.lifespan
def database() -> Iterator[None]:
    print("the pool starts")
    yield
    print("the pool has stopped")


@pool.middleware
def measure(job: Job) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(job.name, "took", "less than a second" if time.perf_counter() - started < 1 else "long")


@pool.middleware
def load_customer(ctx: Context, job: Job) -> Iterator[None]:
    if job.source == "nobody":
        return  # skips the job
    ctx.customer = f"customer {job.source}"
    yield


@pool.job
def create_watch(ctx: Context, user_id: int) -> None:
    print("a watch for user", user_id, "of", ctx.customer)


if __name__ == "__main__":
    create_watch.using(source="acme").enqueue(user_id=7)
    create_watch.using(source="nobody").enqueue(user_id=8)
    with pool:
        pool.drain()

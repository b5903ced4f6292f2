"""dayjob, jobs that belong together: the shapes of ../../groups.py by its public face."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from contract import CHUNK, CONCURRENCY, COUNT, PATH, URL, handle
from dayjob import Job, WorkerPool

#: Members of each batch, where there are many; and nodes that one node of a fan-out leads to.
MEMBERS, EDGES = 10, 500

pool = WorkerPool(namespace="bench", redis=URL, concurrency=CONCURRENCY)


@pool.job
def member(i: int) -> None:
    handle(i)


@pool.job
def ended(i: int) -> None:
    """The callback of a batch."""
    handle(i)


@pool.job
def step(i: int) -> int:
    """A job of a chain: it returns the argument of the next."""
    handle(i)
    return i + 1


@pool.job
def many(start: int, i: int) -> int:
    """One of the many jobs between the first and the last."""
    handle(i)
    return start


@pool.job
def pass_on(values: list[int]) -> int:
    """Between two nodes, because one node can lead to 500 others and wait for as many."""
    return sum(values)


@pool.job
def last(values: list[int], i: int) -> None:
    handle(i)


@pool.job
def start_batch(i: int) -> None:
    """The first job of a fan-out, which starts a batch."""
    handle(i)
    with pool.batch(on_success=ended, args={"i": COUNT + 1}):
        member.enqueue_many([{"i": n} for n in range(COUNT)])


@pool.job
def next_one(i: int) -> None:
    handle(i)
    if i + 1 < COUNT:
        next_one.enqueue(i=i + 1)


@pool.job(atomic=True)
def next_atomic(i: int) -> None:
    handle(i)
    if i + 1 < COUNT:
        next_atomic.enqueue(i=i + 1)


@pool.job
def waits(job: Job) -> None:
    """The only member of the batch that plain jobs are enqueued beside."""


def rows(first: int, count: int) -> list[dict[str, int]]:
    return [{"i": i} for i in range(first, first + count)]


def send_plain() -> None:
    for at in range(0, COUNT, CHUNK):
        pool.enqueuer.enqueue_many("member", rows(at, min(CHUNK, COUNT - at)))


def send_beside() -> None:
    with pool.batch(on_success=ended, args={"i": 0}):
        waits.enqueue_in(3600)
    send_plain()


def send_batch() -> None:
    with pool.batch(on_success=ended, args={"i": COUNT}):
        for at in range(0, COUNT, CHUNK):
            member.enqueue_many(rows(at, min(CHUNK, COUNT - at)))


def send_batches() -> None:
    for number in range(COUNT // MEMBERS):
        with pool.batch(on_success=ended, args={"i": COUNT + number}):
            member.enqueue_many(rows(number * MEMBERS, MEMBERS))


def send_chain() -> None:
    chain = step.then(step)
    for _ in range(COUNT - 2):
        chain = chain.then(step)
    chain.enqueue(i=0)


def send_fan() -> None:
    flow = pool.workflow("fan")
    first = flow.add(step, i=COUNT)
    parts = []
    for at in range(0, COUNT, EDGES):
        gate = flow.add(pass_on, values=[first.result])
        some = [flow.add(many, start=gate.result, i=n) for n in range(at, min(at + EDGES, COUNT))]
        parts.append(flow.add(pass_on, values=[one.result for one in some]))
    flow.add(last, values=[part.result for part in parts], i=COUNT + 1)
    flow.start()


SHAPES: dict[str, Callable[[], object]] = {
    "plain jobs": send_plain,
    "plain jobs beside a batch": send_beside,
    "a batch": send_batch,
    "batches of 10": send_batches,
    "a chain": send_chain,
    "1 to many to 1": send_fan,
    "1 to many to 1, as a batch": lambda: start_batch.enqueue(i=COUNT),
    "each enqueues the next": lambda: next_one.enqueue(i=0),
    "each enqueues the next, atomic": lambda: next_atomic.enqueue(i=0),
}


def warm_up() -> None:
    """Load what an enqueue and a batch need, in another namespace: other systems load theirs when they are imported."""
    warm = WorkerPool(namespace="warm", redis=URL)
    kind = warm.register("warm", waits)
    with warm.batch():
        kind.enqueue()


def send() -> None:
    warm_up()
    first, cpu = time.time(), time.process_time()
    SHAPES[PATH]()
    used = time.process_time() - cpu
    print(
        json.dumps({"count": COUNT, "first": first, "last": time.time(), "cpu": used, "sent": []}), flush=True
    )


if __name__ == "__main__":
    if sys.argv[1] == "work":
        pool.run()
    else:
        send()

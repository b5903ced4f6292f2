"""Celery, jobs that belong together: groups, chords and chains, with Redis as the backend of results."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from celery import Celery, chain, chord, group

from contract import CONCURRENCY, COUNT, PATH, URL, handle

MEMBERS = 10

app = Celery("bench", broker=URL + "/0", backend=URL + "/0")
app.conf.update(broker_connection_retry_on_startup=True)


@app.task(name="member")
def member(i: int) -> None:
    handle(i)


@app.task(name="plain", ignore_result=True)
def plain(i: int) -> None:
    handle(i)


@app.task(name="ended")
def ended(results: list[object], i: int) -> None:
    """The body of a chord."""
    handle(i)


@app.task(name="step")
def step(i: int) -> int:
    handle(i)
    return i + 1


def send_batch() -> None:
    chord([member.si(i) for i in range(COUNT)], ended.s(COUNT)).apply_async()


def send_batches() -> None:
    for number in range(COUNT // MEMBERS):
        first = number * MEMBERS
        chord([member.si(i) for i in range(first, first + MEMBERS)], ended.s(COUNT + number)).apply_async()


def send_chain() -> None:
    chain(step.s(0), *(step.s() for _ in range(COUNT - 1))).apply_async()


def send_fan() -> None:
    many = group(member.si(i) for i in range(COUNT))
    chain(step.si(COUNT), many, ended.s(COUNT + 1)).apply_async()


def send_plain() -> None:
    for i in range(COUNT):
        plain.delay(i)


SHAPES: dict[str, Callable[[], None]] = {
    "plain jobs": send_plain,
    "a batch": send_batch,
    "batches of 10": send_batches,
    "a chain": send_chain,
    "1 to many to 1": send_fan,
}

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        first, cpu = time.time(), time.process_time()
        SHAPES[PATH]()
        used = time.process_time() - cpu
        print(
            json.dumps({"count": COUNT, "first": first, "last": time.time(), "cpu": used, "sent": []}),
            flush=True,
        )
    else:
        words = ["-A", "groups", "worker", "-P", "threads", "-c", str(CONCURRENCY), "-l", "WARNING"]
        os.execv(sys.executable, [sys.executable, "-m", "celery", *words])

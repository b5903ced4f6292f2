"""What every measured program shares: its settings, the ledger its handlers write, and how enqueueing is timed.

Settings come from the environment, since some peers only let their own command import our module. The ledger is a
file that lives in memory: n times (doubles, seconds since the epoch), then n counts (bytes), both by job number.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path

#: Jobs in one bulk call.
CHUNK = 1000
#: Calls under way at once where a system has no bulk call but is async.
GATHER = 100

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379")
PORT = int(URL.rpartition(":")[2])
COUNT = int(os.environ.get("BENCH_COUNT", "1000"))
#: The number of the first job; the others follow.
FIRST = int(os.environ.get("BENCH_FIRST", "0"))
NAMES = [f"job{k}" for k in range(int(os.environ.get("BENCH_NAMES", "5")))]
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "10"))
CONFIG = os.environ.get("BENCH_CONFIG", "usual")
#: single or bulk.
MODE = os.environ.get("BENCH_MODE", "single")
#: Seconds between two enqueues; 0 for as fast as it goes.
GAP = float(os.environ.get("BENCH_GAP", "0"))
#: A file of doubles: seconds from the first enqueue to each enqueue, which replace GAP; "" for none.
OFFSETS = os.environ.get("BENCH_OFFSETS", "")
#: Seconds that a handler sleeps.
SLEEP = float(os.environ.get("BENCH_SLEEP", "0"))
LEDGER = os.environ.get("BENCH_LEDGER", "")
#: Limits and keys that the job names have; "" for none. "paced" is PACE starts a second.
RULES = os.environ.get("BENCH_RULES", "")
PACE = 500
#: What the jobs do beside being recorded, or how they are enqueued; "" or "plain" for nothing.
PATH = os.environ.get("BENCH_PATH", "")
#: When scheduled jobs are due, in seconds since the epoch.
DUE = float(os.environ.get("BENCH_DUE", "0"))
#: An argument of ten kilobytes.
LONG = "x" * 10_000


class Ledger:
    """Counts executions, across processes."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.count = len(self.memory) // 9
        view = memoryview(self.memory)
        self.times = view[: 8 * self.count].cast("d")
        self.counts = view[8 * self.count : 9 * self.count]

    @staticmethod
    def create(path: str | Path, count: int) -> Ledger:
        with Path(path).open("wb") as file:
            file.truncate(9 * count)
        return Ledger(path)


if LEDGER:
    _ledger = Ledger(LEDGER)
    _times, _counts = _ledger.times, _ledger.counts


def record(i: int, now: Callable[[], float] = time.time) -> None:
    """One execution of job `i`."""
    _times[i] = now()
    _counts[i] += 1


def handle(i: int) -> None:
    """What every sync handler does."""
    record(i)
    if SLEEP:
        time.sleep(SLEEP)


async def ahandle(i: int) -> None:
    """What every async handler does."""
    record(i)
    if SLEEP:
        await asyncio.sleep(SLEEP)


class Wrong(Exception):
    """What failing handlers raise."""


#: Jobs that failed once. The workers of these rows have one process each.
_failed_once: set[int] = set()


def take(i: int) -> int:
    """What a sync handler does on the path that is measured. Its answer is the result, where results are kept."""
    if must_fail(i):
        raise Wrong(f"job {i} fails")
    handle(i)
    return i


async def atake(i: int) -> int:
    """The same for async handlers."""
    if must_fail(i):
        raise Wrong(f"job {i} fails")
    await ahandle(i)
    return i


def first_run(i: int) -> None:
    """The first of two executions that job `i` needs: one that fails, or one that enqueues another job."""
    record(COUNT + i)


def must_fail(i: int) -> bool:
    """Whether the handler of job `i` must raise. A job that only fails is recorded here."""
    if PATH == "raises":
        record(i)
        return True
    if PATH == "retry" and i not in _failed_once:
        _failed_once.add(i)
        first_run(i)
        return True
    return False


def name_of(i: int) -> str:
    """The job name of job `i`."""
    return NAMES[i % len(NAMES)]


def chunks() -> list[tuple[str, list[int]]]:
    """All jobs as bulk calls of one name each."""
    return [
        (name, list(range(first, COUNT, len(NAMES)))[at : at + CHUNK])
        for at in range(0, -(-COUNT // len(NAMES)), CHUNK)
        for first, name in enumerate(NAMES)
        if len(range(first, COUNT, len(NAMES))) > at
    ]


def enqueue(
    one: Callable[[str, int], object], many: Callable[[str, list[int]], object] | None = None
) -> None:
    """Enqueue everything by these calls and print what it took. The first call is not timed: it connects."""
    sent: list[float] = []
    if MODE == "bulk" and many is not None:
        (name, batch), *rest = chunks()
        many(name, batch)
        first, cpu = time.time(), time.process_time()
        for name, batch in rest:
            many(name, batch)
        count = sum(len(batch) for _, batch in rest)
    else:
        at = after()
        sent.append(time.time())
        one(name_of(FIRST), FIRST)
        first, cpu = time.time(), time.process_time()
        for i in range(FIRST + 1, FIRST + COUNT):
            if at is not None:
                time.sleep(max(0.0, first + at(len(sent)) - time.time()))
                sent.append(time.time())
            one(name_of(i), i)
        count = COUNT - 1
    _print(count, first, cpu, sent)


async def aenqueue(
    one: Callable[[str, int], Awaitable[object]],
    many: Callable[[str, list[int]], Awaitable[object]] | None = None,
) -> None:
    """The same for async systems. Without a bulk call, bulk is so many single ones at once."""

    async def gather(name: str, batch: list[int]) -> None:
        for at in range(0, len(batch), GATHER):
            await asyncio.gather(*(one(name, i) for i in batch[at : at + GATHER]))

    sent: list[float] = []
    if MODE == "bulk":
        send = many or gather
        (name, batch), *rest = chunks()
        await send(name, batch)
        first, cpu = time.time(), time.process_time()
        for name, batch in rest:
            await send(name, batch)
        count = sum(len(batch) for _, batch in rest)
    else:
        at = after()
        sent.append(time.time())
        await one(name_of(FIRST), FIRST)
        first, cpu = time.time(), time.process_time()
        for i in range(FIRST + 1, FIRST + COUNT):
            if at is not None:
                await asyncio.sleep(max(0.0, first + at(len(sent)) - time.time()))
                sent.append(time.time())
            await one(name_of(i), i)
        count = COUNT - 1
    _print(count, first, cpu, sent)


def after() -> Callable[[int], float] | None:
    """How many seconds after the first enqueue the one with this number is made; None for as soon as possible."""
    if OFFSETS:
        offsets = array("d", Path(OFFSETS).read_bytes())
        return lambda k: offsets[k]
    return (lambda k: k * GAP) if GAP else None


def _print(count: int, first: float, cpu: float, sent: list[float]) -> None:
    last = time.time()
    answer = {"count": count, "first": first, "last": last, "cpu": time.process_time() - cpu, "sent": sent}
    print(json.dumps(answer), flush=True)

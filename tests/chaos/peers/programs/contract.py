"""What every program shares: the ledger that its jobs write, outside Redis, and how jobs are enqueued at a steady rate.

Runs in the virtualenv of each peer, with nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

URL = os.environ["FAULTS_URL"]
CONCURRENCY = int(os.environ["FAULTS_CONCURRENCY"])
#: Seconds after which a worker that says nothing counts as lost, where a system has such a setting.
LEASE = int(os.environ["FAULTS_LEASE"])
#: Seconds that a job takes.
LENGTH = float(os.environ["FAULTS_LENGTH"])

_ledger = os.open(os.environ["FAULTS_LEDGER"], os.O_WRONLY | os.O_APPEND)


def note(kind: str, number: int, run: str) -> None:
    """One line, whole or not at all; it survives the process."""
    os.write(_ledger, f"{kind} {number} {os.getpid()} {run} {time.monotonic():.6f}\n".encode())


def handle(number: int) -> None:
    """What a job does."""
    run = os.urandom(6).hex()
    note("start", number, run)
    time.sleep(LENGTH)
    note("end", number, run)


async def ahandle(number: int) -> None:
    """What an async job does."""
    run = os.urandom(6).hex()
    note("start", number, run)
    await asyncio.sleep(LENGTH)
    note("end", number, run)


def _orders():
    """The numbers to enqueue, as lines on standard input ask for them: first, count, jobs a second."""
    for line in sys.stdin:
        first, count, rate = line.split()
        began = time.monotonic()
        for step in range(int(count)):
            yield int(first) + step, began + step / float(rate)
        sys.stdout.write("done\n")
        sys.stdout.flush()


def produce(send) -> None:
    """Enqueue what is ordered; what is answered goes into the ledger."""
    for number, due in _orders():
        time.sleep(max(0.0, due - time.monotonic()))
        send(number)
        note("stored", number, "-")


async def aproduce(send) -> None:
    for number, due in _orders():
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await send(number)
        note("stored", number, "-")

"""Dramatiq: a short heartbeat timeout, and maintenance at every chance."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from contract import CONCURRENCY, LEASE, URL, handle, produce

dramatiq.set_broker(RedisBroker(url=URL, heartbeat_timeout=LEASE * 1000, maintenance_chance=100_000))


@dramatiq.actor(actor_name="job", max_retries=20, min_backoff=100, max_backoff=1000)
def job(number: int) -> None:
    handle(number)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        produce(job.send)
    else:
        os.execv(  # noqa: S606 - it becomes the worker
            sys.executable,
            [sys.executable, "-m", "dramatiq", "with_dramatiq", "-p", "1", "-t", str(CONCURRENCY)],
        )

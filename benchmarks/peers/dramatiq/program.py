"""Dramatiq under the contract of contract.py. usual and best: one process; two: two processes of 8 threads."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from contract import CONCURRENCY, CONFIG, DUE, NAMES, PATH, URL, enqueue, first_run, handle, take

broker = RedisBroker(url=URL)
if PATH == "keep":
    broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)
HOW: dict[str, dict[str, Any]] = {
    "raises": {"max_retries": 0},
    "retry": {"max_retries": 1, "min_backoff": 1, "max_backoff": 1},
    "keep": {"store_results": True},
}
child = dramatiq.actor(handle, actor_name="child")


def parent(i: int) -> None:
    first_run(i)
    child.send(i)


job = parent if PATH == "nested" else take if PATH in HOW else handle
actors = {name: dramatiq.actor(job, actor_name=name, **HOW.get(PATH, {})) for name in NAMES}

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        if PATH == "scheduled":
            enqueue(
                lambda name, i: actors[name].send_with_options(args=(i,), delay=(DUE - time.time()) * 1000)
            )
        else:
            enqueue(lambda name, i: actors[name].send(i))
    else:
        processes = 2 if CONFIG == "two" else 1
        threads = CONCURRENCY if CONFIG == "usual" else 8
        if CONFIG != "usual":
            os.environ["dramatiq_queue_prefetch"] = "100"  # noqa: SIM112 - its own spelling
        command = ["-m", "dramatiq", "program", "-p", str(processes), "-t", str(threads)]
        os.execv(sys.executable, [sys.executable, *command])

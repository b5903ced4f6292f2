"""Dramatiq under the contract of contract.py. usual and best: one process; two: two processes of 8 threads."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from contract import CONCURRENCY, CONFIG, NAMES, URL, enqueue, handle

dramatiq.set_broker(RedisBroker(url=URL))
actors = {name: dramatiq.actor(handle, actor_name=name) for name in NAMES}

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        enqueue(lambda name, i: actors[name].send(i))
    else:
        processes = 2 if CONFIG == "two" else 1
        threads = CONCURRENCY if CONFIG == "usual" else 8
        if CONFIG != "usual":
            os.environ["dramatiq_queue_prefetch"] = "100"  # noqa: SIM112 - its own spelling
        command = ["-m", "dramatiq", "program", "-p", str(processes), "-t", str(threads)]
        os.execv(sys.executable, [sys.executable, *command])

"""Huey under the contract of contract.py. usual: threads; best: one thread, quiet, without periodic tasks."""

from __future__ import annotations

import os
import sys

from contract import CONCURRENCY, CONFIG, NAMES, URL, enqueue, handle
from huey import RedisHuey

app = RedisHuey("bench", url=URL)
tasks = {name: app.task(name=name)(lambda i: handle(i)) for name in NAMES}

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        enqueue(lambda name, i: tasks[name](i))
    else:
        script = os.path.join(os.path.dirname(sys.executable), "huey_consumer")
        extra = ["-w", "1", "-q", "-n"] if CONFIG == "best" else ["-w", str(CONCURRENCY)]
        os.execv(script, [script, "program.app", *extra])

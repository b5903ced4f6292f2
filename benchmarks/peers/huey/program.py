"""Huey under the contract of contract.py. usual: threads; best: one thread, quiet, without periodic tasks."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from huey import RedisHuey

from contract import CONCURRENCY, CONFIG, DUE, NAMES, PATH, URL, enqueue, first_run, handle, take

app = RedisHuey("bench", url=URL)
#: A result is kept where the handler returns one.
job = take if PATH in ("keep", "raises", "retry") else handle
child = app.task(name="child")(handle)


def parent(i: int) -> None:
    first_run(i)
    child(i)


retries = {"retries": 1, "retry_delay": 0} if PATH == "retry" else {}
tasks = {name: app.task(name=name, **retries)(parent if PATH == "nested" else job) for name in NAMES}


def main() -> None:
    if sys.argv[1] == "enqueue":
        if PATH == "scheduled":
            enqueue(lambda name, i: tasks[name].schedule((i,), delay=DUE - time.time()))
        else:
            enqueue(lambda name, i: tasks[name](i))
    else:
        script = str(Path(sys.executable).parent / "huey_consumer")
        extra = ["-w", "1", "-q", "-n"] if CONFIG == "best" else ["-w", str(CONCURRENCY)]
        os.execv(script, [script, "program.app", *extra])


if __name__ == "__main__":
    # As a module, not as __main__: its task names carry the module's.
    from program import main as imported

    imported()

"""Huey under the contract of contract.py. usual: threads; best: one thread, quiet, without periodic tasks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from huey import RedisHuey

from contract import CONCURRENCY, CONFIG, NAMES, URL, enqueue, handle

app = RedisHuey("bench", url=URL)
tasks = {name: app.task(name=name)(handle) for name in NAMES}


def main() -> None:
    if sys.argv[1] == "enqueue":
        enqueue(lambda name, i: tasks[name](i))
    else:
        script = str(Path(sys.executable).parent / "huey_consumer")
        extra = ["-w", "1", "-q", "-n"] if CONFIG == "best" else ["-w", str(CONCURRENCY)]
        os.execv(script, [script, "program.app", *extra])


if __name__ == "__main__":
    # As a module, not as __main__: its task names carry the module's.
    from program import main as imported

    imported()

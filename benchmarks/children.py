"""How long it takes until the children of one large atomic job are visible, from the moment when it has completed.

Run: python children.py COUNT. No pool runs the children, so they stay in their queue.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import redis

from contract import CHUNK, URL
from dayjob import WorkerPool

#: Seconds between two looks, and after which it is given up.
LOOK, LIMIT = 0.002, 60.0

pool = WorkerPool(namespace="bench", redis=URL, concurrency=2)
#: A pool that is never started.
other = WorkerPool(namespace="bench", redis=URL)


@other.job
def child(n: int) -> None: ...


@pool.job(atomic=True)
def parent(count: int) -> None:
    for at in range(0, count, CHUNK):
        child.enqueue_many([{"n": n} for n in range(at, min(at + CHUNK, count))])


def wait(condition, seconds: float = LIMIT) -> float:
    """The time when a condition was first seen to hold."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("not done in time")
        time.sleep(LOOK)
    return time.time()


def measure(client: redis.Redis, count: int) -> dict[str, float]:
    began = time.time()
    parent.enqueue(count=count)
    completed = wait(lambda: client.hget("bench:stats:totals", "done:parent") == "1")
    before = client.llen("bench:jobs:child")
    visible = wait(lambda: client.llen("bench:jobs:child") == count)
    return {
        "visible_s": round(visible - completed, 3), "job_s": round(completed - began, 3),
        "early": before, "executed": count, "missing": 0, "twice": 0,
    }  # fmt: skip


def main(count: int) -> None:
    worker = subprocess.Popen([sys.executable, __file__, "work"])
    try:
        print(json.dumps(measure(redis.Redis.from_url(URL, decode_responses=True), count)), flush=True)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        pool.run()
    else:
        main(int(sys.argv[1]))

"""dayjob: a supervised worker of one process."""

from __future__ import annotations

import os
import sys

from contract import CONCURRENCY, LEASE, URL, handle, produce
from dayjob import WorkerPool

pool = WorkerPool(namespace="faults", redis=URL, concurrency=CONCURRENCY, lease=LEASE, beat=LEASE / 3)


@pool.job
def job(number: int) -> None:
    handle(number)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        produce(lambda number: job.enqueue(number=number))
    else:
        os.execv(sys.executable, [sys.executable, "-m", "dayjob", "worker", "with_dayjob:pool"])  # noqa: S606 - it becomes the worker

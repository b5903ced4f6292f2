"""How long a call takes until its answer, and until its handler starts, on an idle pool in a process of its own.

Run: python calls.py COUNT. One call after the other; both times are of the same calls.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from contract import URL
from dayjob import WorkerPool

#: Seconds between two calls, and calls that are not counted.
GAP, WARM = 0.02, 5

pool = WorkerPool(namespace="bench", redis=URL, concurrency=10)


@pool.job
def answer() -> float:
    """The time when the handler started: both processes read the clock of one machine."""
    return time.time()


def measure(count: int) -> dict[str, float]:
    waits, answers = [], []
    for n in range(count + WARM):
        time.sleep(GAP)
        sent = time.time()
        started = answer.call(timeout=30)
        ended = time.time()
        if n >= WARM:
            waits.append(started - sent)
            answers.append(ended - sent)
    pickup, whole = statistics.median(waits), statistics.median(answers)
    return {
        "p50_ms": round(whole * 1000, 3), "pickup_ms": round(pickup * 1000, 3),
        "p99_ms": round(sorted(answers)[int(len(answers) * 0.99)] * 1000, 3), "answer_ratio": round(whole / pickup, 3),
    }  # fmt: skip


def main(count: int) -> None:
    worker = subprocess.Popen([sys.executable, __file__, "work"])
    try:
        print(json.dumps(measure(count)), flush=True)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        pool.run()
    else:
        main(int(sys.argv[1]))

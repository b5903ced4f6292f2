"""Later, and by the clock: `python examples/scheduling.py`."""

import threading
from datetime import UTC, datetime, timedelta

from dayjob import WorkerPool

pool = WorkerPool(namespace="example-scheduling")
ran = threading.Semaphore(0)


@pool.job
def remind(text: str) -> None:
    print(text)
    ran.release()


pool.periodic("* * * * * *", remind, {"text": "each second"}, name="pulse")
pool.periodic("0 9 * * 1-5", remind, {"text": "good morning"}, timezone="Europe/Paris")

if __name__ == "__main__":
    remind.enqueue_in(0.5, text="half a second later")
    remind.enqueue_at(datetime.now(UTC) + timedelta(seconds=1), text="a second later")
    with pool:
        for _ in range(4):
            ran.acquire(timeout=20)

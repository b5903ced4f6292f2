"""At most two at once over all pools, and shares by priority: `python examples/limits.py`."""

import threading
import time

from dayjob import WorkerPool

pool = WorkerPool(namespace="example-limits", concurrency=8)
lock = threading.Lock()
running = most = 0


@pool.job(max_concurrency=2)
def call_slow_service(order: int) -> None:
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(0.05)
    with lock:
        running -= 1


@pool.job(priority=10)
def reset_password(user_id: int) -> None:
    time.sleep(0.01)


if __name__ == "__main__":
    pool.enqueuer.enqueue_many("call_slow_service", [{"order": n} for n in range(10)])
    pool.enqueuer.enqueue_many("reset_password", [{"user_id": n} for n in range(50)])
    with pool:
        pool.drain()
    print("at most", most, "calls at once")

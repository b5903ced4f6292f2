"""Limits and fair shares: at most two at once, a rate, a limit for each tenant, and turns: `python examples/limits.py`."""

import threading
import time

from dayjob import Concurrency, Rate, WorkerPool

pool = WorkerPool(namespace="example-limits", concurrency=8)
lock = threading.Lock()
running = most = 0
order: list[str] = []


@pool.job(max_concurrency=2)
def call_slow_service(n: int) -> None:
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(0.05)
    with lock:
        running -= 1


@pool.job(limits=[Rate(50, per=1, burst=5)])
def call_api(n: int) -> None: ...


@pool.job(fair_by="source", limits=[Concurrency(1, by="source")])
def transcode(video: int, tenant: str) -> None:
    order.append(tenant)


if __name__ == "__main__":
    pool.enqueuer.enqueue_many("call_slow_service", [{"n": n} for n in range(10)])
    pool.enqueuer.enqueue_many("call_api", [{"n": n} for n in range(10)])
    for tenant, videos in (("acme", 20), ("zeta", 2)):
        for video in range(videos):
            transcode.using(source=tenant).enqueue(video=video, tenant=tenant)
    with pool:
        while len(order) < 22:
            time.sleep(0.01)
        pool.drain()
    print("at most", most, "calls at once")
    print("zeta did not wait for acme:", order.index("zeta") < 5)

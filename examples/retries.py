"""How attempts end: `python examples/retries.py`."""

import threading

from dayjob import Discard, Job, Snooze, WorkerPool

pool = WorkerPool(namespace="example-retries", concurrency=1)
ended = threading.Semaphore(0)


def buried(job: Job, error: BaseException) -> None:
    print("order", job.get_int("order"), "is dead after", job.fails, "fails:", error)
    ended.release()


def dropped(job: Job, why: str) -> None:
    print("order", job.get_int("order"), "is discarded:", why)
    ended.release()


@pool.job(max_fails=2, backoff=0.2, on_dead=buried, on_discard=dropped)
def pay(job: Job, order: int) -> None:
    if order == 1:
        raise ConnectionError("the bank does not answer")
    if order == 2:
        raise Discard("was paid already")
    if order == 3 and job.snoozes == 0:
        raise Snooze("the bank opens soon", after=0.2)
    print("order", order, "is paid in attempt", job.attempt)
    ended.release()


if __name__ == "__main__":
    for number in (1, 2, 3):
        pay.enqueue(order=number)
    with pool:
        for _ in range(3):
            ended.acquire(timeout=20)

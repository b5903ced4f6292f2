"""A job and what it enqueues, all or nothing: `python examples/atomic.py`."""

import threading

from dayjob import Job, WorkerPool

pool = WorkerPool(namespace="example-atomic", concurrency=1)
imported = threading.Semaphore(0)


@pool.job(atomic=True, backoff=0)
def import_file(job: Job, rows: int) -> None:
    for number in range(rows):
        import_row.enqueue(number=number, attempt=job.attempt)
        if job.attempt == 1 and number == 1:
            raise ConnectionError("the rest of the file could not be read")


@pool.job
def import_row(number: int, attempt: int) -> None:
    print("row", number, "of attempt", attempt)
    imported.release()


if __name__ == "__main__":
    import_file.enqueue(rows=3)
    with pool:
        for _ in range(3):
            imported.acquire(timeout=20)

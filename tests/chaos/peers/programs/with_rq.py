"""RQ: a worker that forks for every job; jobs with retries, short monitoring and maintenance intervals."""

from __future__ import annotations

import sys

from redis import Redis
from rq import Queue, Retry, Worker

from contract import LEASE, URL, handle, produce


def job(number: int) -> None:
    handle(number)


if __name__ == "__main__":
    connection = Redis.from_url(URL)
    queue = Queue("faults", connection=connection)
    if sys.argv[1] == "enqueue":
        produce(
            lambda number: queue.enqueue(
                "with_rq.job", number, retry=Retry(max=20), job_timeout=LEASE, result_ttl=0
            )
        )
    else:
        Worker(
            [queue], connection=connection, worker_ttl=LEASE * 3, job_monitoring_interval=1, maintenance_interval=LEASE
        ).work(logging_level="WARNING")  # fmt: skip

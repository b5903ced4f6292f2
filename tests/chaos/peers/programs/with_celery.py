"""Celery: acknowledged late, rejected when a worker is lost, one message ahead, a short visibility timeout."""

from __future__ import annotations

import os
import sys

from celery import Celery

from contract import CONCURRENCY, LEASE, URL, handle, produce

app = Celery("faults", broker=URL + "/0")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": LEASE},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
)


@app.task(name="job")
def job(number: int) -> None:
    handle(number)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        produce(job.delay)
    else:
        command = [
            "-m",
            "celery",
            "-A",
            "with_celery",
            "worker",
            "-P",
            "prefork",
            "-c",
            str(CONCURRENCY),
            "-l",
            "WARNING",
        ]
        os.execv(sys.executable, [sys.executable, *command, "-n", f"w{os.getpid()}@%h"])  # noqa: S606 - it becomes the worker

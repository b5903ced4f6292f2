"""Celery under the contract of contract.py. usual: prefork; threads; best: solo, without gossip, mingle and events."""

from __future__ import annotations

import os
import sys

from celery import Celery

from contract import CONCURRENCY, CONFIG, NAMES, PACE, RULES, URL, enqueue, handle

app = Celery("bench", broker=URL + "/0")
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=CONFIG != "best",
)


def job(i: int) -> None:
    handle(i)


for name in NAMES:
    # Its limit holds for each worker process apart, not over all.
    app.task(name=name, rate_limit=f"{PACE}/s" if RULES == "paced" else None)(job)

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        tasks = {name: app.tasks[name] for name in NAMES}
        enqueue(lambda name, i: tasks[name].delay(i))
    else:
        pool = {"usual": "prefork", "threads": "threads", "best": "solo"}[CONFIG]
        lean = ["--without-gossip", "--without-mingle", "--without-heartbeat"] if CONFIG == "best" else []
        command = [
            "-m",
            "celery",
            "-A",
            "program",
            "worker",
            "-P",
            pool,
            "-c",
            str(CONCURRENCY),
            "-l",
            "WARNING",
        ]
        os.execv(sys.executable, [sys.executable, *command, *lean])

"""Celery under the contract of contract.py. usual: prefork; threads; best: solo, without gossip, mingle and events."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any

from celery import Celery

from contract import CONCURRENCY, CONFIG, DUE, NAMES, PACE, PATH, RULES, URL, Wrong, enqueue, first_run, take

app = Celery("bench", broker=URL + "/0", backend=URL + "/0" if PATH == "keep" else None)
app.conf.update(
    task_ignore_result=PATH != "keep",
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=CONFIG != "best",
)


def job(i: int) -> int:
    return take(i)


def parent(i: int) -> None:
    first_run(i)
    app.tasks["child"].delay(i)


HOW: dict[str, dict[str, Any]] = {
    "retry": {"autoretry_for": (Wrong,), "retry_kwargs": {"countdown": 0, "max_retries": 1}}
}
for name in NAMES:
    # Its limit holds for each worker process apart, not over all.
    limit = f"{PACE}/s" if RULES == "paced" else None
    app.task(name=name, rate_limit=limit, **HOW.get(PATH, {}))(parent if PATH == "nested" else job)
app.task(name="child")(job)

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        tasks = {name: app.tasks[name] for name in NAMES}
        how = {"eta": datetime.fromtimestamp(DUE, UTC)} if PATH == "scheduled" else {}
        enqueue(lambda name, i: tasks[name].apply_async((i,), **how))
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

"""RQ under the contract of contract.py. usual: Worker, which forks for every job; best: SimpleWorker, no results kept."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker, Worker

from contract import CONFIG, DUE, PATH, URL, enqueue, first_run, take


def job0(i: int) -> int:
    return take(i)


def job1(i: int) -> int:
    return take(i)


def job2(i: int) -> int:
    return take(i)


def job3(i: int) -> int:
    return take(i)


def job4(i: int) -> int:
    return take(i)


def parent(i: int) -> None:
    first_run(i)
    Queue("bench", connection=Redis.from_url(URL)).enqueue("program.job0", i, **KEEP)


#: Without results and failures that are kept, as its best setting has it, unless the path is about them.
KEEP: dict[str, Any] = {"result_ttl": 0} if CONFIG == "best" and PATH != "keep" else {}

if __name__ == "__main__":
    connection = Redis.from_url(URL)
    queue = Queue("bench", connection=connection)
    if sys.argv[1] == "enqueue" and PATH:
        how = {**KEEP, **({"retry": Retry(max=1)} if PATH == "retry" else {})}
        due = datetime.fromtimestamp(DUE, UTC)
        path = {"nested": "parent"}.get(PATH)
        if PATH == "scheduled":
            enqueue(lambda name, i: queue.enqueue_at(due, f"program.{name}", i, **how))
        else:
            enqueue(lambda name, i: queue.enqueue(f"program.{path or name}", i, **how))
    elif sys.argv[1] == "enqueue":
        enqueue(
            lambda name, i: queue.enqueue(f"program.{name}", i, **KEEP),
            lambda name, batch: queue.enqueue_many(
                [Queue.prepare_data(f"program.{name}", (i,), **KEEP) for i in batch]
            ),
        )
    else:
        logging.disable(logging.INFO)
        kind = SimpleWorker if CONFIG == "best" else Worker
        kind([queue], connection=connection).work(logging_level="WARNING", with_scheduler=PATH == "scheduled")

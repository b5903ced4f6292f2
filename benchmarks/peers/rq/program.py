"""RQ under the contract of contract.py. usual: Worker, which forks for every job; best: SimpleWorker, no results kept."""

from __future__ import annotations

import logging
import sys

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from contract import CONFIG, URL, enqueue, handle


def job0(i: int) -> None:
    handle(i)


def job1(i: int) -> None:
    handle(i)


def job2(i: int) -> None:
    handle(i)


def job3(i: int) -> None:
    handle(i)


def job4(i: int) -> None:
    handle(i)


if __name__ == "__main__":
    connection = Redis.from_url(URL)
    queue = Queue("bench", connection=connection)
    keep = {"result_ttl": 0} if CONFIG == "best" else {}
    if sys.argv[1] == "enqueue":
        enqueue(
            lambda name, i: queue.enqueue(f"program.{name}", i, **keep),
            lambda name, batch: queue.enqueue_many(
                [Queue.prepare_data(f"program.{name}", (i,), **keep) for i in batch]
            ),
        )
    else:
        logging.disable(logging.INFO)
        kind = SimpleWorker if CONFIG == "best" else Worker
        kind([queue], connection=connection).work(logging_level="WARNING")

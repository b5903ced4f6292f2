"""dayjob itself, by its public face. `work` runs one pool, or several where BENCH_POOLS says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

from contract import (
    CONCURRENCY,
    CONFIG,
    DUE,
    LONG,
    NAMES,
    PACE,
    PATH,
    RULES,
    URL,
    aenqueue,
    ahandle,
    atake,
    enqueue,
    first_run,
    handle,
    take,
)
from dayjob import Concurrency, Job, Rate, WorkerPool

POOLS = int(os.environ.get("BENCH_POOLS", "1"))


def job(i: int) -> None:
    handle(i)


async def async_job(i: int) -> None:
    await ahandle(i)


def keyed_job(i: int, key: str) -> None:
    handle(i)


#: What the job names have by RULES. The rate of "rate" is one that no machine reaches.
LIMITS: dict[str, dict[str, Any]] = {
    "rate": {"limits": [Rate(1_000_000, per=1)]},
    "concurrency": {"limits": [Concurrency(CONCURRENCY)]},
    "paced": {"limits": [Rate(PACE, per=1, burst=10)]},
    "one key": {"fair_by": "key"},
    "1000 keys": {"fair_by": "key"},
    "1000 keys with a rate": {"limits": [Rate(1_000_000, per=1, by="key")]},
    "1000 keys with a limit": {"limits": [Concurrency(CONCURRENCY, by="key")]},
}
#: How many keys the jobs of each name have by RULES.
KEYS = {rules: 1000 for rules in LIMITS if rules.startswith("1000 keys")}


#: The options of the job names by PATH.
OPTIONS: dict[str, dict[str, Any]] = {
    "raises": {"max_fails": 1},
    "retry": {"max_fails": 2, "backoff": 0},
    "limited": {"max_concurrency": 5},
    "timeout": {"timeout": 60},
    "keep": {"keep": 60},
    "atomic": {"atomic": True},
}


class Context:
    """What the handlers of the path "middleware" get."""


def around(job: Job) -> Generator[None]:
    yield


def around_context(ctx: Context) -> Generator[None]:
    yield


def new_pool() -> WorkerPool[Any]:
    if PATH == "django":
        pool = django_pool()
    else:
        pool = WorkerPool(namespace="bench", redis=URL, concurrency=CONCURRENCY, context=Context)
    run = handler(pool)
    for name in NAMES:
        pool.register(name, run, **LIMITS.get(RULES, {}), **OPTIONS.get(PATH, {}))
    if RULES == "beside":
        pool.register("beside", job, limits=[Rate(1, per=1)])
    if PATH == "middleware":
        pool.middleware(around)
        pool.middleware(around_context)
    return pool


def django_pool() -> WorkerPool[Any]:
    """The pool of a Django project, which closes connections around jobs."""
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        project = {"NAMESPACE": "bench", "REDIS": URL, "CONCURRENCY": CONCURRENCY}
        settings.configure(INSTALLED_APPS=["dayjob.django"], DATABASES={"default": database}, DAYJOB=project)
    from dayjob.django import pool

    return pool


def handler(pool: WorkerPool[Any]) -> Callable[..., Any]:
    """What the job names run."""
    if PATH in ("nested", "atomic"):
        child = pool.register("child", job)

        def parent(i: int) -> None:
            first_run(i)
            child.enqueue(i=i)

        return parent
    if PATH == "payload":
        return with_text
    if PATH == "middleware":
        return with_everything
    if PATH in ("raises", "retry", "keep"):
        return atake if CONFIG == "async" else take
    if RULES and RULES != "paced":
        return keyed_job
    return async_job if CONFIG == "async" else job


def arguments(i: int) -> dict[str, Any]:
    """The arguments of job `i`. All rows of L have a key, so that they differ in their rules only."""
    if PATH == "payload":
        return {"i": i, "text": LONG}
    if RULES and RULES != "paced":
        return {"i": i, "key": f"key{i // len(NAMES) % KEYS.get(RULES, 1)}"}
    return {"i": i}


def with_text(i: int, text: str) -> None:
    handle(i)


def with_everything(ctx: Context, job: Job, i: int) -> None:
    handle(i)


def send() -> None:
    pool = new_pool()
    # Loads the Redis client before the first job is timed. The other systems do so when they are imported.
    enqueuer = pool.enqueuer
    types = {name: pool.find(name) for name in NAMES}
    if PATH == "unique":
        enqueue(lambda name, i: types[name].enqueue_unique(i=i))
    elif PATH == "outbox":
        send_in_transactions()
    elif PATH == "scheduled":
        due = datetime.fromtimestamp(DUE, UTC)
        enqueue(lambda name, i: types[name].enqueue_at(due, i=i))
    else:
        if RULES:
            # In a system that runs, the rules are in Redis before the jobs, so that these go straight to their keys.
            with pool:
                pass
        enqueue(
            lambda name, i: types[name].enqueue(**arguments(i)),
            lambda name, batch: enqueuer.enqueue_many(name, [arguments(i) for i in batch]),
        )


def send_in_transactions() -> None:
    """Enqueue each job in a transaction of its own, in a file of SQLite: a row, the commit, the send and its mark."""
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    from dayjob.outbox import Outbox

    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.sqlite3")
        outbox = Outbox(engine)
        outbox.create_tables()
        pool = WorkerPool(namespace="bench", redis=URL, outbox=outbox)
        types = {name: pool.register(name, job) for name in NAMES}

        def one(name: str, i: int) -> None:
            with Session(engine) as session, session.begin():
                types[name].using(session=session).enqueue(i=i)

        enqueue(one)
        engine.dispose()


async def asend() -> None:
    pool = new_pool()
    enqueuer = pool.async_enqueuer
    types = {name: pool.find(name) for name in NAMES}
    await aenqueue(
        lambda name, i: types[name].aenqueue(i=i),
        lambda name, batch: enqueuer.enqueue_many(name, [{"i": i} for i in batch]),
    )


def work() -> None:
    if POOLS == 1:
        new_pool().run()
        return
    pools = [new_pool() for _ in range(POOLS)]
    for pool in pools:
        pool.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for pool in pools:
        pool.stop(1)


#: The pool for the row that starts `dayjob worker`.
app = new_pool()

if __name__ == "__main__":
    if sys.argv[1] == "work":
        if POOLS > 1:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        work()
    elif CONFIG == "async":
        asyncio.run(asend())
    else:
        send()

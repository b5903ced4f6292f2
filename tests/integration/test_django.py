"""Django's transactions in async code: a job is sent at the commit, from the thread that Django keeps for it."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import asyncio, json, sys

import django
from asgiref.sync import sync_to_async
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()

from django.db import transaction

from dayjob import WorkerPool
from dayjob.store.op import Op

pool = WorkerPool(namespace=sys.argv[2], redis=sys.argv[1], on_commit=transaction.on_commit)


@pool.job
def mail(n: int) -> None: ...


def waiting() -> int:
    return pool.enqueuer.run(Op("LLEN", (f"{sys.argv[2]}:jobs:mail",), (), int))


async def inside(how: str) -> list[int]:
    '''How many jobs wait before and after the end of a transaction that async code opened.'''
    atomic = transaction.atomic()
    await sync_to_async(atomic.__enter__)()
    await mail.aenqueue(1)
    await pool.async_enqueuer.enqueue_many("mail", [{"n": 2}, {"n": 3}])
    counts = [waiting()]
    if how == "rollback":
        await sync_to_async(transaction.set_rollback)(True)
    await sync_to_async(atomic.__exit__)(None, None, None)
    return [*counts, waiting()]


async def view() -> dict[str, list[int]]:
    found = {"rollback": await inside("rollback"), "commit": await inside("commit")}
    await mail.aenqueue(4)
    found["without"] = [waiting()]
    await pool.async_enqueuer.close()
    return found


print(json.dumps(asyncio.run(view())))
"""


def test_a_job_of_async_django_code_is_sent_at_the_commit(redis_url, namespace):
    found = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT, redis_url, namespace]))
    assert found == {"rollback": [0, 0], "commit": [0, 3], "without": [4]}

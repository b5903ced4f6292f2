"""The outbox of a Django project: rows of Django's own transactions, relayed by its workers."""

from __future__ import annotations

import pytest

from django_shop import Shop
from server import free_port, wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shop(tmp_path, postgres, redis_url, namespace) -> Shop:
    found = Shop(tmp_path, postgres.database(), redis_url, namespace)
    with (found.folder / "shop" / "settings.py").open("a") as settings:
        settings.write('\nDAYJOB["OUTBOX"] = True\n')
    yield found
    found.close()


PLACE = """
from django.db import transaction
from orders.jobs import ship
from orders.models import Order
with transaction.atomic():
    ship.enqueue(Order.objects.create(email="ada@example.com").pk)
try:
    with transaction.atomic():
        ship.enqueue(Order.objects.create(email="eve@example.com").pk)
        raise KeyError
except KeyError:
    print("placed")
"""


def test_a_commit_succeeds_without_redis_and_a_worker_sends_the_job_later(shop):
    there = shop.env["DAYJOB_REDIS_URL"]
    shop.env["DAYJOB_REDIS_URL"] = f"redis://127.0.0.1:{free_port()}"
    shop.python(PLACE)
    assert shop.rows("SELECT name, sent FROM dayjob_outbox") == [("orders.ship", None)]
    shop.env["DAYJOB_REDIS_URL"] = there
    with shop.worker():
        wait_until(lambda: shop.rows("SELECT * FROM mail_message"))
    assert shop.rows("SELECT email, shipped FROM orders_order") == [("ada@example.com", True)]
    assert shop.rows("SELECT COUNT(*) FROM dayjob_outbox WHERE sent IS NULL") == [(0,)]
    shop.manage("dayjob", "relay", "--once")


def test_the_writer_sends_at_once_after_its_commit(shop):
    shop.python(PLACE)
    assert shop.rows("SELECT name, sent IS NOT NULL FROM dayjob_outbox") == [("orders.ship", True)]
    assert [one["name"] for one in shop.read("jobs", "ls", "--state", "waiting")["jobs"]] == ["orders.ship"]


def test_async_code_once_and_the_projects_own_tests(shop):
    code = """
import asyncio
from asgiref.sync import sync_to_async
from django.db import transaction
from dayjob import Discard, Job
from dayjob.django import pool
from orders.jobs import ship
from dayjob.django.models import OutboxEntry

def waiting():
    from dayjob.store.op import plain
    return pool.enqueuer.run(plain("LLEN", pool.enqueuer._builder.keys.queue("orders.ship")))

async def main():
    counts = []
    for rollback in (True, False):
        atomic = transaction.atomic()
        await sync_to_async(atomic.__enter__)()
        await ship.aenqueue(1)
        counts.append(waiting())
        await sync_to_async(transaction.set_rollback)(rollback)
        await sync_to_async(atomic.__exit__)(None, None, None)
        counts += [waiting(), await OutboxEntry.objects.acount()]
    await ship.aenqueue(2)
    counts += [waiting(), await OutboxEntry.objects.acount()]
    await pool.async_enqueuer.close()
    return counts

counts = asyncio.run(main())
job, seen = Job("x"), []
for _ in range(2):
    try:
        with transaction.atomic():
            job.once()
            seen.append("did it")
    except Discard:
        seen.append("discarded")
try:
    job.once()
except Exception as error:
    seen.append(str(error)[:40])
print(counts, seen)
"""
    assert shop.python(code) == (
        "[0, 0, 0, 0, 1, 1, 2, 1] ['did it', 'discarded', 'job.once() is part of a transaction: wri']"
    )
    assert "OK" in shop.manage("test")
    assert "No changes detected" in shop.manage("makemigrations", "--check", "--dry-run")


TASKS = """
try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task
from mail.models import Message

@task
def greet(name):
    Message.objects.create(to=f"{name}@example.com", subject="Hello")
    return name
"""

GREET = """
from django.db import transaction
from orders.tasks import greet
with transaction.atomic():
    greet.enqueue("ada")
try:
    with transaction.atomic():
        greet.enqueue("eve")
        raise KeyError
except KeyError:
    print("placed")
"""


def test_a_task_is_a_row_of_its_transaction_too(shop):
    with (shop.folder / "shop" / "settings.py").open("a") as settings:
        settings.write(
            "import django\nINSTALLED_APPS += [name for name in ['django_tasks'] if django.VERSION < (6,)]\n"
            "TASKS = {'default': {'BACKEND': 'dayjob.django.tasks.DayjobBackend'}}\n"
        )
    (shop.folder / "orders" / "tasks.py").write_text(TASKS)
    there = shop.env["DAYJOB_REDIS_URL"]
    shop.env["DAYJOB_REDIS_URL"] = f"redis://127.0.0.1:{free_port()}"
    shop.python(GREET)
    assert shop.rows("SELECT name, sent FROM dayjob_outbox") == [("orders.tasks.greet", None)]
    shop.env["DAYJOB_REDIS_URL"] = there
    shop.python(GREET)
    ids = [one for (one,) in shop.rows("SELECT id FROM dayjob_outbox")]
    read = f"from orders.tasks import greet\nprint(*[greet.get_result(one).status for one in {ids}])"
    with shop.worker():
        wait_until(lambda: len(shop.rows("SELECT * FROM mail_message")) == 2)
        wait_until(lambda: shop.python(read) == "SUCCESSFUL SUCCESSFUL")
        wait_until(lambda: shop.rows("SELECT COUNT(*) FROM dayjob_outbox WHERE sent IS NULL") == [(0,)])

"""`dayjob.django.tasks`: the tasks of Django 6, and of the package django-tasks, run by real workers."""

from __future__ import annotations

import textwrap

import django
import pytest

from django_shop import Shop
from proxy import BEFORE, PASS, Fault, proxied

pytestmark = pytest.mark.timeout(600)

API = """
try:
    import django.tasks as api
    from django.tasks.base import TaskContext
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ModuleNotFoundError:
    import django_tasks as api
    from django_tasks.base import TaskContext
    from django_tasks.exceptions import (
        InvalidTaskBackendError as InvalidTaskBackend, InvalidTaskError as InvalidTask, TaskResultDoesNotExist, TaskResultMismatch,
    )
    from django_tasks.signals import task_enqueued, task_finished, task_started
task, TaskResultStatus = api.task, api.TaskResultStatus
"""

TASKS = (
    API
    + """
import asyncio, sys, time

from django.dispatch import receiver
from mail.models import Message
from orders.models import Order


@task
def add(a, b=1):
    return a + b


@task(queue_name="mails", priority=50)
async def slow_add(a, b):
    return {"sum": [a, b], "count": await Order.objects.acount()}


@task
def fail(text):
    raise ValueError(f"no {text}")


@task
def leave():
    sys.exit(3)


@task
def interrupt():
    raise KeyboardInterrupt


@task
def odd_result():
    return object()


@task(takes_context=True)
def attempts(context, least):
    if context.attempt < least:
        raise ConnectionError("not yet")
    return [context.attempt, context.task_result.id]


@task(takes_context=True)
async def async_context(context):
    return context.task_result.task.queue_name


@task
def hold(key):
    order = Order.objects.create(email=f"{key}@began.example")
    while not Order.objects.filter(email=f"{key}@go.example").exists():
        time.sleep(0.02)
    return order.pk


@task(timeout=0.5)
def too_slow():
    while True:
        time.sleep(0.02)


@task(timeout=0.5)
async def too_slow_async():
    await asyncio.sleep(600)


@task(retry_on=asyncio.CancelledError)
async def endless(key):
    await Order.objects.acreate(email=f"{key}@began.example")
    await asyncio.sleep(600)


@task
def sum_all(*numbers, **more):
    return sum(numbers) + sum(more.values())


@receiver([task_started, task_finished])
def record(sender, task_result, signal, **_):
    kind = "started" if signal is task_started else "finished"
    if task_result.task.name in ("add", "slow_add", "fail"):
        Message.objects.create(to=f"{task_result.id}@x.example", subject=f"{kind} {task_result.status} {sender.__name__}")
"""
)

TESTS = (
    API
    + """
import asyncio, dataclasses, pickle, time
from datetime import datetime, timedelta
from unittest import mock

from django.db import connection, transaction
from django.test import SimpleTestCase
from django.utils import timezone

from dayjob import Admin
from dayjob.django import pool
from dayjob.errors import JobTimeout
from dayjob.django.tasks import DayjobBackend
from mail.models import Message
from orders import tasks
from orders.models import Order


def ended(result):
    '''Wait for the end of a task.'''
    deadline = time.monotonic() + 60
    while not result.is_finished:
        assert time.monotonic() < deadline, result
        time.sleep(0.01)
        result.refresh()
    return result


class BackendTests(SimpleTestCase):
    databases = ["default"]

    def test_a_task_runs_and_its_result_is_kept(self):
        result = tasks.add.enqueue(2, b=3)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertIsNotNone(result.enqueued_at)
        self.assertEqual((result.args, result.kwargs, result.backend), ([2], {"b": 3}, "default"))
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            api.task_backends["default"].get_result(tasks.hold.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("x").id).return_value
        ended(result)
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(result.return_value, 5)
        self.assertEqual(result.attempts, 1)
        self.assertEqual(result.errors, [])
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.last_attempted_at, result.started_at)
        again = tasks.add.get_result(result.id)
        self.assertEqual(again.return_value, 5)
        self.assertEqual(again.task, tasks.add)

    def test_an_async_task_runs_with_its_queue_and_priority(self):
        result = ended(tasks.slow_add.enqueue(1, 2))
        self.assertEqual(result.return_value["sum"], [1, 2])
        found = tasks.slow_add.get_result(result.id)
        self.assertEqual((found.task.queue_name, found.task.priority), ("mails", 50))
        self.assertEqual(ended(tasks.async_context.using(queue_name="mails").enqueue()).return_value, "mails")

    def test_async_code_enqueues_and_reads(self):
        async def main():
            result = await tasks.add.aenqueue(1)
            while not result.is_finished:
                await asyncio.sleep(0.01)
                await result.arefresh()
            found = await tasks.add.aget_result(result.id)
            with self.assertRaises(TaskResultDoesNotExist):
                await tasks.add.aget_result("nothing")
            return found.return_value

        self.assertEqual(asyncio.run(main()), 2)

    def test_a_failure_has_its_class_and_its_traceback(self):
        result = ended(tasks.fail.enqueue("luck"))
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[0].exception_class, ValueError)
        self.assertIn("no luck", result.errors[0].traceback)
        self.assertIn("Traceback", result.errors[0].traceback)
        self.assertIsNotNone(result.finished_at)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            result.return_value

    def test_the_traceback_of_the_job_begins_in_the_project(self):
        result = ended(tasks.fail.enqueue("luck"))
        with Admin(pool.namespace, redis=pool.redis) as admin:
            # The record is written before the job is dead.
            deadline = time.monotonic() + 60
            while (job := admin.job(result.id).job).state != "dead":
                assert time.monotonic() < deadline
                time.sleep(0.01)
        self.assertIn("tasks.py", job.trace.splitlines()[1])
        self.assertNotIn("middleware.py", job.trace)

    def test_a_result_that_ends_while_it_is_read_is_not_taken_for_a_crash(self):
        result = tasks.hold.enqueue("three")
        self.began("three")

        def find_dead(record):
            Order.objects.create(email="three@go.example")
            with mock.patch("dayjob.django.tasks._is_dead", return_value=False):
                ended(result)
            return True

        with mock.patch("dayjob.django.tasks._is_dead", find_dead):
            found = tasks.hold.get_result(result.id)
        self.assertEqual((found.status, found.errors), (TaskResultStatus.SUCCESSFUL, []))

    def test_whatever_a_task_raises_ends_only_the_task(self):
        for one, kind in ((tasks.leave, SystemExit), (tasks.interrupt, KeyboardInterrupt), (tasks.odd_result, TypeError)):
            result = ended(one.enqueue())
            self.assertEqual(result.status, TaskResultStatus.FAILED)
            self.assertIs(result.errors[-1].exception_class, kind)

    def test_a_task_that_is_retried_has_all_its_errors(self):
        result = ended(tasks.attempts.enqueue(least=3))
        self.assertEqual(result.return_value, [3, result.id])
        self.assertEqual(result.attempts, 3)
        self.assertEqual([one.exception_class for one in result.errors], [ConnectionError, ConnectionError])
        self.assertLess(result.started_at, result.last_attempted_at)

    def test_a_task_that_takes_too_long_has_failed_by_its_timeout(self):
        for one in (tasks.too_slow, tasks.too_slow_async):
            result = ended(one.enqueue())
            self.assertEqual(result.status, TaskResultStatus.FAILED)
            self.assertEqual([error.exception_class for error in result.errors], [JobTimeout])

    def test_a_task_that_an_operator_cancels_has_failed(self):
        result = tasks.endless.enqueue("two")
        self.began("two")
        with Admin(pool.namespace, redis=pool.redis) as admin:
            admin.cancel(result.id)
        self.assertEqual(ended(result).status, TaskResultStatus.FAILED)

    def began(self, key):
        deadline = time.monotonic() + 60
        while not Order.objects.filter(email=f"{key}@began.example").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_a_running_task_is_running(self):
        result = tasks.hold.enqueue("one")
        self.began("one")
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.RUNNING)
        self.assertIsNotNone(result.started_at)
        self.assertIsNone(result.finished_at)
        self.assertEqual(len(result.worker_ids), 1)
        Order.objects.create(email="one@go.example")
        self.assertEqual(ended(result).status, TaskResultStatus.SUCCESSFUL)

    def test_a_deferred_task_waits(self):
        later = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=later).enqueue(1)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual(pool.enqueuer.state(result.id), "scheduled")
        self.assertEqual(tasks.add.get_result(result.id).task.run_after.timestamp(), later.timestamp())
        soon = ended(tasks.add.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue(1))
        self.assertGreaterEqual(soon.started_at, soon.task.run_after)

    def test_priorities_are_bands_with_queues_of_their_own(self):
        later = timezone.now() + timedelta(hours=1)
        for priority, name in ((100, "orders.tasks.add@high"), (34, "orders.tasks.add@high"), (33, "orders.tasks.add"),
                               (0, "orders.tasks.add"), (-33, "orders.tasks.add"), (-34, "orders.tasks.add@low")):
            result = tasks.add.using(priority=priority, run_after=later).enqueue(1)
            from dayjob.store.ops.find import find_job
            from dayjob.store.keys import Keys
            from dayjob.store.link import walk
            found = walk(pool.enqueuer.sender, find_job(Keys(pool.namespace), result.id))
            self.assertEqual(found.name, name)
        for name in ("orders.tasks.add", "orders.tasks.add@high", "orders.tasks.add@low"):
            self.assertIn(name, pool.registry)
        self.assertEqual(ended(tasks.add.using(priority=100).enqueue(1)).return_value, 2)
        self.assertEqual(ended(tasks.add.using(priority=-100).enqueue(1)).return_value, 2)

    def test_wrong_tasks_are_refused(self):
        with self.assertRaises(InvalidTask):
            tasks.add.using(queue_name="nowhere")
        with self.assertRaises(InvalidTask):
            tasks.add.using(priority=101)
        with self.assertRaises(InvalidTask):
            task()(lambda: None)
        with self.assertRaises(TypeError):
            tasks.add.enqueue(object())
        with self.assertRaises(TaskResultDoesNotExist):
            api.task_backends["default"].get_result("nothing")
        with self.assertRaises(TaskResultMismatch):
            tasks.fail.get_result(tasks.add.enqueue(1).id)

    def test_results_are_equal_however_they_are_read(self):
        result = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, b=2)
        before = dataclasses.asdict(result)
        result.refresh()
        asyncio.run(result.arefresh())
        self.assertEqual(dataclasses.asdict(result), before)
        self.assertEqual(tasks.add.get_result(result.id), result)
        done = ended(tasks.add.enqueue(1))
        self.assertEqual(tasks.add.get_result(done.id), done)
        self.assertEqual(done.task, tasks.add)
        if hasattr(type(tasks.add), "_reconstruct"):
            self.assertEqual(pickle.loads(pickle.dumps(done)), done)

        async def other():
            await tasks.fail.aget_result(done.id)

        with self.assertRaises(TaskResultMismatch):
            asyncio.run(other())

    def test_using_makes_another_task_and_checks_it(self):
        self.assertEqual(tasks.add.using(), tasks.add)
        self.assertIsNot(tasks.add.using(), tasks.add)
        with self.assertRaises(InvalidTaskBackend):
            tasks.add.using(backend="unknown")
        for wrong in ({"run_after": datetime.now()}, {"priority": 3.1}, {"priority": -101}):
            with self.assertRaises(InvalidTask):
                tasks.add.using(**wrong)
        with self.assertRaises(InvalidTask):
            task(takes_context=True)(tasks.add.func)
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            asyncio.run(tasks.add.aenqueue(datetime.now()))
        mails = tasks.add.using(queue_name="mails")
        with self.settings(TASKS={"default": {"BACKEND": "dayjob.django.tasks.DayjobBackend", "QUEUES": ["one"]}}):
            with self.assertRaises(InvalidTask):
                mails.enqueue(1)
            with self.assertRaises(InvalidTask):
                asyncio.run(mails.aenqueue(1))

    def test_a_task_can_be_called_without_a_worker(self):
        self.assertEqual(tasks.add.call(1), 2)
        self.assertEqual(asyncio.run(tasks.add.acall(1)), 2)

    def test_the_traceback_of_a_failure_ends_with_its_words_and_names_only_exceptions(self):
        result = ended(tasks.fail.enqueue("luck"))
        self.assertTrue(result.errors[0].traceback.endswith("ValueError: no luck\\n"), result.errors[0].traceback)
        object.__setattr__(result.errors[0], "exception_class_path", "subprocess.run")
        with self.assertRaises(ValueError):
            result.errors[0].exception_class

    def test_arguments_of_any_shape_pass(self):
        self.assertEqual(ended(tasks.sum_all.enqueue(1, 2, job=3, args=4, queue=5)).return_value, 15)

    def test_a_task_can_be_pickled(self):
        if hasattr(type(tasks.add), "_reconstruct"):
            self.assertEqual(pickle.loads(pickle.dumps(tasks.add)), tasks.add)

    def test_a_task_is_sent_at_the_commit(self):
        try:
            with transaction.atomic():
                lost = tasks.add.enqueue(1)
                raise KeyError
        except KeyError:
            pass
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(lost.id)
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
        self.assertEqual(ended(kept).return_value, 2)

    def test_signals_are_sent_where_things_happen(self):
        seen = []
        task_enqueued.connect(lambda sender, task_result, **_: seen.append((sender, task_result.id)), weak=False)
        for one, args, status in ((tasks.add, [1], "SUCCESSFUL"), (tasks.slow_add, [1, 2], "SUCCESSFUL"), (tasks.fail, ["x"], "FAILED")):
            result = ended(one.enqueue(*args))
            self.assertIn((DayjobBackend, result.id), seen)
            deadline = time.monotonic() + 60
            while Message.objects.filter(to=f"{result.id}@x.example").count() < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            subjects = list(Message.objects.filter(to=f"{result.id}@x.example").order_by("pk").values_list("subject", flat=True))
            self.assertEqual(subjects, ["started RUNNING DayjobBackend", f"finished {status} DayjobBackend"])

    def test_a_task_is_found_behind_more_than_ten_thousand_others(self):
        first = tasks.hidden.enqueue(1)
        # The tasks before it in its own queue are more than a search goes through.
        from dayjob.django.tasks import _types
        _types.enqueuer().enqueue_many("orders.tasks.hidden", [{"args": [], "kwargs": {}, "queue": "default", "priority": 0}] * 10_100)
        last = tasks.hidden.enqueue(2)
        for result in (first, last):
            result.refresh()
            self.assertEqual(result.status, TaskResultStatus.READY)


class OtherPathTests(SimpleTestCase):
    def test_a_record_that_names_no_task_is_refused(self):
        from django.core.exceptions import SuspiciousOperation
        from dayjob.django.task_records import task_at
        for path in ("os.system", "orders.models.Order", "no.such"):
            with self.assertRaises(SuspiciousOperation):
                task_at(path)
"""
)

SETTINGS = """
INSTALLED_APPS += [name for name in ["django_tasks"] if django.VERSION < (6,)]
TASKS = {
    "default": {
        "BACKEND": "dayjob.django.tasks.DayjobBackend", "QUEUES": ["default", "mails"],
        "OPTIONS": {"max_fails": 3, "retry_on": ConnectionError, "backoff": 0.01, "keep": 3600},
    }
}
"""


@pytest.fixture
def shop(tmp_path, postgres, redis_url, namespace) -> Shop:
    found = Shop(tmp_path, postgres.database(), redis_url, namespace)
    with (found.folder / "shop" / "settings.py").open("a") as settings:
        settings.write("\nimport django\n" + textwrap.dedent(SETTINGS))
    (found.folder / "orders" / "tasks.py").write_text(textwrap.dedent(TASKS))
    yield found
    found.close()


def test_the_backend_does_what_django_says_of_tasks(shop):
    """The database of the tests must be that of the worker, so the test runner makes none."""
    (shop.folder / "orders" / "live.py").write_text(textwrap.dedent(TESTS))
    (shop.folder / "shop" / "runner.py").write_text(
        "from django.test.runner import DiscoverRunner\n\n\nclass Runner(DiscoverRunner):\n"
        "    def setup_databases(self, **kwargs):\n        return []\n\n"
        "    def teardown_databases(self, old, **kwargs): ...\n"
    )
    with (shop.folder / "orders" / "tasks.py").open("a") as tasks:
        # The worker does not know this one, so what is enqueued for it waits.
        tasks.write("\nimport os\n\nif 'SHOP_HIDDEN' in os.environ:\n    @task\n    def hidden(n): ...\n")
    with shop.worker():
        shop.env["SHOP_HIDDEN"] = "1"
        out = shop.manage("test", "orders.live", "--testrunner", "shop.runner.Runner")
    assert "Ran 24 tests" in out
    assert "OK" in out


RUN_BOTH = """
from orders.tasks import add, slow_add
import time
found = [add.using(queue_name="mails").enqueue(2, b=3), slow_add.enqueue(1, 2)]
deadline = time.monotonic() + 120
while not all(result.is_finished for result in found):
    assert time.monotonic() < deadline, found
    time.sleep(0.02)
    for result in found:
        result.refresh()
print([(result.status.name, result.attempts, [error.traceback for error in result.errors]) for result in found])
"""


def test_a_task_survives_that_redis_does_not_answer_at_its_start_or_at_its_end(shop, server):
    """Each of its own requests is cut once. One failure would end it, and so show that a cut was counted as one."""
    settings = shop.folder / "shop" / "settings.py"
    settings.write_text(
        settings.read_text().replace('"max_fails": 3, "retry_on": ConnectionError', '"max_fails": 1')
    )
    cut: list[tuple[bytes, bytes]] = []

    def choose(words: list[bytes]) -> Fault:
        """Cut the first read, the first note that it runs, and the first note of its end, of each task."""
        if words[0] not in (b"GET", b"SET") or b":task" not in words[1]:
            return PASS
        kind = words[0] if words[0] == b"GET" else words[2].partition(b'"status":"')[2].partition(b'"')[0]
        if (kind, words[1]) in cut:
            return PASS
        cut.append((kind, words[1]))
        return BEFORE

    with proxied(server.port) as proxy:
        direct = shop.env["DAYJOB_REDIS_URL"]
        shop.env["DAYJOB_REDIS_URL"] = proxy.url
        proxy.each(choose)
        with shop.worker():
            shop.env["DAYJOB_REDIS_URL"] = direct
            assert shop.python(RUN_BOTH) == "[('SUCCESSFUL', 1, []), ('SUCCESSFUL', 1, [])]"
    assert sorted(kind for kind, _ in cut) == [
        b"GET",
        b"GET",
        b"RUNNING",
        b"RUNNING",
        b"SUCCESSFUL",
        b"SUCCESSFUL",
    ]


def test_options_are_those_of_jobs_and_wrong_ones_are_named(shop):
    settings = shop.folder / "shop" / "settings.py"
    tasks = shop.folder / "orders" / "tasks.py"
    tasks.write_text(tasks.read_text() + "\n@task(max_fails=7, timeout=5)\ndef own(): ...\n")
    found = shop.python(
        "from dayjob.django import pool\n"
        "options = pool.registry.get('orders.tasks.own').options\n"
        "print(options.max_fails, options.timeout, options.keep, pool.registry.get('orders.tasks.add').options.max_fails)"
    )
    assert found == "7 5.0 3600.0 3"
    before = settings.read_text()
    settings.write_text(before.replace('"max_fails": 3, "retry_on"', '"max_fail": 3, "retry_on"'))
    assert "TASKS['default']: OPTIONS: no option 'max_fail'" in shop.manage("check", code=1)
    settings.write_text(before.replace('"dayjob.django",', ""))
    # Django checks backends once its module of tasks is imported.
    run = (
        "import orders.tasks\nfrom django.core import checks\nprint([one.id for one in checks.run_checks()])"
    )
    assert "dayjob.E002" in shop.python(run)


# Django 6 has the API itself.
if django.VERSION < (6,):

    def test_a_missing_api_of_tasks_is_named_with_the_package_that_brings_it(shop):
        settings = shop.folder / "shop" / "settings.py"
        settings.write_text(
            settings.read_text().replace('["django_tasks"] if', "[] if")
            + "\nimport sys\nsys.modules['django_tasks'] = None\n"
        )
        (shop.folder / "orders" / "tasks.py").unlink()
        words = "TASKS needs Django 6, or the package django-tasks with Django 5: pip install django-tasks"
        assert words in shop.manage("check", code=1)

"""The pages of one queue, one pool and one schedule: they lead to each other, and every place answers the same."""

from __future__ import annotations

import os
import threading

import pytest

from dayjob import Rate
from dayjob.errors import UnknownPool, UnknownSchedule
from keyed import key_name
from rates import limit_name
from server import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def fleet(admin, new_pool, look):
    """A pool with a job that runs, one that failed, and a schedule."""
    pool = new_pool(concurrency=2)
    end = threading.Event()

    @pool.job(timeout=600)
    def report(month: str) -> None:
        """Write the report of a month."""
        end.wait(120)

    @pool.job(max_fails=1)
    def charge(order: int) -> None:
        raise ValueError(f"no bank for order {order}")

    pool.periodic("0 9 * * *", report, {"month": "11"}, name="reports", timezone="Europe/Paris")
    report.enqueue(month="10")
    charge.enqueue(order=7)
    with pool:
        wait_until(lambda: admin.busy() and admin.verdict().sizes.dead and admin.periodic())
        try:
            yield admin.pools().pools[0].id
        finally:
            end.set()


def test_a_pool_has_a_page_and_a_command(faces, admin, fleet):
    admin.quiet(fleet)
    found = admin.pool(fleet)
    assert [one.worker.name for one in found.workers] == ["report"]
    assert [one.action for one in found.actions] == ["quiet"]
    assert "started" in {one.kind for one in found.events}
    api = faces.api("/pool", pool=fleet)
    assert [one["kind"] for one in api["events"]] == [one.kind for one in found.events]
    assert (api["id"], api["held"], api["workers"][0]["worker"]["name"]) == (fleet, 1, "report")
    page = faces.page("/pool", id=fleet)
    for text in (
        str(os.getpid()),
        "report",
        "charge",
        "reports",
        "Workers, last",
        "quiet",
        found.events[-1].text,
    ):
        assert text in page
    printed = faces.run("pools", "show", fleet)
    for text in (f"/{os.getpid()}", "runs report", "reports", ": quiet:"):
        assert text in printed
    assert faces.run_json("pools", "show", fleet)["id"] == fleet


def test_a_schedule_has_a_page_and_a_command(faces, admin, fleet):
    admin.pause_schedule("reports")
    found = admin.schedule("reports")
    assert found.schedule.job == "report"
    assert len(found.next) == 20
    assert [later - sooner for sooner, later in zip(found.next, found.next[1:], strict=False)].count(
        86_400
    ) >= 18
    assert found.pools == (fleet,)
    assert [one.action for one in found.actions] == ["pause"]
    assert faces.api("/schedule", name="reports")["next"] == list(found.next)
    page = faces.page("/schedule", name="reports")
    for text in (
        "At 09:00 every day",
        "Europe/Paris",
        "Paused",
        "month= 11",
        "report",
        fleet,
        "Run with other arguments",
    ):
        assert text in page
    printed = faces.run("periodic", "show", "reports")
    assert printed.count("next ") == 5
    assert "state paused by" in printed
    assert faces.run_json("periodic", "show", "reports")["schedule"]["spec"] == "0 9 * * *"


def test_a_queue_leads_to_what_runs_fails_and_enqueues_it(faces, admin, fleet):
    found = admin.queue("report")
    assert [one.worker.name for one in found.busy] == ["report"]
    assert [one.name for one in found.schedules] == ["reports"]
    assert found.job_type.doc == "Write the report of a month."
    assert not found.failures
    page = faces.page("/queue", name="report")
    for text in ("Write the report of a month.", "reports", f"/{os.getpid()}", "Wait of the oldest job"):
        assert text in page
    printed = faces.run("queues", "show", "report")
    assert "schedule reports: At 09:00 every day" in printed
    assert "runs " in printed
    failed = admin.queue("charge").failures
    assert [(one.kind, one.dead) for one in failed] == [("ValueError: no bank for order #", 1)]
    assert "ValueError: no bank for order #" in faces.page("/queue", name="charge")
    assert "failing 0 in retry, 1 dead: ValueError: no bank for order #" in faces.run(
        "queues", "show", "charge"
    )
    assert faces.api("/queue", name="charge")["failures"][0]["dead"] == 1


def test_what_does_not_exist_is_not_found(faces, admin):
    with pytest.raises(UnknownPool):
        admin.pool("nobody")
    with pytest.raises(UnknownSchedule):
        admin.schedule("never")
    assert "No pool 'nobody'" in faces.page("/pool", 404, id="nobody")
    assert 'No schedule "never"' in faces.page("/schedule", 404, name="never")
    assert "No pool is named." in faces.page("/pool", 404)
    assert "No schedule is named." in faces.page("/schedule", 404)
    assert faces.console.get("/api/v1/pool", params={"pool": "nobody"}).status_code == 404
    assert faces.console.get("/api/v1/schedule", params={"name": "never"}).status_code == 404
    assert "no pool 'nobody'" in faces.run("pools", "show", "nobody", code=2)


def test_a_dead_pool_still_has_a_page(faces, admin, call, keys, look):
    call("ZADD", keys.condemned, int(look.now()), "gone")
    call("HSET", keys.held("gone"), "1:mail", '{"name":"mail","id":"m","t":1,"args":{}}')
    assert admin.pool("gone").held == 1
    assert "This pool is gone: it died" in faces.page("/pool", id="gone")
    assert "It holds 1 attempt." in faces.run("pools", "show", "gone")


def test_a_queue_has_its_rate_limits_and_what_each_key_may_run(faces, keys, link, call):
    call("SADD", keys.known_jobs, "mail", "scan")
    limit_name(keys, link, "mail", {"smtp": Rate(10, per=60)})
    key_name(keys, link, "scan", places=2, kinds={"vendor": Rate(5, per=1)})
    page = faces.page("/queue", name="mail")
    assert "Runs at once not limited Rate limit smtp 10 per minute: 0 of 10 used, next start now" in page
    printed = "rate smtp: 10 per minute; 0 of 10 used, next start now\n"
    assert printed in faces.run("queues", "show", "mail")
    assert [one["name"] for one in faces.api("/queue", name="mail")["limits"]] == ["smtp"]
    keyed = "Limit per key 2 for each key Rate limit vendor 5 per second for each key, 0 keys held back"
    assert keyed in faces.page("/queue", name="scan")
    printed = faces.run("queues", "show", "scan")
    assert "per key 2 for each key\nrate vendor: 5 per second for each key; 0 keys held back\n" in printed
    assert faces.api("/queue", name="scan")["per_key"] == "2 for each key"

"""What will run in the next hours: the same in every place."""

from __future__ import annotations

import pytest

from dayjob.errors import BadOption
from server import wait_until

pytestmark = pytest.mark.timeout(300)


def test_what_will_run_in_the_next_hour_is_the_same_everywhere(faces, admin, new_pool, look):
    pool = new_pool(concurrency=1)

    @pool.job(max_fails=3, backoff=600)
    def charge(order: int, card: str) -> None:
        raise ValueError("no bank")

    @pool.job
    def sweep() -> None: ...

    # Three times an hour, and not in the next minutes: every place must have the same hour to show.
    minute = int(look.now() // 60 + 10) % 20
    pool.periodic(f"{minute}-59/20 * * * *", sweep, name="sweeps")
    pool.periodic(f"{minute}-59/20 * * * *", sweep, name="resting")
    charge.enqueue(order=1, card="4111")
    admin.enqueue("mail", {"to": "ada"}, delay=1200)
    admin.enqueue("mail", {"to": "bob"}, delay=86_000)
    with pool:
        wait_until(lambda: admin.verdict().sizes.retry == 1 and len(admin.periodic()) == 2)
        admin.pause_schedule("resting")
        found = admin.calendar()
        assert (sum(found.scheduled), sum(found.retry), sum(found.periodic)) == (1, 1, 3)
        assert [(one.name, one.scheduled, one.retry, one.periodic) for one in found.names] == [
            ("sweep", 0, 0, 3), ("charge", 0, 1, 0), ("mail", 1, 0, 0),
        ]  # fmt: skip
        assert sorted(one.kind for one in found.entries) == ["periodic"] * 3 + ["retry", "scheduled"]
        assert list(found.entries) == sorted(found.entries, key=lambda one: one.at)
        assert found.complete
        # A retry is in the step in which it is due.
        (due,) = [one.at for one in found.entries if one.kind == "retry"]
        place = next(n for n, start in enumerate(found.starts) if start <= due < start + found.step)
        assert found.retry[place] == 1
        api = faces.api("/calendar")
        assert [one["name"] for one in api["entries"]] == [one.name for one in found.entries]
        assert sum(faces.api("/calendar", hours=24)["scheduled"]) == 2
        printed = faces.run("calendar")
        assert "5 jobs in the next 1 h." in printed
        assert printed.count("schedule sweeps") == 3
        assert faces.run_json("calendar", "--hours", "24")["scheduled"].count(1) == 2
        assert "SCHEDULED RETRY PERIODIC" in faces.run("calendar", "--steps")
        page = faces.page("/calendar")
        assert "5 jobs" in page
        assert page.count("schedule sweeps") == 3
        # Arguments are shown as everywhere: not those that are secret.
        assert "order=1" in page.replace(" ", "")
        faces.top("calendar").wait_for("5 jobs in the next 1 h", "schedule sweeps", "scheduled", "retry")


def test_a_step_of_the_calendar_is_listed_from_its_beginning(faces, admin):
    for minutes in (10, 20, 30):
        admin.enqueue(f"mail{minutes}", {}, delay=minutes * 60)
    since = admin.calendar().now + 15 * 60
    assert [one.name for one in admin.calendar(since=since).entries] == ["mail20", "mail30"]
    page = faces.page("/calendar", since=int(since))
    assert "mail20" in page
    assert "mail10" not in page


def test_what_is_overdue_is_in_the_first_step(admin, call, keys, look):
    call("ZADD", keys.scheduled, 1000, b'{"name":"late","id":"x","t":1,"args":{}}')
    found = admin.calendar(24)
    assert found.scheduled[0] == 1
    assert found.entries[0].name == "late"


def test_each_tick_of_a_day_is_counted_and_the_list_has_the_first_of_all_schedules(faces, admin, new_pool):
    pool = new_pool()
    pool.register("sweep", lambda: None)
    pool.periodic("@every 1s", "sweep", name="hectic")
    pool.periodic("0 * * * *", "sweep", name="hourly")
    with pool:
        wait_until(lambda: len(admin.periodic()) == 2)
        found = admin.calendar(24)
        later = admin.calendar(24, since=found.now + 7200)
        page = faces.page("/calendar", hours=24, since=int(found.now + 7200))
    last = found.starts[-1] + found.step - 1
    ticks = last - int(found.now) + last // 3600 - int(found.now) // 3600
    assert sum(found.periodic) == sum(one.periodic for one in found.names) == ticks
    assert all(count in (found.step, found.step + 1) for count in found.periodic[1:])
    assert [one.at for one in found.entries] == sorted(one.at for one in found.entries)
    assert len(found.entries) == 200
    assert found.complete
    assert later.entries[0].at == pytest.approx(found.now + 7200, abs=2)
    assert "schedule hectic" in page


def test_the_calendar_has_hours_that_can_be_asked_for(admin):
    with pytest.raises(BadOption, match="1, 24, 72 hours"):
        admin.calendar(2)

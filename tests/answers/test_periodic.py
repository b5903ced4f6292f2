"""Schedules: when each ticked last and ticks next, as far as that is true."""

from __future__ import annotations

import pytest

from server import wait_until

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)

NO_POOL = "no live pool has this schedule"


@pytest.fixture
def named(admin):
    """A schedule by its name."""
    return lambda name: next((one for one in admin.periodic() if one.name == name), None)


def test_a_schedule_that_never_ticked_says_never_everywhere(faces, new_pool, named):
    pool = new_pool()
    pool.register("sweep", lambda: None)
    pool.periodic("0 0 1 1 *", "sweep", name="yearly sweep")
    pool.start()
    wait_until(lambda: named("yearly sweep"))
    assert named("yearly sweep").last_at is None
    assert faces.api("/periodic")[0]["last_at"] is None
    assert " never in " in faces.page("/periodic")
    assert " never " in faces.run("periodic", "ls")
    screen = faces.top("periodic")
    screen.wait_for("yearly sweep", "never")
    screen.press("enter")
    screen.wait_for("last never")


def test_the_last_tick_of_a_schedule_is_the_last_that_enqueued_a_job(
    faces, new_pool, named, look, call, keys
):
    pool = new_pool()
    pool.register("sweep", lambda: None)
    pool.periodic("@every 1s", "sweep", name="quick")
    pool.start()
    wait_until(lambda: named("quick") and named("quick").last_at)
    assert faces.console.admin.pause_schedule("quick").done
    missed = look.total("missed:sweep")
    # Ticks of a paused schedule go on and enqueue nothing.
    wait_until(lambda: look.total("missed:sweep") >= missed + 2)
    pool.stop()
    last = int(call("HGET", keys.periodic, "quick|ticked"))
    assert named("quick").last_at == last < int(call("HGET", keys.periodic, "quick"))
    assert faces.api("/periodic")[0]["last_at"] == last


def test_a_schedule_that_an_older_release_stored_shows_its_last_tick(named, call, keys):
    call("HSET", keys.periodic, "old", 1_700_000_000)
    assert named("old").last_at == 1_700_000_000


def test_a_schedule_that_was_removed_has_no_next_tick(faces, new_pool, named):
    before = new_pool()
    before.register("sweep", lambda: None)
    before.periodic("@hourly", "sweep", name="removed")
    before.start()
    wait_until(lambda: named("removed") and named("removed").live and named("removed").next)
    before.stop()
    now = new_pool()
    now.register("sweep", lambda: None)
    now.periodic("@hourly", "sweep", name="kept")
    now.start()
    wait_until(lambda: named("kept") and named("kept").live and not named("removed").live)
    assert named("kept").next
    told = {one["name"]: (one["live"], bool(one["next"])) for one in faces.api("/periodic")}
    assert told == {"kept": (True, True), "removed": (False, False)}
    assert faces.page("/periodic").count(NO_POOL) == 1
    listed = {line.split()[0]: line for line in faces.run("periodic", "ls").splitlines()}
    assert listed["removed"].endswith(NO_POOL)
    assert NO_POOL not in listed["kept"]
    screen = faces.top("periodic")
    screen.wait_for("! no live pool has it")
    assert screen.text.count("no live pool has it") == 1


def test_two_schedules_of_one_job_can_be_told_apart_and_their_times_have_a_zone(faces, new_pool, named):
    pool = new_pool()
    pool.register("report", lambda kind="": None)
    pool.periodic("0 2 * * *", "report", {"kind": "day"}, name="daily figures")
    pool.periodic("0 2 * * *", "report", {"kind": "week"}, name="weekly figures")
    pool.start()
    wait_until(lambda: named("weekly figures"))
    page = faces.page("/periodic")
    assert "daily figures" in page
    assert "weekly figures" in page
    assert " 02:00:00 UTC" in faces.run("periodic", "ls")
    assert " 11:00:00 JST" in faces.run("periodic", "ls", zone="Asia/Tokyo")
    screen = faces.top("periodic", zone="Asia/Tokyo")
    screen.wait_for("daily figures", "weekly figures", "report")
    screen.press("enter")
    screen.wait_for("11:00:00 JST")

"""What ran, when, how it ended and for whom: the history, the same in every place."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from dayjob.admin import history
from dayjob.store.ops.history import StoredRecord
from records import write_records
from server import wait_until

pytestmark = pytest.mark.timeout(300)

#: Two o'clock in a night of the last day, with three attempts in ten minutes and one long after.
NIGHT = ("mail-1", "mail-2", "scan-1")


@pytest.fixture
def two(look):
    """The moment of the last two o'clock, UTC; of midnight if that two o'clock is just over, or a day ago."""
    return last_two(look.now())


def last_two(now: float) -> float:
    """A quarter of an hour ago or longer, and within the last day, which pages and commands show by default."""
    midnight = (
        dt.datetime.fromtimestamp(now, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    )
    nights = [midnight + hour * 3600 for hour in (2, -22, 0)]
    return next(one for one in nights if 900 <= now - one <= 86_400 - 1800)


def test_two_is_within_what_is_shown_at_every_time_of_day():
    for minute in range(1440):
        now = 20_000 * 86_400.0 + minute * 60
        assert 900 <= now - last_two(now) <= 86_400 - 1800


@pytest.fixture
def night(two, link, keys, announce):
    """What the fleet did at two."""
    announce("mail", "scan")

    def add(name, job_id, minute, ending="completed", **more):
        ended = int((two + minute * 60) * 1000)
        fields = {"waited": 250_000, "ran": 1_000_000, "age": 2000, "pool": "pool-a", **more}
        write_records(link, keys, name, StoredRecord(job_id, ending, ended, **fields), place=f"{ended}-*")

    add("mail", "mail-1", 1, "retried", error="SMTPError", source="acme", ran=3_000_000)
    add("mail", "mail-1", 4, attempt=2, source="acme", ran=2_000_000)
    add("mail", "mail-2", 5, source="globex", pool="pool-b")
    add("scan", "scan-1", 9, source="acme", ran=9_500_000, waited=1_000)
    add("scan", "scan-2", 14, source="acme", ran=100_000)
    return two


def ids(text: str, *names: str) -> list[str]:
    """The ids of these kinds in a text, in order."""
    return re.findall(rf"\b(?:{'|'.join(names or ('mail', 'scan'))})-\d\b", text)


def test_which_jobs_ran_last_night_at_two(faces, admin, night):
    span = {"since": night, "until": night + 600}
    found = admin.history(**span)
    expected = ["scan-1", "mail-2", "mail-1", "mail-1"]
    assert [one.id for one in found.records] == expected
    assert [one["id"] for one in faces.api("/history", **span)["records"]] == expected
    assert ids(faces.page("/history", **span).partition("Ended")[2]) == expected
    moment = dt.datetime.fromtimestamp(night, dt.UTC)
    until = (moment + dt.timedelta(minutes=10)).strftime("%Y-%m-%d %H:%M")
    printed = faces.run("history", "ls", "--since", moment.strftime("%Y-%m-%d %H:%M"), "--until", until)
    assert ids(printed) == expected
    counts = faces.api("/history/counts", **span, steps=10)
    assert counts["ended"] == [0, 1, 0, 0, 1, 1, 0, 0, 0, 1]
    assert counts["failed"] == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_a_page_is_in_the_order_in_which_attempts_ended_though_records_were_written_later(
    admin, look, link, keys, announce
):
    announce("mail", "scan")
    now = int(look.now() * 1000)
    # A pool writes what completed once a second, each name by itself.
    written = {
        "mail": (("mail-1", 900), ("mail-2", 300), ("mail-3", 100)),
        "scan": (("scan-1", 500), ("scan-2", 200)),
    }
    for name, records in written.items():
        for job_id, before in records:
            record = StoredRecord(job_id, "completed", now - before, waited=0, ran=1, age=1, pool="pool-a")
            write_records(link, keys, name, record)
    assert [one.id for one in admin.history().records] == ["mail-3", "scan-2", "mail-2", "scan-1", "mail-1"]


def test_how_often_a_job_was_retried_and_with_which_errors_after_it_succeeded(faces, admin, night):
    story = [("retried", "SMTPError", 1), ("completed", "", 2)]
    assert [(one.outcome, one.error, one.attempt) for one in admin.job("mail-1").attempts] == story
    api = faces.api("/job", id="mail-1")["attempts"]
    assert [(one["outcome"], one["error"], one["attempt"]) for one in api] == story
    page = faces.page("/job", id="mail-1")
    printed = faces.run("jobs", "show", "mail-1")
    for text in ("attempt 1 retried after 3.0 s: SMTPError", "attempt 2 completed after 2.0 s"):
        assert text in page
        assert text in printed


def test_which_single_jobs_were_slowest(faces, admin, night):
    expected = ["scan-1", "mail-1", "mail-1", "mail-2", "scan-2"]
    assert [one.id for one in admin.history(sort="-ran").records] == expected
    assert [one["id"] for one in faces.api("/history", sort="-ran")["records"]] == expected
    assert ids(faces.page("/history", sort="-ran").partition("Ended")[2]) == expected
    assert ids(faces.run("history", "ls", "--sort", "-ran")) == expected


def test_attempts_are_sorted_alike_everywhere(faces, admin, night):
    expected = ["mail-1", "mail-1", "mail-2", "scan-1", "scan-2"]
    assert sorted(one.id for one in admin.history(sort="name").records) == expected
    for sort, first in (
        ("waited", "scan-1"),
        ("-attempt", "mail-1"),
        ("ended", "mail-1"),
        ("pool", "mail-1"),
    ):
        assert admin.history(sort=sort).records[0].id == first
        assert faces.api("/history", sort=sort)["records"][0]["id"] == first
        assert ids(faces.page("/history", sort=sort).partition("Ended")[2])[0] == first
        assert ids(faces.run("history", "ls", "--sort", sort))[0] == first
    assert "Attempts cannot be sorted by 'size'" in faces.page("/history", 400, sort="size")
    assert "attempts cannot be sorted by 'size'" in faces.run("history", "ls", "--sort", "size", code=2)


def test_which_source_uses_what(faces, admin, night):
    used = {one.source: (one.attempts, one.failed, round(one.worked, 1)) for one in admin.sources().sources}
    assert used == {"acme": (4, 1, 14.6), "globex": (1, 0, 1.0)}
    api = faces.api("/sources")["sources"]
    assert [(one["source"], one["attempts"]) for one in api] == [("acme", 4), ("globex", 1)]
    page = faces.page("/sources")
    assert re.search(r"acme 4 1 15 s", page), page
    assert re.search(r"globex 1 0 1\.0 s", page), page
    assert re.search(r"^acme 4 1 15 s", faces.run("sources", "ls"), re.MULTILINE)
    for sort, first in (("attempts", "globex"), ("-failed", "acme"), ("-source", "globex")):
        assert faces.api("/sources", sort=sort)["sources"][0]["source"] == first
        assert faces.run("sources", "ls", "--sort", sort).splitlines()[1].startswith(first)
        assert (
            re.search(r"\b(acme|globex)\b", faces.page("/sources", sort=sort).partition("Last")[2])[1]
            == first
        )
    assert re.search(r"^acme 4 1 15 s", faces.run("sources", "show", "acme"), re.MULTILINE)
    detail = faces.api("/source", source="acme")
    assert [one["id"] for one in detail["failed"]] == ["mail-1"]
    assert (sum(detail["counts"]["ended"]), detail["used"]["attempts"]) == (4, 4)
    only = faces.page("/source", source="acme")
    assert "Attempts 4" in only
    assert ids(only, "mail-2") == []


def test_figures_of_a_part_of_the_history_are_whole_for_the_time_that_is_shown(
    faces, admin, link, keys, announce, look, monkeypatch
):
    """Of many records the newest are counted. What is shown begins where they begin, so that no name lacks any."""
    announce("busy", "rare")
    now = look.now()
    for number in range(60):
        ended = int((now - 600 + number * 10) * 1000)
        write_records(
            link,
            keys,
            "busy",
            StoredRecord(f"b{number}", "completed", ended, ran=1_000_000, source="acme"),
            place=f"{ended}-*",
        )
        if number % 10 == 0:
            write_records(
                link,
                keys,
                "rare",
                StoredRecord(f"r{number}", "completed", ended, ran=1_000_000, source="globex"),
                place=f"{ended}-*",
            )
    monkeypatch.setattr(history, "MAX_COUNTED", 40)
    found = admin.sources()
    assert found.partial
    expected = {"acme": 0, "globex": 0}
    for number in range(60):
        if now - 600 + number * 10 >= found.since:
            expected["acme"] += 1
            expected["globex"] += number % 10 == 0
    assert 0 < expected["globex"] < 6
    assert {one.source: one.attempts for one in found.sources} == expected
    counts = admin.history_counts(steps=10)
    assert counts.partial
    assert counts.starts[0] > now - 600
    assert sum(counts.ended) == sum(
        1
        for number in range(60)
        for every in (1, 10)
        if number % every == 0 and now - 600 + number * 10 >= counts.starts[0]
    )
    assert "records counted: the newest ones, since" in faces.page("/sources")


def test_the_runs_of_a_schedule_and_how_they_ended(faces, admin, new_pool):
    pool = new_pool(concurrency=2)

    @pool.job(max_fails=1)
    def sweep(n: int = 0) -> None:
        if n:
            raise ValueError("not swept")

    pool.periodic("* * * * * *", sweep, name="sweeper")
    pool.periodic("* * * * * *", sweep, {"n": 1}, name="failing")
    sweep.enqueue()
    with pool:
        wait_until(lambda: {"sweeper", "failing"} <= {one.schedule for one in admin.history().records})
    for name, outcome in (("sweeper", "completed"), ("failing", "dead")):
        found = admin.schedule(name)
        assert {one.schedule for one in found.runs} == {name}
        # The stop of the pool may have given one back. On a slow machine a tick can be missed.
        assert outcome in {one.outcome for one in found.runs} <= {outcome, "given_back"}
        assert "fired" in {one.after for one in found.ticks} <= {"fired", "missed"}
        assert faces.api("/schedule", name=name)["runs"][0]["id"] == found.runs[0].id
        latest = next(one for one in found.runs if one.outcome == outcome)
        page = faces.page("/schedule", name=name)
        assert latest.id in page.partition("Past runs")[2]
        assert outcome in page.partition("Past runs")[2]
        printed = faces.run("periodic", "show", name)
        assert latest.id in printed
        assert found.ticks[0].text.split(".")[0] in printed
        assert {one["schedule"] for one in faces.api("/history", schedule=name)["records"]} == {name}
        assert latest.id in faces.run("history", "ls", "--schedule", name)
    assert {one.schedule for one in admin.history("sweep").records} >= {"", "sweeper", "failing"}


def test_what_a_pool_ended(faces, admin, night):
    pools = {one.pool_id for one in admin.history().records}
    assert pools == {"pool-a", "pool-b"}
    assert [one.id for one in admin.history(pool="pool-b").records] == ["mail-2"]
    assert ids(faces.page("/history", pool="pool-b").partition("Ended")[2]) == ["mail-2"]
    assert ids(faces.run("history", "ls", "--pool", "pool-b")) == ["mail-2"]


def test_a_pool_shows_the_attempts_that_it_ended(faces, admin, new_pool):
    pool = new_pool(tag="v41")

    @pool.job
    def mail(n: int) -> int:
        return n

    mail.enqueue(n=1)
    with pool:
        wait_until(lambda: admin.history().records)
        pool_id = admin.pools().pools[0].id
        ended = admin.pool(pool_id).ended
        assert [(one.name, one.outcome, one.tag) for one in ended] == [("mail", "completed", "v41")]
        assert faces.api("/pool", pool=pool_id)["ended"][0]["id"] == ended[0].id
        picture, _, table = faces.page("/pool", id=pool_id).partition("Attempts that it ended")
        assert ended[0].id in table
        # The table of the chart of its workers.
        assert re.search(r"From Job Took .* mail \S+ \S+ completed", picture)
        assert ended[0].id in faces.run("pools", "show", pool_id)


def test_where_a_group_of_failures_failed(faces, admin, new_pool):
    pool = new_pool(tag="v41")

    @pool.job(max_fails=1)
    def charge(order: int) -> None:
        if order > 1:
            raise KeyError(order)
        raise ValueError(f"no bank for order {order}")

    for order in range(3):
        charge.enqueue(order=order)
    with pool:
        wait_until(lambda: len(admin.history(outcome="failed").records) == 3)
        host = wait_until(lambda: admin.pools().pools[0].status).host
    kind = "ValueError: no bank for order #"
    (place,) = admin.failure_group("charge", kind).places
    assert (place.host, place.tag, place.attempts) == (host, "v41", 2)
    api = faces.api("/failures/group", name="charge", kind=kind)["places"]
    assert [(one["host"], one["tag"], one["attempts"]) for one in api] == [(host, "v41", 2)]
    assert f"{host} v41 2" in faces.page("/failure", name="charge", kind=kind)
    assert f"2 attempts failed on {host}, v41" in faces.run("dead", "group", "charge", kind)


def test_the_terminal_sorts_the_history(faces, night):
    screen = faces.top("history")
    screen.wait_for("scan-2", "mail-1")
    screen.press("o")
    screen.wait_for("sort: -ran")
    wait_until(lambda: ids(screen.text)[:1] == ["scan-1"])

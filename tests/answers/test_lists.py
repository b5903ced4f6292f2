"""Lists of jobs: every job can be reached, and a filter that cannot be read is no empty list."""

from __future__ import annotations

import html
import re

import msgspec
import pytest

from dayjob import Enqueuer
from dayjob.admin import job_lists

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)

JOBS = {"mail.send": 70, "news.send": 55, "report": 60}


@pytest.fixture
def ids(redis_url, namespace):
    """The ids of the jobs that wait under names with "send", those of mail.send first."""
    enqueuer = Enqueuer(namespace, redis=redis_url)
    found = {
        name: [job.id for job in enqueuer.enqueue_many(name, [{}] * count)] for name, count in JOBS.items()
    }
    enqueuer.close()
    return found["mail.send"] + found["news.send"]


def test_a_filter_over_all_queues_reaches_every_job_that_waits(faces, ids):
    assert read_pages(faces, "/jobs?where=name~send") == set(ids)
    assert read_api(faces, state="waiting", where="name~send") == set(ids)
    assert read_command(faces, "jobs", "ls", "--where", "name~send") == set(ids)
    assert faces.api("/jobs/count", state="waiting", where="name~send")["matched"] == len(ids)


def test_a_list_of_all_queues_reaches_every_job_that_waits(faces, ids):
    pages, api, command = (
        read_pages(faces, "/jobs"), read_api(faces, state="waiting"), read_command(faces, "jobs", "ls"),
    )  # fmt: skip
    assert pages == api == command
    assert set(ids) < pages
    assert len(pages) == sum(JOBS.values())


def test_a_queue_in_the_terminal_reaches_every_job_that_waits(faces, ids):
    screen = faces.top("queues")
    screen.wait_for("mail.send")
    screen.press("enter")
    screen.wait_for("Queues > mail.send", "waiting 70")
    wanted = ids[: JOBS["mail.send"]]
    # Two screens of 60 lines.
    screen.wait_for(*wanted[:35])
    screen.press("G")
    screen.wait_for(*wanted[35:])


def test_a_filter_that_cannot_be_read_is_named_and_shows_no_empty_list(faces, console, look, call, keys):
    call("ZADD", keys.dead, int(look.now()), look.payload("mail", "d1", err="no", failed_at=int(look.now())))
    page = faces.page("/dead_jobs", 400, where="foo=bar")
    assert "Unknown filter: foo." in page
    assert "No job is dead" not in page
    answer = console.get("/api/v1/jobs", params={"state": "dead", "where": "foo=bar"})
    assert (answer.status_code, answer.json()["error"]) == (400, "Unknown filter: foo.")
    assert "Unknown filter: foo." in faces.run("dead", "ls", "--where", "foo=bar", code=2)
    screen = faces.top("dead")
    screen.wait_for("mail")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("foo=bar")
    screen.wait_for("Unknown filter: foo.")


def test_a_count_over_the_api_searches_a_part_at_a_time_and_leads_on(
    faces, ids, look, call, keys, monkeypatch
):
    monkeypatch.setattr(job_lists, "MAX_COUNTED", 30)
    for n in range(100):
        name = "mail" if n % 2 else "sms"
        call("ZADD", keys.dead, int(look.now()), look.payload(name, f"d{n}", err="no", failed_at=1))
    first = faces.api("/jobs/count", state="dead", where="name=sms")
    assert (first["searched"], first["total"], first["left"], first["complete"]) == (30, 100, 70, False)
    assert count_api(faces, state="dead", where="name=sms") == 50
    assert count_api(faces, state="waiting", where="name~send") == len(ids)
    assert count_api(faces, state="waiting", name="mail.send", where="age<1h") == JOBS["mail.send"]


def test_a_count_of_the_command_line_searches_all(faces, admin, ids):
    assert "125 of 185 in waiting" in faces.run("jobs", "count", "--where", "name~send")
    counted = faces.run_json("jobs", "count", "--where", "name~send")
    assert (counted["matched"], counted["complete"], counted["next"]) == (len(ids), True, "")
    part = admin.count("waiting", where="name~send", most=70)
    assert (part.matched, part.searched, part.left, part.complete) == (70, 70, 55, False)
    rest = admin.count("waiting", where="name~send", most=None, after=part.next)
    assert (rest.matched, rest.left, rest.complete) == (55, 0, True)


def test_a_count_over_many_queues_searches_no_more_than_it_may(admin, ids, monkeypatch):
    """The jobs of all queues are read so many queues at a time."""
    monkeypatch.setattr(job_lists, "MAX_QUEUES", 1)
    found = admin.count("waiting", where="age<1h", most=150)
    assert (found.searched, found.left) == (150, 35)
    assert admin.count("waiting", where="age<1h", most=None).searched == 185


def count_api(faces, **query):
    matched, after = 0, ""
    while True:
        answer = faces.api("/jobs/count", **query, after=after)
        matched, after = matched + answer["matched"], answer["next"]
        assert answer["searched"] <= job_lists.MAX_COUNTED
        assert answer["complete"] == (not after)
        if not after:
            return matched


def read_pages(faces, path):
    found: set[str] = set()
    while path:
        text = faces.console.get(path, headers={"accept": "text/html"}).text
        found.update(re.findall(r"/job\?[^\"]*id=(\w+)", text))
        link = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(link[1]) if link else ""
    return found


def read_api(faces, **query):
    found, after = set(), ""
    while True:
        page = faces.api("/jobs", **query, **({"after": after} if after else {}))
        found.update(job["id"] for job in page["jobs"])
        if not (after := page["next"]):
            return found


def read_command(faces, *words):
    found, after = set(), ""
    while True:
        page = faces.run_json(*words, *(("--after", after) if after else ()))
        found.update(job["id"] for job in page["jobs"])
        if not (after := page["next"]):
            return found


def test_the_largest_payloads_are_the_same_everywhere(faces, admin):
    admin.enqueue("small", {"n": 1})
    admin.enqueue("large", {"text": "x" * 5000})
    admin.enqueue("large", {"text": "x" * 9000}, delay=1000)
    found = admin.payloads()
    assert (found.searched, found.total) == (3, 3)
    assert [(one.name, one.state) for one in found.largest] == [
        ("large", "scheduled"),
        ("large", "waiting"),
        ("small", "waiting"),
    ]
    assert [one.name for one in found.names] == ["large", "small"]
    assert sum(found.steps.values()) == 3
    assert (max(found.steps), found.steps[16384], found.steps[8192], found.steps[4096]) == (16384, 1, 1, 0)
    assert faces.api("/payloads")["largest"][0]["size"] == found.largest[0].size
    assert faces.run_json("payloads")["names"][0]["largest"] == found.largest[0].size
    assert "3 of 3 jobs were read." in faces.run("payloads")
    page = faces.page("/payloads")
    assert "Of all 3 stored jobs." in page
    assert found.largest[0].id in page


@pytest.fixture
def happened(call, keys, look):
    """101 actions of an operator, broken entries and groups of failures: one more than a page has."""
    now = int(look.now())
    for n in range(101):
        action = {"actor": "ada", "action": "pause", "subject": f"queue q{n:03}", "result": "Paused."}
        call("RPUSH", keys.audit, b"%d " % (1000 * (now - n)) + msgspec.json.encode(action))
        head = {"at": 1000 * (now - n), "where": f"queue w{n:03}", "why": "it is not JSON"}
        call("RPUSH", keys.broken, msgspec.json.encode(head) + b"\n{")
        # Groups ignore digits.
        kind = "".join(chr(ord("A") + int(digit)) for digit in f"{n:03}")
        failed = {"err": f"{kind}: no", "failed_at": now - n}
        call("ZADD", keys.dead, now - n, look.payload("mail", f"d{n}", **failed))


def test_long_lists_of_what_happened_are_paged_everywhere(faces, happened):
    assert [one["subject"] for one in faces.api("/audit", offset=100)] == ["queue q100"]
    assert [one["subject"] for one in faces.api("/events", offset=100)["events"]] == ["queue q100"]
    for path, query, last in (
        ("/audit", {}, "q100"), ("/timeline", {"kind": "action"}, "q100"), ("/failures", {"sort": "-last"}, "BAA: no"), ("/broken", {}, "w100"),
    ):  # fmt: skip
        assert last not in faces.page(path, **query)
        assert last in faces.page(path, offset=100, **query)
    assert "q100" in faces.run("audit", "--offset", "100")
    assert "q100" in faces.run("events", "ls", "--offset", "100")
    assert "w100" in faces.run("broken", "ls", "--after", "100")
    assert faces.run("audit", "--offset", "101") == "No more entries."
    assert faces.run("events", "ls", "--offset", "101") == "No more events."


@pytest.mark.parametrize(
    ("tab", "first", "last"),
    [("audit", "q000", "q100"), ("timeline", "q000", "q100"), ("broken", "w000", "w100"), ("failures", "AAA: no", "BAA: no")],
)  # fmt: skip
def test_long_lists_of_what_happened_are_paged_in_the_terminal(faces, happened, tab, first, last):
    screen = faces.top(tab)
    screen.wait_for(first, "next page")
    screen.press(">")
    screen.wait_for(last, gone=first)
    screen.press("<")
    screen.wait_for(first)

"""Tables are sorted in the same way on pages, over the API, by commands and in the terminal."""

from __future__ import annotations

import re

import msgspec
import pytest

from dayjob import Enqueuer, Rate
from dayjob.admin import job_lists
from keyed import fill_keys, key_name
from rates import limit_name

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def waiting(redis_url, namespace):
    """Three queues with 2, 30 and 9 jobs."""
    enqueuer = Enqueuer(namespace, redis=redis_url)
    for name, count in {"alpha": 2, "beta": 30, "gamma": 9}.items():
        enqueuer.enqueue_many(name, [{}] * count)
    enqueuer.close()


def order_of(text: str, *words: str) -> list[str]:
    """The words in the order in which a text has them first."""
    return sorted(words, key=text.index)


def test_queues_are_sorted_alike_everywhere(faces, waiting):
    names = ("alpha", "beta", "gamma")
    for sort, expected in (("-waiting", ["beta", "gamma", "alpha"]), ("waiting", ["alpha", "gamma", "beta"])):
        page = faces.console.get("/queues", params={"sort": sort}, headers={"accept": "text/html"}).text
        assert re.findall(r'<tr data-key="(\w+)"', page) == expected
        assert [one["queue"]["name"] for one in faces.api("/queues", sort=sort)["queues"]] == expected
        assert order_of(faces.run("queues", "ls", "--sort", sort), *names) == expected
        assert order_of(faces.run("stats", "--sort", sort).partition("QUEUE")[2], *names) == expected
    screen = faces.top("queues")
    screen.wait_for("gamma", "sort: name")
    screen.press("o")
    screen.wait_for("sorted by -waiting", "gamma")
    screen.settle(lambda: screen.line_of("beta") < screen.line_of("gamma") < screen.line_of("alpha"))
    screen.press("O")
    screen.wait_for("sorted by waiting")
    screen.settle(lambda: -1 < screen.line_of("alpha") < screen.line_of("gamma") < screen.line_of("beta"))


def test_an_unknown_column_is_refused_everywhere_with_those_that_exist(faces, waiting):
    hint = "There are: name, waiting, oldest"
    page = faces.page("/queues", 400, sort="-wating")
    assert "Queues cannot be sorted by 'wating'. Did you mean 'waiting'?" in page
    assert hint in page
    answer = faces.console.get("/api/v1/queues", params={"sort": "wating"})
    assert answer.status_code == 400
    assert hint in answer.json()["hint"]
    assert hint in faces.run("queues", "ls", "--sort", "wating", code=2)


@pytest.fixture
def dead(call, keys, look):
    """Dead jobs whose payloads differ in size: d1 is the newest and the smallest."""
    now = int(look.now())
    for number in range(1, 8):
        payload = look.payload(
            "mail", f"d{number}", err="ValueError: no", failed_at=now, args={"text": "x" * 100 * number}
        )
        call("ZADD", keys.dead, now - number, payload)
    call("SADD", keys.known_jobs, "mail")


def ids(jobs: list[dict[str, str]]) -> list[str]:
    return [job["id"] for job in jobs]


def test_the_largest_payloads_come_first_on_request(faces, dead):
    newest = [f"d{number}" for number in range(1, 8)]
    assert ids(faces.api("/jobs", state="dead")["jobs"]) == newest
    assert ids(faces.api("/jobs", state="dead", sort="died")["jobs"]) == newest[::-1]
    for sort, expected in (("-size", newest[::-1]), ("size", newest)):
        found = faces.api("/jobs", state="dead", sort=sort)
        assert ids(found["jobs"]) == expected
        assert found["sorted_among"] == 0, "all of them were compared"
        assert found["sort"] == sort
        page = faces.page("/dead_jobs", sort=sort)
        assert [word for word in page.split() if re.fullmatch(r"d\d", word)] == expected
        printed = faces.run("jobs", "ls", "--state", "dead", "--sort", sort)
        assert order_of(printed, *newest) == expected
    sizes = [job["size"] for job in found["jobs"]]
    assert sizes[0] > 100
    assert sizes[-1] - sizes[0] == 600


def test_a_sort_of_a_part_of_a_long_list_is_shown_as_one_and_goes_on(faces, dead, admin, monkeypatch):
    # The console is served by a thread of this process, so that it looks at three jobs, too.
    monkeypatch.setattr(job_lists, "MAX_FILTERED", 3)
    monkeypatch.setattr(job_lists.inspect, "MAX_ENTRIES", 3)
    first = faces.api("/jobs", state="dead", sort="-size", size=2)
    assert ids(first["jobs"]) == ["d3", "d2"], "the largest of the three that are searched first"
    assert (first["sorted_among"], first["searched"], first["left"], first["total"]) == (3, 3, 4, 7)
    seen, after = ids(first["jobs"]), first["next"]
    while after:
        more = faces.api("/jobs", state="dead", sort="-size", size=2, after=after)
        seen, after = seen + ids(more["jobs"]), more["next"]
    assert seen == ["d3", "d2", "d1", "d6", "d5", "d4", "d7"]
    page = faces.page("/dead_jobs", sort="-size")
    assert "3 searched, 4 left" in page
    assert "Sorted among the 3 searched, not among all" in page


def test_a_sort_and_a_filter_go_together(faces, dead):
    found = faces.api("/jobs", state="dead", where="name=mail", sort="-size", size=3)
    assert ids(found["jobs"]) == ["d7", "d6", "d5"]
    following = faces.api("/jobs", state="dead", where="name=mail", sort="-size", after=found["next"])
    assert ids(following["jobs"]) == ["d4", "d3", "d2", "d1"]


def test_a_cursor_of_another_list_is_refused(faces, dead):
    for after in ("12~YWJj", "sorted", "sorted~x~", "sorted~-1~"):
        answer = faces.console.get("/api/v1/jobs", params={"state": "dead", "sort": "-size", "after": after})
        assert answer.status_code == 400, after
        assert "is not a cursor of a sorted list" in answer.json()["error"]


def test_waiting_jobs_of_all_queues_are_sorted_together(faces, redis_url, namespace):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    for name, length in {"alpha": 10, "beta": 300, "gamma": 50}.items():
        enqueuer.enqueue(name, text="x" * length)
    enqueuer.close()
    found = faces.api("/jobs", state="waiting", sort="-size")
    assert [job["name"] for job in found["jobs"]] == ["beta", "gamma", "alpha"]
    assert found["sorted_among"] == 0


def test_limits_keys_and_payload_sizes_are_sorted_alike_everywhere(faces, call, keys, link):
    for name, jobs in {"alpha": 2, "beta": 9}.items():
        limit_name(keys, link, name, {f"{name}-limit": Rate(10, per=60)})
        call("SADD", keys.known_jobs, name)
        call(
            "LPUSH",
            keys.queue(name),
            *(f'{{"name":"{name}","id":"{n}","t":1,"args":{{}}}}' for n in range(jobs)),
        )
    limits = ("alpha-limit", "beta-limit")
    for sort, expected in (("", limits), ("-waiting", limits[::-1])):
        assert [one["name"] for one in faces.api("/limits", sort=sort)] == list(expected)
        assert order_of(faces.page("/limits", sort=sort), *limits) == list(expected)
        assert order_of(faces.run("limits", "ls", "--sort", sort), *limits) == list(expected)
    key_name(keys, link, "scan")
    call("SADD", keys.known_jobs, "scan")
    fill_keys(
        keys, link, "scan", *(("zeta", f'{{"name":"scan","id":"z{n}","t":1,"args":{{}}}}') for n in range(3))
    )
    fill_keys(keys, link, "scan", ("acme", '{"name":"scan","id":"a","t":1,"args":{}}'))
    for sort, expected in (("", ["zeta", "acme"]), ("key", ["acme", "zeta"])):
        assert [one["key"] for one in faces.api("/queue/keys", name="scan", sort=sort)["keys"]] == expected
        assert (
            order_of(faces.page("/queue", name="scan", sort=sort).partition(" Keys ")[2], *expected)
            == expected
        )
        assert order_of(faces.run("queues", "keys", "scan", "--sort", sort), *expected) == expected
    for sort, expected in (("", ["beta", "scan", "alpha"]), ("read", ["alpha", "scan", "beta"])):
        assert [one["name"] for one in faces.api("/payloads", sort=sort)["names"]] == expected
        assert order_of(faces.page("/payloads", sort=sort).partition("By job")[2], *expected) == expected
        assert order_of(faces.run("payloads", "--sort", sort), *expected) == expected


def test_the_audit_and_broken_entries_are_sorted(faces, admin, call, keys):
    admin.acting("max").enqueue("mail", {}, check=False)
    admin.acting("zoe").pause("mail")
    admin.acting("ada").resume("mail")
    assert [one["actor"] for one in faces.api("/audit", sort="who")] == ["ada", "max", "zoe"]
    assert order_of(faces.run("audit", "--sort", "-who"), "zoe", "ada") == ["zoe", "ada"]
    assert order_of(faces.page("/audit", sort="-who"), "zoe", "ada") == ["zoe", "ada"]
    for where in ("queue b", "queue a"):
        head = msgspec.json.encode({"at": 1000, "where": where, "why": "no json"})
        call("RPUSH", keys.broken, head + b"\n{")
    assert [one["where"] for one in faces.api("/broken", sort="where")["entries"]] == ["queue a", "queue b"]
    assert order_of(faces.run("broken", "ls", "--sort", "where"), "queue a", "queue b") == [
        "queue a",
        "queue b",
    ]

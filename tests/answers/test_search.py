"""The search finds the same on its page, over the API and by its command, and shows how much it searched."""

from __future__ import annotations

import re

import pytest

from dayjob import WorkerPool
from dayjob.admin import search
from server import wait_until
from web.conftest import running_console

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def console(redis_url, namespace):
    """A console that hides the arguments of jobs that no pool has announced, as it does by default."""
    with running_console(redis_url, namespace, show_unannounced=False) as found:
        yield found


@pytest.fixture
def shop(namespace, redis_url, call, keys, look, admin):
    """A pool with a schedule, and jobs in several states."""
    pool = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2, beat=0.4, lease=4.0)

    @pool.job
    def send_mail(to: str = "") -> None: ...

    @pool.job(redact=["card"])
    def charge(card: str = "") -> None: ...

    pool.periodic("0 9 * * *", send_mail, name="morning-mail")
    now = int(look.now())
    with pool:
        told = {"err": "TimeoutError: no answer in 30 s", "failed_at": now, "fails": 1, "source": "acme"}
        call(
            "ZADD",
            keys.dead,
            now,
            look.payload("send_mail", "deadbeef01", args={"to": "ada@example.com"}, **told),
        )
        call(
            "ZADD",
            keys.dead,
            now,
            look.payload("charge", "deadbeef02", args={"card": "41114111"}, err="no 41114111", failed_at=now),
        )
        call(
            "ZADD",
            keys.scheduled,
            now + 999,
            look.payload("send_mail", "later-1", args={"to": "bob@example.com"}),
        )
        wait_until(lambda: all(one.status is not None for one in admin.pools().pools))
        yield pool
    pool.enqueuer.close()


def kinds(faces, text: str) -> set[tuple[str, str]]:
    """What the API finds, as kind and name or id."""
    return {
        (one["hit"]["kind"], one["hit"]["id"] or one["hit"]["name"])
        for one in faces.api("/search", q=text)["hits"]
    }


def test_each_kind_of_thing_is_found(faces, shop, admin):
    (pool,) = admin.pools().pools
    assert kinds(faces, "deadbeef") == {("job", "deadbeef01"), ("job", "deadbeef02")}
    assert {("queue", "send_mail"), ("schedule", "morning-mail"), ("job", "later-1")} <= kinds(faces, "MAIL")
    assert ("pool", pool.id) in kinds(faces, pool.status.host)
    assert ("pool", pool.id) in kinds(faces, pool.id[:8])
    assert ("source", "acme") in kinds(faces, "acm")
    # Of a source only the number of its jobs is known.
    assert re.search(r"^source acme \d+ jobs?$", faces.run("find", "acm"), re.MULTILINE)
    assert kinds(faces, "no answer") == {("error", "send_mail"), ("job", "deadbeef01")}
    assert kinds(faces, "bob@example") == {("job", "later-1")}
    assert kinds(faces, "") == kinds(faces, "   ") == set()


def test_what_is_redacted_is_not_found(faces, shop):
    assert kinds(faces, "41114111") == set()
    assert "Nothing was found" in faces.page("/search", q="4111")


def test_the_page_the_command_and_the_api_agree(faces, shop):
    page = faces.page("/search", q="no answer")
    assert "TimeoutError: no answer in # s send_mail 1 job of those searched" in page
    assert "deadbeef01" in page
    printed = faces.run("find", "no answer")
    assert "error send_mail 1 job: TimeoutError: no answer in # s" in printed
    assert "job send_mail deadbeef01 dead TimeoutError: no answer in 30 s" in printed
    assert faces.run_json("find", "no answer")["complete"] is True
    assert "Nothing was found." in faces.run("find", "no such thing", code=1)


def test_every_hit_links_to_a_page_that_exists(faces, shop, admin):
    (pool,) = admin.pools().pools
    texts = ("mail", "acme", "no answer", pool.id)
    links = {one["link"] for text in texts for one in faces.api("/search", q=text)["hits"]}
    assert len(links) >= 6
    for link in links:
        answer = faces.console.get(link, headers={"accept": "text/html"})
        assert answer.status_code == 200, link


def test_a_whole_id_leads_to_its_job(faces, shop):
    answer = faces.console.get("/search", params={"q": "deadbeef01"}, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/job?id=deadbeef01&name=send_mail"


def test_what_was_searched_is_shown_with_a_way_on(faces, call, keys, look, monkeypatch):
    # The console is served by a thread of this process, so that it reads five jobs, too.
    monkeypatch.setattr(search, "MAX_READ", 5)
    for number in range(8):
        call("ZADD", keys.dead, number, look.payload("mail", f"d{number}", err="x", failed_at=1))
    found = faces.api("/search", q="d0")
    assert {"state": "dead", "searched": 5, "total": 8} in found["parts"]
    assert found["complete"] is False
    page = faces.page("/search", q="zzz")
    assert "dead 5 8 Search further" in page
    followed = faces.api("/jobs", state="dead", where="d0")
    assert [job["id"] for job in followed["jobs"]] == ["d0"], "the list searches all of them"


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "a" * 200, "'", '"', "%s{}", "not", "\x1b[2J", "🦆"]
)
def test_hostile_texts_find_nothing_and_break_nothing(faces, shop, text):
    assert kinds(faces, text) == set()
    answer = faces.console.get("/search", params={"q": text}, headers={"accept": "text/html"})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text

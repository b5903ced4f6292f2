"""The history in the console: the pages History, Sources and of one source, the page of a finished job, and the API."""

from __future__ import annotations

import html
import re
import time

import pytest

from dayjob.handlers.describe import Described
from dayjob.store.ops import job_types
from dayjob.store.ops.history import StoredRecord
from records import write_records
from web.test_pages import page, words


@pytest.fixture
def attempts(keys, link):
    """A retried and a completed attempt of id1, and a slow one of id2. Returns when they ended."""
    link.run(job_types.announce(keys, [Described("mail"), Described("scan")]))
    now = time.time()
    common = {"waited": 10_000, "pool": "p1", "source": "ac<me"}
    for name, job_id, ending, number, more in (
        ("mail", "id1", "retried", 1, {"error": "Boom", "ran": 5000}),
        ("mail", "id1", "completed", 2, {"ran": 6000}),
        ("scan", "id2", "completed", 1, {"ran": 90_000_000, "source": "other"}),
    ):
        record = StoredRecord(job_id, ending, int(now * 1000), attempt=number, **(common | more))
        write_records(link, keys, name, record)
    return now


def rows(text):
    """The jobs of the rows of a table."""
    return re.findall(r'<tr data-key="(id\d) ', text)


def test_the_page_lists_attempts_by_filters_in_its_address(console, attempts):
    assert sorted(rows(page(console, "/history"))) == ["id1", "id1", "id2"]
    assert rows(page(console, "/history", outcome="failed")) == ["id1"]
    assert rows(page(console, "/history", name="scan")) == ["id2"]
    assert sorted(rows(page(console, "/history", source="ac<me"))) == ["id1", "id1"]
    assert rows(page(console, "/history", sort="-ran"))[0] == "id2"
    assert rows(page(console, "/history", since=attempts + 3600, until=attempts + 7200)) == []
    assert rows(page(console, "/history", last="1 h", pool="p2")) == []
    assert "No attempt matches" in page(console, "/history", source="nobody")
    page(console, "/history", 400, outcome="strange")
    page(console, "/history", 400, after="strange")


def test_a_bar_leads_to_the_attempts_of_its_moment(console, attempts):
    for path, query in (("/history", {"last": "1 h"}), ("/source", {"source": "other"})):
        text = page(console, path, **query)
        found = [html.unescape(one) for one in re.findall(r'href="(/history\?[^"]*since=[^"]*)"', text)]
        assert found
        assert any(rows(console.get(one, headers={"accept": "text/html"}).text) for one in found)


@pytest.mark.parametrize(
    ("path", "name", "to"),
    [
        ("/", "", "/history"), ("/metrics", "", "/history"), ("/metrics", "mail", "/history"), ("/queue", "mail", "/history"),
        ("/worker_pools", "", "/timeline"), ("/redis", "", "/timeline"),
    ],
)  # fmt: skip
def test_every_chart_over_time_leads_to_what_happened_then(console, attempts, path, name, to):
    # Home has no charts before there is a job.
    console.admin.enqueue("mail", {})
    text = page(console, path, **({"name": name} if name else {}))
    asked = f"name={name}&amp;" if name else ""
    charts = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    over_time = [one for one in charts if 'class="hit"' in one and "data-at" in one]
    assert over_time
    for one in over_time:
        assert re.search(rf'href="{to}\?{asked}since=\d+&amp;until=\d+"', one)
        assert re.search(rf'data-to="{to}\?{asked}since=\d+&amp;until=\d+"', one)


def test_a_finished_job_keeps_its_page(console, attempts):
    for query in ({"id": "id1", "name": "mail"}, {"id": "id1"}):
        text = words(page(console, "/job", **query))
        assert "finished" in text
        assert "Completed" in text
        assert "attempt 1 retried after 5 ms: Boom" in text
    page(console, "/job", 404, id="id3")


def test_sources_lead_to_a_page_of_each(console, attempts):
    text = page(console, "/sources")
    assert 'href="/source?source=ac%3Cme"' in text
    assert words(text).index("other") < words(text).index("ac<me")
    one = words(page(console, "/source", source="ac<me"))
    assert "Attempts 2" in one
    assert "Failed 1" in one
    console.admin.enqueue("mail", {}, source="ac<me")
    assert "Waiting 1 of 1 searched" in words(page(console, "/source", source="ac<me"))
    assert "Attempts 0" in words(page(console, "/source", source="it's new"))


def test_the_api_answers_like_the_page(console, attempts):
    found = console.api("/history", outcome="failed")
    assert [(one["id"], one["error"], one["attempt"]) for one in found["records"]] == [("id1", "Boom", 1)]
    assert (found["searched"], found["next"], found["sample_rate"]) == (1, "", 1.0)
    assert [one["id"] for one in console.api("/history", sort="-ran", size=1)["records"]] == ["id2"]
    assert sum(console.api("/history/counts", steps=3)["ended"]) == 3
    assert [one["source"] for one in console.api("/sources")["sources"]] == ["other", "ac<me"]
    assert [one["outcome"] for one in console.api("/job", id="id1")["attempts"]] == ["retried", "completed"]
    assert console.get("/api/v1/history", params={"outcome": "strange"}).status_code == 400

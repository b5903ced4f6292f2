"""Long tables that are read as a whole: a page shows some rows of them, and leads to the others."""

from __future__ import annotations

import html
import re
import threading

import pytest

from dayjob import Rate
from dayjob.store.ops.history import StoredRecord
from dayjob.web.pages import calendar, failures, history, metrics, pools, queues, redis
from integration.conftest import look, new_pool  # noqa: F401 - fixtures
from keyed import fill_keys, key_name
from records import write_records
from server import wait_until
from web.test_pages import HTML, page, words


def rows(text, part):
    """The names of the rows in one part of a page."""
    section = text.partition(f'data-live="{part}"')[2].partition("</section>")[0]
    return re.findall(r'<th scope="row"[^>]*>(?:<a class="row"[^>]*>)?([^<]*)', section)


def follow(console, path, part, **query):
    """The names of the rows of every page, from the first page on."""
    text = page(console, path, **query)
    found = [rows(text, part)]
    while onward := re.search(r'rel="next" href="([^"]*)"', text):
        text = console.get(html.unescape(onward[1]), headers=HTML).text
        assert "First page" in text
        found.append(rows(text, part))
    return found


def test_figures_of_jobs_are_sorted_as_a_whole(console, call, keys, look, monkeypatch):  # noqa: F811
    """The slowest job runs least often, so it is not among the busiest two."""
    monkeypatch.setattr(metrics, "MAX_JOBS", 2)
    minute = keys.minute(int(look.now() // 60))
    for name, runs, bucket in (("often", 50, 5), ("some", 20, 10), ("seldom", 5, 30)):
        call("HSET", minute, f"{name}|r{bucket}", runs, f"{name}|o", runs)
    assert follow(console, "/metrics", "jobs") == [["often", "some"], ["seldom"]]
    assert follow(console, "/metrics", "jobs", sort="-run_p95") == [["seldom", "some"], ["often"]]
    assert [one.name for one in console.admin.metrics(1, most=1, sort="-run_p95").jobs] == ["seldom"]
    assert [one["name"] for one in console.api("/metrics", most=1, sort="-run_p95")["jobs"]] == ["seldom"]
    assert "3–3 of 3" in words(page(console, "/metrics", offset=2))
    # Beyond the end.
    assert rows(page(console, "/metrics", offset=700), "jobs") == ["often", "some"]


def test_busy_workers_are_paged_and_those_of_one_pool_are_found(console, new_pool, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pools, "MAX_BUSY", 2)
    gate = threading.Event()
    pool = new_pool(concurrency=3, beat=0.2, grace=0.05)
    pool.register("hold", lambda n: gate.wait(300))
    with pool:
        try:
            pool.enqueuer.enqueue_many("hold", [{"n": n} for n in range(3)])
            wait_until(lambda: len(console.admin.busy()) == 3)
            assert follow(console, "/busy_workers", "busy") == [["hold", "hold"], ["hold"]]
            pool_id = console.admin.pools().pools[0].id
            assert follow(console, "/busy_workers", "busy", pool=pool_id) == [["hold", "hold"], ["hold"]]
            assert rows(page(console, "/busy_workers", pool="other"), "busy") == []
        finally:
            gate.set()


def test_the_keys_of_a_queue_are_paged(console, keys, link, monkeypatch):
    monkeypatch.setattr(queues, "MAX_KEYS", 2)
    key_name(keys, link, "scan", kinds={"vendor": Rate(5)})
    jobs = [(tenant, f'{{"name":"scan","id":"{tenant}{n}","t":1,"args":{{}}}}') for tenant, count in (("a", 3), ("b", 2), ("c", 1)) for n in range(count)]  # fmt: skip
    fill_keys(keys, link, "scan", *jobs)
    assert follow(console, "/queue", "keys", name="scan") == [["a", "b"], ["c"]]
    assert follow(console, "/queue", "keys", name="scan", sort="waiting") == [["c", "b"], ["a"]]
    assert [one["key"] for one in console.api("/queue/keys", name="scan", most=1)["keys"]] == ["a"]


@pytest.fixture
def many(console, call, keys, look, link):  # noqa: F811
    """Three sources, groups of failures, and names with payloads and with scheduled jobs."""
    now = int(look.now())
    for name, size in (("a", 900), ("b", 600), ("c", 300)):
        error = {"err": f"ValueError: {name}", "failed_at": now}
        call("ZADD", keys.dead, now, look.payload(name, f"dead-{name}", **error))
        console.admin.enqueue(name, {"text": "x" * size}, check=False, delay=600)
        record = StoredRecord(f"id-{name}", "completed", now * 1000, ran=size * 1_000_000, source=name)
        write_records(link, keys, name, record)


@pytest.mark.parametrize(
    ("module", "most", "path", "part", "expected"),
    [
        (history, "MAX_SOURCES", "/sources", "sources", [["a", "b"], ["c"]]),
        (failures, "MAX_GROUPS", "/failures", "groups", [["ValueError: a", "ValueError: b"], ["ValueError: c"]]),
        (redis, "MAX_NAMES", "/payloads", "names", [["a", "b"], ["c"]]),
        (calendar, "MAX_NAMES", "/calendar", "names", [["a", "b"], ["c"]]),
    ],
)  # fmt: skip
def test_long_tables_are_paged(console, many, monkeypatch, module, most, path, part, expected):
    assert follow(console, path, part) == [sum(expected, [])]
    monkeypatch.setattr(module, most, 2)
    assert follow(console, path, part) == expected

"""Tables that are a part of a page are sorted in place, among all their rows, or lead to the page with all the rows, sorted."""

from __future__ import annotations

import html
import re

import pytest

from answers.fleet import built
from answers.test_questions import KIND
from dayjob.store.ops.history import StoredRecord
from records import write_records

pytestmark = pytest.mark.timeout(900)

#: Tables without an order of their own: a sequence of moments, four callbacks, a ranking, texts to look up, and what a search found.
UNSORTED = {
    "Next ticks",
    "Callbacks",
    "The largest payloads",
    "Codes of errors",
    "Types",
    "What was searched",
}
TABLE = re.compile(r"<table[^>]*><caption[^>]*>([^<]*)</caption><thead>(.*?)</thead>", re.DOTALL)
HEAD = re.compile(r'<a class="sort" href="([^"]*)"')


def tables(faces, path: str) -> dict[str, list[str]]:
    """The tables of a page, without those beside charts: the caption, and where its heads lead."""
    answer = faces.console.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, (path, answer.text)
    without = re.sub(r'<details class="twin".*?</details>', "", answer.text, flags=re.DOTALL)
    return {
        caption: [html.unescape(link) for link in HEAD.findall(head)]
        for caption, head in TABLE.findall(without)
    }


def test_every_table_of_every_page_is_sorted_by_its_heads(faces, admin, new_pool, link, keys, call):
    pool = new_pool(concurrency=3, beat=0.2, grace=0.05, tag="v42")
    step = pool.register("step", lambda n: None)
    with built(admin, pool, link, keys, call) as fleet:
        with pool.batch(description="outer") as batch:
            step.enqueue(n=1)
            with pool.batch(description="inner"):
                step.enqueue(n=2)
        flow = pool.workflow("import")
        flow.add(step, n=1, after=[flow.add(step, n=0)])
        started = flow.start()
        pages = {
            "/", "/queues", "/queue?name=charge", "/queue?name=media", "/queue?name=limited", "/worker_pools", f"/pool?id={fleet.pool_id}", "/pool?id=p1",
            "/busy_workers", "/jobs", "/dead_jobs", "/scheduled_jobs", "/job?id=night-1&name=mail", "/failures", f"/failure?name=charge&kind={KIND.replace('#', '%23')}",
            "/history", "/sources", "/source?source=acme", "/periodic", "/schedule?name=nightly", "/calendar", "/metrics", "/redis", "/payloads",
            "/audit", "/timeline", "/broken", "/batches", f"/batch?id={batch.id}", "/workflows", f"/workflow?id={started.id}", "/enqueue",
        }  # fmt: skip
        found: dict[str, set[str]] = {}
        links: set[str] = set()
        for path in sorted(pages):
            for caption, heads in tables(faces, path).items():
                found.setdefault(caption, set()).update(heads)
                links.update(heads)
        assert {caption for caption, heads in found.items() if not heads} <= UNSORTED
        assert {
            "Running jobs of this queue",
            "Machines and versions",
            "Attempts that this pool ended",
            "Nodes",
            "Nested batches",
        } <= set(found)
        for target in sorted(links):
            tables(faces, target)


def test_a_part_of_the_failures_of_a_queue_is_chosen_after_the_sort(faces, call, keys, look):
    """A queue shows ten groups: the largest ones, or the first ones by another column among all of them."""
    now = int(look.now())
    kinds = [f"{letter * 3}Error: no" for letter in "zyxwvutsrqpo"]
    for number, error in enumerate(kinds):
        for copy in range(20 - number):
            call(
                "ZADD",
                keys.dead,
                now - number,
                look.payload("mail", f"d{number}-{copy}", err=error, failed_at=now),
            )
    call("SADD", keys.known_jobs, "mail")

    def shown(**query: str) -> list[str]:
        return re.findall(r"\w{3}Error", faces.page("/queue", name="mail", **query).partition("Failing")[2])

    assert shown() == [kind[:8] for kind in kinds[:10]]
    assert shown(failing="error") == sorted(kind[:8] for kind in kinds)[:10]
    assert "10 of 12 groups" in faces.page("/queue", name="mail")
    assert "cannot be sorted by" in faces.page("/queue", 400, name="mail", failing="colour")


def test_an_excerpt_leads_to_all_of_its_rows_in_the_order_of_a_column(faces, call, keys, look, link):
    now = look.now()
    records = [
        StoredRecord(
            f"id-{n}", "completed", int(now * 1000) - n * 1000, 1000, 1_000_000 * (n + 1), 0, 1, "p", "acme"
        )
        for n in range(60)
    ]
    write_records(link, keys, "mail", *reversed(records))
    call("SADD", keys.known_jobs, "mail")
    (heads,) = [
        heads for caption, heads in tables(faces, "/source?source=acme").items() if caption == "Last attempts"
    ]
    (slowest,) = [target for target in heads if "sort=-ran" in target]
    assert "A click on a heading sorts all attempts of this source." in faces.page("/source", source="acme")
    page = faces.console.get(slowest, headers={"accept": "text/html"}).text
    assert re.findall(r"<span class=\"sub mono\">(id-\d+)", page)[:2] == ["id-59", "id-58"]

"""Every page in a real browser, light, dark and small: it fits, complains of nothing, and axe finds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe

from dayjob import Rate
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.web.pages import routes
from keyed import fill_keys, key_name
from server import wait_until
from web.browser import window
from web.shop import Shop, shop

#: Pages that are looked at closely on a small screen; each kind of layout is among them.
NARROW = (
    "/",
    "/queues",
    "/dead_jobs",
    "/metrics",
    "/history",
    "/sources",
    "/enqueue?name=greet",
    "/job?id=gone",
)
#: A folder for pictures of every page, to be looked at.
PICTURES = os.environ.get("DAYJOB_TEST_PICTURES")
#: Pages that need no name of anything.
PAGES = [
    route.path
    for route in routes()
    if "{" not in route.path
    and route.path
    not in ("/queue", "/job", "/pool", "/schedule", "/source", "/batch", "/workflow", "/failure")
]


@pytest.fixture
def busy_shop(redis_url: str, namespace: str, keys: Keys, link: Link) -> Iterator[Shop]:
    """A shop with something on every page."""
    with shop(redis_url, namespace) as run:
        run.pool.enqueuer.enqueue("pack", boxes=8)
        run.pool.enqueuer.enqueue("charge", order=7)
        run.pool.enqueuer.enqueue("greet", name="Ada")
        run.admin.enqueue("stray", {"name": "x" * 300, "deep": {"list": [1, 2, 3]}}, source="acme")
        run.admin.enqueue("greet", {"name": "Ada"}, delay=1000)
        run.admin.pause("stray")
        run.fail(3)
        greet = run.pool.find("greet")
        with run.pool.batch(on_success=greet, args={"name": "Ada"}, description="News"):
            greet.using(source="acme").enqueue_many([{"name": "Ada"}, {"name": "Bob"}])
            run.pool.find("pack").enqueue(boxes=8)
        flow = run.pool.workflow("import")
        first = flow.add(greet, name="Ada")
        flow.add(greet, name="Bob", after=[first])
        flow.add(greet, name="Eve", on_failure_of=[first])
        flow.start()
        add_keys(keys, link)
        wait_until(
            lambda: run.admin.busy() and run.admin.verdict().sizes.retry and run.admin.verdict().sizes.done
        )
        wait_until(lambda: run.admin.history(source="acme").records)
        yield run


def places(run: Shop) -> list[str]:
    """Every page, and those of a queue and of a job in each state."""
    found = [
        *PAGES,
        "/queue?name=pack",
        "/queue?name=stray",
        "/enqueue?name=greet",
        "/metrics?name=greet",
        f"/pool?id={run.admin.pools().pools[0].id}",
        "/queue?name=tenants",
        "/source?source=acme",
        f"/batch?id={run.admin.batches().batches[0].id}",
        f"/workflow?id={run.admin.workflows().workflows[0].id}",
        "/search?q=greet",
        "/history?sort=-ran",
        "/jobs?state=running",
        "/job?id=gone",
    ]
    group = run.admin.failures().groups[0]
    found.append(f"/failure?{urlencode({'name': group.name, 'kind': group.kind})}")
    for state in ("dead", "retry", "scheduled", "done", "running"):
        job = run.admin.jobs(state).jobs[0]
        found.append(f"/job?id={job.id}&name={job.name}")
    return found


def add_keys(keys: Keys, link: Link) -> None:
    """A queue with keys and a rate limit."""
    key_name(keys, link, "tenants", places=2, kinds={"vendor": Rate(5)})
    fill_keys(
        keys,
        link,
        "tenants",
        *((key, f'{{"name":"tenants","id":"{key}","t":1,"args":{{}}}}') for key in ("acme", "zeta")),
    )
    link.run(plain("SADD", keys.known_jobs, "tenants"))


def violations(page, rules: list[str] | None = None) -> list[str]:
    """What axe finds wrong on a page, by all its rules or by these."""
    options = {"resultTypes": ["violations"]} | ({} if rules is None else {"runOnly": rules})
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found
        for node in one["nodes"][:3]
    ]


#: What can be tapped and is less than 44 pixels high. What is closed is opened first; the room of a label is that of its box.
SMALL_TARGETS = """() => {
    for (const one of document.querySelectorAll("details")) one.open = true;
    return [...document.querySelectorAll("body > :not(.skip, dialog) :is(a, button, input, select, summary)")]
        .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".cards thead, svg"))
        .map((one) => [one, (one.closest("label") || one).getBoundingClientRect()])
        .filter(([, box]) => box.width && box.height && box.height < 43.5)
        .map(([one, box]) => `${one.tagName} ${one.textContent.trim().slice(0, 40)}: ${box.height}`);
}"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("dark", 360)])
def test_every_page_fits_complains_of_nothing_and_can_be_used_by_all(
    chromium, console, busy_shop, theme, width
):
    wrong: dict[str, object] = {}
    seen: list[str] = []
    # The dark pages differ from the light ones in their colours only.
    rules = ["color-contrast"] if theme == "dark" and width > 1000 else None
    with window(chromium, console.url, color_scheme=theme, viewport={"width": width, "height": 800}) as tab:
        for place in places(busy_shop):
            page = tab.open(place)
            assert page.locator("h1").count() == 1, place
            if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                wrong[f"{place} is too wide"] = page.evaluate("document.documentElement.scrollWidth")
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{theme}-{width}-{len(seen)}.png", full_page=True)
            seen.append(place)
            found = violations(page, rules) if width > 1000 or place in NARROW else []
            if found:
                wrong[place] = found
            if width < 600 and (small := page.evaluate(SMALL_TARGETS)):
                wrong[f"{place} has small targets"] = small
        for shown in ("#help", "#ask", "#work", "#show"):
            tab.page.evaluate(f"document.querySelector('{shown}').showModal()")
            found = violations(tab.page, rules)
            if found:
                wrong[shown] = found
            tab.page.evaluate(f"document.querySelector('{shown}').close()")
        assert not wrong
        assert not tab.complaints

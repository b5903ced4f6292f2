"""Every page in a real browser: light and dark, large and small, hostile contents, under a prefix, with Redis away."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob import Admin
from dayjob.admin.client import AsyncAdmin
from dayjob.web import create_app
from server import running
from web.browser import window
from web.conftest import running_console, serving
from web.shop import HOSTILE, poison

#: A browser is slow on a busy machine.
pytestmark = pytest.mark.timeout(600)

#: Pages that show what others wrote.
PAGES = (
    "/", "/queues", "/jobs", "/scheduled_jobs", "/retry_jobs", "/dead_jobs", "/done_jobs", "/failures", "/broken",
    "/enqueue", "/metrics",
)  # fmt: skip


def test_the_theme_is_that_of_the_system(chromium, console):
    for theme in ("light", "dark"):
        with window(chromium, console.url, color_scheme=theme) as tab:
            page = tab.open("/")
            background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert (sum(map(int, background[4:-1].split(","))) > 382) == (theme == "light")


def test_rows_are_cards_on_a_telephone_and_the_menu_opens(chromium, console):
    console.admin.enqueue("greet", {})
    with window(chromium, console.url, viewport={"width": 360, "height": 700}, has_touch=True) as tab:
        page = tab.open("/")
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Queues").first.click()
        page.wait_for_url("**/queues")
        assert page.locator("thead").first.bounding_box()["height"] <= 1
        cell = page.locator("tbody td").first
        assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Waiting"'
        assert not tab.complaints


def test_hostile_names_arguments_errors_and_sources_stay_text(chromium, console, link, keys):
    poison(link, keys)
    with window(chromium, console.url) as tab:
        for place in PAGES:
            page = tab.open(place)
            assert page.locator("main script, main img, main svg[onload]").count() == 0, place
        for bad in (*HOSTILE[:2], HOSTILE[4], HOSTILE[7]):
            page = tab.open("/queues")
            page.locator("a.row", has_text=bad).filter(has_text=bad).first.click()
            page.wait_for_url("**/queue?**")
            assert bad in page.locator("h1").text_content()
            page.locator("tbody a.row").first.click()
            page.wait_for_url("**/job?**")
            assert bad in page.locator("main").text_content()
            assert page.locator("[data-live=job]").count() == 1
        page = tab.open("/dead_jobs")
        page.get_by_role("button", name="Delete", exact=True).first.click()
        assert page.locator("#ask img, #ask script").count() == 0
        tab.confirm()
        tab.told("Deleted.")
        assert not tab.complaints


def test_a_hostile_queue_is_paused_by_its_own_name(chromium, console, link, keys):
    poison(link, keys)
    # Names that no job may have are refused in words; a name with a dot and one of another script are fine.
    with window(chromium, console.url) as tab:
        tab.open("/queues?q=..")
        tab.post("Pause")
        tab.told("Paused.")
    assert {one.queue.name for one in console.admin.queues().queues if one.queue.paused} == {".."}


def test_all_works_under_a_prefix(chromium, redis_url, namespace):
    inner = create_app(AsyncAdmin(namespace, redis=redis_url))
    outer = Starlette(
        routes=[Mount("/ops/jobs", inner)], lifespan=lambda _: inner.router.lifespan_context(inner)
    )
    with Admin(namespace, redis=redis_url) as admin, serving(outer, mounted=inner) as (url, _):
        admin.enqueue("greet", {"name": "Ada"})
        with window(chromium, f"{url}/ops/jobs") as tab:
            page = tab.open("/")
            page.get_by_role("link", name="Queues").first.click()
            page.wait_for_url("**/ops/jobs/queues")
            tab.post("Pause")
            tab.told("Paused.")
            assert admin.queue("greet").view.queue.paused
            page.locator("a.row").first.click()
            page.locator("tbody a.row").first.click()
            page.wait_for_url("**/ops/jobs/job?**")
            admin.resume("greet")
            page.wait_for_function("document.querySelector('#live').dataset.is === 'live'")
            assert not tab.complaints
            page.goto("about:blank")


def test_a_page_heals_by_itself_when_redis_comes_back(chromium, namespace, tmp_path):
    with (
        running(tmp_path, "--appendonly", "yes") as server,
        running_console(server.url, namespace) as console,
    ):
        console.admin.enqueue("greet", {})
        with window(chromium, console.url) as seen, window(chromium, console.url) as late:
            seen.open("/queues").get_by_text("greet").first.wait_for()
            server.stop()
            seen.page.get_by_text("Redis does not answer.").wait_for()
            # What was seen before stays on the page.
            assert seen.page.locator("a.row", has_text="greet").count() == 1
            late.open("/queues").get_by_text("Redis does not answer.").wait_for()
            server.start()
            for tab in (seen, late):
                tab.page.get_by_text("Redis does not answer.").wait_for(state="detached")
                tab.page.locator("a.row", has_text="greet").wait_for()
                tab.page.wait_for_selector("#live[data-is=live]")
            late.post("Pause")
            late.told("Paused.")

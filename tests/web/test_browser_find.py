"""Finding in a real browser: sorted tables, filters, and the search."""

from __future__ import annotations

import re

import pytest

from web.browser import window

#: A browser is slow on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def queues(console):
    """Two queues; the second has more jobs."""
    console.admin.enqueue("alpha", {})
    for _ in range(3):
        console.admin.enqueue("beta", {})


def rows(page) -> list[str]:
    return page.locator("tbody a.row").all_text_contents()


def test_the_heads_of_a_table_sort_it(chromium, console, queues):
    with window(chromium, console.url) as tab:
        page = tab.open("/queues?show=waiting")
        head = page.get_by_role("columnheader", name="Waiting")
        assert head.get_attribute("aria-sort") == "none"
        assert page.get_by_role("columnheader", name="Queue").get_attribute("aria-sort") == "ascending"
        head.get_by_role("link").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/queues?show=waiting&sort=-waiting")
        assert head.get_attribute("aria-sort") == "descending"
        assert rows(page) == ["beta", "alpha"]
        head.get_by_role("link").click()
        page.wait_for_url("**/queues?show=waiting&sort=waiting")
        assert head.get_attribute("aria-sort") == "ascending"
        assert rows(page) == ["alpha", "beta"]
        assert not tab.complaints


def test_on_a_telephone_the_same_links_are_above_the_cards(chromium, console, queues):
    with window(chromium, console.url, viewport={"width": 360, "height": 700}, has_touch=True) as tab:
        page = tab.open("/queues")
        link = page.get_by_role("navigation", name="Sort: Queues").get_by_role("link", name="Waiting")
        assert link.bounding_box()["height"] >= 44
        link.tap()
        page.wait_for_url("**/queues?sort=-waiting")
        assert rows(page) == ["beta", "alpha"]
        assert not tab.complaints


def test_the_palette_is_opened_used_and_closed_by_keys(chromium, console, queues):
    with window(chromium, console.url) as tab:
        page = tab.open("/")
        page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Search for")
        field.wait_for()
        page.keyboard.type("bet")
        option = page.get_by_role("option", name="beta queue")
        option.wait_for()
        page.keyboard.press("ArrowDown")
        page.locator("[role=option][aria-selected=true]", has_text="waiting").wait_for()
        page.keyboard.press("ArrowUp")
        page.locator("[role=option][aria-selected=true]", has_text="queue").wait_for()
        page.keyboard.press("Escape")
        page.locator("#palette").wait_for(state="hidden")
        page.keyboard.press("Control+k")
        page.keyboard.type("redis")
        page.get_by_role("option", name="Redis").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/redis")
        page.keyboard.press("Control+k")
        page.keyboard.type("beta")
        page.get_by_role("option", name="beta queue").wait_for()
        page.keyboard.press("Control+Enter")
        page.wait_for_url("**/search?q=beta")
        assert not tab.complaints


def test_the_search_works_without_a_script(chromium, console, queues):
    with window(chromium, console.url, java_script_enabled=False) as tab:
        tab.page.goto(console.url + "/")
        tab.page.get_by_role("searchbox", name="Search everywhere").fill("alpha")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url("**/search?q=alpha")
        tab.page.get_by_role("link", name="alpha").first.click()
        tab.page.wait_for_url("**/queue?name=alpha")


def test_a_filter_that_is_refused_is_explained_above_the_list(chromium, console, queues):
    with window(chromium, console.url) as tab:
        page = tab.open("/dead_jobs")
        page.locator("#where").fill("args.password=x")
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("args.password is redacted").wait_for()


def test_a_click_on_a_time_shows_every_moment_with_its_zone(chromium, console, queues):
    console.admin.acting("ada").pause("alpha")
    with window(chromium, console.url, timezone_id="Europe/Paris") as tab:
        page = tab.open("/audit")
        time = page.locator("main time").first
        assert re.fullmatch("now|.* ago", time.text_content())
        time.click()
        page.wait_for_function(
            "/^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d (CET|CEST|GMT)/.test(document.querySelector('main time').textContent)"
        )
        page = tab.open("/audit")
        assert page.locator("main time").first.text_content()[:2] == "20", "it is kept"
        page.keyboard.press("z")
        page.wait_for_function("!/^20/.test(document.querySelector('main time').textContent)")
        assert not tab.complaints


def test_on_a_telephone_a_queue_is_two_lines_and_targets_are_large(chromium, console, queues):
    with window(chromium, console.url, viewport={"width": 380, "height": 800}, has_touch=True) as tab:
        page = tab.open("/queues")
        cells = [
            page.locator("tbody tr").first.locator(f"td[data-l={label}]")
            for label in ("Waiting", "Oldest", "Running")
        ]
        tops = {round(cell.bounding_box()["y"]) for cell in cells}
        assert len(tops) == 1, "the figures are in one line"
        assert not page.locator("tbody td[data-l=Workers]").first.is_visible()
        for target in page.locator(
            "main a:not(thead a):visible, main button:visible, main input:visible"
        ).all():
            if not target.evaluate("one => one.closest('.sub, p, .skip')"):
                assert target.bounding_box()["height"] >= 43.5, target.evaluate("one => one.outerHTML")
        assert not tab.complaints


def test_the_verdict_is_a_list_with_what_to_do(chromium, console, queues):
    console.admin.acting("ada").pause("beta")
    with window(chromium, console.url) as tab:
        page = tab.open("/")
        notes = page.get_by_role("region", name="Verdict").get_by_role("listitem")
        assert "No pool is running" in notes.first.text_content()
        assert "Start one: dayjob worker" in notes.first.text_content()
        paused = notes.filter(has_text='"beta" is paused')
        assert "Began" in paused.text_content()
        paused.get_by_role("link").click()
        page.wait_for_url("**/queue?name=beta")

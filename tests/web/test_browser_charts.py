"""Charts and the pages that they lead to, in a real browser."""

from __future__ import annotations

import re

import pytest

from server import wait_until
from web.browser import window

#: A browser is slow on a busy machine.
pytestmark = pytest.mark.timeout(600)


def test_a_bar_of_the_calendar_says_what_it_is_and_leads_to_its_jobs(console, tab):
    console.admin.enqueue("early", {}, delay=600)
    console.admin.enqueue("late", {}, delay=1800)
    page = tab.open("/calendar")
    bar = page.locator(".hit[data-say^='1 scheduled']").last
    bar.hover()
    page.locator("[data-tip]", has_text="1 scheduled, 0 retry, 0 periodic").wait_for()
    bar.click()
    page.wait_for_url(re.compile(r"since=\d+"))
    page.locator("[data-live=coming]", has_text="late").wait_for()
    assert page.locator("[data-live=coming]", has_text="early").count() == 0
    # The same by keyboard: the table of the chart has links.
    page.goto(f"{console.url}/calendar")
    page.get_by_text("As a table").click()
    page.locator("figure tbody a").last.click()
    page.wait_for_url(re.compile(r"since=\d+"))


def test_labels_of_the_time_axis_are_in_the_zone_of_the_reader(chromium, console):
    shown = []
    for zone in ("UTC", "Asia/Tokyo"):
        with window(chromium, console.url, timezone_id=zone) as tab:
            page = tab.open("/metrics?hours=24")
            # Both at once: the page goes on by itself.
            shown.append(
                page.locator(".xlabels text").first.evaluate("one => [one.textContent, one.dataset.at]")
            )
    for (text, at), hours in zip(shown, (0, 9), strict=True):
        assert int(text[:2]) == (float(at) // 3600 + hours) % 24


def test_a_group_of_failures_gets_a_note_and_is_ignored(console, tab, redis_url, namespace):
    admin = console.admin
    admin.enqueue("charge", {}, check=False)
    (job,) = admin.jobs("waiting", name="charge").jobs
    admin.kill(job)
    wait_until(lambda: admin.failures().groups)
    group = admin.failures().groups[0]
    page = tab.open("/failures")
    page.locator("main a.row").click()
    page.get_by_role("button", name="Add a note").click()
    page.get_by_role("textbox", name="Note").fill("the bank works on it")
    page.get_by_role("button", name="Save").click()
    page.locator("[data-live=notes]", has_text="the bank works on it").wait_for()
    page.get_by_role("button", name="Ignore").click()
    page.get_by_role("textbox", name="For how long").fill("2h")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Show again").wait_for()
    mark = admin.failure_group(group.name, group.kind).group.mark
    assert mark.note == "the bank works on it"
    assert mark.ignored_until - admin.verdict().now == pytest.approx(7200, abs=600)
    page.get_by_role("button", name="Show again").click()
    page.get_by_role("button", name="Ignore").wait_for()

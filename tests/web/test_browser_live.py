"""Live pages: what changes shows by itself, rows stay under the pointer, and the reader's choices are kept."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from server import wait_until
from web.browser import window
from web.shop import shop

#: A browser is slow on a busy machine.
pytestmark = pytest.mark.timeout(600)


def ids(tab) -> list[str]:
    """The jobs on the page, from the top."""
    return tab.page.locator("tbody .id").all_text_contents()


def put(console, number: int) -> None:
    for n in range(number):
        console.admin.enqueue("greet", {"n": n}, delay=1000 - n)


def test_what_comes_in_shows_by_itself_and_what_is_open_stays_open(console, tab):
    console.admin.enqueue("greet", {})
    page = tab.open("/queues")
    page.locator("tr", has_text="greet").wait_for()
    page.fill("[data-filter]", "half a wo")
    console.admin.enqueue("welcome", {})
    page.locator("tr", has_text="welcome").wait_for()
    assert page.input_value("[data-filter]") == "half a wo"
    page.locator("nav .n", has_text="2").first.wait_for()


@pytest.mark.parametrize("held_back", [False, True])
def test_a_page_polls_where_the_stream_cannot_pass(console, tab, held_back):
    """A server refuses it, or a proxy collects it for ever."""
    tab.page.clock.install()
    tab.page.route("**/events", lambda route: held_back or route.fulfill(status=204))
    console.admin.enqueue("greet", {})
    page = tab.open("/queues")
    page.locator("tr", has_text="greet").wait_for()
    page.clock.fast_forward(6000)
    console.admin.enqueue("welcome", {})
    page.locator("tr", has_text="welcome").wait_for()
    page.locator("#live[data-is=live]").wait_for()


def test_the_verdict_changes_in_place(console, tab):
    page = tab.open("/")
    page.locator("[aria-live=polite]", has_text="Nothing has ever run in namespace").wait_for()
    assert page.locator("[aria-live]").count() == 1
    page.get_by_text("Nothing has happened here yet").wait_for()
    console.admin.enqueue("greet", {})
    page.locator("[aria-live=polite]", has_text="No pool is running and 1 job").wait_for()
    page.locator(".tile", has_text="Waiting").wait_for()
    expect(page.get_by_text("Nothing has happened here yet")).to_have_count(0)


def test_rows_under_the_pointer_stay_and_new_ones_wait_for_a_click(console, tab):
    put(console, 3)
    page = tab.open("/scheduled_jobs")
    before = ids(tab)
    page.locator("tbody tr").nth(1).hover()
    for n in range(4):
        console.admin.enqueue("greet", {"sooner": n}, delay=10 + n)
    console.admin.delete(before[0], state="scheduled")
    page.locator("#fresh", has_text="4 new").wait_for()
    assert ids(tab) == before
    page.locator("tr.gone").wait_for()
    page.locator("#fresh").click()
    expect(page.locator("tbody tr")).to_have_count(6)
    expect(page.locator("#fresh")).to_be_hidden()
    expect(page.locator("tr.gone")).to_have_count(0)


def test_rows_follow_once_the_pointer_has_left(console, tab):
    put(console, 2)
    page = tab.open("/scheduled_jobs")
    page.locator("tbody tr").first.hover()
    console.admin.enqueue("greet", {}, delay=5000)
    page.locator("#fresh", has_text="1 new").wait_for()
    page.mouse.move(0, 0)
    expect(page.locator("tbody tr")).to_have_count(3)


def test_a_selection_survives_what_comes_in(console, tab):
    put(console, 3)
    page = tab.open("/scheduled_jobs")
    page.locator("[data-pick]").nth(2).check()
    page.mouse.move(0, 0)
    console.admin.enqueue("greet", {}, delay=10)
    page.locator("#fresh", has_text="1 new").wait_for()
    expect(page.locator("[data-pick]:checked")).to_have_count(1)
    expect(page.get_by_text("1 selected")).to_be_visible()


def bury(console, call, keys, ids) -> None:
    """Put dead jobs in, each later than the one before."""
    for n, job_id in ids:
        told = {"name": "greet", "id": job_id, "t": 1, "args": {}, "fails": 1, "err": "no"}
        call("ZADD", keys.dead, 1_700_000_000 + n, json.dumps(told))


def test_a_picked_job_that_new_ones_push_off_the_page_stays_picked_until_it_is_gone(console, tab, call, keys):
    bury(console, call, keys, [(n, f"old-{n}") for n in range(52)])
    page = tab.open("/dead_jobs")
    # The last two rows of the first page.
    for job_id in ("old-3", "old-2"):
        page.get_by_label(f"Select greet {job_id}", exact=True).check()
    page.mouse.move(0, 0)
    bury(console, call, keys, [(100 + n, f"new-{n}") for n in range(10)])
    page.locator("#fresh", has_text="10 new").wait_for()
    page.get_by_text("2 selected").wait_for()
    # Also when the new ones are shown.
    page.locator("#fresh").click()
    page.get_by_text("new-9", exact=True).wait_for()
    expect(page.get_by_label("Select greet old-3", exact=True)).to_be_checked()
    expect(page.get_by_label("Select greet old-2", exact=True)).to_be_checked()
    page.get_by_text("2 selected").wait_for()
    (gone,) = console.admin.jobs("dead", where="id=old-2").jobs
    assert console.admin.delete(gone).done
    page.get_by_text("1 selected").wait_for()
    page.locator("#pickbar").get_by_role("button", name="Delete").click()
    tab.confirm()
    tab.told("1 done.")
    assert not console.admin.jobs("dead", where="id=old-3").jobs
    assert console.admin.verdict().sizes.dead == 60


def test_a_picked_job_in_a_queue_stays_picked_until_it_is_gone(console, tab):
    for n in range(3):
        console.admin.enqueue("greet", {"n": n})
    page = tab.open("/jobs?name=greet")
    page.locator("[data-pick]").nth(0).check()
    page.locator("[data-pick]").nth(2).check()
    page.mouse.move(0, 0)
    first = console.admin.jobs("waiting", name="greet").jobs[0]
    assert console.admin.delete(first).done
    page.get_by_text("1 selected").wait_for()


def test_a_job_that_ends_while_it_is_watched_is_shown_as_ended(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        job = run.pool.enqueuer.enqueue("pack", boxes=8)
        wait_until(lambda: any(one.progress for one in run.admin.busy()))
        page = tab.open(f"/job?id={job.id}")
        page.get_by_role("heading", name="Running now").wait_for()
        page.get_by_role("button", name="Cancel").wait_for()
        run.gate.set()
        # The history knows how it ended, at most a second later.
        note = re.compile("This job ended while you watched: it completed, or it was deleted|^Completed ")
        page.locator("[data-live=job] > .note", has_text=note).wait_for()
        expect(page.get_by_role("heading", name="Running now")).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        expect(page.locator("main")).not_to_contain_text("running", ignore_case=True)
        expect(page.get_by_role("link", name="Enqueue one like it")).to_be_visible()
        expect(page.locator("#down")).to_have_text("")


def test_nothing_is_asked_while_the_tab_is_hidden_or_paused(console, tab):
    tab.page.clock.install()
    page = tab.open("/queues")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def hide(hidden: str) -> None:
        page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    hide("true")
    asked.clear()
    console.admin.enqueue("greet", {})
    page.clock.run_for(20_000)
    assert asked == []
    hide("false")
    page.locator("tr", has_text="greet").wait_for()
    page.keyboard.press("p")
    page.locator("#live", has_text="Paused").wait_for()
    asked.clear()
    console.admin.enqueue("welcome", {})
    page.clock.run_for(20_000)
    assert asked == []
    page.keyboard.press("p")
    page.locator("tr", has_text="welcome").wait_for()


def test_times_go_on_and_say_the_moment(console, tab):
    console.admin.enqueue("greet", {}, delay=3600)
    page = tab.open("/scheduled_jobs")
    time = page.locator("tbody time").first
    expect(time).to_have_text(re.compile("^in (60|5[0-9]) min$"))
    assert time.get_attribute("title")[:2] == "20"


@pytest.mark.parametrize(
    ("zone", "named"), [("UTC", "UTC"), ("Asia/Tokyo", "GMT+9"), ("Europe/London", "GMT")]
)
def test_a_moment_carries_the_time_zone_of_the_reader(console, chromium, keys, call, zone, named):
    told = b'{"name":"greet","id":"one","t":1,"args":{}}'
    call("ZADD", keys.scheduled, 2_524_608_000, told)  # the first second of 2050
    with window(chromium, console.url, timezone_id=zone) as tab:
        time = tab.open("/scheduled_jobs").locator("tbody time").first
        hour = "09" if zone == "Asia/Tokyo" else "00"
        assert time.get_attribute("title") == f"2050-01-01 {hour}:00:00 {named}"


# Filters, keys, settings.


def test_a_filter_lives_in_the_address(console, tab):
    put(console, 2)
    console.admin.enqueue("other", {}, delay=900)
    page = tab.open("/scheduled_jobs")
    page.keyboard.press("/")
    page.keyboard.type("name=other")
    page.keyboard.press("Enter")
    page.wait_for_url("**/scheduled_jobs?where=name%3Dother")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.reload()
    expect(page.locator("#where")).to_have_value("name=other")


def test_the_keyboard_goes_everywhere(console, tab):
    put(console, 3)
    page = tab.open("/")
    page.keyboard.press("?")
    page.locator("#help[open]").get_by_text("Next row").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/scheduled_jobs")
    page.wait_for_selector("#live[data-is=live]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_text("1 selected").wait_for()
    expect(page.locator("tbody tr").nth(1).locator("[data-pick]")).to_be_checked()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/job?**")
    for key, path in (("h", "/"), ("q", "/queues"), ("f", "/failures"), (",", "/settings")):
        page.wait_for_selector("#live[data-is=live]")
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{console.url}{path}")


def test_the_theme_and_other_settings_are_kept_in_the_browser(chromium, console):
    with window(chromium, console.url, color_scheme="light", timezone_id="Asia/Tokyo") as tab:
        page = tab.open("/settings")
        assert page.get_by_role("radio", name="2 s").is_checked()
        page.get_by_role("radio", name="Dark").check()
        page.get_by_role("radio", name="Compact").check()
        page.get_by_role("radio", name="UTC").check()
        page.get_by_role("radio", name="Never").check()
        tab.open("/")
        root = page.locator("html")
        expect(root).to_have_attribute("data-theme", "dark")
        expect(root).to_have_attribute("data-density", "compact")
        expect(page.locator("#live")).to_have_attribute("data-is", "held")
        console.admin.enqueue("greet", {}, delay=3600)
        tab.open("/scheduled_jobs")
        assert page.locator("tbody time").first.get_attribute("title").endswith(" UTC")
        page.keyboard.press("t")
        expect(root).to_have_attribute("data-theme", "light")
        tab.open("/settings")
        expect(page.get_by_role("radio", name="Light")).to_be_checked()
        assert not tab.complaints


def test_what_can_be_copied_is_copied(chromium, console):
    console.admin.enqueue("greet", {"name": "Ada"})
    (job,) = console.admin.jobs("waiting", name="greet").jobs
    with window(chromium, console.url, permissions=["clipboard-read", "clipboard-write"]) as tab:
        page = tab.open(f"/job?id={job.id}")
        page.get_by_role("button", name="Copy: as a command").click()
        page.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("dayjob enqueue greet --json")


def test_a_chart_says_what_a_bar_is(console, tab):
    console.admin.enqueue("greet", {})
    page = tab.open("/metrics")
    figure = page.locator("figure", has_text="Completed and failed")
    figure.locator(".hit").last.hover()
    figure.locator("[data-tip]", has_text="0 completed, 0 failed").wait_for()
    figure.get_by_text("As a table").click()
    figure.locator("table").wait_for()
    # It stays open while the page goes on.
    with page.expect_response("**/metrics"):
        pass
    page.locator("#live.beat").wait_for()
    expect(page.locator("figure details[open]")).to_have_count(1)


def test_a_job_is_followed_from_state_to_state_and_its_frames_stay_as_chosen(
    console, tab, redis_url, namespace
):
    console.admin.enqueue("charge", {"order": 7})
    (job,) = console.admin.jobs("waiting", name="charge").jobs
    page = tab.open(f"/job?id={job.id}")
    page.locator("h1", has_text="waiting").wait_for()
    with shop(redis_url, namespace):
        page.locator("h1", has_text="retry").wait_for()
        page.get_by_role("button", name="All frames").click()
        with page.expect_response("**/job?**"):
            pass
        expect(page.locator("[data-own='']")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#trace")).not_to_have_class("trace own")
        expect(page.locator("#trace .lib").first).to_be_visible()


def test_a_job_that_ends_while_one_reads_is_said_to_be_gone(console, tab):
    console.admin.enqueue("greet", {"name": "Ada"})
    (job,) = console.admin.jobs("waiting", name="greet").jobs
    page = tab.open(f"/job?id={job.id}")
    console.admin.delete(job)
    page.locator("[data-live=job] > .note", has_text="it completed, or it was deleted.").wait_for()
    assert page.locator("pre", has_text="Ada").count() >= 1

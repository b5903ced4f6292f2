"""Every action of the console, done by hand in a real browser; Admin says whether it came to pass."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.sync_api import expect

from dayjob import Admin
from dayjob.store.async_link import AsyncLink
from dayjob.store.op import plain
from dayjob.web.v1.streams import StreamedWork
from server import wait_until
from web.shop import shop

#: A browser is slow on a busy machine.
pytestmark = pytest.mark.timeout(600)


def queue(admin: Admin, name: str):
    """A queue as Admin sees it."""
    return admin.queue(name).view.queue


# Queues.


def test_a_queue_is_paused_and_resumed_from_the_list(console, tab):
    console.admin.enqueue("greet", {})
    tab.open("/queues")
    tab.post("Pause")
    tab.told("Paused.")
    assert queue(console.admin, "greet").paused
    tab.page.locator("tr", has_text="greet").get_by_text("paused").wait_for()
    tab.post("Resume")
    tab.told("Resumed.")
    assert not queue(console.admin, "greet").paused


def test_queues_are_paused_and_resumed_by_a_pattern(console, tab):
    for name in ("mail.a", "mail.b", "scan"):
        console.admin.enqueue(name, {})
    tab.open("/queues")
    tab.post("Pause by name…")
    tab.page.locator("#ask-typed").fill("mail.*")
    tab.confirm()
    tab.told("2 queues: Paused.")
    assert [queue(console.admin, name).paused for name in ("mail.a", "mail.b", "scan")] == [True, True, False]
    tab.post("Resume by name…")
    assert tab.page.locator("#ask-typed").input_value() == "*"
    tab.confirm()
    tab.told("2 queues: Resumed.")
    assert not any(one.queue.paused for one in console.admin.queues().queues)
    tab.post("Resume by name…")
    tab.confirm()
    tab.told("Nothing was to be changed.")


def test_a_limit_is_set_and_lifted(console, tab):
    console.admin.enqueue("greet", {})
    tab.open("/queue?name=greet")
    tab.post("Limit…")
    tab.page.fill("#ask-typed", "3")
    tab.page.keyboard.press("Enter")
    tab.told("At most 3 at once.")
    assert queue(console.admin, "greet").limit == 3
    tab.page.get_by_role("button", name="Limit: 3…").click()
    tab.page.fill("#ask-typed", "")
    tab.confirm()
    tab.told("No limit any more.")
    assert queue(console.admin, "greet").limit is None


def test_a_queue_is_purged_once_its_name_is_typed(console, tab):
    for n in range(30):
        console.admin.enqueue("greet", {"n": n})
    tab.open("/queue?name=greet")
    tab.post("Purge…")
    yes = tab.page.locator("#ask [value=yes]")
    yes.wait_for()
    assert yes.is_disabled()
    tab.page.fill("#ask-typed", "gree")
    assert yes.is_disabled()
    tab.page.fill("#ask-typed", "greet")
    yes.click()
    tab.told("30")
    assert queue(console.admin, "greet").size == 0
    tab.page.get_by_text("No job waits in this queue").wait_for()


# Jobs.


def test_a_scheduled_job_runs_now_and_another_is_deleted_after_a_question(console, tab):
    for name in ("first", "second"):
        console.admin.enqueue(name, {}, delay=1000)
    tab.open("/scheduled_jobs")
    row = tab.page.locator("tr", has_text="first")
    row.get_by_role("button", name="Run now").click()
    tab.told('In the queue "first" now.')
    assert queue(console.admin, "first").size == 1
    row = tab.page.locator("tr", has_text="second")
    row.get_by_role("button", name="Delete").click()
    tab.page.locator("#ask").get_by_text("Cancel", exact=True).click()
    assert console.admin.verdict().sizes.scheduled == 1
    row.get_by_role("button", name="Delete").click()
    tab.confirm()
    tab.told("Deleted.")
    assert console.admin.verdict().sizes.scheduled == 0
    # Once the pointer is away, the empty page says so.
    tab.page.mouse.move(0, 0)
    tab.page.get_by_text("Nothing is scheduled").wait_for()


def test_a_job_is_killed_and_retried_on_its_page(console, tab):
    console.admin.enqueue("greet", {"name": "Ada"})
    (job,) = console.admin.jobs("waiting", name="greet").jobs
    tab.open(f"/job?id={job.id}")
    tab.post("Kill")
    tab.confirm()
    tab.told("Dead now.")
    tab.page.locator("h1", has_text="dead").wait_for()
    tab.post("Retry")
    tab.told('Back in the queue "greet".')
    tab.page.locator("h1", has_text="waiting").wait_for()
    assert queue(console.admin, "greet").size == 1


def test_a_job_that_moved_on_is_left_alone_and_that_is_said(console, tab):
    console.admin.enqueue("greet", {}, delay=1000)
    (job,) = console.admin.jobs("scheduled").jobs
    tab.open("/scheduled_jobs")
    tab.page.get_by_role("button", name="Pause or resume").or_(tab.page.locator("#live")).first.click()
    console.admin.run_now(job)
    tab.page.locator("tr", has_text="greet").get_by_role("button", name="Run now").click()
    tab.told("It has moved on")


def test_a_selection_is_made_with_the_shift_key_and_acted_on(console, tab):
    for n in range(8):
        console.admin.enqueue("greet", {"n": n}, delay=1000 + n)
    tab.open("/scheduled_jobs")
    boxes = tab.page.locator("[data-pick]")
    boxes.nth(1).click()
    boxes.nth(5).click(modifiers=["Shift"])
    tab.page.get_by_text("5 selected").wait_for()
    tab.page.locator("#pickbar").get_by_role("button", name="Delete").click()
    tab.confirm()
    tab.told("5 done.")
    left = console.admin.jobs("scheduled").jobs
    assert [job.args["n"] for job in left] == [0, 6, 7]
    tab.page.locator("[data-all]").click()
    tab.page.get_by_text("3 selected").wait_for()
    tab.page.keyboard.press("Escape")
    expect(tab.page.locator("#pickbar")).to_be_hidden()


def test_everything_that_matches_is_counted_first_and_done_in_steps(console, tab):
    for n in range(230):
        console.admin.enqueue("greet", {"n": n}, delay=1000, source="even" if n % 2 == 0 else "odd")
    tab.open("/scheduled_jobs?where=source%3Deven")
    tab.post("Delete all matching…")
    ask = tab.page.locator("#ask", has_text="115 jobs in scheduled where source=even")
    ask.get_by_role("button", name="Delete 115 matching").wait_for()
    tab.confirm()
    tab.told("115 jobs matched, 115 changed.")
    assert console.admin.verdict().sizes.scheduled == 115
    assert {job.source for job in console.admin.jobs("scheduled", size=500).jobs} == {"odd"}


@pytest.fixture
def patient_work(monkeypatch):
    """After its first progress, an action in steps sends nothing until its client has left: a browser may be slow to stop it."""
    begun: dict[asyncio.Task, asyncio.Event] = {}
    report, stop, run_many, run = StreamedWork.report, StreamedWork.stop, AsyncLink.run_many, AsyncLink.run

    def reporting(self, progress):
        begun.setdefault(self.task, asyncio.Event())
        return report(self, progress)

    def stopping(self):
        stop(self)
        if self.task in begun:
            begun[self.task].set()

    async def held():
        left = begun.get(asyncio.current_task())
        if left is not None:
            await left.wait()

    async def one(self, op):
        await held()
        return await run(self, op)

    async def many(self, ops):
        await held()
        return await run_many(self, ops)

    monkeypatch.setattr(StreamedWork, "report", reporting)
    monkeypatch.setattr(StreamedWork, "stop", stopping)
    monkeypatch.setattr(AsyncLink, "run", one)
    monkeypatch.setattr(AsyncLink, "run_many", many)


@pytest.mark.usefixtures("patient_work")
def test_work_in_steps_can_be_stopped_on_the_way(console, tab, link, keys):
    for first in range(0, 60_000, 1000):
        flat: list[object] = []
        for n in range(first, first + 1000):
            flat += [
                1e9 + n,
                json.dumps({"name": "greet", "id": f"j{n}", "t": 1, "args": {}, "fails": 1, "err": "no"}),
            ]
        link.run(plain("ZADD", keys.dead, *flat))
    tab.open("/dead_jobs")
    tab.post("Delete all…")
    tab.page.locator("#ask", has_text="60,000 jobs in dead").wait_for()
    # In the page itself, at the first word of progress: the work may be done before a click from here arrives.
    tab.page.evaluate(
        """() => {
            const work = document.querySelector("#work");
            new MutationObserver((_, me) => {
                const stop = [...work.querySelectorAll("button")].find((one) => one.textContent === "Stop");
                if (work.open && stop && work.textContent.includes("changed")) { me.disconnect(); stop.click(); }
            }).observe(work, {subtree: true, childList: true, characterData: true, attributes: true});
        }"""
    )
    tab.confirm()
    tab.told("Stopped.")
    settled = wait_until(lambda: len(lines := console.admin.audit()) == 2 and lines)
    assert "delete all" in settled[0].action
    assert 0 < console.admin.verdict().sizes.dead < 60_000


def test_the_form_for_one_like_it_lists_the_arguments_that_it_leaves_out(console, tab):
    args = {"to": "ada@example.com", "password": "hunter2", "urls": ["x" * 100] * 60, "n": 7}
    console.admin.enqueue("purge_cdn", args, delay=900)
    (job,) = console.admin.jobs("scheduled").jobs
    page = tab.open(f"/job?id={job.id}")
    page.get_by_role("link", name="Enqueue one like it").click()
    note = page.locator("[data-left]")
    note.wait_for()
    text = note.inner_text()
    assert "contain secrets, which the console does not show: password." in text
    assert "too large for a form: urls." in text
    assert json.loads(page.input_value("#a-more")) == {"to": "ada@example.com", "n": 7}


def test_the_form_for_one_like_it_says_nothing_when_all_arguments_are_there(console, tab):
    console.admin.enqueue("greet", {"name": "Ada"}, delay=900)
    (job,) = console.admin.jobs("scheduled").jobs
    page = tab.open(f"/job?id={job.id}")
    page.get_by_role("link", name="Enqueue one like it").click()
    page.locator("#a-more").wait_for()
    assert page.locator("[data-left]").count() == 0


def test_ten_are_retried_first_after_a_look_at_samples(console, tab, link, keys):
    for n in range(25):
        raw = json.dumps({"name": "greet", "id": f"j{n}", "t": 1, "args": {"n": n}, "fails": 1, "err": "no"})
        link.run(plain("ZADD", keys.dead, 1000 + n, raw))
    tab.open("/dead_jobs")
    tab.post("Retry all…")
    ask = tab.page.locator("#ask")
    ask.get_by_text("See 10 of them").click()
    expect(ask.locator("li")).to_have_count(10)
    expect(ask.locator("li").first).to_contain_text('greet {"n":0} j0')
    tab.page.get_by_label("How").select_option("10")
    tab.confirm()
    tab.told("10 jobs matched, 10 changed.")
    assert (queue(console.admin, "greet").size, console.admin.verdict().sizes.dead) == (10, 15)


def test_dead_jobs_are_retried_in_waves_until_most_fail_again(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.fail(7)
        tab.open("/dead_jobs")
        tab.post("Retry all…")
        tab.page.get_by_label("How").select_option("waves")
        tab.confirm()
        tab.told("Stopped, because more than 20% failed again. 1 job retried in 1 wave")
        assert console.admin.count("dead").matched == 7


def test_the_waiting_jobs_of_a_queue_are_moved_to_another_name(console, tab):
    for n in range(12):
        console.admin.enqueue("greet", {"n": n})
    tab.open("/jobs?state=waiting&name=greet&where=args.n>1")
    tab.post("Move 10 matching…")
    ask = tab.page.locator("#ask")
    ask.get_by_text("See them").click()
    expect(ask.locator("li")).to_have_count(10)
    tab.page.locator("#ask-typed").fill("welcome")
    tab.confirm()
    tab.told('10 jobs matched, 10 moved to "welcome".')
    assert (queue(console.admin, "greet").size, queue(console.admin, "welcome").size) == (2, 10)


# Undo.


def test_a_deletion_is_undone_from_its_message(console, tab):
    console.admin.enqueue("greet", {}, delay=1000)
    tab.open("/scheduled_jobs")
    tab.page.locator("tr", has_text="greet").get_by_role("button", name="Delete").click()
    tab.page.locator("#ask", has_text="undo puts it back").wait_for()
    tab.confirm()
    tab.told("Deleted.")
    assert console.admin.verdict().sizes.scheduled == 0
    tab.page.locator(".toast").get_by_role("button", name="Undo").click()
    tab.told("1 job put back.")
    assert console.admin.verdict().sizes.scheduled == 1


def test_a_purge_is_undone_from_the_audit_page(console, tab):
    for n in range(3):
        console.admin.enqueue("greet", {"n": n})
    console.admin.purge("greet")
    tab.open("/audit")
    row = tab.page.locator("[data-live=bin] tr", has_text="queue greet")
    row.get_by_role("button", name="Undo").click()
    tab.told("3 jobs put back.")
    assert queue(console.admin, "greet").size == 3


def test_a_selection_is_deleted_for_good_where_that_is_ticked(console, tab):
    for n in range(2):
        console.admin.enqueue("greet", {"n": n}, delay=1000 + n)
    tab.open("/scheduled_jobs")
    tab.page.locator("[data-all]").click()
    tab.page.locator("#pickbar").get_by_role("button", name="Delete").click()
    tab.page.get_by_label("Delete for good, without undo").check()
    tab.confirm()
    tab.told("2 done.")
    assert tab.page.locator(".toast").get_by_role("button", name="Undo").count() == 0
    assert console.admin.bin() == ()


# Running jobs, pools.


def test_a_running_job_shows_its_progress_and_stack_and_is_cancelled(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.pool.enqueuer.enqueue("pack", boxes=8)
        wait_until(lambda: any(one.progress for one in run.admin.busy()))
        tab.open("/busy_workers")
        row = tab.page.locator("tr", has_text="pack")
        assert row.locator("progress").get_attribute("value") == "0.5"
        row.get_by_role("button", name="Stack").click()
        tab.page.locator("#show pre", has_text=".pack").wait_for()
        assert tab.page.locator("#show .own-frame").count() >= 1
        tab.page.locator("#show").get_by_role("button", name="Close").click()
        row.get_by_role("button", name="Cancel").click()
        # Only one of the two buttons of the question says Cancel.
        tab.page.locator("#ask").get_by_role("button", name="Go back").wait_for()
        tab.confirm()
        tab.told("stops it at its next heartbeat.")
        wait_until(lambda: not run.admin.busy())
        wait_until(lambda: run.admin.queue("pack").totals.get("cancelled") == 1)


def test_a_pool_goes_quiet_and_is_stopped(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        wait_until(lambda: [pool for pool in run.admin.pools().pools if pool.status])
        tab.open("/worker_pools")
        tab.post("Quiet")
        wait_until(lambda: run.admin.pools().pools[0].status.quiet)
        tab.page.locator("th .tag", has_text="quiet").wait_for()
        tab.post("Stop")
        tab.confirm()
        wait_until(lambda: not run.admin.pools().pools)
        tab.page.mouse.move(0, 0)
        tab.page.get_by_text("No pool is running").wait_for()


# Failures, schedules, new jobs, broken entries.


def test_a_group_of_failures_is_retried_as_one(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.fail(7)
    tab.open("/failures")
    row = tab.page.locator("tr", has_text="OutOfStock: item # is out of stock")
    row.get_by_role("button", name="Retry all").click()
    tab.page.locator("#ask", has_text="7 jobs").wait_for()
    tab.confirm()
    tab.told("7 jobs matched, 7 changed.")
    assert console.admin.verdict().sizes.dead == 0
    assert queue(console.admin, "order_goods").size == 7


def test_a_schedule_runs_now_and_is_paused_and_resumed(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        wait_until(run.admin.periodic)
        tab.open("/periodic")
        tab.page.get_by_text("09:00").first.wait_for()
        tab.post("Run now")
        tab.told("Enqueued as")
        wait_until(lambda: run.admin.queue("greet").totals.get("done"))
        tab.post("Pause")
        tab.told("Paused.")
        assert run.admin.periodic()[0].paused
        tab.post("Resume")
        tab.told("Resumed.")
        assert not run.admin.periodic()[0].paused


def test_a_job_is_enqueued_by_the_form_with_exact_numbers(console, tab, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        wait_until(run.admin.job_types)
        run.admin.pause("greet")
        tab.open("/enqueue?name=greet")
        form = tab.page.locator("#enqueue")
        form.get_by_role("button", name="Enqueue").click()
        wrong = tab.page.locator("#wrong")
        wrong.get_by_text("name is needed").wait_for()
        form.get_by_label("name", exact=False).last.fill("Grace")
        tab.page.get_by_label("times").fill("many")
        form.get_by_role("button", name="Enqueue").click()
        wrong.get_by_text("write a whole number").wait_for()
        tab.page.get_by_label("times").fill("12345678901234567890")
        tab.page.get_by_label("loud").select_option("true")
        tab.page.get_by_label("tone").select_option(label="cool")
        tab.page.get_by_label("Source").fill("acme")
        form.get_by_role("button", name="Enqueue").click()
        tab.told('In the queue "greet".')
        job = run.admin.jobs("waiting", name="greet", where="source=acme").jobs[0]
        assert job.args == {"name": "Grace", "times": 12345678901234567890, "loud": True, "tone": "cool"}
        tab.page.get_by_label("Run in").fill("1h30m")
        form.get_by_role("button", name="Enqueue").click()
        tab.told("Scheduled.")
        (later,) = run.admin.jobs("scheduled").jobs
        assert 5000 < later.at - run.admin.verdict().now <= 5400


def test_a_job_that_nobody_announced_is_enqueued_as_json(console, tab):
    tab.open("/enqueue?name=unheard")
    tab.page.fill("#a-more", "[1]")
    tab.page.locator("#enqueue").get_by_role("button", name="Enqueue").click()
    tab.page.locator("#wrong", has_text="write a JSON object").wait_for()
    tab.page.fill("#a-more", '{"n": 12345678901234567890}')
    tab.page.locator("#enqueue").get_by_role("button", name="Enqueue").click()
    tab.told('In the queue "unheard".')
    tab.page.locator(".toast a").click()
    tab.page.locator("pre", has_text="12345678901234567890").first.wait_for()
    (job,) = console.admin.jobs("waiting", name="unheard").jobs
    assert job.args == {"n": 12345678901234567890}


def test_a_broken_entry_is_mended_and_another_is_deleted(console, tab, link, keys):
    for text in ('{"name":"greet","id":"b1"', "nonsense"):
        link.run(
            plain("LPUSH", keys.broken, f'{{"at":1700000000.0,"where":"jobs:greet","name":"greet"}}\n{text}')
        )
    tab.open("/broken")
    rows = tab.page.locator("tbody tr")
    expect(rows).to_have_count(2)
    rows.filter(has_text="b1").get_by_role("button", name="Repair…").click()
    tab.page.fill("#repair-text", '{"name":"greet","id":"b1","t":1,"args":{}}')
    tab.page.locator("#repair").get_by_role("button", name="Repair and enqueue").click()
    tab.told("In its queue now.")
    assert [job.id for job in console.admin.jobs("waiting", name="greet").jobs] == ["b1"]
    rows.filter(has_text="nonsense").get_by_role("button", name="Delete").click()
    tab.confirm()
    tab.told("Deleted.")
    assert console.admin.verdict().sizes.broken == 0


def test_the_form_that_repairs_an_entry_never_stores_the_mask_of_a_hidden_value(console, tab, link, keys):
    raw = '{"name":"greet","id":"b1","t":1,"args":{"token":"hunter2"}}'
    link.run(plain("LPUSH", keys.broken, f'{{"at":1,"where":"jobs:other","why":"a job named greet"}}\n{raw}'))
    tab.open("/broken")
    repair = tab.page.get_by_role("button", name="Repair…")
    send = tab.page.locator("#repair").get_by_role("button", name="Repair and enqueue")
    repair.click()
    assert "hunter2" not in tab.page.content()
    send.click()
    tab.told('"token" is still [redacted]')
    assert link.run(plain("LINDEX", keys.broken, 0)).endswith(raw.encode())
    assert console.admin.verdict().waiting == 0
    repair.click()
    tab.page.fill("#repair-text", raw.replace("hunter2", "hunter3"))
    send.click()
    tab.told("In its queue now.")
    assert link.run(plain("LRANGE", keys.queue("greet"), 0, -1)) == [
        raw.replace("hunter2", "hunter3").encode()
    ]


def test_an_entry_that_is_too_long_to_show_is_not_repaired_from_its_beginning(console, tab, link, keys):
    link.run(plain("LPUSH", keys.broken, '{"at":1,"where":"w","why":"y"}\n{"name":"greet"' + "x" * 5000))
    tab.open("/broken")
    tab.page.get_by_role("button", name="Repair…").click()
    assert tab.page.input_value("#repair-text") == ""


# What is done can be read later.


def test_what_was_done_is_in_the_audit(console, tab):
    console.admin.enqueue("greet", {})
    tab.open("/queues")
    tab.post("Pause")
    tab.told("Paused.")
    tab.open("/audit?about=greet")
    row = tab.page.locator("tbody tr").first
    assert "pause" in row.text_content()
    assert "queue greet" in row.text_content()


def test_an_answer_that_fails_is_said_in_words(console, tab, server_of_its_own):
    console.admin.enqueue("greet", {})
    tab.open("/queues")
    tab.page.route("**/api/v1/**", lambda route: route.abort())
    tab.post("Pause")
    tab.told("The console does not answer.")
    assert not queue(console.admin, "greet").paused


@pytest.fixture
def server_of_its_own(tab):
    # The browser mentions a cut connection by itself.
    yield
    tab.complaints.clear()

"""`dayjob top` in a real pseudo-terminal: what is on the screen, what keys do, and what it does to the server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dayjob import Job, WorkerPool
from dayjob.tui import views
from monitor import monitor
from server import free_port, running, wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")


#: A program is started in each; on a busy machine that alone may take half a minute.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def pool(namespace, redis_url):
    """A pool whose `hold` runs until `gate` is set or it is told to end."""
    made = WorkerPool(namespace=namespace, redis=redis_url, concurrency=4, lease=30.0, beat=0.4)
    gate = threading.Event()

    @made.job
    def hold(job: Job, password: str = "") -> None:
        while not gate.wait(0.05):
            if job.checkin("row 3 of 9", done=3, total=9):
                return

    @made.job
    def mail(to: str = "") -> None: ...

    made.gate = gate
    yield made
    gate.set()
    made.stop(timeout=5)
    made.enqueuer.close()


# What is shown.


def test_home_says_the_verdict_and_the_keys_and_q_leaves_the_terminal_as_it_was(top, enqueuer):
    enqueuer.enqueue("mail")
    screen = top()
    screen.wait_for("No pool is running and 1 job waits.", "1 waiting", "1 Home  2 Queues  3 Pools")
    screen.settle(lambda: screen.lines[-1].endswith("? help  q quit"))
    screen.press("q")
    assert screen.end() == 0
    screen.settle(lambda: b"\x1b[?1049l" in screen.raw)
    assert b"Traceback" not in screen.raw


def test_every_tab_shows_what_it_is_about(top, pool, put, admin, enqueuer):
    pool.periodic("0 3 * * *", "mail", timezone="Europe/Paris")
    pool.start()
    put("dead", "charge", "d-1", err="ConnectionError: no bank for order 7")
    put("retry", "charge", "r-1", err="ConnectionError: no bank for order 8")
    put("scheduled", "mail", "s-1", args={"to": "ada"})
    held = enqueuer.enqueue("hold", password="geheim")
    admin.pause("charge")
    screen = top(columns=140)
    expected = {
        "2": ("3 queues", "charge", "! paused"),
        "3": ("1 pool", f"{os.getpid()}", "leader"),
        "4": ("hold", "33%", "row 3 of 9"),
        "5": ("1 job in retry", "r-1", "no bank for order 8"),
        "6": ("1 job in scheduled", "s-1", "to='ada'"),
        "7": ("1 job in dead", "d-1", "no bank for order 7"),
        "8": ("1 kind of failure, 2 jobs", "no bank for order #"),
        "9": ("1 schedule", "At 03:00 every day", "Europe/Paris"),
        "0": ("last 1 h: 0 attempts",),
        "-": ("per second", "persistence"),
        "=": ("pause", "queue charge", "test"),
    }
    for key, texts in expected.items():
        screen.press(key)
        screen.wait_for(*texts)
    screen.press("4")
    screen.wait_for("row 3 of 9")
    screen.press("enter")
    shown = screen.wait_for(f"id           {held.id}", "Running for", "[redacted]")
    assert "geheim" not in shown
    screen.press("escape")
    screen.wait_for("busy for more than 0.5 s")
    screen.press("right")
    screen.wait_for("1 job in retry")
    screen.press("0")
    screen.wait_for("last 1 h")
    screen.press("h")
    screen.wait_for("last 24 h")
    assert b"geheim" not in screen.raw


def test_the_tabs_are_those_of_the_web():
    assert [view.title.lower() for view in views.tabs()] == [
        "home", "queues", "pools", "busy", "retry", "scheduled", "dead", "failures", "periodic", "metrics", "redis", "audit",
        "broken", "calendar", "timeline", "history", "batches", "workflows", "sources", "limits", "payloads",
    ]  # fmt: skip


def test_a_job_opens_with_its_story_error_and_arguments(top, put):
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/app/shop/mail.py", line 7, in send\n    smtp(to)\n'
        '  File "/usr/lib/python3.12/smtplib.py", line 99, in smtp\n    raise\n'
        "ValueError: no good\n"
    )
    put("dead", "mail", "d-1", trace=trace, args={"to": "ada", "api_key": "geheim"}, source="acme")
    screen = top("--tab", "dead", lines=40)
    screen.wait_for("d-1")
    screen.press("enter")
    shown = screen.wait_for(
        "Died", "Timeline", "moved to dead", "/app/shop/mail.py", "ValueError: no good", "to='ada'", "api_key='[redacted]'", "acme",
        "$ dayjob enqueue mail", "Dead > mail d-1",
    )  # fmt: skip
    assert "geheim" not in shown


def test_text_of_others_cannot_write_to_the_terminal(top, put):
    put(
        "dead",
        "mail",
        "d-1",
        err="\x1b]0;owned\x07\x1b[31mred\r\nsecond",
        args={"x": "\x1b[2J\u202e[bold]b[/bold]"},
    )
    screen = top("--tab", "dead")
    screen.wait_for("d-1", "red")
    screen.press("enter")
    screen.wait_for("Timeline", "[bold]b[/bold]")
    assert b"owned\x07" not in screen.raw
    assert b"\x1b[2J\xe2\x80\xae" not in screen.raw


def test_help_shows_the_keys_of_the_tab(top, put):
    put("dead", "mail", "d-1")
    screen = top("--tab", "dead", lines=34)
    screen.wait_for("d-1")
    screen.press("?")
    screen.wait_for(
        "Moving", "Actions on Dead", "mark a row, to act on several", "retry: all jobs that match the filter"
    )
    screen.press("escape")
    screen.wait_for("1 job in dead", gone="Moving")


# Rows stay where they are.


def test_the_row_under_the_cursor_stays_on_its_line_while_others_come_and_go(top, put, call, keys):
    for number in range(60):
        put("dead", "mail", f"d-{number:02}", at=1_700_000_000 + number)
    screen = top("--tab", "dead")
    screen.wait_for("d-59")
    screen.press(*["down"] * 40)
    screen.settle(lambda: "d-19" in screen.cursor)
    line = screen.line_of("d-19")
    for number in range(5):
        put("dead", "mail", f"new-{number}", at=1_700_001_000 + number)
    screen.wait_for("65 jobs in dead")
    screen.settle(lambda: "d-19" in screen.cursor and screen.line_of("d-19") == line)
    # Gone from under the cursor: its neighbour is there, and the question names it.
    (member,) = [raw for raw in call("ZRANGE", keys.dead, 0, -1) if b'"d-19"' in raw]
    call("ZREM", keys.dead, member)
    screen.wait_for("64 jobs in dead")
    screen.settle(lambda: "d-18" in screen.cursor)
    screen.press("r")
    screen.wait_for('Retry "mail" d-18?')


def test_long_lists_have_pages(top, put):
    for number in range(130):
        put("dead", "mail", f"d-{number:03}", at=1_700_000_000 + number)
    screen = top("--tab", "dead")
    screen.wait_for("130 jobs in dead, 100 shown", "d-129")
    screen.press(">")
    screen.wait_for("page 2", "d-029")
    screen.press("<")
    screen.wait_for("d-129", gone="page 2")


# The filter.


def test_the_filter_is_that_of_jobs_ls_and_a_mistake_in_it_is_explained(top, put):
    put("dead", "mail", "d-1", err="TimeoutError: slow")
    put("dead", "charge", "d-2")
    screen = top("--tab", "dead")
    screen.wait_for("d-1", "d-2")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("nam=mail")
    screen.wait_for("Unknown filter: nam. Did you mean 'name'?")
    screen.press("escape")
    screen.wait_for("2 jobs in dead", gone="Unknown filter")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("error~Timeout")
    screen.wait_for("d-1", "filter error~Timeout", gone="d-2")
    screen.press("escape")
    screen.wait_for("d-2", gone="filter error~")
    screen.press("2")
    screen.wait_for("2 queues")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("age>1h")
    screen.wait_for("age is not a filter of this tab: write name=mail")
    screen.press("escape")
    screen.wait_for("2 queues", gone="is not a filter of this tab")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("name~char")
    screen.wait_for("1 queue,", "charge", gone="mail")


# What can be done.


def test_retry_asks_first_and_says_what_became_of_it(top, put, look, admin):
    put("dead", "mail", "d-1")
    screen = top("--tab", "dead")
    screen.wait_for("d-1")
    screen.press("r")
    screen.wait_for('Retry "mail" d-1?', "y yes   n no")
    screen.press("n")
    screen.wait_for("d-1", gone="y yes")
    assert len(look.dead()) == 1
    screen.press("r")
    screen.wait_for("y yes")
    screen.press("y")
    screen.wait_for('Back in the queue "mail".', "No jobs in dead.")
    assert [job["id"] for job in look.queue("mail")] == ["d-1"]
    assert admin.audit()[0].action == "retry"


def test_a_job_that_moved_on_is_left_alone_and_the_answer_says_so(top, put, look, admin):
    put("dead", "mail", "d-1")
    screen = top("--tab", "dead")
    screen.wait_for("d-1")
    screen.press("d")
    screen.wait_for('Delete "mail" d-1?')
    assert admin.retry("d-1").done
    screen.press("y")
    screen.wait_for("It has moved on: it was dead, now it waits in its queue. Nothing was changed.")
    assert [job["id"] for job in look.queue("mail")] == ["d-1"]


def test_scheduled_and_retried_jobs_are_run_killed_and_deleted(top, put, look, keys):
    for number in range(3):
        put("scheduled", "mail", f"s-{number}", at=2_000_000_000 + number)
    put("retry", "mail", "r-0")
    screen = top("--tab", "scheduled")
    screen.wait_for("s-2")
    for key, question, answer, left in (
        ("r", 'Run now "mail" s-0?', 'In the queue "mail" now.', "2 jobs in scheduled"),
        ("x", 'Kill "mail" s-1?', "Dead now.", "1 job in scheduled"),
        ("d", 'Delete "mail" s-2?', "Deleted.", "No jobs in scheduled."),
    ):
        screen.press(key)
        screen.wait_for(question)
        screen.press("y")
        screen.wait_for(answer, left)
    screen.press("5")
    screen.wait_for("r-0")
    screen.press("x")
    screen.wait_for('Kill "mail" r-0?')
    screen.press("y")
    screen.wait_for("No jobs in retry.")
    assert [job["id"] for job in look.queue("mail")] == ["s-0"]
    assert {job["id"] for job in look.dead()} == {"s-1", "r-0"}


def test_marked_jobs_and_all_that_match_are_done_at_once(top, put, look):
    for number in range(4):
        put("dead", "mail", f"m-{number}", at=1_700_000_000 - number)
    for number in range(3):
        put("dead", "charge", f"c-{number}", at=1_600_000_000 - number)
    screen = top("--tab", "dead")
    screen.wait_for("m-0", "c-2")
    screen.press(" ", " ")
    screen.wait_for("2 marked")
    screen.press("d")
    screen.wait_for("Delete 2 marked jobs?")
    screen.press("y")
    screen.wait_for("2 jobs: 2 changed.", "5 jobs in dead")
    screen.press("/")
    screen.wait_for("Show only rows that match")
    screen.fill("name=charge")
    screen.wait_for("filter name=charge", gone="m-2")
    screen.press("R")
    screen.wait_for("Retry 3 jobs in dead matching name=charge?")
    screen.press("y")
    screen.wait_for("3 jobs matched, 3 changed.")
    assert {job["id"] for job in look.dead()} == {"m-2", "m-3"}
    assert len(look.queue("charge")) == 3


def test_a_group_of_failures_is_retried_as_a_whole(top, put, look):
    for number in range(3):
        put("dead", "charge", f"d-{number}", err=f"ConnectionError: order {number}")
    put("retry", "charge", "r-0", err="ConnectionError: order 9")
    put("dead", "mail", "m-0")
    screen = top("--tab", "failures")
    screen.wait_for("order #")
    screen.press("r")
    screen.wait_for('Retry 4 jobs of "charge" that failed with')
    screen.press("y")
    screen.wait_for('"charge": 4 jobs matched, 4 changed.')
    assert len(look.queue("charge")) == 4
    assert [job["id"] for job in look.dead()] == ["m-0"]


def test_queues_are_paused_resumed_and_purged_by_typing_their_name(top, enqueuer, look, admin):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(7)])
    screen = top("--tab", "queues")
    screen.wait_for("mail")
    screen.press("p")
    screen.wait_for('Pause the queue "mail"?')
    screen.press("y")
    screen.wait_for("queue mail: Paused.", "! paused")
    screen.press("p")
    screen.wait_for('Resume the queue "mail"?')
    screen.press("y")
    screen.wait_for("queue mail: Resumed.", gone="! paused")
    screen.press("e")
    screen.wait_for('Purge the queue "mail" (7 jobs waiting)?', "Type mail and press enter")
    screen.fill("mial")
    screen.wait_for("That is not mail; nothing was changed.")
    assert len(look.queue("mail")) == 7
    screen.press("escape")
    screen.wait_for("7 jobs waiting", gone="Type mail")
    screen.press("e")
    screen.wait_for("Type mail and press enter")
    screen.fill("mail")
    screen.wait_for('queue "mail": 7 jobs deleted. Press u to undo it.')
    assert look.queue("mail") == []
    screen.press("u")
    screen.wait_for("Undo the purge of queue mail (7 jobs)?")
    screen.press("y")
    screen.wait_for("7 jobs put back.")
    assert len(look.queue("mail")) == 7
    screen.press("u")
    screen.wait_for("You deleted nothing in the last ten minutes.")


def test_a_queue_is_limited_and_the_limit_lifted(top, enqueuer, admin):
    enqueuer.enqueue("mail")
    screen = top("--tab", "queues")
    screen.wait_for("mail")
    screen.press("l")
    screen.wait_for('Limit the queue "mail"?')
    screen.fill("many")
    screen.wait_for("'many' is not a number: nothing was changed")
    screen.press("l")
    screen.wait_for('Limit the queue "mail"?')
    screen.fill("3")
    screen.wait_for("queue mail: At most 3 at once.")
    assert admin.queue("mail").view.queue.limit == 3
    screen.press("l")
    screen.wait_for('Limit the queue "mail"?')
    screen.settle(lambda: re.search("│ 3 *│", screen.text))
    screen.press("backspace")
    screen.settle(lambda: not re.search("│ 3 *│", screen.text))
    screen.press("enter")
    screen.wait_for("queue mail: No limit any more.")
    assert admin.queue("mail").view.queue.limit is None


def test_tabs_beyond_the_twelve_with_keys_are_reached_by_the_arrows(top, call, keys, look):
    """The list of broken entries is the thirteenth tab."""
    call("LPUSH", keys.broken, b"no json")
    screen = top("--tab", "broken", columns=150)
    screen.wait_for("= Audit  Broken  Calendar", "1 broken entry", "no json")
    screen.press("left")
    screen.wait_for("No actions yet.")
    screen.press("right")
    screen.wait_for("1 broken entry")
    screen.press("d")
    screen.wait_for("Delete the broken entry 0?", "These bytes go to the bin for ten minutes.")
    screen.press("n")
    screen.wait_for("no json", gone="y yes")
    screen.press("e")
    screen.wait_for("Repair the broken entry 0?")
    screen.press("escape")
    screen.wait_for("no json", gone="enter does it")
    screen.press("d")
    screen.wait_for("y yes")
    screen.press("y")
    screen.wait_for("Deleted.", "No broken entries.")
    assert call("LLEN", keys.broken) == 0


def test_a_workflow_opens_with_its_nodes_and_one_is_skipped(top, namespace, redis_url, admin):
    pool = WorkerPool(namespace=namespace, redis=redis_url)
    step = pool.register("step", lambda n: None)
    flow = pool.workflow("import")
    flow.add(step, n=1, after=[flow.add(step, n=0)])
    flow.start()
    screen = top("--tab", "workflows", columns=120)
    screen.wait_for("1 workflow started in the last 187 days", "import", "running")
    screen.press("enter")
    screen.wait_for("Waits for 2 of 2 nodes", "released", "waiting")
    screen.press("down")
    screen.press("s")
    screen.wait_for("Skip: node 1 (step)?")
    screen.press("y")
    screen.wait_for("1 node skipped.")
    assert [one.state for one in admin.workflow(flow.id).nodes] == ["released", "skipped"]


def test_a_queue_opens_with_the_jobs_that_wait_in_it(top, enqueuer, look):
    jobs = [enqueuer.enqueue("mail", n=n) for n in range(3)]
    screen = top("--tab", "queues")
    screen.wait_for("mail")
    screen.press("enter")
    screen.wait_for("n=0", "n=2", "per minute", "Queues > mail")
    screen.press("down", "d")
    screen.wait_for(f'Delete "mail" {jobs[1].id}?')
    screen.press("y")
    screen.wait_for("Deleted.", gone="n=1")
    assert [job["args"]["n"] for job in look.queue("mail")] == [0, 2]
    screen.press("p")
    screen.wait_for('Pause the queue "mail"?')


def test_a_running_job_is_cancelled_and_its_pool_made_quiet_and_stopped(top, pool, enqueuer, look):
    pool.start()
    enqueuer.enqueue("hold")
    screen = top("--tab", "busy")
    screen.wait_for("row 3 of 9")
    screen.press("t")
    screen.wait_for("stacks of pool", "test_top.py", "in pool.<locals>.hold")
    screen.press("escape")
    screen.wait_for("row 3 of 9")
    screen.press("c")
    screen.wait_for('Cancel "hold" ')
    screen.press("y")
    screen.wait_for("stops it at its next heartbeat")
    screen.wait_for("No worker has run a job")
    wait_until(lambda: look.total("cancelled:hold") == 1)
    screen.press("3")
    screen.wait_for("1 pool,", f"{os.getpid()}")
    screen.press("z")
    screen.wait_for("Quiet the pool ")
    screen.press("y")
    screen.wait_for("It fetches nothing more at its next heartbeat", "quiet")
    screen.press("s")
    screen.wait_for("Stop the pool ")
    screen.press("y")
    screen.wait_for("It stops at its next heartbeat", "No pool is running.")


def test_schedules_are_run_paused_and_resumed(top, pool, look):
    pool.periodic("0 3 * * *", "mail", name="nightly")
    pool.start()
    screen = top("--tab", "periodic")
    screen.wait_for("At 03:00 every day")
    screen.press("r")
    screen.wait_for('Run the schedule "nightly" now?')
    screen.press("y")
    screen.wait_for("schedule nightly: Enqueued as")
    wait_until(lambda: look.total("done:mail") == 1)
    for question, state in (
        ('Pause the schedule "nightly"?', "! paused"),
        ('Resume the schedule "nightly"?', ""),
    ):
        screen.press("p")
        screen.wait_for(question)
        screen.press("y")
        screen.wait_for(state, gone="" if state else "! paused")
    screen.press("enter")
    screen.wait_for("Next", "schedule nightly")


# When things are not as they should be.


def test_redis_away_is_said_and_healed_without_a_key(terminal, tmp_path, namespace):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder) as server:
        screen = terminal("top", "--redis", server.url, "--namespace", namespace, "--every", "0.2s")
        screen.wait_for("Nothing has ever run in namespace")
        server.kill()
        screen.wait_for(
            "✖ Redis does not answer",
            "Redis does not answer; trying again.",
            "Nothing has ever run in namespace",
        )
        screen.press("2")
        screen.wait_for("reading ...")
        server.start()
        screen.wait_for("Redis answers again.", "No queues.", gone="✖ Redis does not answer")


def test_it_starts_while_redis_is_away(terminal, tmp_path, namespace):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder) as server:
        url = server.url
        server.kill()
        screen = terminal("top", "--redis", url, "--namespace", namespace, "--every", "0.2s")
        screen.wait_for("Redis does not answer; trying again.")
        server.start()
        screen.wait_for("Nothing has ever run in namespace")


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (24, 8)])
def test_it_works_in_small_terminals(top, put, look, columns, lines):
    put("dead", "mail", "d-1", err="ValueError: " + "long " * 50)
    screen = top("--tab", "dead", columns=columns, lines=lines)
    screen.wait_for("> mail")
    screen.press("enter")
    screen.wait_for("mail  dead")
    screen.press("pagedown", "end", "escape")
    screen.wait_for("> mail")
    for key in "1234567890-=7":
        screen.press(key)
    screen.wait_for("> mail")
    screen.press("r")
    screen.wait_for('Retry "mail" d-1?')
    screen.press("y")
    wait_until(lambda: len(look.queue("mail")) == 1)
    screen.press("q")
    assert screen.end() == 0
    assert b"Traceback" not in screen.raw


def test_it_follows_the_size_of_the_terminal(top, put):
    put("dead", "mail", "d-1")
    screen = top("--tab", "dead", columns=120, lines=30)
    screen.wait_for("SOURCE", "d-1")
    screen.resize(50, 12)
    screen.wait_for("> mail", "? help  q quit", gone="SOURCE")
    screen.settle(lambda: screen.lines[-1].endswith("? help  q quit"))


def test_without_colours_nothing_is_lost(top, put, admin):
    put("dead", "mail", "d-1")
    admin.pause("mail")
    screen = top("--tab", "queues", NO_COLOR="1")
    screen.wait_for("! paused")
    screen.press("7")
    screen.wait_for("> mail", "ValueError: no good")
    codes = {
        int(code)
        for codes in re.findall(rb"\x1b\[([\d;]*)m", screen.raw)
        for code in codes.split(b";")
        if code
    }
    assert codes
    assert not codes & {*range(30, 39), *range(40, 49), *range(90, 108)}


def test_colours_are_those_of_the_terminal(top, put):
    put("dead", "mail", "d-1")
    put("dead", "mail", "d-2")
    screen = top("--tab", "dead")
    screen.wait_for("d-1", "d-2", "ValueError: no good", "? help  q quit")
    # Red, by its number: which red that is, the terminal knows.
    screen.settle(lambda: re.search(rb"\x1b\[(?:\d+;)*31(;\d+)*m", screen.raw))
    assert b"38;2;" not in screen.raw


def test_only_the_tab_that_is_shown_is_read_and_each_read_is_small(top, put, server, link, keys):
    put("dead", "mail", "d-1")
    screen = top("--tab", "audit")
    screen.wait_for("No actions yet.")
    with monitor(server.port, link) as heard:
        seen = screen.raw

        def read_again() -> bool:
            return screen.raw.count(b":") > seen.count(b":") + 6

        screen.settle(read_again)
    mine = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
    assert mine
    assert {(words[0].upper(), words[1]) for words in mine} == {(b"LRANGE", keys.audit.encode())}


# Where it cannot be.


def run(*words: str, stdin=subprocess.DEVNULL, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words] if code else [sys.executable, "-m", "dayjob", *words]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SRC, "TERM": "xterm"}
    return subprocess.run(
        command, stdin=stdin, capture_output=True, text=True, timeout=240, check=False, env=environ
    )


def test_without_textual_one_line_says_what_to_install(redis_url):
    code = "import sys; sys.modules['textual'] = None; from dayjob.cli import main; main()"
    done = run("top", "--redis", redis_url, code=code)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dayjob: dayjob top needs textual: pip install 'dayjob[tui]'\n"


def test_without_a_terminal_it_names_what_to_use_instead(redis_url):
    done = run("top", "--redis", redis_url)
    assert (done.returncode, done.stderr) == (
        2, "dayjob: dayjob top needs a terminal. Without one: dayjob stats --watch\n",
    )  # fmt: skip


def test_a_typo_in_a_tab_is_named(redis_url):
    done = run("top", "--tab", "quues", "--redis", redis_url)
    assert done.returncode == 2
    assert "Did you mean 'queues'?" in done.stderr


def test_home_remembers_the_last_minute(redis_url, namespace, enqueuer):
    from dayjob import AsyncAdmin

    async def main():
        async with AsyncAdmin(namespace, redis=redis_url) as admin:
            home = views.Home()
            await home.read(admin, views.ReadOptions())
            await asyncio.to_thread(enqueuer.enqueue, "mail")
            return await home.read(admin, views.ReadOptions())

    sheet = asyncio.run(main())
    assert any("█" in piece for line in sheet.lines for piece, _ in line)


def test_a_pool_chooses_server_and_namespace(terminal, tmp_path, redis_url, namespace, enqueuer):
    enqueuer.enqueue("charge")
    program = (
        f"from dayjob import WorkerPool\npool = WorkerPool(namespace={namespace!r}, redis={redis_url!r})\n"
    )
    (tmp_path / "shop.py").write_text(program)
    terminal("top", "shop:pool", "--tab", "queues").wait_for("charge")
    given = terminal("top", "shop:pool", "--tab", "queues", DAYJOB_NAMESPACE=f"{namespace}x")
    given.wait_for(f"{namespace}x", gone="charge")


def test_the_variable_comes_before_the_pool_and_the_pool_before_the_file(
    terminal, tmp_path, redis_url, namespace, enqueuer
):
    enqueuer.enqueue("charge")
    nowhere = f"redis://127.0.0.1:{free_port()}"
    shop, file = tmp_path / "shop.py", tmp_path / "pyproject.toml"
    shop.write_text(
        f"from dayjob import WorkerPool\npool = WorkerPool(namespace={namespace!r}, redis={nowhere!r})\n"
    )
    file.write_text('[tool.dayjob]\nnamespace = "other"\n')
    terminal("top", "shop:pool", "--tab", "queues", DAYJOB_REDIS_URL=redis_url).wait_for("charge")
    # Longer than the first version: of two files with the same second and size, Python would run the one it compiled first.
    shop.write_text(
        f"from dayjob import WorkerPool\n\npool = WorkerPool(namespace={namespace!r}, redis={redis_url!r})\n"
    )
    file.write_text(f'[tool.dayjob]\nredis = "{nowhere}"\nnamespace = "other"\n')
    shown = terminal("top", "shop:pool", "--tab", "queues")
    shown.wait_for("charge")
    assert f"using namespace '{namespace}' of WorkerPool(namespace=...), not 'other'" in shown.raw.decode(
        errors="replace"
    )

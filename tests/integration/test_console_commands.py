"""The operator's commands as people run them: a process of its own, its exit code, and what it prints."""

from __future__ import annotations

import contextlib
import os
import platform
import pty
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
import yaml

from commands import run_command
from dayjob import Job
from dayjob.cli import COMMANDS
from dayjob.store import codec
from server import free_port, wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")


def environment(**more):
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "LANG", "XDG_STATE_HOME")
        if name in os.environ
    }
    return {**kept, "PYTHONPATH": SRC, **more}


@pytest.fixture
def run(tmp_path):
    """Run `dayjob ...` in a folder of its own."""

    def dayjob(*words, text=None, **env):
        done = run_command(words, cwd=tmp_path, env=environment(**env), text=text or "")
        assert "Traceback" not in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) <= 6, done.stderr
        return done

    return dayjob


@pytest.fixture
def there(redis_url, namespace):
    """The options that name the server and namespace of this test."""
    return ("--redis", redis_url, "--namespace", namespace)


@pytest.fixture
def put(keys, call, look):
    """Put a failed job into dead or retry."""

    def put(state, name, job_id, error="ValueError: no", ago=60.0):
        now = look.now()
        told = {
            "fails": 1,
            "err": error,
            "failed_at": int(now - ago),
            "attempt": f"p/{job_id}",
            "trace": "Traceback of it",
        }
        member = codec.write(codec.quoted(name), job_id, now - ago - 5, b'{"n":1,"password":"hunter2"}', told)
        call("SADD", keys.known_jobs, name)
        call("ZADD", getattr(keys, state), now + 600 if state != "dead" else now - ago, member)

    return put


def on_terminal(words, answer, cwd, **env):
    """Run a command on a terminal and type an answer when it asks; what it printed and its exit code."""
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dayjob", *map(str, words)],
        stdin=other_end, stdout=other_end, stderr=other_end, cwd=cwd, env=environment(TERM="xterm", **env),
    )  # fmt: skip
    os.close(other_end)
    said = b""
    with contextlib.suppress(OSError), os.fdopen(terminal, "r+b", buffering=0) as screen:
        while True:
            piece = screen.read(4096)
            if not piece:
                break
            said += piece
            if answer is not None and b"[y/N]" in said:
                screen.write(answer.encode() + b"\n")
                answer = None
    return said.decode(), process.wait(60)


# queues


def test_queues_ls_shows_size_age_and_that_nobody_works(run, there, enqueuer):
    enqueuer.enqueue_many("mail", [{}, {}])
    done = run("queues", "ls", *there)
    assert done.returncode == 0
    head, row = done.stdout.splitlines()
    assert head.split()[:3] == ["QUEUE", "WAITING", "OLDEST"]
    assert row.split()[:2] == ["mail", "2"]
    assert row.endswith("no worker")
    told = msgspec.json.decode(run("queues", "ls", "--json", *there).stdout)
    assert told["queues"][0]["queue"]["size"] == 2


def test_queues_show_hides_secrets_and_suggests_a_name(run, there, enqueuer, announce):
    announce("mail")
    enqueuer.enqueue("mail", to="ada", password="hunter2")  # noqa: S106 - it is there to be hidden
    done = run("queues", "show", "mail", *there)
    assert "mail: 1 job waiting" in done.stdout
    assert "ada" in done.stdout
    assert "hunter2" not in done.stdout + run("queues", "show", "mail", "--json", *there).stdout
    typo = run("queues", "show", "mial", *there)
    assert (typo.returncode, 'Did you mean "mail"' in typo.stderr) == (2, True)


def test_queues_are_paused_resumed_and_limited(run, there, enqueuer, admin):
    enqueuer.enqueue("mail")
    assert run("queues", "pause", "mail", *there).returncode == 0
    again = run("queues", "pause", "mail", *there)
    assert (again.returncode, "paused already" in again.stderr) == (1, True)
    assert "paused by" in run("queues", "show", "mail", *there).stdout
    assert run("queues", "resume", "mail", *there).returncode == 0
    assert run("queues", "limit", "mail", "3", *there).returncode == 0
    assert admin.queue("mail").view.queue.limit == 3
    assert run("queues", "limit", "mail", "none", *there).returncode == 0
    assert admin.queue("mail").view.queue.limit is None
    assert run("queues", "limit", "mail", "many", *there).returncode == 2
    assert {line.actor.partition("@")[2] for line in admin.audit()} == {platform.node()}


def test_queues_purge_needs_yes_where_nobody_can_be_asked(run, there, enqueuer, look):
    enqueuer.enqueue_many("mail", [{}, {}])
    refused = run("queues", "purge", "mail", *there)
    assert (refused.returncode, "add --yes" in refused.stderr) == (2, True)
    assert len(look.queue("mail")) == 2
    done = run("queues", "purge", "mail", "--yes", *there)
    assert (done.returncode, done.stdout) == (0, "2 jobs deleted.\n")


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 1)])
def test_on_a_terminal_a_purge_asks_first(there, enqueuer, look, tmp_path, answer, code, left):
    enqueuer.enqueue("mail")
    said, returned = on_terminal(("queues", "purge", "mail", *there), answer, tmp_path)
    assert 'Delete 1 job of the queue "mail"? [y/N]' in said
    assert (returned, len(look.queue("mail"))) == (code, left)


@pytest.mark.parametrize(("env", "bold"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_it_asks_for_none(there, enqueuer, tmp_path, env, bold):
    enqueuer.enqueue("mail")
    said, _ = on_terminal(("queues", "ls", *there), None, tmp_path, **env)
    assert ("\x1b[1m" in said) == bold


@pytest.mark.parametrize(
    ("name", "hint"),
    [("mail.welcom", 'Did you mean "mail.welcome"?'), ("elsewhere", "`dayjob queues ls` shows all.")],
)
def test_a_queue_that_does_not_exist_is_not_paused_limited_or_resumed(
    run, there, namespace, enqueuer, call, keys, name, hint
):
    enqueuer.enqueue("mail.welcome")
    space = f'no such queue in namespace "{namespace}".'
    for verb, words in (("pause", ()), ("limit", ("2",)), ("resume", ())):
        done = run("queues", verb, name, *words, *there)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f'dayjob: cannot {verb} "{name}": {space}\n    {hint}')
        assert ("Use --force to" in done.stderr) == (verb != "resume")
    assert call("EXISTS", keys.paused(name), keys.limits) == 0


def test_the_known_queues_among_several_are_paused(run, there, enqueuer, admin):
    enqueuer.enqueue("mail")
    enqueuer.enqueue("sms")
    done = run("queues", "pause", "mail", "nope", "sms", *there)
    assert (done.returncode, done.stdout) == (2, "queue mail: Paused.\nqueue sms: Paused.\n")
    assert 'cannot pause "nope"' in done.stderr
    assert all(view.queue.paused for view in admin.queues().queues)


def test_a_queue_that_does_not_exist_yet_is_paused_by_force(run, there, call, keys):
    assert run("queues", "pause", "later", "--force", *there).stdout == "queue later: Paused.\n"
    assert call("EXISTS", keys.paused("later")) == 1
    # It exists for operators from now on.
    assert run("queues", "limit", "later", "2", *there).returncode == 0
    assert run("queues", "resume", "later", *there).returncode == 0
    assert run("queues", "limit", "later", "none", *there).returncode == 0
    assert run("queues", "limit", "later", "2", *there).returncode == 2


def test_a_queue_that_a_pool_announced_can_be_paused_before_its_first_job(run, there, new_pool):
    pool = new_pool()

    @pool.job
    def work() -> None:
        pass

    pool.start()
    assert run("queues", "pause", "work", *there).returncode == 0


# jobs


def test_jobs_ls_says_how_far_a_filter_has_looked(run, there, call, keys):
    jobs = [f'{{"name":"mail","id":"j{n}","t":1,"args":{{}}}}' for n in range(6000)]
    call("SADD", keys.known_jobs, "mail")
    call("LPUSH", keys.queue("mail"), *jobs)
    found = run("jobs", "ls", "--where", "id=j5500", *there)
    assert found.stdout == "None of 3,000 jobs in waiting matches.\n"
    assert "0 of 6,000 in waiting; 3,000 searched" in found.stderr
    cursor = found.stderr.strip().rpartition("more: the same with --after ")[2]
    assert "j5500" in run("jobs", "ls", "--where", "id=j5500", "--after", cursor, *there).stdout


def test_jobs_ls_pages_through_the_waiting_jobs_of_all_queues(run, there, enqueuer):
    jobs = [job.id for name in ("mail", "sms") for job in enqueuer.enqueue_many(name, [{}] * 4)]
    first = run("jobs", "ls", "--size", 5, *there)
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == jobs[:5]
    assert first.stderr.startswith("5 of 8 in waiting\nmore: the same with --after ")
    cursor = first.stderr.strip().rpartition("--after ")[2]
    rest = msgspec.json.decode(run("jobs", "ls", "--after", cursor, "--json", *there).stdout)
    assert ([job["id"] for job in rest["jobs"]], rest["total"], rest["next"]) == (jobs[5:], 8, "")


def test_jobs_ls_has_one_shape_in_every_state(run, there, new_pool):
    pool = new_pool(concurrency=1)
    release = threading.Event()

    @pool.job
    def work(n: int) -> None:
        release.wait(300)

    pool.start()
    job = work.using(source=7).enqueue(n=1)
    try:
        wait_until(lambda: "1 of 1 in running" in run("jobs", "ls", "--state", "running", *there).stderr)
        pages = {
            state: msgspec.json.decode(run("jobs", "ls", "--state", state, "--json", *there).stdout)
            for state in ("waiting", "running", "scheduled", "retry", "dead", "done")
        }
        keys_of = {state: set(page) for state, page in pages.items()}
        assert keys_of == dict.fromkeys(pages, set(pages["waiting"]))
        assert [one["id"] for one in pages["running"]["jobs"]] == [job.id]
        assert job.id in run("jobs", "ls", "--state", "running", "--where", "source=7", *there).stdout
        assert run("jobs", "ls", "--state", "running", "--where", "source=8", *there).stdout == (
            "None of 1 job in running matches.\n"
        )
    finally:
        release.set()


def test_jobs_ls_pages_through_broken_entries(run, there, keys, call):
    call("LPUSH", keys.broken, *(f"broken {n}" for n in range(7)))
    first = run("jobs", "ls", "--state", "broken", "--size", 5, *there)
    assert first.stderr == "5 of 7 broken entries\nmore: the same with --after 5\n"
    rest = run("jobs", "ls", "--state", "broken", "--after", 5, *there)
    assert [line.split()[0] for line in rest.stdout.splitlines()[1:]] == ["5", "6"]


def test_a_dry_run_counts_what_matches_and_not_the_whole_state(run, there, put):
    for n in range(12):
        put("dead", "mail", f"m{n}")
        put("dead", "sms", f"s{n}")
    dry = run("jobs", "delete", "--state", "dead", "--where", "name=mail", "--dry-run", *there)
    assert dry.stdout.startswith("Would delete 12 jobs in dead.\n")
    assert dry.stderr == "10 of 12 jobs shown\n"


def test_jobs_ls_lists_each_state_and_goes_on_with_a_cursor(run, there, put, enqueuer):
    for i in range(4):
        put("dead", "mail", f"d{i}", ago=100 - i)
    enqueuer.enqueue("mail")
    enqueuer.enqueue("sms")
    listed = run("jobs", "ls", *there).stdout.splitlines()[1:]
    assert [line.split()[1] for line in listed] == ["mail", "sms"]
    first = run("jobs", "ls", "--state", "dead", "--size", 3, *there)
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == ["d3", "d2", "d1"]
    cursor = first.stderr.strip().rpartition("--after ")[2]
    rest = msgspec.json.decode(
        run("jobs", "ls", "--state", "dead", "--after", cursor, "--json", *there).stdout
    )
    assert [job["id"] for job in rest["jobs"]] == ["d0"]
    assert "hunter2" not in msgspec.json.encode(rest).decode()
    assert "payload" not in rest["jobs"][0]
    assert run("jobs", "ls", "--state", "running", *there).stdout.startswith("No job")
    assert run("jobs", "ls", "--state", "broken", *there).stdout.startswith("No broken")


def test_jobs_show_and_explain_end_with_1_for_an_unknown_job(run, there):
    for verb in ("show", "explain"):
        done = run("jobs", verb, "nope", *there)
        assert (done.returncode, done.stdout) == (1, "")
        assert "nope" in done.stderr
    told = run("jobs", "explain", "nope", "--json", *there)
    assert (told.returncode, msgspec.json.decode(told.stdout)["id"]) == (1, "nope")


def test_jobs_show_and_explain_tell_the_story_of_one(run, there, put, announce):
    announce("mail")
    put("dead", "mail", "d1", "Timeout: slow")
    shown = run("jobs", "show", "d1", *there)
    assert shown.returncode == 0
    for text in (
        "mail d1",
        "Died",
        "attempt 1 failed: Timeout: slow",
        "    Traceback of it",
        "[redacted]",
    ):
        assert text in shown.stdout
    assert "hunter2" not in shown.stdout
    assert run("jobs", "explain", "d1", *there).stdout.startswith("Died")
    missing = run("jobs", "show", "nobody", *there)
    assert (missing.returncode, 'No job "nobody"' in missing.stderr) == (1, True)


def test_text_of_others_cannot_repaint_the_terminal(run, there, keys, call, look):
    member = codec.write(
        b'"mail"', "\x1b]0;x\x07id", look.now(), b'{"a":"\\u001b[2J"}', {"err": "\x1b[31mred\nline"}
    )
    call("ZADD", keys.dead, look.now(), member)
    call("SADD", keys.known_jobs, "\x1b[31mname")
    for words in (("jobs", "ls", "--state", "dead"), ("dead", "groups"), ("queues", "ls"), ("stats",)):
        done = run(*words, *there)
        assert "\x1b" not in done.stdout + done.stderr, words
        assert "\x07" not in done.stdout


def test_broken_entries_are_listed_repaired_and_deleted(run, there, call, keys, look):
    call("RPUSH", keys.broken, b"no json", b"nor this")
    listed = msgspec.json.decode(run("broken", "ls", "--json", *there).stdout)
    first, second = [entry["id"] for entry in listed["entries"]]
    assert [entry["payload"] for entry in listed["entries"]] == ["no json", "nor this"]
    refused = run("broken", "delete", first, *there)
    assert (refused.returncode, "add --yes" in refused.stderr) == (2, True)
    assert run("broken", "delete", first, "--yes", *there).returncode == 0
    assert call("LRANGE", keys.broken, 0, -1) == [b"nor this"]
    job = '{"name": "mail", "id": "m1", "t": 1, "args": {}}'
    assert run("broken", "repair", second, "no json", *there).returncode == 2
    assert run("broken", "repair", second, job, *there).returncode == 0
    assert [one["id"] for one in look.queue("mail")] == ["m1"]


def test_jobs_are_retried_by_id_once(run, there, put, look):
    put("dead", "mail", "d1")
    assert run("jobs", "retry", "d1", "--state", "retry", *there).returncode == 1
    done = run("jobs", "retry", "d1", "--state", "dead", *there)
    assert (done.returncode, "Back in the queue" in done.stdout) == (0, True)
    again = run("jobs", "retry", "d1", "--state", "dead", *there)
    assert (again.returncode, "has moved on" in again.stderr) == (1, True)
    assert len(look.queue("mail")) == 1


def test_jobs_that_match_are_counted_in_a_dry_run_and_then_changed(run, there, put, look):
    for i in range(3):
        put("dead", "mail", f"m{i}", "Timeout: 3 s")
    put("dead", "sms", "s1")
    where = ("--where", "name=mail error~Timeout")
    dry = run("jobs", "retry", *where, "--dry-run", *there)
    assert (dry.returncode, dry.stdout.splitlines()[0]) == (0, "Would retry 3 jobs in dead.")
    assert len(look.dead()) == 4
    done = run("jobs", "retry", *where, "--limit", 2, *there)
    assert (done.returncode, done.stdout) == (0, "2 jobs matched, 2 changed.\n")
    told = msgspec.json.decode(run("jobs", "retry", *where, "--json", *there).stdout)
    assert (told["matched"], told["changed"]) == (1, 1)
    none = run("jobs", "retry", *where, *there)
    assert (none.returncode, "None of 1 job" in none.stderr) == (1, True)


def test_jobs_are_deleted_killed_run_and_cancelled(run, there, put, enqueuer, look):
    put("dead", "mail", "d1")
    put("retry", "mail", "r1")
    put("retry", "mail", "r2")
    job = enqueuer.enqueue("sms")
    assert run("jobs", "delete", "d1", *there).returncode == 2
    assert run("jobs", "delete", "d1", "--yes", *there).returncode == 0
    assert run("jobs", "kill", "--state", "retry", "--where", "id=r1", "--yes", *there).returncode == 0
    assert run("jobs", "run", "r2", *there).returncode == 0
    assert run("jobs", "cancel", job.id, "--dry-run", *there).stdout.startswith(f"{job.id}: would cancel")
    assert run("jobs", "cancel", job.id, "--yes", *there).returncode == 0
    assert [entry["id"] for entry in look.dead()] == ["r1"]
    assert [entry["id"] for entry in look.queue("mail")] == ["r2"]
    assert look.queue("sms") == []


def test_everything_that_matches_is_cancelled_running_jobs_too(run, there, enqueuer, look, new_pool):
    pool = new_pool(concurrency=2, beat=0.2)
    began = threading.Semaphore(0)

    @pool.job
    def work(job: Job, n: int) -> None:
        began.release()
        wait_until(lambda: job.stopping, 300)

    for n in range(3):
        enqueuer.using(source=n).enqueue("work", n=n)
    pool.start()
    for _ in range(2):
        assert began.acquire(timeout=60)
    waiting = ("--state", "waiting", "--where", "name=work")
    dry = run("jobs", "cancel", *waiting, "--dry-run", *there)
    assert dry.stdout.startswith("Would cancel 1 job in waiting.")
    assert run("jobs", "cancel", *waiting, "--yes", *there).stdout == "1 job matched, 1 changed.\n"
    running = ("--state", "running", "--where", "source=0")
    assert run("jobs", "cancel", *running, "--dry-run", *there).stdout.startswith(
        "Would cancel 1 job in running."
    )
    done = run("jobs", "cancel", *running, "--yes", "--json", *there)
    assert msgspec.json.decode(done.stdout)["changed"] == 1
    wait_until(lambda: look.total("cancelled:work") == 2)
    assert (look.dead(), look.total("failed:work")) == ([], 0)
    totals = run("queues", "show", "work", *there).stdout
    assert "cancelled 2" in totals
    assert "cancel all" in run("audit", "--about", "running where source=0", *there).stdout
    none = run("jobs", "cancel", *running, "--yes", *there)
    assert (none.returncode, "None of 1 job in running matches." in none.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancel", "--where", "name=a", "--yes"], "--state running|waiting|scheduled|retry"),
        (["retry"], "give IDs, or --where"),
        (["retry", "x", "--where", "name=a"], "not both"),
        (["retry", "x", "--limit", "3"], "--limit goes with --where"),
        (["delete", "--where", "name=a", "--yes"], "--state waiting|scheduled|retry|dead|done"),
        (["delete", "--state", "dead", "--where", "", "--yes"], "no condition"),
        (["retry", "--where", "nmae=a"], "Did you mean 'name'?"),
        (["retry", "--state", "done", "--where", "name=a"], "'done' is not one of"),
        (["ls", "--state", "broken", "--where", "name=a"], "cannot be used with"),
        (["ls", "--after", "x"], "not a cursor"),
        (["ls", "--state", "dead", "--after", "x"], "not a cursor"),
    ],
)
def test_a_mistake_in_a_call_ends_with_2_and_says_what_to_write(run, there, put, words, said):
    put("done", "a", "x1")
    done = run("jobs", *words, *there)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


# dead


def test_dead_jobs_are_listed_grouped_retried_and_deleted(run, there, put, look):
    for i in range(3):
        put("dead", "mail", f"m{i}", f"Timeout: {i} s", ago=60 + i)
    put("dead", "sms", "s1", "KeyError: 'x'", ago=9000)
    assert [line.split()[0] for line in run("dead", "ls", *there).stdout.splitlines()[1:]] == [
        "m0",
        "m1",
        "m2",
        "s1",
    ]
    groups = run("dead", "groups", *there).stdout.splitlines()
    row = groups[1].split()
    assert (row[:6], row[-3:]) == (["mail", "3", "3", "3", "3", "3"], ["Timeout:", "#", "s"])
    assert len(run("dead", "groups", "--within", "1h", *there).stdout.splitlines()) == 2
    assert run("dead", "retry-all", "--where", "name=mail", *there).stdout == "3 jobs matched, 3 changed.\n"
    assert run("dead", "delete-all", *there).returncode == 2
    assert run("dead", "delete-all", "--yes", *there).returncode == 0
    assert look.dead() == []
    assert run("dead", "retry-all", *there).returncode == 1


# pools, periodic


@pytest.fixture
def quick_pool(new_pool, look):
    """The id of a pool that beats often, and has said who it is."""
    pool = new_pool(concurrency=2, beat=0.2)
    pool.register("work", lambda: None)
    pool.start()
    wait_until(look.status)
    return look.pools()[0]


def test_which_pools_are_meant_must_be_said(run, there, quick_pool, admin):
    host = platform.node()
    assert "which pools?" in run("pools", "quiet", *there).stderr
    assert "which pools?" in run("pools", "quiet", quick_pool, "--all", *there).stderr
    wrong = run("pools", "quiet", "--host", host + "x", *there)
    assert wrong.returncode == 2
    assert f"Did you mean '{host}'?" in wrong.stderr
    meant = run("pools", "quiet", "--host", host, "--dry-run", *there)
    assert meant.stdout == f"would quiet pool {quick_pool}\n"
    assert not admin.pools().pools[0].status.quiet


def test_pools_are_asked_to_go_quiet_by_host_or_id(run, there, quick_pool, admin):
    asked = run("pools", "quiet", "--host", platform.node(), *there)
    assert asked.returncode == 0
    assert "It fetches nothing more at its next heartbeat" in asked.stdout
    wait_until(lambda: admin.pools().pools[0].status.quiet)
    assert " quiet " in run("pools", "ls", *there).stdout
    again = run("pools", "quiet", quick_pool, *there)
    assert (again.returncode, "asked that already" in again.stderr) == (1, True)


def test_pools_are_asked_to_stop_after_a_question(run, there, quick_pool, look):
    assert "add --yes" in run("pools", "stop", "--all", *there).stderr
    stopped = run("pools", "stop", "--all", "--yes", "--json", *there)
    assert [one["done"] for one in msgspec.json.decode(stopped.stdout)] == [True]
    wait_until(lambda: look.pools() == [])
    gone = run("pools", "stop", quick_pool, "--yes", *there)
    assert (gone.returncode, "no such pool any more" in gone.stderr) == (1, True)
    assert "no pool runs in this namespace" in run("pools", "quiet", "--all", *there).stderr


def test_the_stacks_of_a_pool_are_printed(run, there, new_pool, look):
    pool = new_pool(concurrency=2, beat=0.2)
    gate = threading.Event()

    @pool.job
    def stands_here() -> None:
        gate.wait(300)

    pool.start()
    (pool_id,) = look.pools()
    assert run("pools", "stacks", pool_id, *there).stdout == "No worker is busy.\n"
    job = stands_here.enqueue()
    wait_until(look.workers)
    try:
        shown = run("pools", "stacks", pool_id, "--own", *there).stdout.splitlines()
        assert shown[0].startswith(f"stands_here {job.id}  sync, running for")
        assert "stands_here" in shown[1]
        assert shown[2].strip() == "gate.wait(300)"
        assert len(shown) == 3
        assert len(run("pools", "stacks", pool_id, *there).stdout.splitlines()) > 3
        told = msgspec.json.decode(run("pools", "stacks", pool_id, "--json", *there).stdout)
        assert told["workers"][0]["frames"][0]["own"] is True
    finally:
        gate.set()
    missing = run("pools", "stacks", "nobody", *there)
    assert (missing.returncode, "is gone" in missing.stderr) == (1, True)


def test_job_types_are_listed_and_an_enqueue_is_checked_against_them(run, there, new_pool, look):
    assert "No pool has announced any" in run("jobs", "types", *there).stdout
    pool = new_pool()

    @pool.job(redact=["card"])
    def pay(card: str, amount: int = 1) -> None:
        """Take the money."""

    pool.start()
    pool.stop()
    row = run("jobs", "types", *there).stdout.splitlines()[1]
    assert row.startswith("pay(card: str, amount: int = 1)  sync")
    assert row.endswith("card    Take the money.")
    wrong = run("enqueue", "pay", "card=x", "amount=much", *there)
    assert wrong.returncode == 2
    assert "argument 'amount': expected a whole number, got str" in wrong.stderr
    assert "pay(card: str, amount: int = 1)" in wrong.stderr
    assert "Did you mean 'amount'?" in run("enqueue", "pay", "card=x", "amuont=1", *there).stderr
    assert look.queue("pay") == []
    assert run("enqueue", "pay", "card=x", "amount=much", "--force", *there).returncode == 0
    assert run("enqueue", "pay", "card=x", *there).returncode == 0
    assert len(look.queue("pay")) == 2


def test_pools_and_running_jobs_and_schedules_are_listed(run, there, new_pool, look, admin):
    assert "No pool is running" in run("pools", "ls", *there).stdout
    pool = new_pool(concurrency=2)
    pool.register("sweep", lambda: None)
    pool.periodic("0 9 * * *", "sweep")
    pool.start()
    (schedule,) = wait_until(admin.periodic)
    wait_until(look.status)
    row = run("pools", "ls", *there).stdout.splitlines()[1]
    assert "0/2" in row
    assert row.endswith("sweep")
    listed = run("periodic", "ls", *there).stdout
    assert "09:00" in listed
    assert run("periodic", "pause", schedule.name, *there).returncode == 0
    assert run("periodic", "pause", schedule.name, *there).returncode == 1
    assert "paused" in run("periodic", "ls", *there).stdout
    assert run("periodic", "resume", schedule.name, *there).returncode == 0
    assert run("periodic", "run", schedule.name, *there).returncode == 0
    wait_until(lambda: look.total("done:sweep"))
    assert run("periodic", "run", "nothing", *there).returncode == 2


# stats, health


def test_stats_begin_with_the_verdict(run, there, enqueuer):
    enqueuer.enqueue("mail")
    done = run("stats", *there)
    assert done.stdout.splitlines()[0] == "No pool is running and 1 job waits."
    assert "1 job waiting, 0 running" in done.stdout
    told = msgspec.json.decode(run("stats", "--json", *there).stdout)
    assert told["verdict"]["level"] == "error"


def test_stats_watch_prints_again_and_again_and_one_json_line_each(run, there, new_pool, look):
    pool = new_pool()
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)
    done = run("stats", "--watch", "--every", "10ms", "--times", 3, *there)
    assert done.stdout.splitlines().count("All is well.") == 3
    lines = run("stats", "--watch", "--every", "10ms", "--times", 2, "--json", *there).stdout.splitlines()
    assert [msgspec.json.decode(line)["verdict"]["level"] for line in lines] == ["ok", "ok"]


def test_stats_watch_redraws_on_a_terminal_and_ends_at_ctrl_c(there, tmp_path):
    said, code = on_terminal(("stats", "--watch", "--every", "10ms", "--times", 2, *there), None, tmp_path)
    assert (said.count("\x1b[H\x1b[2J"), code) == (2, 0)


def test_metrics_say_what_ran_when_and_the_audit_who_did_what(run, there, keys, call, look, admin):
    assert run("metrics", *there).stdout == "No figures yet.\n"
    assert run("audit", *there).stdout == "The audit is empty.\n"
    call("HSET", keys.minute(int(look.now() // 60) - 2), "mail|r4", 8, "mail|f", 2, "sms|r4", 1)
    mail = run("metrics", *there).stdout.splitlines()[1]
    assert mail.split()[:3] == ["mail", "8", "25.0%"]
    (step,) = run("metrics", "--steps", *there).stdout.splitlines()[1:]
    assert step.endswith("9       2  mail 8, sms 1")
    assert len(msgspec.json.decode(run("metrics", "--hours", 24, "--json", *there).stdout)["starts"]) == 96
    admin.pause("mail", force=True)
    line = run("audit", *there).stdout.splitlines()[1]
    assert line.split()[3:] == ["ada", "pause", "queue", "mail", "Paused."]
    assert run("audit", "--about", "queue mail", *there).stdout.splitlines()[1] == line
    assert run("audit", "--about", "sms", *there).stdout == "The audit has no entry about 'sms'.\n"


def test_health_is_told_by_the_exit_code(run, there, redis_url, enqueuer, put, new_pool, look):
    assert run("health", *there).returncode == 0
    assert run("health", "--min-pools", 1, *there).returncode == 1
    assert run("health", "--here", *there).returncode == 1
    put("dead", "mail", "d1")
    sick = run("health", "--max-dead", 0, "--json", *there)
    assert msgspec.json.decode(sick.stdout) == {
        "healthy": False, "problems": ["1 job dead, more than 0"],
        "level": "warning", "verdict": "No pool is running; 1 job is dead.",
    }  # fmt: skip
    pool = new_pool(concurrency=1)
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)
    assert run("health", "--here", "--min-pools", 1, "--max-wait", "1m", *there).stdout == "healthy\n"
    enqueuer.enqueue("stray")
    assert "the oldest job has waited for" in wait_until(
        lambda: run("health", "--max-wait", "1ms", *there).stderr
    )


def test_a_server_that_is_away_ends_every_look_with_69(run):
    away = ("--redis", f"redis://127.0.0.1:{free_port()}")
    for words in (("queues", "ls"), ("jobs", "ls"), ("stats",), ("health",), ("pools", "ls"), ("export",)):
        assert run(*words, *away).returncode == 69, words


# export, import, fake-data


def test_an_import_of_one_job_is_reported_in_the_singular(tmp_path, run, there, redis_url, namespace, put):
    put("dead", "mail", "d1")
    run("export", "jobs.jsonl", *there)
    target = ("--redis", redis_url, "--namespace", namespace + "2")
    assert run("import", "jobs.jsonl", *target).stdout == "Imported 1 job (1 dead).\n"
    assert run("import", "jobs.jsonl", *target).stderr == "1 job of this export was there already.\n"
    cut = "".join((tmp_path / "jobs.jsonl").read_text().splitlines(keepends=True)[:2])
    told = run("import", "--redis", redis_url, "--namespace", namespace + "3", text=cut).stderr
    assert "it has 1 job and lacks lines at its end" in told


def test_what_is_exported_can_be_imported(
    tmp_path, run, there, redis_url, namespace, enqueuer, put, keys, call
):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(5)])
    put("dead", "mail", "d1")
    done = run("export", "jobs.jsonl", *there)
    assert (done.returncode, done.stderr) == (0, "Exported 6 jobs (5 waiting, 1 dead).\n")
    target = ("--redis", redis_url, "--namespace", namespace + "2")
    told = msgspec.json.decode(run("import", "jobs.jsonl", "--json", *target).stdout)
    assert told == {"counts": {"waiting": 5, "dead": 1}, "already_there": 0, "left_out": 0}
    again = run("import", "jobs.jsonl", *target)
    assert (again.stdout, again.stderr) == (
        "Imported 0 jobs.\n",
        "6 jobs of this export were there already.\n",
    )
    cut = run("import", "--redis", redis_url, "--namespace", namespace + "4", text="".join(
        (tmp_path / "jobs.jsonl").read_text().splitlines(keepends=True)[:4]
    ))  # fmt: skip
    assert (cut.returncode, "it has 3 jobs and lacks lines at its end" in cut.stderr) == (2, True)
    assert call("LRANGE", keys.queue("mail"), 0, -1) == call(
        "LRANGE", type(keys)(namespace + "2").queue("mail"), 0, -1
    )
    piped = run("export", *there).stdout
    assert run("import", "--redis", redis_url, "--namespace", namespace + "3", text=piped).returncode == 0
    wrong = run("import", *there, text="rubbish\n")
    assert (wrong.returncode, "no export" in wrong.stderr) == (2, True)


def test_fake_data_fill_every_state_and_ask_before_they_mix(run, there, admin):
    assert run("fake-data", "--jobs", 100, "--hours", 1, *there).returncode == 0
    verdict = admin.verdict()
    assert (verdict.waiting, verdict.sizes.scheduled, verdict.sizes.retry, verdict.sizes.dead) == (
        60,
        15,
        10,
        15,
    )
    assert sum(job.runs.count for job in admin.metrics(1).jobs) > 100
    for job in admin.metrics(24).jobs:
        assert job.totals["done"] + job.totals["failed"] == sum(job.series)
    assert run("fake-data", *there).returncode == 2


# config


def test_config_show_says_where_each_value_came_from(run, tmp_path, redis_url):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dayjob]\nredis = "redis://:pw@127.0.0.1:1/0"\n[tool.dayjob.worker]\nmax-jobs = 7\n'
        '[tool.dayjob.queues.ls]\nnamespace = "special"\n'
    )
    rows = msgspec.json.decode(run("config", "show", "--json", DAYJOB_NAMESPACE="shop").stdout)
    found = {(row["command"], row["setting"]): (row["value"], row["from"]) for row in rows}
    file = "[tool.dayjob] in pyproject.toml"
    assert found["", "redis"] == ("redis://:***@127.0.0.1:1/0", file)
    assert found["worker", "--max-jobs"] == ("7", file)
    assert found["jobs ls", "--namespace"] == ("shop", "DAYJOB_NAMESPACE")
    assert found["queues show", "--redis"] == ("redis://:***@127.0.0.1:1/0", file)
    assert ("worker", "--processes") not in found
    everything = msgspec.json.decode(run("config", "show", "--all", "--json").stdout)
    assert {"command": "worker", "setting": "--processes", "value": "1", "from": "default"} in everything


def test_pyproject_gives_options_that_neither_the_call_nor_a_variable_gives(
    run, tmp_path, redis_url, namespace, look
):
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dayjob]\nredis = "{redis_url}"\nnamespace = "{namespace}"\n[tool.dayjob.queues.ls]\njson = true\n'
    )
    assert run("enqueue", "mail", "--force").returncode == 0
    assert len(look.queue("mail")) == 1
    assert msgspec.json.decode(run("queues", "ls").stdout)["queues"][0]["queue"]["name"] == "mail"
    other = run("queues", "ls", DAYJOB_NAMESPACE=namespace + "x")
    assert msgspec.json.decode(other.stdout)["queues"] == []
    assert msgspec.json.decode(run("queues", "ls", "--namespace", namespace + "y").stdout)["queues"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.dayjob]\nnamespce = 'x'\n", "Did you mean 'namespace'?"),
        ("[tool.dayjob.worker]\nproceses = 2\n", "Did you mean 'processes'?"),
        ("[tool.dayjob.queues.ls]\nx = 2\n", "[tool.dayjob.queues.ls] has no option 'x'"),
        ("[tool.dayjob\n", "cannot be read"),
    ],
)
def test_a_mistake_in_pyproject_is_said(run, there, tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    command = "worker" if "worker" in text else "queues"
    done = run(command, "ls", *there)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_pyproject_of_others_is_none_of_our_business(run, there, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.other\nbroken")
    assert run("queues", "ls", *there).returncode == 0


def test_json_of_a_command_holds_no_character_that_a_terminal_obeys(run, there, put):
    hostile = "ValueError: \x1b[2J \x9b31m \u202e \u2066 \u2028"
    put("dead", "mail", "j1", error=hostile)
    for command in (("dead", "ls"), ("jobs", "show", "j1")):
        shown = run(*command, *there, "--json").stdout
        assert shown.replace("\n", "").isprintable()
        assert "\\u009b31m \\u202e \\u2066 \\u2028" in shown
        assert hostile in str(msgspec.json.decode(shown)).encode().decode("unicode_escape")


# completion, printers, help


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_and_completes(run, shell):
    done = run("completion", shell)
    assert done.returncode == 0
    assert "_DAYJOB_COMPLETE" in done.stdout
    words = {"COMP_WORDS": "dayjob queues pu", "COMP_CWORD": "pu" if shell == "fish" else "2"}
    answer = subprocess.run(
        [str(Path(sys.executable).with_name("dayjob"))],
        capture_output=True, text=True, timeout=120, check=True, env=environment(_DAYJOB_COMPLETE=f"{shell}_complete", **words),
    )  # fmt: skip
    assert "purge" in answer.stdout


def test_the_printers_print_files_that_fit_together(run, tmp_path):
    unit = run("systemd", "app.jobs:pool", "--timeout", 40, "--processes", 3, "--namespace", "shop").stdout
    assert "TimeoutStopSec=50" in unit
    assert "worker app.jobs:pool --processes 3 --timeout 40 --namespace shop" in unit
    assert f"WorkingDirectory={tmp_path.resolve()}" in unit
    settings = [line for line in unit.splitlines() if not line.startswith("#")]
    assert "Restart=on-failure" in settings
    assert "Environment=DAYJOB_EMBEDDED=never" in settings
    compose = run("compose", "app.jobs:pool", "--image", "me/app:1").stdout
    worker = yaml.safe_load(compose)["services"]["worker"]
    assert (worker["restart"], worker["environment"]["DAYJOB_EMBEDDED"]) == ("on-failure", "never")
    # The probe looks at the namespace of the pool, wherever that is set.
    assert worker["healthcheck"]["test"][1:] == ["dayjob", "health", "--here", "--app", "app.jobs:pool"]
    named = run("compose", "app.jobs:pool", "--namespace", "shop").stdout
    assert yaml.safe_load(named)["services"]["worker"]["healthcheck"]["test"][4:] == ["--namespace", "shop"]
    for text in (
        "image: me/app:1",
        "noeviction",
        "stop_grace_period: 35s",
        '"dayjob", "worker", "app.jobs:pool"',
    ):
        assert text in compose
    deployment = run("kubernetes", "app.jobs:pool", "--replicas", 5).stdout
    for text in (
        "kind: Deployment",
        "name: app-jobs-worker",
        "replicas: 5",
        "terminationGracePeriodSeconds: 35",
    ):
        assert text in deployment


def test_every_look_and_every_verb_takes_json():
    """But for those that print a file or run until they are stopped."""
    import click

    from dayjob.cli import cli

    without = {
        "demo", "worker", "web", "top", "enqueue", "check", "server start", "server stop", "server status", "server path", "export",
        "fake-data", "completion", "systemd", "compose", "kubernetes", "alerts", "grafana", "mcp", "relay",
    }  # fmt: skip
    context = click.Context(cli)
    found = set()
    for name in COMMANDS:
        command = cli.get_command(context, name)
        inner = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        for verb, one in inner:
            flags = {flag for parameter in one.params for flag in parameter.opts}
            if "--json" not in flags or name == "enqueue":
                found.add(f"{name} {verb}".strip())
    assert found == without


def test_what_was_deleted_is_listed_and_undone(run, there, enqueuer):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(12)])
    assert "Nothing was deleted" in run("bin", "ls", *there).stdout
    assert run("undo", *there).returncode == 2
    purged = run("queues", "purge", "mail", "--yes", *there)
    assert "Undo within ten minutes: dayjob undo " in purged.stderr
    listed = msgspec.json.decode(run("bin", "ls", "--json", *there).stdout)
    assert [(one["jobs"], one["action"], one["subject"]) for one in listed] == [(12, "purge", "queue mail")]
    assert "queue mail" in run("bin", "ls", *there).stdout
    undone = run("undo", *there)
    assert undone.stdout == "12 jobs put back.\n"
    assert undone.returncode == 0
    gone = run("jobs", "delete", "--state", "waiting", "--where", "name=mail", "--yes", "--no-undo", *there)
    assert "Undo" not in gone.stderr
    assert msgspec.json.decode(run("bin", "ls", "--json", *there).stdout) == []

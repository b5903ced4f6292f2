"""The commands as people run them: a process of its own, its exit code, and what it prints."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from dayjob import Admin
from dayjob.store.embedded import server_status, stop_server
from server import free_port, running, wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")


def environment(**more):
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "LANG", "XDG_STATE_HOME")
        if name in os.environ
    }
    return {**kept, "PYTHONPATH": SRC, **more}


@pytest.fixture
def folder(tmp_path):
    """A folder to run in; an embedded server that was started there is stopped."""
    yield tmp_path
    stop_server(tmp_path / ".dayjob")


@pytest.fixture
def run(tmp_path):
    """Run `dayjob ...` in a folder of its own."""

    def dayjob(*words, **env):
        done = subprocess.run(
            [sys.executable, "-m", "dayjob", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env=environment(**env),
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        assert len(done.stderr.splitlines()) <= 6, done.stderr
        return done

    return dayjob


@pytest.fixture
def there(redis_url, namespace):
    """The options that name the server and namespace of this test."""
    return ("--redis", redis_url, "--namespace", namespace)


# enqueue


def test_enqueue_prints_the_id_of_the_job_it_put_in(run, there, look):
    done = run(
        "enqueue",
        "--force",
        "mail",
        "to=ada",
        "copies=2",
        "urgent=true",
        'text="7"',
        "zip=007",
        "list=[1, null]",
        "empty=",
        *there,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (job,) = look.queue("mail")
    assert job["id"] == done.stdout.strip()
    assert job["args"] == {
        "to": "ada", "copies": 2, "urgent": True, "text": "7", "zip": "007", "list": [1, None], "empty": "",
    }  # fmt: skip


def test_enqueue_takes_json_and_pairs_together_and_keeps_what_looks_like_options(run, there, look):
    assert (
        run(
            "enqueue", "mail", "--force", "--json", '{"a": {"b": 9007199254740993}}', "name=x", "id=y", *there
        ).returncode
        == 0
    )
    assert look.queue("mail")[0]["args"] == {"a": {"b": 9007199254740993}, "name": "x", "id": "y"}


def test_enqueue_in_and_at_schedule(run, there, look, keys):
    assert run("enqueue", "mail", "--in", "1h30m", "--force", *there).returncode == 0
    at = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    assert run("enqueue", "mail", "--at", at, *there).returncode == 0
    first, second = look.scores(keys.scheduled)
    assert abs(first - look.now() - 5400) < 300
    assert abs(second - datetime.fromisoformat(at).timestamp()) < 1


def test_enqueue_with_an_id_and_a_source(run, there, look):
    assert run("enqueue", "mail", "--id", "m-1", "--source", "42", "--force", *there).stdout == "m-1\n"
    assert run("enqueue", "mail", "--id", "m-1", "--source", "42", *there).stdout == "m-1\n"
    (job,) = look.queue("mail")
    assert (job["id"], job["source"]) == ("m-1", 42)


def test_enqueue_unique_says_when_one_like_it_waits(run, there, look):
    assert run("enqueue", "mail", "n=1", "--unique", "--force", *there).stdout
    again = run("enqueue", "mail", "n=1", "--unique", *there)
    assert (again.returncode, again.stdout) == (0, "")
    assert "already waiting" in again.stderr
    assert run("enqueue", "mail", "n=1", "--unique", "--in", "5m", *there).stdout == ""
    assert len(look.queue("mail")) == 1


def test_enqueue_refuses_a_name_that_nobody_knows_and_a_namespace_that_nobody_uses(run, there, look):
    empty = run("enqueue", "send_mail", *there)
    assert empty.returncode == 2
    assert "was never used" in empty.stderr
    assert run("enqueue", "send_mail", "--force", *there).returncode == 0
    assert run("enqueue", "send_mail", *there).returncode == 0
    typo = run("enqueue", "send_mial", *there)
    assert (typo.returncode, typo.stdout) == (2, "")
    assert "Did you mean 'send_mail'?" in typo.stderr
    assert "--force" in typo.stderr
    assert look.queue("send_mial") == []
    assert run("enqueue", "send_mial", "--force", *there).returncode == 0
    assert len(look.queue("send_mial")) == 1


MAILER = """
from dayjob import WorkerPool

pool = WorkerPool(namespace="elsewhere")


@pool.job
def send_mail(to: str, copies: int = 1) -> None:
    \"\"\"Send a mail.\"\"\"
"""


def test_enqueue_checks_against_the_pool_that_is_named(run, there, look, tmp_path, redis_url, namespace):
    (tmp_path / "mailer.py").write_text(MAILER)
    wrong = run("enqueue", "mailer:pool", "send_mail", "to=ada", "copies=many", *there)
    assert wrong.returncode == 2
    assert "'copies'" in wrong.stderr
    unknown = run("enqueue", "mailer:pool", "send_mial", "to=ada", *there)
    assert unknown.returncode == 2
    assert "did you mean 'send_mail'" in unknown.stderr
    alone = run("enqueue", "mailer:pool", *there)
    assert "which job of mailer:pool?" in alone.stderr
    done = run("enqueue", "mailer:pool", "send_mail", "to=ada", *there)
    assert (done.returncode, done.stderr) == (0, "")
    (job,) = look.queue("send_mail")
    assert (job["id"], job["args"]) == (done.stdout.strip(), {"to": "ada"})
    forced = run("enqueue", "mailer:pool", "send_mail", "copies=many", "--force", *there)
    assert forced.returncode == 0
    assert len(look.queue("send_mail")) == 2


def test_enqueue_takes_the_namespace_of_the_pool_unless_another_is_named(
    run, tmp_path, redis_url, look, call
):
    (tmp_path / "mailer.py").write_text(MAILER.replace("elsewhere", f"of-{look.keys.namespace}"))
    done = run("enqueue", "mailer:pool", "send_mail", "to=ada", "--redis", redis_url)
    assert done.returncode == 0, done.stderr
    assert call("LLEN", f"of-{look.keys.namespace}:jobs:send_mail") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mail", "to"], "write key=value"),
        (["mail", "=x"], "write key=value"),
        (["mail", "a=1", "a=2"], "given twice"),
        (["mail", "--json", "[1]"], "Write an object"),
        (["mail", "--json", "{"], "Write an object"),
        (["mail", "--in", "soon"], "such as 90s, 5m, 1h30m or 2d"),
        (["mail", "--in", "-5"], "such as 90s"),
        (["mail", "--at", "tomorrow"], "2030-01-31T09:00+01:00"),
        (["mail", "--at", "2030-01-31T09:00"], "write 2030-01-31T09:00Z for UTC"),
        (["mail", "--in", "5m", "--at", "2030-01-31T09:00Z"], "not both"),
        (["send mail"], "without spaces"),
        (["mail", "--id", ""], "printable"),
    ],
)
def test_a_mistake_in_an_enqueue_is_said_in_words(run, there, look, words, said):
    done = run("enqueue", *words, *there)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert look.queue("mail") == []


def test_a_server_that_is_not_there_ends_with_69(run):
    url = f"redis://:secret@127.0.0.1:{free_port()}"
    done = run("enqueue", "mail", "--redis", url)
    assert done.returncode == 69
    assert "secret" not in done.stderr
    assert "127.0.0.1" in done.stderr


# doctor


def test_doctor_ends_with_1_when_there_are_errors_and_names_what_to_do(run, tmp_path, namespace):
    with running(tmp_path) as server:
        done = run("doctor", "--redis", server.url, "--namespace", namespace)
    assert done.returncode == 1
    assert re.search(r"ERROR +persistence +nothing is written to disk", done.stdout)
    assert "appendonly yes" in done.stdout
    assert "is unused: no pool has started" in done.stdout
    assert "1 error, 2 warnings." in done.stdout


def test_doctor_ends_with_0_on_a_good_server_and_speaks_json(run, tmp_path, namespace):
    with running(tmp_path, "--appendonly", "yes") as server:
        done = run("doctor", "--json", DAYJOB_REDIS_URL=server.url, DAYJOB_NAMESPACE=namespace)
    assert done.returncode == 0
    findings = msgspec.json.decode(done.stdout)
    assert {"level", "topic", "what", "todo"} == set(findings[0])
    assert {one["topic"]: one["level"] for one in findings}["persistence"] == "ok"


def test_doctor_without_a_server_ends_with_69_in_three_lines(run):
    done = run("doctor", "--redis", f"redis://127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (69, "")
    assert 2 <= len(done.stderr.splitlines()) <= 3
    assert "--redis" in done.stderr


# check

JOBS = """
from dayjob import WorkerPool
pool = WorkerPool()

@pool.job
def create_watch(user_id: int, email: str = "") -> None: ...

@pool.job("notify")
async def send(user_id: int) -> None: ...

pool.periodic("0 9 * * 1-5", "notify", {"user_id": 1}, timezone="Europe/Paris")
"""


def test_check_shows_signatures_and_the_next_runs_in_words(run, tmp_path):
    (tmp_path / "good_jobs.py").write_text(JOBS)
    done = run("check", "good_jobs:pool")
    assert done.returncode == 0, done.stderr
    assert 'create_watch(user_id: int, email: str = "")' in done.stdout
    assert "async notify" in done.stdout
    assert "At 09:00" in done.stdout
    assert re.search(r"next: (Mon|Tue|Wed|Thu|Fri) .* 09:00:00, .* \(Europe/Paris\)", done.stdout)
    assert "2 jobs, 1 schedule: all is well." in done.stdout


def test_check_lists_every_problem_and_ends_with_1(run, tmp_path):
    (tmp_path / "bad_jobs.py").write_text(
        JOBS
        + "\n@pool.job\ndef later(user: 'NoSuchType') -> None: ...\n\npool.periodic('@every 5m', 'nobody')\n"
    )
    done = run("check", "bad_jobs:pool")
    assert done.returncode == 1
    assert "NoSuchType" in done.stderr
    assert "nobody" in done.stderr
    assert "2 problems" in done.stderr


def test_check_of_a_pool_without_jobs_or_a_module_that_is_not_there(run, tmp_path):
    (tmp_path / "empty_jobs.py").write_text("from dayjob import WorkerPool\npool = WorkerPool()\n")
    empty = run("check", "empty_jobs:pool")
    assert empty.returncode == 1
    assert "has no jobs" in empty.stderr
    missing = run("check", "no_such_module:pool")
    assert missing.returncode == 2
    assert "no_such_module" in missing.stderr


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("assert False", "AssertionError"),
        ("raise KeyError('setting')", "KeyError: 'setting'"),
        # As pytest.skip and gevent's GreenletExit.
        ("raise type('Skipped', (BaseException,), {})('not here')", "Skipped: not here"),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})",
            "Mute: (its message cannot be shown)",
        ),
    ],
)
@pytest.mark.parametrize("command", [("check", "app"), ("worker", "app"), ("enqueue", "app:pool", "quick")])
def test_a_module_of_include_that_cannot_be_imported_is_named_with_file_line_and_error(
    run, tmp_path, there, command, line, error
):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "__init__.py").write_text("")
    (tmp_path / "sub" / "a.py").write_text(f"import os\n\n{line}\n")
    (tmp_path / "app.py").write_text(
        "from dayjob import WorkerPool\npool = WorkerPool(include=['sub.*'])\n\n@pool.job\ndef quick(): ...\n"
    )
    done = run(*command, *(() if command[0] == "check" else there))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    said = [text for text in done.stderr.splitlines() if "cannot import" in text or "a.py" in text]
    assert said[0].endswith(f"include: cannot import 'sub.a': {error}")
    assert said[1].strip().startswith(f"{tmp_path / 'sub' / 'a.py'}:3: {line}")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("command", [("check", "app"), ("worker", "app"), ("enqueue", "app:pool", "quick")])
def test_a_module_whose_error_has_no_readable_message_is_named(run, tmp_path, there, command):
    (tmp_path / "app.py").write_text("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})\n")
    done = run(*command, *(() if command[0] == "check" else there))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot import app: Mute: (its message cannot be shown)" in done.stderr


# server


def test_the_embedded_server_is_started_looked_at_and_stopped(run, folder):
    assert run("server", "status").returncode == 1
    started = run("server", "start")
    assert started.returncode == 0
    socket = run("server", "path").stdout.strip()
    assert started.stdout.strip() == f"unix://{socket}"
    status = run("server", "status")
    assert status.returncode == 0
    assert f"Running in {folder.resolve() / '.dayjob'}" in status.stdout
    assert run("enqueue", "mail", "--force", "--redis", "embedded").returncode == 0
    assert run("server", "stop").stdout.startswith("Stopped")
    assert run("server", "stop").stdout.startswith("No server runs")


# demo


def test_the_demo_runs_jobs_ends_by_itself_and_leaves_nothing_running(run, folder):
    done = run("demo", "--seconds", 3, "--plain", "--port", 0)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any("processed" in line for line in lines)
    assert "\x1b" not in done.stdout
    ran = re.search(r"Ran ([\d,]+) jobs in \d+ s; \d+ attempts failed", done.stdout)
    assert int(ran[1].replace(",", "")) > 0
    assert re.search(r"The console: http://127\.0\.0\.1:\d+/", done.stdout)
    assert not server_status(folder / ".dayjob").running


def test_what_the_demo_advises_at_its_end_works_as_printed(folder):
    program = Path(sys.executable).with_name("dayjob")
    for called in ([sys.executable, "-m", "dayjob"], [str(program)]):
        done = subprocess.run(
            [*called, "demo", "--seconds", "1", "--plain", "--port", "0"],
            capture_output=True, text=True, timeout=120, cwd=folder, env=environment(PATH="/usr/bin:/bin"), check=True,
        )  # fmt: skip
        (advice,) = re.findall(r"^ +(.* doctor --redis embedded .*)$", done.stdout, re.MULTILINE)
        looked = subprocess.run(
            shlex.split(advice), capture_output=True, text=True, timeout=120, cwd=folder, env=environment(PATH="/usr/bin:/bin"), check=False,
        )  # fmt: skip
        assert "noeviction" in looked.stdout


def unexpected(errors: str) -> list[str]:
    """What a demo may not print. Where a busy machine holds its server up, a pool waits or cannot deregister in time, and says so."""
    held_up = re.compile(r"could not deregister|Timeout reading from socket|Redis is reachable again after")
    return [line for line in errors.splitlines() if not held_up.search(line)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_does_not_wait_for_long_jobs_when_a_signal_ends_it(folder, number):
    demo = subprocess.Popen(
        [sys.executable, "-m", "dayjob", "demo", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    try:
        for line in demo.stdout:
            if "processed" in line:
                break
        with Admin("demo", redis=f"embedded:{folder}/.dayjob") as admin:
            # It takes minutes: longer than the bound below.
            long = admin.enqueue("transcode_video", {"minutes": 1000}).subject.split()[1]
            wait_until(lambda: long in [one.worker.id for one in admin.busy()])
        demo.send_signal(number)
        rest, errors = demo.communicate(timeout=120)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, unexpected(errors)) == (0, [])
    assert "Ran " in rest


def test_every_page_of_the_demo_has_something_to_show_within_a_minute(folder):
    """Jobs that succeed, fail, retry, die, are scheduled, periodic, unique, limited, paused and slow, of several sources."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "dayjob", "demo", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    try:
        url = next(
            found[1] for line in demo.stdout if (found := re.search(r"The console: (http://\S+)", line))
        )
        admin = Admin("demo", redis=f"embedded:{folder}/.dayjob")

        def alive():
            verdict = admin.verdict()
            totals = {}
            for job in admin.metrics(1).jobs:
                for name, count in job.totals.items():
                    totals[name] = totals.get(name, 0) + count
            busy = admin.busy()
            return (
                min(verdict.sizes.scheduled, verdict.sizes.retry, verdict.sizes.dead) > 0
                and totals.get("done", 0) > 20
                and totals.get("failed", 0) > 0
                and totals.get("retried", 0) > 0
                and any(one.progress for one in busy)
                and len(admin.pools().pools) == 2
                and len(admin.periodic()) == 3
                and len({job.source for job in admin.jobs("scheduled", size=100).jobs}) > 1
            )

        wait_until(alive, step=0.2)
        # Jobs wait for a rate and for the limits of a tenant, and tenants take turns.
        wait_until(lambda: {one.name for one in admin.limits()} >= {"sms", "crm"})
        wait_until(lambda: admin.queue_keys("make_preview").keys)
        queues = {view.queue.name: view.queue for view in admin.queues().queues}
        assert queues["send_newsletter"].paused
        assert queues["send_newsletter"].size == 25
        assert queues["export_report"].limit == 2
        assert [line.action for line in admin.audit()] == ["pause"]
        assert "t-" not in str([job.args for job in admin.jobs("waiting", name="send_newsletter").jobs])
        admin.close()
        for page in ("", "queues", "worker_pools", "busy_workers", "dead_jobs", "failures", "metrics"):
            answer = httpx.get(f"{url}{page}", headers={"Accept": "text/html"}, timeout=60)
            assert (page, answer.status_code) == (page, 200)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=120)
        assert (demo.returncode, unexpected(errors)) == (0, [])
    finally:
        demo.kill()
        demo.wait()


def test_the_demo_takes_another_port_where_its_own_is_taken(run, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("demo", "--seconds", 0.5, "--plain", "--port", port)
    assert done.returncode == 0, done.stderr
    shown = int(re.search(r"The console: http://127\.0\.0\.1:(\d+)/", done.stdout)[1])
    assert shown != port


def test_the_demo_without_the_console_says_nothing_of_one(run, folder):
    done = run("demo", "--seconds", 0.5, "--plain", "--no-web")
    assert done.returncode == 0, done.stderr
    assert "onsole" not in done.stdout


@pytest.mark.parametrize(
    ("environ", "opens"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True), ({"DISPLAY": ":0", "CI": "true"}, False),
     ({"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, False)],
)  # fmt: skip
def test_a_browser_is_opened_on_a_desktop_only(environ, opens):
    from dayjob.cli.demo import on_a_desktop

    assert on_a_desktop(environ, tty=True, platform="linux") is opens
    assert on_a_desktop(environ, tty=False, platform="darwin") is False
    assert on_a_desktop({}, tty=True, platform="darwin") is True


def test_the_demo_leaves_a_server_alone_that_it_did_not_start(run, folder):
    run("server", "start")
    assert run("demo", "--seconds", 0.5, "--port", 0).returncode == 0
    assert server_status(folder / ".dayjob").running


def test_on_a_terminal_the_demo_draws_a_table_in_place(folder):
    """On a real terminal the table is drawn over the one before."""
    terminal, other_end = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "dayjob", "demo", "--port", "0"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        cwd=folder,
        env=environment(TERM="xterm", LINES="40", COLUMNS="120"),
    )
    os.close(other_end)
    shown = b""
    try:

        def drawn_twice():
            nonlocal shown
            shown += os.read(terminal, 65536)
            return b"export_report" in shown and re.search(rb"\x1b\[\d+F\x1b\[J", shown)

        wait_until(drawn_twice)
        demo.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal is gone when the program is
            while piece := os.read(terminal, 65536):
                shown += piece
        assert demo.wait(60) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(terminal)
    assert b"Ran " in shown
    assert b"Traceback" not in shown


# help


@pytest.mark.parametrize(
    "words",
    [["demo"], ["enqueue"], ["check"], ["doctor"], ["server"], ["server", "start"], ["server", "path"]],
)
def test_help_ends_with_an_example(run, words):
    done = run(*words, "--help")
    assert done.returncode == 0
    assert "Example: " in " ".join(done.stdout.splitlines()[-2:])

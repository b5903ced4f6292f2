"""`dayjob watch` as people run it: real processes, a real receiver, a real Redis; each change is posted once."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dayjob import Admin, WorkerPool
from dayjob.cli.receivers import Receiver
from server import free_port, wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")
#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(600)


class Inbox:
    """A receiver that keeps what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.url = ""

    @property
    def bodies(self) -> list[dict]:
        return [json.loads(body) for _, _, body in list(self.requests)]

    def of(self, kind: str, state: str = "firing") -> list[dict]:
        return [one for one in self.bodies if (one["kind"], one["state"]) == (kind, state)]


@contextlib.contextmanager
def receiving() -> Iterator[Inbox]:
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            inbox.requests.append((self.path, dict(self.headers.items()), body))
            status = inbox.statuses.pop(0) if inbox.statuses else 200
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("location", f"{inbox.url}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with receiving() as found:
        yield found


@pytest.fixture
def admin(redis_url, namespace):
    with Admin(namespace, redis=redis_url) as found:
        yield found


@pytest.fixture
def there(redis_url, namespace):
    return ("--redis", redis_url, "--namespace", namespace)


@pytest.fixture
def command(tmp_path):
    """Starts `dayjob watch ...`; what still runs at the end is killed."""
    started = []
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}

    def start(*words, **env):
        process = subprocess.Popen(
            [sys.executable, "-m", "dayjob", "watch", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**kept, "PYTHONPATH": SRC, **env},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(command):
    """Run `dayjob watch ...` to its end: exit code, output, errors."""

    def watch(*words, **env):
        process = command(*words, **env)
        printed, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors, errors
        return process.returncode, printed, errors

    return watch


@pytest.fixture
def rules(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "alerts.toml").write_text(text, "utf-8")
        return "alerts.toml"

    return write


def late_queue(call, keys, seconds: int, name: str = "mail") -> None:
    """A queue whose oldest job has waited so long."""
    at = int(time.time()) - seconds
    payload = json.dumps({"name": name, "id": "1", "t": at, "args": {"password": "hunter2"}, "at": at})
    call("SADD", keys.known_jobs, name)
    call("LPUSH", keys.queue(name), payload)


QUICK = 'every = "1s"\nsettle = "0s"\n[verdict]\nenabled = false\n'


def test_a_late_queue_is_posted_once_and_its_end_too(inbox, run, there, rules, call, keys):
    late_queue(call, keys, 1000)
    words = ("--webhook", inbox.url, "--rules", rules(QUICK), "--once", *there)
    for _ in range(3):
        assert run(*words)[0] == 0
    (alert,) = inbox.bodies
    assert (alert["kind"], alert["state"], alert["subject"]) == ("late", "firing", "mail")
    assert re.fullmatch(r'The oldest job of "mail" has waited for 17 min, longer than 5 min\.', alert["text"])
    call("DEL", keys.queue("mail"))
    for _ in range(2):
        assert run(*words)[0] == 0
    assert [one["state"] for one in inbox.bodies] == ["firing", "resolved"]
    assert '"mail" is no longer late' in inbox.bodies[1]["text"]
    # A second time is a new alert.
    late_queue(call, keys, 400)
    run(*words)
    assert [one["state"] for one in inbox.bodies] == ["firing", "resolved", "firing"]
    assert len({one["id"] for one in inbox.bodies}) == 3


def test_times_of_single_queues(inbox, run, there, rules, call, keys):
    late_queue(call, keys, 1000, "media.cut")
    late_queue(call, keys, 1000, "media.join")
    late_queue(call, keys, 1000, "mail")
    file = rules(QUICK + '[late]\nafter = "1h"\n[late.queues]\n"media.join" = "off"\n"media.*" = "1m"\n')
    run("--webhook", inbox.url, "--rules", file, "--once", *there)
    assert [one["subject"] for one in inbox.bodies] == ["media.cut"]


def test_the_verdict_is_posted_when_it_changes(inbox, run, there, rules, call, keys, admin):
    words = (
        "--webhook", inbox.url, "--rules", rules('settle = "0s"\nconsole = "https://jobs.example.com/"\n[late]\nenabled = false\n'),
        "--once", *there,
    )  # fmt: skip
    late_queue(call, keys, 10)
    run(*words)
    run(*words)
    (alert,) = inbox.bodies
    assert (alert["kind"], alert["level"], alert["link"]) == ("verdict", "error", "https://jobs.example.com/")
    assert alert["text"].startswith("No pool is running and 1 job waits")
    # More of the same is no change; another note is.
    late_queue(call, keys, 10)
    run(*words)
    assert len(inbox.bodies) == 1
    admin.pause("mail")
    run(*words)
    assert [one["state"] for one in inbox.bodies] == ["firing", "firing"]
    assert '"mail" is paused' in inbox.bodies[1]["text"]
    assert inbox.bodies[1]["since"] == alert["since"] < inbox.bodies[1]["at"]


def test_only_new_ways_to_fail_are_posted_and_no_secret_is(
    inbox, run, there, rules, namespace, redis_url, admin
):
    pool = WorkerPool(namespace=namespace, redis=redis_url, concurrency=1)
    reason = ["card 4711 was declined"]

    @pool.job(max_fails=1)
    def charge(order: int, password: str) -> None:
        raise ConnectionError(f"{reason[0]} for {password}")

    def fail(number: int) -> None:
        before = admin.count("dead").total
        with pool:
            for order in range(number):
                charge.enqueue(order=order, password="hunter2")
            wait_until(lambda: admin.count("dead").total == before + number)

    words = ("--webhook", inbox.url, "--rules", rules(QUICK), "--once", *there)
    fail(1)
    # What failed before the first look is not new.
    run(*words)
    assert inbox.bodies == []
    reason[0] = "the bank does not answer"
    fail(3)
    run(*words)
    run(*words)
    (alert,) = inbox.bodies
    assert (alert["kind"], alert["subject"]) == ("failures", "charge")
    assert "the bank does not answer" in alert["text"]
    assert not any(b"hunter2" in body for _, _, body in inbox.requests)


def test_a_missed_schedule_is_posted_and_a_removed_one_is_not(
    inbox, run, there, rules, call, keys, namespace, redis_url, admin
):
    pool = WorkerPool(namespace=namespace, redis=redis_url, concurrency=1)

    @pool.job
    def report() -> None: ...

    pool.periodic("* * * * *", report, name="every_minute")
    with pool:
        wait_until(admin.periodic)
    # Five minutes ago its last tick was processed; no pool runs since.
    call("HSET", keys.periodic, "every_minute", int(time.time()) - 300)
    words = ("--webhook", inbox.url, "--rules", rules(QUICK), "--once", *there)
    run(*words)
    run(*words)
    (alert,) = inbox.bodies
    assert (alert["kind"], alert["level"], alert["subject"]) == ("missed", "error", "every_minute")
    assert alert["text"].endswith("ago. No pool is running.")
    # A pool runs that does not have it: it was removed from the program.
    other = WorkerPool(namespace=namespace, redis=redis_url, concurrency=1)
    other.register("other", lambda: None)
    with other:
        wait_until(lambda: any(pool.status for pool in admin.pools().pools if pool.lease > 0))
        run(*words)
    assert [one["state"] for one in inbox.bodies] == ["firing", "resolved"]


def test_of_two_watchers_one_posts_and_the_other_takes_over(inbox, command, there, rules, call, keys):
    words = ("--webhook", inbox.url, "--rules", rules(QUICK), *there)
    first = command(*words)
    wait_until(lambda: call("EXISTS", keys.watcher))
    second = command(*words)
    wait_until(lambda: call("HEXISTS", keys.alerts, "|begun"))
    late_queue(call, keys, 1000)
    wait_until(lambda: inbox.of("late"))
    holder = call("GET", keys.watcher)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    wait_until(lambda: call("GET", keys.watcher) not in (None, holder))
    call("DEL", keys.queue("mail"))
    wait_until(lambda: inbox.of("late", "resolved"))
    assert len(inbox.bodies) == 2
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 0
    assert call("EXISTS", keys.watcher) == 0


def test_a_failing_receiver_is_tried_again_and_holds_up_no_other(inbox, command, there, rules, call, keys):
    with receiving() as other:
        inbox.statuses = [500, 503]
        nowhere = f"http://127.0.0.1:{free_port()}/hook"
        command(
            "--webhook",
            inbox.url,
            "--webhook",
            nowhere,
            "--webhook",
            other.url,
            "--rules",
            rules(QUICK),
            *there,
        )
        late_queue(call, keys, 1000)
        wait_until(lambda: len(inbox.bodies) == 3)
        assert len(other.bodies) == 1
        # Three requests with the same message, and then none.
        assert len({one["id"] for one in [*inbox.bodies, *other.bodies]}) == 1
        wait_until(lambda: call("LLEN", keys.undelivered(Receiver("webhook", inbox.url).id)) == 0)
        assert call("LLEN", keys.undelivered(Receiver("webhook", nowhere).id)) == 1


@pytest.mark.parametrize(("status", "code", "left"), [(302, 1, 1), (400, 0, 0), (500, 1, 1)])
def test_what_a_receiver_may_answer(inbox, run, there, rules, call, keys, status, code, left):
    inbox.statuses = [status]
    late_queue(call, keys, 1000)
    ended, _, errors = run("--webhook", f"{inbox.url}/secret-path", "--rules", rules(QUICK), "--once", *there)
    assert ended == code
    assert [path for path, _, _ in inbox.requests] == ["/secret-path"]
    assert f"it answered {status}" in errors
    assert "secret-path" not in errors
    assert call("LLEN", keys.undelivered(Receiver("webhook", f"{inbox.url}/secret-path").id)) == left


def test_a_webhook_can_check_the_signature(inbox, run, there, rules, call, keys):
    late_queue(call, keys, 1000)
    run(
        "--webhook",
        inbox.url,
        "--slack",
        f"{inbox.url}/slack",
        "--rules",
        rules(QUICK),
        "--once",
        *there,
        DAYJOB_WATCH_SECRET="s3cret",
    )
    by_path = {path: (headers, body) for path, headers, body in inbox.requests}
    headers, body = by_path["/"]
    moment, digest = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers["Dayjob-Signature"]).groups()
    expected = hmac.new(b"s3cret", f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(digest, expected)
    assert headers["Dayjob-Alert"] == json.loads(body)["id"]
    slack_headers, slack_body = by_path["/slack"]
    assert "Dayjob-Signature" not in slack_headers
    assert "has waited for 17 min" in json.loads(slack_body)["text"]
    assert b"s3cret" not in b"".join(body for _, _, body in inbox.requests)


def test_a_dry_run_prints_and_remembers_nothing(run, there, rules, call, keys):
    late_queue(call, keys, 1000)
    for _ in range(2):
        code, printed, _ = run("--rules", rules(QUICK), "--dry-run", "--once", *there)
        assert code == 0
        assert printed.startswith('firing warning late: The oldest job of "mail"')
    code, printed, _ = run("--rules", rules(QUICK), "--dry-run", "--once", "--json", *there)
    assert json.loads(printed)["subject"] == "mail"
    assert call("EXISTS", keys.alerts, keys.watcher) == 0


def test_a_test_message(inbox, run, there):
    code, printed, _ = run("--webhook", inbox.url, "--test", *there)
    assert (code, inbox.bodies[0]["kind"]) == (0, "test")
    assert printed.endswith("accepted\n")
    inbox.statuses = [404]
    code, printed, _ = run("--webhook", inbox.url, "--test", *there)
    assert code == 1
    assert "not accepted, it answered 404" in printed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "there is no receiver"),
        (
            ("--webhook", "ftp://example.com/secret"),
            "--webhook: write an address that begins with http:// or https://",
        ),
        (("--slack", "file:///etc/passwd"), "--slack: write an address"),
        (("--slack", "https://user:secret@example.com/"), "must not have a user or password"),
        (("--webhook", "http://localhost", "--rules", "nowhere.toml"), "nowhere.toml cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(run, there, words, expected):
    code, _, errors = run(*words, *there)
    assert code == 2
    assert expected in errors
    assert "secret" not in errors.lower().replace("dayjob_watch_secret", "")


def test_the_settings_do_not_show_the_address_of_a_receiver(tmp_path):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "config", "show"], capture_output=True, text=True, cwd=tmp_path, check=True,
        env={**kept, "PYTHONPATH": SRC, "DAYJOB_WATCH_SLACK": "https://hooks.example.com/services/T0/secret"},
    )  # fmt: skip
    assert "https://hooks.example.com" in done.stdout
    assert "secret" not in done.stdout

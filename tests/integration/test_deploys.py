"""Deploying: probes and systemd notifications of `dayjob worker`, stored jobs against new code, logins that expire."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dayjob import BadOption, Enqueuer
from dayjob.store import addresses
from dayjob.store.credentials import provider_for
from server import free_port, running, wait_until
from workers import PATIENT_JOBS, WorkerCommand


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    command.write(PATIENT_JOBS)
    yield command
    command.close()


def status(url: str) -> int | None:
    try:
        return httpx.get(url, timeout=60).status_code
    except httpx.TransportError:
        return None


def test_the_parent_answers_probes_without_redis(tmp_path, tmp_path_factory, namespace):
    with running(tmp_path_factory.mktemp("own")) as own:
        worker = WorkerCommand(tmp_path, own.url, namespace)
        worker.write(PATIENT_JOBS)
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        try:
            worker.started("--health-port", str(port), processes=2)
            wait_until(lambda: status(f"{base}/readyz") == 200)
            answer = httpx.get(f"{base}/healthz", timeout=60)
            assert (answer.status_code, answer.text) == (200, "2 of 2 processes have started\n")
            metrics = {
                family.name: family.samples[0].value
                for family in text_string_to_metric_families(httpx.get(f"{base}/metrics", timeout=60).text)
            }
            assert metrics == {
                "dayjob_worker_processes_wanted": 2, "dayjob_worker_processes_started": 2, "dayjob_worker_ready": 1,
            }  # fmt: skip
            assert status(f"{base}/else") == 404
            worker.signal(signal.SIGUSR1)
            wait_until(lambda: status(f"{base}/readyz") == 503)
            assert status(f"{base}/healthz") == 200
            own.kill()
            wait_until(lambda: "Redis is unreachable" in httpx.get(f"{base}/readyz", timeout=60).text)
            assert status(f"{base}/healthz") == 200
        finally:
            worker.close()


def test_a_port_that_is_taken_is_named(worker):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        worker.start("--health-port", str(taken.getsockname()[1]))
        assert worker.wait() == 2
    assert "--health-port" in worker.log


def received(notices: socket.socket, text: str) -> str:
    """The first notice with that text. None before it reports an outage: processes that stop end their connections themselves."""
    while True:
        found = notices.recv(4096).decode()
        assert "unreachable" not in found
        if text in found:
            return found


@pytest.mark.parametrize("abstract", [True, False])
def test_systemd_learns_when_the_worker_is_ready_reloads_and_stops(worker, tmp_path, namespace, abstract):
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.settimeout(60)
    name = f"@dayjob-{namespace}" if abstract else str(tmp_path / "notify")
    notices.bind("\0" + name[1:] if abstract else name)
    with notices:
        worker.start("--processes", "2", NOTIFY_SOCKET=name, WATCHDOG_USEC="200000")
        ready = received(notices, "READY=1")
        assert "STATUS=2 of 2 processes have started" in ready
        for _ in range(3):
            received(notices, "WATCHDOG=1")
        worker.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in received(notices, "RELOADING=1")
        received(notices, "READY=1")
        worker.signal(signal.SIGTERM)
        received(notices, "STOPPING=1")
        assert worker.wait() == 0


OLD = """
from dayjob import WorkerPool
pool = WorkerPool()

@pool.job
def mail(to: str, count: int) -> None: ...

@pool.job
def gone() -> None: ...
"""
NEW = """
from dayjob import WorkerPool
pool = WorkerPool()

@pool.job
def mail(to: str, copies: int) -> None: ...
"""


@pytest.fixture
def deploy_check(tmp_path, redis_url, namespace):
    def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "shop.py").write_text(code)
        return subprocess.run(
            [sys.executable, "-B", "-m", "dayjob", "deploy-check", "shop:pool", "--redis", redis_url, "--namespace", namespace, *options],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def test_stored_jobs_are_tried_against_the_new_code(deploy_check, redis_url, namespace, call, keys):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    first = enqueuer.enqueue("mail", to="a", count=1)
    enqueuer.enqueue_in("mail", 3600, to="b", count=2)
    enqueuer.enqueue("gone")
    payload = json.dumps({"name": "mail", "id": "dead-1", "t": 1, "args": {"to": 7, "count": 1}})
    call("ZADD", keys.dead, 1, payload)

    fits = deploy_check(OLD)
    assert fits.returncode == 1
    problem, sample, total = fits.stdout.splitlines()
    assert problem == "mail: argument 'to': expected str, got int"
    assert sample == "    1 job (1 dead); for example dead-1"
    assert total == f"Stored jobs in '{namespace}' that do not fit this code: 1 of 4."

    answer = deploy_check(NEW, "--json")
    assert answer.returncode == 1, answer.stderr
    found = json.loads(answer.stdout)
    assert found["tried"] == 4
    by_why = {one["name"] + ": " + one["why"]: one for one in found["problems"]}
    assert by_why["gone: this code has no such job"]["states"] == {"waiting": 1}
    mail = [one for one in found["problems"] if one["name"] == "mail"]
    assert sum(one["count"] for one in mail) == 3
    assert first.id in {one["sample"] for one in mail}
    assert "unexpected argument 'count'" in answer.stdout
    # Nothing was changed.
    assert call("LLEN", keys.queue("mail")) == 1


def test_jobs_that_all_fit_are_a_success(deploy_check, redis_url, namespace):
    Enqueuer(namespace, redis=redis_url).enqueue("gone")
    answer = deploy_check(OLD)
    assert (answer.returncode, answer.stdout) == (
        0,
        f"All stored jobs in '{namespace}' fit this code: 1 of 1.\n",
    )


LOGIN = """
    import os
    from pathlib import Path

    class Tokens:
        def get_credentials(self):
            with Path(os.environ["ASKED"]).open("a") as out:
                out.write("asked\\n")
            return ("shop", Path(os.environ["TOKEN"]).read_text())
"""


def test_a_login_that_expires_is_asked_for_at_each_connection(tmp_path, redis_url, namespace, call):
    """With the ACL rule of the page on servers."""
    call("ACL", "SETUSER", "shop", "on", ">first", f"~{namespace}:*", "-@all", *RIGHTS)
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(PATIENT_JOBS)
    worker.write(textwrap.dedent(LOGIN), "shop_login.py")
    token, asked = tmp_path / "token", tmp_path / "asked"
    token.write_text("first")
    environ = {"DAYJOB_CREDENTIALS": "shop_login:Tokens", "TOKEN": str(token), "ASKED": str(asked)}
    program = (
        f"from dayjob import Enqueuer; Enqueuer({namespace!r}, redis={redis_url!r}).enqueue('quick', n=1)"
    )
    command = [sys.executable, "-c", program]
    try:
        worker.started(PYTHONPATH=str(tmp_path), **environ)
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **environ}, check=True, timeout=120)
        worker.wait_for("quick")
        before = len(asked.read_text().splitlines())
        # A new token, and connections that the server cuts when the old one has expired.
        call("ACL", "SETUSER", "shop", "resetpass", ">second")
        token.write_text("second")
        call("CLIENT", "KILL", "USER", "shop")
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **environ}, check=True, timeout=120)
        worker.wait_for("quick", 2)
        assert len(asked.read_text().splitlines()) > before
    finally:
        worker.close()
        call("ACL", "DELUSER", "shop")


#: The rule of the page docs/guides/servers.md.
RIGHTS = ("+@read", "+@write", "+@scripting", "+@connection", "+@blocking", "+@fast")


def test_the_page_on_servers_has_the_rule_that_is_tested():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/guides/servers.md").read_text("utf-8")
    assert f"-@all {' '.join(RIGHTS)}" in page


@pytest.mark.parametrize(
    ("named", "text"),
    [("no_such_module:x", "No module"), ("json", "MODULE:OBJECT"), ("json:dumps", "get_credentials")],
)
def test_a_provider_that_cannot_be_used_is_named(named, text):
    with pytest.raises(BadOption, match=text):
        provider_for(addresses.parse_url("redis://h"), {"DAYJOB_CREDENTIALS": named})


def test_a_url_can_name_its_own_provider(tmp_path, monkeypatch, call, redis_url, namespace):
    """Beside the variable, which is for all servers of a process."""
    call("ACL", "SETUSER", "shop-url", "on", ">word", f"~{namespace}:*", "-@all", *RIGHTS)
    (tmp_path / "url_login.py").write_text(
        "class Tokens:\n    def get_credentials(self):\n        return ('shop-url', 'word')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DAYJOB_CREDENTIALS", "no_such_module:x")
    enqueuer = Enqueuer(namespace, redis=f"{redis_url}/0?credentials=url_login:Tokens")
    try:
        enqueuer.enqueue("mail")
        assert b"user=shop-url" in call("CLIENT", "LIST")
    finally:
        enqueuer.close()
        call("ACL", "DELUSER", "shop-url")
    with pytest.raises(BadOption, match="both a password and credentials"):
        provider_for(addresses.parse_url("redis://user:word@h/0?credentials=url_login:Tokens"))


def test_a_url_with_a_password_uses_its_own():
    address = addresses.parse_url("redis://user:word@h")
    assert provider_for(address, {"DAYJOB_CREDENTIALS": "no_such_module:x"}) is None


def test_a_cell_of_a_notebook_may_define_a_job_again():
    program = """
        import code, sys
        console = code.InteractiveConsole(vars(sys.modules["__main__"]))
        del sys.modules["__main__"].__file__
        cell = "@pool.job\\ndef f(n: int) -> int: return n * {}\\n"
        for text in ["from dayjob import WorkerPool\\npool = WorkerPool()", cell.format(2), cell.format(3)]:
            exec(compile(text, "<cell>", "exec"), vars(sys.modules["__main__"]))
        assert len(pool.registry) == 1
        assert pool.registry.get("f").fn(2) == 6
        from dayjob import BadOption
        try:
            exec(compile("@pool.job('f')\\ndef g(n: int) -> int: return n", "<cell>", "exec"))
        except BadOption:
            print("refused")
    """
    with_file = textwrap.dedent(program)
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells.py"
        path.write_text(with_file)
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.stdout == "refused\n", done.stderr

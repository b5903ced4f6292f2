"""`dayjob web` as a person starts it: in a process of its own, with its signals, mistakes and settings."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from dayjob.admin.client import Admin

ANYWHERE = "0.0.0.0"  # noqa: S104 - with a password


class Command:
    """A `dayjob web` that runs."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Its exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def environment(**more: str) -> dict[str, str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("DAYJOB_", "REDIS_URL"))
    }
    return {**clean, "PYTHONUNBUFFERED": "1", **more}


def start(*words: str, cwd=None, program=("-m", "dayjob", "web"), **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env=environment(**variables),
    )  # fmt: skip


@contextlib.contextmanager
def web(*words: str, cwd=None, program=("-m", "dayjob", "web"), **variables: str) -> Iterator[Command]:
    """The command, until it has said where it is; ended after the block."""
    process = start(*words, cwd=cwd, program=program, **variables)
    watchdog = threading.Timer(240, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        match = re.search(r"http://\S+", line)
        assert match, line + process.stderr.read()
        yield Command(process, match[0].rstrip("/"))
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*words: str, cwd=None, **variables: str) -> str:
    """What the command says when it does not start; a few lines, never a traceback, and exit code 2."""
    process = start(*words, cwd=cwd, **variables)
    try:
        said, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 2, said + errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 6
    return errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_it_serves_until_a_signal_and_ends_in_order(redis_url, namespace, number):
    with Admin(namespace, redis=redis_url) as admin:
        admin.enqueue("mail", {})
    with web("--port", "0", "--redis", redis_url, "--namespace", namespace) as command:
        assert command.url.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=command.url, timeout=60) as client:
            assert client.get("/queues").json()[0]["job_name"] == "mail"
            with client.stream("GET", "/events") as stream:
                assert next(stream.iter_lines()) == "retry: 3000"
                assert command.end(number) == (0, "")


def test_the_port_is_5040_unless_somebody_says_otherwise():
    from dayjob.cli.web import web as command

    defaults = {option.name: option.default for option in command.params}
    assert (defaults["host"], defaults["port"]) == ("127.0.0.1", 5040)


def test_a_port_in_use_is_said_with_what_to_do(redis_url):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--port", str(port), "--redis", redis_url)
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert f"--port {port + 1 if port < 65535 else 5041}" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - refused
def test_other_machines_are_let_in_with_a_password_only(redis_url, host):
    said = refused("--host", host, "--port", "0", "--redis", redis_url)
    assert "no password" in said
    assert "DAYJOB_WEB_PASSWORD" in said


def test_with_a_password_it_listens_for_other_machines(redis_url, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("geheim\n")
    with web(
        "--host", ANYWHERE, "--port", "0", "--redis", redis_url, "--password-file", str(secret)
    ) as command:
        assert httpx.get(command.url + "/queues", timeout=60).status_code == 401
        assert httpx.get(command.url + "/queues", auth=("ann", "geheim"), timeout=60).status_code == 200
        other = httpx.get(
            command.url + "/queues", auth=("ann", "geheim"), headers={"host": "evil.example"}, timeout=60
        )
        assert other.status_code == 421
        assert command.end() == (0, "")


def test_password_and_token_come_from_variables_and_are_never_shown(redis_url):
    variables = {"DAYJOB_WEB_PASSWORD": "geheim1", "DAYJOB_WEB_TOKEN": "geheim2"}
    with web("--port", "0", "--redis", redis_url, **variables) as command:
        assert httpx.get(command.url + "/queues", auth=("x", "geheim1"), timeout=60).status_code == 200
        token = {"authorization": "Bearer geheim2"}
        assert httpx.get(command.url + "/queues", headers=token, timeout=60).status_code == 200
        assert httpx.get(command.url + "/queues", timeout=60).status_code == 401
        assert command.end() == (0, "")
    shown = subprocess.run(
        [sys.executable, "-m", "dayjob", "config", "show", "--all"], env=environment(**variables), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "geheim" not in shown.stdout + shown.stderr


def test_a_secret_that_cannot_be_read_is_said_without_showing_it(redis_url, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert "is empty" in refused("--redis", redis_url, "--password-file", str(empty))
    assert "cannot be read" in refused("--redis", redis_url, "--token-file", str(tmp_path / "none"))
    assert "DAYJOB_WEB_PASSWORD is empty" in refused("--redis", redis_url, DAYJOB_WEB_PASSWORD=" ")


def test_mistakes_are_said_at_the_start_not_with_the_first_request():
    assert "redis://" in refused("--port", "0", "--redis", "localhost:6379")
    assert "cannot be resolved" in refused("--host", "no.such.host.invalid", "--redis", "redis://127.0.0.1:1")
    assert "base_path" in refused("--base-path", "ops", "--port", "0", "--redis", "redis://127.0.0.1:1")


def test_it_starts_without_redis_and_says_so_in_its_answers():
    with web("--port", "0", "--redis", "redis://127.0.0.1:1") as command:
        assert httpx.get(command.url + "/healthz", timeout=60).status_code == 200
        assert httpx.get(command.url + "/queues", timeout=60).status_code == 503
        code, errors = command.end()
        assert code == 0
        assert "Traceback" not in errors


def test_variables_and_pyproject_set_every_option(redis_url, namespace, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dayjob]\nnamespace = "{namespace}"\n[tool.dayjob.web]\nport = 0\nread-only = true\nhide = ["iban"]\n'
    )
    with Admin(namespace, redis=redis_url) as admin:
        admin.enqueue("mail", {"iban": "DE99", "x": 1})
    with web(
        cwd=tmp_path, DAYJOB_REDIS_URL=redis_url, DAYJOB_WEB_BASE_PATH="/ops", DAYJOB_SHOW_UNANNOUNCED="1"
    ) as command:
        assert command.url.endswith("/ops")
        me = httpx.get(command.url + "/api/v1/me", timeout=60).json()
        assert (me["namespace"], me["read_only"]) == (namespace, True)
        jobs = httpx.get(command.url + "/api/v1/jobs?state=waiting&name=mail", timeout=60).json()["jobs"]
        assert jobs[0]["args"] == {"iban": "[redacted]", "x": 1}


def test_a_pool_says_which_server_and_namespace_are_meant(redis_url, namespace, tmp_path):
    (tmp_path / "shop.py").write_text(
        f"from dayjob import WorkerPool\npool = WorkerPool(namespace={namespace!r}, redis={redis_url!r})\n"
    )
    with web("shop:pool", "--port", "0", cwd=tmp_path) as command:
        assert httpx.get(command.url + "/api/v1/me", timeout=60).json()["namespace"] == namespace
    assert "no module" in refused("shap:pool", cwd=tmp_path)


def test_another_name_is_allowed_by_a_flag(redis_url):
    with web("--port", "0", "--redis", redis_url, "--allow-host", "jobs.example.com") as command:
        names = {"jobs.example.com": 200, "JOBS.example.com:443": 200, "evil.example": 421, "localhost": 200}
        for name, status in names.items():
            assert (
                httpx.get(command.url + "/queues", headers={"host": name}, timeout=60).status_code == status
            )


PASSWORD = "geheim"  # noqa: S105 - opens nothing


def wrong_passwords(url: str, number: int, **headers: str) -> list[int]:
    """The answers to wrong passwords, each said to come from another address."""
    with httpx.Client(base_url=url, auth=("ada", "wrong"), timeout=60) as client:
        return [
            client.get("/queues", headers={"x-forwarded-for": f"203.0.113.{one}", **headers}).status_code
            for one in range(number)
        ]


def test_a_forwarded_address_neither_evades_the_throttle_nor_locks_others_out(redis_url, namespace):
    where = ("--port", "0", "--redis", redis_url, "--namespace", namespace)
    with web(*where, DAYJOB_WEB_PASSWORD=PASSWORD, FORWARDED_ALLOW_IPS="*") as command:
        assert wrong_passwords(command.url, 12) == [401] * 10 + [429] * 2


def test_the_address_that_a_named_proxy_forwards_is_the_one_that_waits(redis_url, namespace):
    where = ("--port", "0", "--redis", redis_url, "--namespace", namespace)
    with web(*where, "--forwarded-allow-ips", "10.0.0.1,127.0.0.1", DAYJOB_WEB_PASSWORD=PASSWORD) as command:
        assert wrong_passwords(command.url, 12) == [401] * 12
        one = {"x-forwarded-for": "198.51.100.1"}
        assert wrong_passwords(command.url, 12, **one) == [401] * 10 + [429] * 2
        assert httpx.get(f"{command.url}/queues", auth=("ada", PASSWORD), timeout=60).status_code == 200


def test_a_proxy_that_is_no_address_is_refused():
    assert "10.0.0.0/8" in refused("--forwarded-allow-ips", "proxy.example.com")


def test_a_console_without_a_password_refuses_what_a_proxy_passes_on(redis_url, namespace):
    where = ("--port", "0", "--redis", redis_url, "--namespace", namespace)
    with web(*where) as command, httpx.Client(base_url=command.url, timeout=60) as client:
        assert client.get("/queues").status_code == 200
        assert client.get("/queues", headers={"x-forwarded-for": "203.0.113.9, 127.0.0.1"}).status_code == 403


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many descriptors for this process as it may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 4096:
        pytest.skip("this process may not open enough connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4096), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


HALF_A_BODY = b"POST /api/v1/queue/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


@pytest.mark.parametrize(
    "sent",
    [b"GET /queues HTTP/1.1\r\nHost: localhost\r\n", HALF_A_BODY, b""],
    ids=["half a head", "half a body", "nothing"],
)
def test_probes_are_answered_while_a_thousand_clients_have_sent_half_a_request(
    redis_url, namespace, many_descriptors, sent
):
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)); runpy.run_module('dayjob', run_name='__main__')"
    words = ("web", "--port", "0", "--redis", redis_url, "--namespace", namespace)
    with web(program=("-c", limited, *words)) as command, contextlib.ExitStack() as open_ones:
        port = int(command.url.rpartition(":")[2])
        for _ in range(1010):
            one = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            with contextlib.suppress(OSError):  # closed already, to make room
                one.sendall(sent)
        for probe in ("/healthz", "/readyz") * 10:
            assert httpx.get(f"{command.url}{probe}", timeout=60).status_code == 200
        code, errors = command.end()
    assert code == 0
    assert "out of system resource" not in errors
    assert errors.count("closing those that have been idle longest") == 1
    assert "Traceback" not in errors

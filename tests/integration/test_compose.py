"""examples/compose.yaml: it can be read, says what containers need, and its commands are real and work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from dayjob.cli import COMMANDS, cli
from server import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "compose"
SERVICES = yaml.safe_load((ROOT / "examples" / "compose.yaml").read_text())["services"]
BIN = Path(sys.executable).parent


def words_of(name: str) -> list[str]:
    return SERVICES[name]["command"]


def checked(words: list[str]) -> click.Context:
    """A command line of ours, read as click would, but not run."""
    assert words[0] == "dayjob"
    assert words[1] in COMMANDS
    command = cli.get_command(click.Context(cli), words[1])
    return command.make_context(words[1], list(words[2:]))


def test_every_service_stops_in_order_and_starts_again():
    assert set(SERVICES) == {"valkey", "worker", "web", "producer"}
    for name, service in SERVICES.items():
        # A worker that an operator stopped ends with 0, and must stay stopped.
        assert service["restart"] == ("on-failure" if name == "worker" else "unless-stopped"), name
        assert int(service["stop_grace_period"].removesuffix("s")) >= 5, name
        if name != "valkey":
            assert service["init"] is True
            assert service["depends_on"] == {"valkey": {"condition": "service_healthy"}}
            assert service["environment"]["DAYJOB_REDIS_URL"].startswith("redis://valkey:")
            assert service["environment"]["DAYJOB_EMBEDDED"] == "never"
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == {
        "valkey",
        "worker",
        "web",
    }


def test_the_server_keeps_jobs_and_refuses_rather_than_evicts():
    command = " ".join(words_of("valkey"))
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert SERVICES["valkey"]["volumes"] == ["valkey-data:/data"]


def test_its_commands_are_commands_and_running_jobs_get_less_time_than_the_container():
    worker = checked(words_of("worker"))
    assert worker.params["timeout"] < int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert checked(words_of("web")).params["host"] == "0.0.0.0"  # noqa: S104 - a comparison
    assert "DAYJOB_WEB_PASSWORD" in SERVICES["web"]["environment"]
    assert SERVICES["web"]["ports"] == [f"127.0.0.1:{checked(words_of('web')).params['port']}:5040"]
    probe = SERVICES["worker"]["healthcheck"]["test"]
    assert probe[0] == "CMD"
    assert checked(probe[1:]).params["namespace"] == "shop"


def test_the_files_that_the_image_is_built_from_are_there():
    build = SERVICES["worker"]["build"]
    root = (ROOT / "examples" / build["context"]).resolve()
    text = (root / build["dockerfile"]).read_text()
    for line in text.splitlines():
        if line.startswith("COPY"):
            for source in line.split()[1:-1]:
                assert list(root.glob(source)), source


@pytest.fixture
def start(redis_url):
    """Run a service's command as its container would, but here."""
    made: list[subprocess.Popen] = []

    def run(words: list[str]) -> subprocess.Popen:
        words = [str(BIN / words[0]), *words[1:]]
        environ = {**os.environ, "DAYJOB_REDIS_URL": redis_url, "DAYJOB_WEB_PASSWORD": "geheim"}
        made.append(
            subprocess.Popen(words, cwd=FOLDER, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
        return made[-1]

    yield run
    for process in made:
        process.kill()
        process.communicate()


def test_producer_worker_console_and_probes_work_together(start, redis_url):
    from dayjob import Admin

    port = str(free_port())
    producer = start(words_of("producer"))
    worker = start([*words_of("worker"), "--processes", "1"])
    # Loopback only: nobody else shall reach what a test serves.
    web = start([*words_of("web"), "--host", "127.0.0.1", "--port", port])
    with Admin("shop", redis=redis_url) as admin:

        def ran() -> bool:
            return any(job.totals.get("done") for job in admin.metrics(1).jobs if job.name == "send_mail")

        wait_until(ran)
    wait_until(lambda: start(SERVICES["worker"]["healthcheck"]["test"][1:]).wait(60) == 0)
    probe = [word.replace("5040", port) for word in SERVICES["web"]["healthcheck"]["test"][1:]]
    wait_until(lambda: start(probe).wait(60) == 0)
    for process in (producer, worker, web):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in (producer, worker, web)] == [0, 0, 0]

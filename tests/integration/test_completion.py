"""Completion in a shell: names from Redis, and silence where there is no server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dayjob import Enqueuer, Rate, WorkerPool
from dayjob.cli import cli
from dayjob.store.ops.history import StoredRecord
from rates import limit_name
from records import write_records
from server import free_port, wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")
pytestmark = pytest.mark.timeout(600)


def complete(line: str, folder: Path, shell: str = "bash", **environ: str) -> list[str]:
    """What the shell offers for the last word of a line. It must end well, and print nothing else."""
    words = line.split(" ")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    asked = {"_DAYJOB_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("dayjob"))],
        env={**kept, "PYTHONPATH": SRC, **asked, **environ}, cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [one.partition(",")[2] for one in done.stdout.splitlines() if one]


def completes(line: str, folder: Path, expected: list[str], **environ: str) -> None:
    """The shell offers these. A completion gives up soon where the server is slow, so it is asked again."""
    wait_until(lambda: complete(line, folder, **environ) == expected)


@pytest.fixture
def shop(namespace, redis_url):
    """A pool with two jobs and a schedule, and a queue that it does not have."""
    pool = WorkerPool(namespace=namespace, redis=redis_url, beat=0.4)

    @pool.job
    def send_mail() -> None:
        """Send one mail."""

    @pool.job
    def send_news() -> None: ...

    pool.periodic("0 9 * * *", send_mail, name="morning")
    with pool:
        enqueuer = Enqueuer(namespace, redis=redis_url)
        enqueuer.enqueue("report")
        enqueuer.close()
        yield pool
    pool.enqueuer.close()


def test_queues_jobs_schedules_pools_and_columns_are_completed(shop, tmp_path, redis_url, namespace):
    there = {"DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace}
    completes("dayjob queues show re", tmp_path, ["report"], **there)
    names = {"report", "send_mail", "send_news"}
    wait_until(lambda: names <= set(complete("dayjob queues pause ", tmp_path, **there)))
    completes("dayjob enqueue send_m", tmp_path, ["send_mail"], **there)
    completes("dayjob periodic run m", tmp_path, ["morning"], **there)
    (pool_id,) = wait_until(lambda: complete("dayjob pools stop ", tmp_path, **there))
    completes(f"dayjob pools stacks {pool_id[:5]}", tmp_path, [pool_id], **there)
    completes(f"dayjob pools show {pool_id[:5]}", tmp_path, [pool_id], **there)
    completes("dayjob periodic show m", tmp_path, ["morning"], **there)
    completes("dayjob history ls --name send_m", tmp_path, ["send_mail"], **there)
    completes("dayjob queues ls --sort wai", tmp_path, ["waiting"], **there)


def test_limits_batches_workflows_and_sources_are_completed(tmp_path, redis_url, namespace, link, keys):
    there = {"DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace}
    limit_name(keys, link, "send_mail", {"smtp": Rate(10, per=60)})
    pool = WorkerPool(namespace=namespace, redis=redis_url)
    mail = pool.register("send_mail", lambda: None)
    with pool.batch(description="News") as batch:
        mail.enqueue()
    flow = pool.workflow("import")
    flow.add(mail)
    flow_id = flow.start().id
    record = StoredRecord(
        "a", "completed", int(time.time() * 1000), waited=0, ran=1, age=1, pool="p", source="acme"
    )
    write_records(link, keys, "send_mail", record)
    completes("dayjob limits hold s", tmp_path, ["smtp"], **there)
    completes(f"dayjob batches show {batch.id[:5]}", tmp_path, [batch.id], **there)
    completes(f"dayjob workflows cancel {flow_id[:5]}", tmp_path, [flow_id], **there)
    completes("dayjob sources show a", tmp_path, ["acme"], **there)
    pool.enqueuer.close()


def test_every_command_completes_what_it_asks_for():
    """By the name of a parameter: what it is the name of."""
    known = {"pool_id", "batch_id", "workflow_id", "schedule", "source", "name", "names"}
    silent = [
        f"{path} {one.name}"
        for path, command in _commands("dayjob", cli, click.Context(cli))
        for one in command.params
        if one.name in known and one._custom_shell_complete is None and not isinstance(one.type, click.Choice)
    ]
    assert silent == []


def _commands(
    path: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(f"{path} {name}", found, context)


def test_the_options_on_the_line_choose_the_server_and_the_namespace(shop, tmp_path, redis_url, namespace):
    line = f"dayjob queues show --redis {redis_url} --namespace {namespace} rep"
    completes(line, tmp_path, ["report"])
    assert complete(f"dayjob queues show --redis {redis_url} --namespace other rep", tmp_path) == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_names_too(shop, tmp_path, redis_url, namespace, shell):
    there = {"DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace}
    words = {"COMP_WORDS": "dayjob enqueue send_m", "COMP_CWORD": "2" if shell == "zsh" else "send_m"}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}

    def offered() -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("dayjob"))],
            env={**kept, "PYTHONPATH": SRC, "_DAYJOB_COMPLETE": f"{shell}_complete", **words, **there},
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout

    wait_until(lambda: "send_mail" in (shown := offered()) and "Send one mail." in shown)


def test_without_a_server_nothing_is_completed_said_or_started(tmp_path):
    assert (
        complete("dayjob queues show ", tmp_path, DAYJOB_REDIS_URL=f"redis://127.0.0.1:{free_port()}") == []
    )
    assert complete("dayjob queues show ", tmp_path, DAYJOB_REDIS_URL="no url at all") == []
    assert complete("dayjob queues show ", tmp_path, DAYJOB_REDIS_URL="embedded") == []
    assert list(tmp_path.iterdir()) == [], "no embedded server was started"


def test_a_server_that_never_answers_does_not_hold_the_shell(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        assert complete("dayjob queues show ", tmp_path, DAYJOB_REDIS_URL=url) == []

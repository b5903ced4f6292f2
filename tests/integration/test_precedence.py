"""Which server and namespace count where several are named: workers, programs and commands must agree."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from server import free_port, wait_until
from workers import WorkerCommand

POOL = """
from pathlib import Path
from dayjob import WorkerPool
pool = WorkerPool({})
@pool.job
def one(mark: str) -> None:
    Path(mark).touch()
"""
VARIABLES = ("DAYJOB_REDIS_URL", "REDIS_URL", "DAYJOB_NAMESPACE")


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    yield command
    command.close()


@pytest.fixture
def program(tmp_path):
    """Run a command in the folder of the worker."""

    def run(*words, **environ):
        env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env={**env, **environ}, capture_output=True, text=True, check=True,
            timeout=240,
        )  # fmt: skip

    return run


def served(worker, program, *, pool, file, **environ):
    """Start a worker and enqueue from a program, by a command with the pool and by one without; all must be run."""
    worker.write(POOL.format(pool))
    (worker.folder / "pyproject.toml").write_text(f"[tool.dayjob]\n{file}\n")
    worker.start(redis=False, **environ)
    worker.wait_for_log("started:")
    program("-c", "import jobs; jobs.one.enqueue(mark='by-program')", **environ)
    done = program("-m", "dayjob", "enqueue", "jobs:pool", "one", "mark=by-command", **environ)
    for mark in ("by-program", "by-command"):
        wait_until((worker.folder / mark).exists)
    return done


def test_the_variable_comes_before_the_file_for_workers_programs_and_commands(
    worker, program, redis_url, namespace
):
    nowhere = f"redis://127.0.0.1:{free_port()}"
    served(
        worker, program, pool=f"namespace={namespace!r}", file=f'redis = "{nowhere}"', DAYJOB_REDIS_URL=redis_url
    )  # fmt: skip
    shown = program(
        "-m", "dayjob", "queues", "ls", "--namespace", namespace, DAYJOB_REDIS_URL=redis_url
    ).stdout
    assert "one" in shown


def test_the_namespace_of_the_pool_comes_before_that_of_the_file_and_a_line_names_both(
    worker, program, redis_url, namespace
):
    done = served(
        worker, program, pool=f"namespace={namespace!r}", file='namespace = "other"', DAYJOB_REDIS_URL=redis_url
    )  # fmt: skip
    line = f"using namespace '{namespace}' of WorkerPool(namespace=...), not 'other' of [tool.dayjob] in pyproject.toml"
    worker.wait_for_log(line)
    assert worker.log.count(line) == 1
    assert line in done.stderr


def test_the_file_gives_server_and_namespace_where_neither_variable_nor_pool_does(
    worker, program, redis_url, namespace
):
    done = served(worker, program, pool="", file=f'redis = "{redis_url}"\nnamespace = "{namespace}"')
    assert (done.stderr, "not '" in worker.log) == ("", False)


def test_the_variable_comes_before_the_namespace_of_the_pool(worker, program, redis_url, namespace):
    served(
        worker, program, pool="namespace='other'", file="", DAYJOB_REDIS_URL=redis_url, DAYJOB_NAMESPACE=namespace
    )  # fmt: skip
    worker.wait_for_log(f"using namespace '{namespace}' of DAYJOB_NAMESPACE, not 'other' of")


def test_redis_url_comes_after_the_pool(worker, program, redis_url, namespace):
    served(
        worker, program, pool=f"namespace={namespace!r}, redis={redis_url!r}", file="",
        REDIS_URL=f"redis://127.0.0.1:{free_port()}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pool", "options", "environ", "expected"),
    [
        ("", (), {}, 4),
        ("concurrency=3", (), {}, 3),
        ("concurrency=3", (), {"DAYJOB_WORKER_CONCURRENCY": "2"}, 2),
        ("concurrency=3", ("--concurrency", "1"), {"DAYJOB_WORKER_CONCURRENCY": "2"}, 1),
    ],
)
def test_concurrency_is_that_of_the_option_the_variable_the_pool_or_the_file(
    worker, pool, options, environ, expected
):
    worker.write(POOL.format(pool))
    (worker.folder / "pyproject.toml").write_text("[tool.dayjob.worker]\nconcurrency = 4\n")
    worker.start(*options, **environ)
    worker.wait_for_log(f"concurrency={expected} ")


def test_an_operator_command_takes_server_and_namespace_from_the_pool(
    program, tmp_path, redis_url, namespace
):
    (tmp_path / "jobs.py").write_text(POOL.format(f"namespace={namespace!r}, redis={redis_url!r}"))
    program("-c", "import jobs; jobs.one.enqueue(mark='x')")
    for command in (["queues", "ls"], ["stats"], ["jobs", "ls"], ["doctor"]):
        assert "one" in program("-m", "dayjob", *command, "--app", "jobs:pool").stdout
    other = program("-m", "dayjob", "queues", "ls", "--app", "jobs:pool", "--namespace", "other")
    assert "No queues yet" in other.stdout


def test_every_command_that_uses_a_pool_takes_its_namespace_rather_than_that_of_the_file(
    program, tmp_path, redis_url, namespace
):
    (tmp_path / "jobs.py").write_text(POOL.format(f"namespace={namespace!r}, redis={redis_url!r}"))
    (tmp_path / "pyproject.toml").write_text('[tool.dayjob]\nnamespace = "other"\n')
    program("-m", "dayjob", "enqueue", "--app", "jobs:pool", "one", "mark=x")
    line = f"dayjob: using namespace '{namespace}' of WorkerPool(namespace=...), not 'other' of [tool.dayjob] in pyproject.toml\n"
    for command, shown in (
        (["queues", "ls", "--app", "jobs:pool"], "one"),
        (["deploy-check", "jobs:pool"], f"All stored jobs in '{namespace}' fit this code: 1 of 1."),
    ):
        done = program("-m", "dayjob", *command)
        assert shown in done.stdout
        assert done.stderr == line


def test_a_pool_that_is_named_twice_is_a_mistake(program, tmp_path):
    (tmp_path / "jobs.py").write_text(POOL.format(""))
    for command in (["web", "jobs:pool"], ["top", "jobs:pool"], ["enqueue", "jobs:pool", "one"]):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            program("-m", "dayjob", *command, "--app", "jobs:pool")
        assert failed.value.returncode == 2
        assert "the pool is given twice" in failed.value.stderr

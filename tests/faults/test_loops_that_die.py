"""A loop that dies of anything but Redis ends its process, loudly, and what it held is given back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crashes import survey

#: A pool one of whose loops raises at its third round, which no error of Redis does.
PROGRAM = """
import logging, os, sys
from importlib import import_module
from dayjob import Job, WorkerPool

module, kind, url, namespace = sys.argv[1:]
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
if "LOGGING_RAISES" in os.environ:
    logging.getLogger().handlers[0].emit = lambda record: 1 / 0
loop = getattr(import_module(f"dayjob.worker.{module}"), kind)
step, rounds = loop.step, 0


def broken(self):
    global rounds
    rounds += 1
    if rounds > 2:
        raise ZeroDivisionError("as a bug would")
    return step(self)


loop.step = broken
pool = WorkerPool(namespace=namespace, redis=url, concurrency=2, beat=0.2, lease=5.0)


@pool.job
def hold(job: Job) -> None:
    import threading
    while not job.stopping:
        threading.Event().wait(0.01)
    raise RuntimeError("told to wind up")


pool.enqueuer.enqueue("hold")
pool.run()
"""


def run_program(folder, *arguments, **environ):
    """Run the program to its end."""
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "program.py", *arguments],
        cwd=folder, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environ, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("fetching.fetcher", "Fetcher"),
        ("fetching.listener", "Listener"),
        ("status.heartbeat", "Heartbeat"),
        ("chores.chores", "Chores"),
        ("running.watchdog", "Watchdog"),
    ],
)
def test_a_loop_that_dies_ends_the_process_with_code_70(module, kind, tmp_path, redis_url, keys, link):
    ended = run_program(tmp_path, module, kind, redis_url, keys.namespace)
    assert ended.returncode == 70, ended.stderr
    assert f"the {kind.lower()} loop died; stopping the pool" in ended.stderr
    assert "ZeroDivisionError: as a bug would" in ended.stderr
    # It could say so itself, unless it was the loop that talks: then the sweep has it.
    assert survey(keys, link).places in ({("queue", "hold"): 1}, {("held", "hold"): 1})


def test_a_loop_that_dies_ends_the_process_though_its_log_line_raises(tmp_path, redis_url, namespace):
    ended = run_program(tmp_path, "fetching.fetcher", "Fetcher", redis_url, namespace, LOGGING_RAISES="1")
    assert ended.returncode == 70, ended.stderr
    assert ended.stderr.count("a log line could not be written") == 1

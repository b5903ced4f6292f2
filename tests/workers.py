"""`dayjob worker` as a real process, for the tests: a module of jobs, the command, its children and its log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil

from server import PATIENCE, wait_until

#: Jobs that say what they do, one line each, in a file that the test reads.
JOBS = """
import ctypes, os, threading
from pathlib import Path

from dayjob import Job, WorkerPool

HERE = Path(__file__).parent
pool = WorkerPool(concurrency=4, lease=4.0, beat=0.3, grace=0.3)
kept = []


def say(*words):
    fd = os.open(HERE / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)


def wait_for_gate():
    pause = threading.Event()
    while not (HERE / "gate").exists():
        pause.wait(0.01)


@pool.job
def quick(n: int) -> None:
    say("quick", n, os.getpid())


@pool.job
def hold(job: Job, n: int) -> None:
    say("begin", n, os.getpid(), job.deaths)
    wait_for_gate()
    say("end", n, os.getpid(), job.deaths)


@pool.job
def hold_once(job: Job, n: int) -> None:
    say("begin", n, os.getpid(), job.deaths)
    if job.attempt == 1:
        wait_for_gate()
    say("end", n, os.getpid(), job.deaths)


@pool.job
def poison(code: int) -> None:
    say("poison", os.getpid())
    os._exit(code)


@pool.job
def hold_gil(job: Job, microseconds: int) -> None:
    say("begin", os.getpid(), job.deaths)
    ctypes.PyDLL(None).usleep(microseconds)
    say("end", os.getpid(), job.deaths)


# The timeout must not pass before the call below begins.
@pool.job(timeout=2, backoff=3600)
def overrun_with_gil() -> None:
    say("overrun", os.getpid())
    ctypes.PyDLL(None).usleep(60_000_000)


@pool.job(timeout=2, backoff=3600)
def overrun_without_gil() -> None:
    say("overrun", os.getpid())
    ctypes.CDLL(None).usleep(60_000_000)


@pool.job
def grow(megabytes: int) -> None:
    kept.append(b"x" * (megabytes << 20))
    say("grown", os.getpid())


@pool.job
def deaf(n: int) -> None:
    say("begin", n, os.getpid())
    ctypes.CDLL(None).usleep(60_000_000)
"""

#: The same with the usual lease. For tests in which no pool dies: one that is paused for a second must not lose its lease.
PATIENT_JOBS = JOBS.replace("lease=1.0, ", "")


#: Imported by each process of a command that must not give up on a server, or on a child, that is paused for a moment.
PATIENT_PARENT = """
from dayjob.worker.supervisor import supervisor
supervisor.OVERTIME_SECONDS = 30.0
"""
PATIENT = """
from dayjob.worker import shutdown
from dayjob.worker.supervisor import process, supervisor
shutdown.SETTLE_SECONDS = process.STOP_OVERTIME_SECONDS = supervisor.STOP_OVERTIME_SECONDS = 30.0
supervisor.OVERTIME_SECONDS = 60.0
"""


class WorkerCommand:
    """One `dayjob worker` with its folder."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.namespace = namespace
        self.process: subprocess.Popen[bytes] | None = None
        self.seen: set[int] = set()
        self.write(JOBS)

    def write(self, text: str, name: str = "jobs.py") -> None:
        """Write a module; a new version is never mistaken for the compiled old one."""
        (self.folder / name).write_text(text)

    def start(self, *options: str, pool: str = "jobs:pool", redis: bool = True, **environ: str) -> None:
        """Start the command."""
        given = ("--redis", self.redis_url, "--namespace", self.namespace) if redis else ()
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environ}
        for name in ("DAYJOB_REDIS_URL", "REDIS_URL"):
            if name not in environ:
                env.pop(name, None)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dayjob", "worker", pool, *given, *options],
                cwd=self.folder,
                env=env,
                stderr=log,
                start_new_session=True,
            )

    def patiently(self, text: str = PATIENT) -> dict[str, str]:
        """The environment of a command whose stop takes as long as it must."""
        folder = self.folder / "patience"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(text)
        return {"PYTHONPATH": os.pathsep.join((str(folder), *filter(None, [os.environ.get("PYTHONPATH")])))}

    def started(self, *options: str, processes: int = 1, **environ: str) -> list[int]:
        """Start the command and wait until all its children have; the answer is their pids."""
        self.start("--processes", str(processes), *options, **environ)
        self.wait_for_log("started:", processes)
        return self.children()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for the end; the answer is the exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def children(self) -> list[int]:
        assert self.process is not None
        found = [child.pid for child in psutil.Process(self.process.pid).children()]
        self.seen.update(found)
        return found

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def records(self) -> list[dict]:
        """The JSON lines of the log."""
        whole, _, _ = self.log.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def wait_for_log(self, text: str, count: int = 1, seconds: float = PATIENCE) -> None:
        def there():
            assert self.process is not None
            assert self.process.poll() is None or text in self.log, (
                f"ended with {self.process.returncode}: {self.log}"
            )
            return self.log.count(text) >= count

        wait_until(there, seconds)

    def said(self, first: str) -> list[list[str]]:
        """What jobs said, the lines that begin with that word, split."""
        path = self.folder / "said"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.startswith(first + " ")]

    def wait_for(self, first: str, count: int = 1, seconds: float = PATIENCE) -> list[list[str]]:
        """Wait until jobs said so much."""
        return wait_until(lambda: len(self.said(first)) >= count and self.said(first), seconds)

    def open_gate(self) -> None:
        """Let the jobs that hold end."""
        (self.folder / "gate").touch()

    def close(self) -> None:
        """End whatever still runs."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.children()
            self.process.kill()
            self.process.wait()
        for pid in self.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                child = psutil.Process(pid)
                if "dayjob.cli.child" in child.cmdline():
                    child.kill()


def reported_by(worker: WorkerCommand, program: str, count: int) -> list[Any]:
    """What a program reports as a producer and as workers, two processes: the JSON lines that it writes to $REPORTS."""
    reports = worker.folder / "reports"
    reports.touch()
    worker.write(textwrap.dedent(program))
    environ = {
        **os.environ, "DAYJOB_REDIS_URL": worker.redis_url, "DAYJOB_NAMESPACE": worker.namespace, "REPORTS": str(reports),
    }  # fmt: skip
    try:
        worker.started(REPORTS=str(reports))
        subprocess.run([sys.executable, "jobs.py"], cwd=worker.folder, env=environ, check=True)
        wait_until(lambda: len(reports.read_text().splitlines()) == count)
        # Read before the worker is killed, because that is reported too.
        return [json.loads(line) for line in reports.read_text().splitlines()]
    finally:
        worker.close()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, zombies included."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

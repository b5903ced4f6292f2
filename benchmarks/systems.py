"""The systems that are measured: how each is installed, started and told apart. Nothing of a peer's code is kept here.

Peers are installed at run time into benchmarks/.peers, or where DAYJOB_BENCH_PEERS says.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = Path(os.environ.get("DAYJOB_BENCH_PEERS", HERE / ".peers"))
#: Seconds that one installation may take.
PATIENCE = 600


@dataclass(frozen=True)
class Config:
    """One way to run a system's worker."""

    name: str
    about: str
    #: Jobs in workload A, so that a run takes seconds.
    jobs: int
    processes: int = 1
    concurrency: int = 10
    #: Also in the quick form, with so many jobs.
    quick: int = 0


@dataclass(frozen=True)
class System:
    """One measured system."""

    name: str
    kind: str
    configs: tuple[Config, ...]
    #: Glob of the keys whose sizes add up to the jobs that wait.
    waiting: str
    #: What a bulk enqueue is; empty where there is none but the same loop.
    bulk: str = ""
    #: Seconds a worker needs before it is ready and idle.
    settle: float = 2.0
    #: The package whose version counts, for kind python; the module for kind go.
    package: str = ""
    #: Config for workload C and D, where it is not the first.
    lively: str = ""

    @property
    def is_python_peer(self) -> bool:
        return self.kind == "python"

    def config(self, name: str) -> Config:
        return next(config for config in self.configs if config.name == name)


OWN = (
    System(
        "dayjob", "own",
        (
            Config("sync", "10 threads", 100_000, quick=60_000),
            Config("async", "10 at once on the loop", 100_000, quick=60_000),
        ),
        "bench:jobs:*", bulk="enqueue_many of 1000", settle=1.0,
    ),
    System("bare", "own", (Config("loop", "exchange, decode, call; no pool", 100_000, quick=60_000),), "bench:jobs:*"),
    System("tasks", "own", (Config("loop", "asyncio tasks alone; no server, no pool", 100_000),), "bench:jobs:*"),
    System("raw", "own", (Config("redis-py", "LPUSH, BLPOP of ready bytes", 10_000),), "job*", bulk="pipeline of 1000", settle=1.0),
)  # fmt: skip

GO = (
    System("gocraft", "go", (
        Config("usual", "1 process, concurrency 10", 50_000, quick=20_000),
        Config("20", "1 process, concurrency 20", 50_000, concurrency=20),
    ), "bench:jobs:job?", package="github.com/gocraft/work"),
    System("asynq", "go", (
        Config("usual", "1 process, concurrency 10", 20_000),
        Config("50", "1 process, concurrency 50", 20_000, concurrency=50),
    ), "asynq:{default}:pending", package="github.com/hibiken/asynq"),
)  # fmt: skip

PYTHON = (
    System("celery", "python", (
        Config("usual", "prefork, 10 processes", 3_000, processes=11),
        Config("threads", "10 threads", 3_000),
        Config("best", "solo, lean", 3_000),
    ), "celery", package="celery", settle=6.0),
    System("rq", "python", (
        Config("usual", "Worker, forks per job", 200),
        Config("best", "SimpleWorker, no results", 1_000),
    ), "rq:queue:bench", bulk="enqueue_many of 1000", package="rq", lively="best"),
    System("dramatiq", "python", (
        Config("usual", "1 process, 10 threads", 10_000, quick=4_000),
        Config("best", "1 process, 8 threads, prefetch 100", 10_000),
        Config("two", "2 processes of 8, prefetch 100", 20_000, processes=2),
    ), "dramatiq:default.msgs", package="dramatiq", settle=3.0),
    System("huey", "python", (
        Config("usual", "10 threads", 8_000),
        Config("best", "1 thread, quiet, no periodic tasks", 8_000, quick=4_000),
    ), "huey.redis.bench", package="huey"),
    System("arq", "python", (
        Config("usual", "max_jobs 10", 1_000),
        Config("best", "100 at once, looks every 10 ms, uvloop, no results", 5_000),
    ), "arq:queue", bulk="gather of 100", package="arq"),
    System("taskiq", "python", (
        Config("list", "list, 10 at once", 5_000),
        Config("stream", "stream, 10 at once", 5_000),
        Config("list-best", "list, 100 at once, quiet", 5_000),
        Config("stream-best", "stream, 100 at once, read 1000, quiet", 5_000),
    ), "taskiq", bulk="gather of 100", package="taskiq", settle=4.0),
    System("saq", "python", (
        Config("usual", "10 at once", 5_000),
        Config("best", "50 at once, nothing kept, uvloop, quiet", 5_000),
    ), "saq:default:queued", bulk="gather of 100", package="saq"),
    System("streaq", "python", (
        Config("usual", "10 at once", 3_000),
        Config("best", "50 at once, prefetch 1000, nothing kept", 3_000),
    ), "streaq:default:queues:*", bulk="enqueue_many of 1000", package="streaq", settle=3.0),
)  # fmt: skip

OTHERS = (
    System("sidekiq", "ruby", (
        Config("usual", "10 threads, INFO log", 10_000),
        Config("best", "5 threads, warnings only", 20_000),
    ), "queue:default", bulk="push_bulk of 1000", settle=4.0),
    System("bullmq", "node", (
        Config("usual", "concurrency 10", 10_000),
        Config("best", "concurrency 100, finished jobs removed", 10_000),
    ), "bull:bench:wait", bulk="addBulk of 1000"),
)  # fmt: skip

SYSTEMS = {system.name: system for system in (*OWN, *GO, *PYTHON, *OTHERS)}


@dataclass(frozen=True)
class Installed:
    """How to start a system's program, or why that cannot be done."""

    command: tuple[str, ...] = ()
    folder: Path = HERE
    version: str = ""
    reason: str = ""

    def named(self, program: str) -> tuple[str, ...]:
        """The command that starts another program of the system, beside the usual one."""
        *words, last = self.command
        return (*words, str(Path(last).with_stem(program))) if program != "program" else self.command


def install(system: System) -> Installed:
    """Make sure that a system can be started. Never raises: the reason is part of the answer."""
    try:
        return {"own": _own, "python": _python, "go": _go, "ruby": _ruby, "node": _node}[system.kind](system)
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout or "").strip().splitlines()
        return Installed(reason=f"{' '.join(map(str, error.cmd[:4]))}: {' | '.join(output[-3:])[-300:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Installed(reason=str(error)[:300])


def _run(*command: str | Path, folder: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout.strip()


def _stamped(folder: Path, *sources: Path) -> tuple[bool, Path, str]:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = folder / ".stamp"
    return stamp.exists() and stamp.read_text() == digest, stamp, digest


def _own(system: System) -> Installed:
    program = HERE / "peers/dayjob/program.py" if system.name == "dayjob" else HERE / f"{system.name}.py"
    from dayjob import __version__

    return Installed((sys.executable, str(program)), program.parent, __version__)


def _python(system: System) -> Installed:
    source, target = HERE / "peers" / system.name, PEERS / system.name
    python = target / "bin" / "python"
    fresh, stamp, digest = _stamped(target, source / "requirements.txt")
    if not fresh:
        shutil.rmtree(target, ignore_errors=True)
        _run(sys.executable, "-m", "venv", target)
        _run(python, "-m", "pip", "install", "--quiet", "-r", source / "requirements.txt")
        stamp.write_text(digest)
    show = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    version = _run(python, "-c", show, system.package)
    return Installed((str(python), str(source / "program.py")), source, version)


def _go(system: System) -> Installed:
    if shutil.which("go") is None:
        return Installed(reason="no go on the PATH")
    target = PEERS / "go" / system.name
    target.parent.mkdir(parents=True, exist_ok=True)
    _run("go", "build", "-o", target, f"./peers/{system.name}", folder=HERE)
    listed = _run("go", "list", "-m", system.package, folder=HERE)
    return Installed((str(target),), HERE, f"{listed.split()[-1]} ({_run('go', 'env', 'GOVERSION')})")


def _ruby(system: System) -> Installed:
    if shutil.which("ruby") is None or shutil.which("sidekiq") is None:
        return Installed(reason="no sidekiq on the PATH; on Debian: apt-get install ruby-sidekiq")
    folder = HERE / "peers" / system.name
    ruby = _run("ruby", "-e", "print RUBY_VERSION")
    return Installed(("ruby", str(folder / "program.rb")), folder, f"{_run('sidekiq', '-V')} (Ruby {ruby})")


def _node(system: System) -> Installed:
    if shutil.which("npm") is None:
        return Installed(reason="no npm on the PATH")
    # Node looks for packages beside the file, so the program goes where they are.
    source, target = HERE / "peers" / system.name, PEERS / system.name
    fresh, stamp, digest = _stamped(target, source / "package.json")
    target.mkdir(parents=True, exist_ok=True)
    for path in (source / "package.json", *source.glob("*.mjs")):
        shutil.copy(path, target)
    if not fresh:
        _run("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", folder=target)
        stamp.write_text(digest)
    version = _run(
        "node", "-p", f"require('./node_modules/{system.name}/package.json').version", folder=target
    )
    return Installed(("node", "program.mjs"), target, f"{version} (Node {_run('node', '--version')})")

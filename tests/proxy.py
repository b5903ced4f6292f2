"""A fault proxy between a client and a real server, on loopback: it reads requests, so that a fault can aim at one.

Faults of one request come from `next()` or `each()`; faults of the whole network from `refuse()` and `black_hole()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from server import free_port

Kind = Literal["pass", "before", "after", "reply", "swallow", "keep", "delay", "error"]


@dataclass(frozen=True)
class Fault:
    """What befalls one request and its connection.

    before: cut, the server never sees it. after: cut as soon as it is sent. reply: cut when `amount` bytes of the answer
    have passed (the server has done it). swallow: done, but no answer ever comes. keep: cut, and kept for `late()`.
    delay: passed on after `amount` seconds. error: answered with the error `text`, the server never sees it.
    """

    kind: Kind
    amount: float = 0
    text: str = ""

    #: Called by the proxy once the server has answered and before the client sees the cut.
    then: Callable[[], object] | None = None


#: How much a slow proxy reads at a time.
_PIECE = 1 << 16

PASS = Fault("pass")
BEFORE = Fault("before")
AFTER = Fault("after")
SWALLOW = Fault("swallow")
KEEP = Fault("keep")


def reply(count: int, then: Callable[[], object] | None = None) -> Fault:
    """Cut after so many bytes of the answer."""
    return Fault("reply", count, then=then)


def error(text: str) -> Fault:
    """Answer with an error instead of passing it on."""
    return Fault("error", text=text)


@dataclass(eq=False)
class _Wire:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    #: Bytes of answers that may still pass; None for all.
    left: int | None = None
    then: Callable[[], object] | None = None
    silent: bool = False
    #: The writer's end was reached: closed once, by whoever comes first.
    cut: bool = False


class Proxy:
    """Listens on a port of its own and passes on to `target`. All methods may be called from any thread."""

    def __init__(self, target: int, *, bytes_per_second: float | None = None) -> None:
        self.target = target
        #: How fast requests come through; None for as fast as they can.
        self.bytes_per_second = bytes_per_second
        self.port = free_port()
        #: Every request that was read, as its words.
        self.requests: deque[list[bytes]] = deque(maxlen=200_000)
        #: How many bytes the answer to the last request had, as far as it has come.
        self.answered = 0
        #: How many requests wait to be passed on.
        self.delayed = 0
        #: How many connections were accepted.
        self.connections = 0
        #: Requests that `keep` cut off, as they came.
        self.kept: list[bytes] = []
        self._next: deque[tuple[bytes, Fault]] = deque()
        self._each: Callable[[list[bytes]], Fault] | None = None
        self._silent = False
        self._wires: set[_Wire] = set()
        #: Every end of a connection that may not be closed yet: one with unsent bytes outlives its close().
        self._ends: list[asyncio.StreamWriter] = []
        self._ending = False
        self._loop = asyncio.new_event_loop()
        self._listener: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self._do(self._listen())

    def stop(self) -> None:
        """Cut everything and end the thread."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Faults of single requests.

    def next(self, *faults: Fault, only: bytes = b"EVAL") -> None:
        """The next requests whose command begins with `only` meet these faults, one each."""
        self._next.extend((only, fault) for fault in faults)

    def always(self, fault: Fault, only: bytes = b"EVAL") -> None:
        """Once the faults of `next` are met, every request whose command begins with `only` meets this one."""
        self.each(lambda words: fault if words[0].upper().startswith(only) else PASS)

    def each(self, choose: Callable[[list[bytes]], Fault] | None) -> None:
        """Every request meets the fault that `choose` has for it; None ends that."""
        self._each = choose

    @property
    def pending(self) -> int:
        """How many of the faults of `next` have not been met."""
        return len(self._next)

    def clear(self) -> None:
        """Forget faults that were not met."""
        self._next.clear()
        self._each = None

    def late(self) -> list[bytes]:
        """Deliver what `keep` kept to the server now, as a network may; the answers."""
        kept, self.kept = self.kept, []
        return [self._do(self._deliver(data)) for data in kept]

    # Faults of the network.

    def cut(self) -> None:
        """Cut all connections."""
        self._do(self._cut_all())

    def refuse(self) -> None:
        """Cut all connections and refuse new ones."""
        self._do(self._close_listener())
        self.cut()

    def shut(self) -> None:
        """Refuse new connections. For `then` of a fault: the proxy's own thread calls it."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def accept(self) -> None:
        """Take connections again."""
        self._do(self._listen())

    def black_hole(self) -> None:
        """From now on nothing passes, in either direction, and nothing is closed. New connections are taken in silence."""
        self._silent = True
        self._do(self._silence())

    def resume(self) -> None:
        """New connections pass again; those that were open stay dead, as half-open ones do."""
        self._silent = False

    # On the loop's thread.

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.bytes_per_second is not None:
            # What the system takes in ahead of us would come through at any speed.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        sock.bind(("127.0.0.1", self.port))
        limit = (1 << 26) if self.bytes_per_second is None else _PIECE
        self._listener = await asyncio.start_server(self._accept, sock=sock, limit=limit)

    async def _close_listener(self) -> None:
        if self._listener is not None:
            # Stop accepting, and let the server take over what it has accepted: a connection that is accepted while the
            # server closes is never closed.
            for sock in self._listener.sockets:
                self._loop.remove_reader(sock.fileno())
            for _ in range(5):
                await asyncio.sleep(0)
            self._listener.close()
            self._listener = None

    async def _cut_all(self) -> None:
        for wire in list(self._wires):
            self._cut(wire)

    async def _silence(self) -> None:
        for wire in self._wires:
            wire.silent = True

    async def _end(self) -> None:
        self._ending = True
        await self._close_listener()
        await self._cut_all()
        quiet = 0
        # One that is just being accepted makes a task in a later round, and sockets are closed by callbacks in another.
        while quiet < 5:
            for writer in self._ends:
                writer.transport.abort()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            quiet = 0 if tasks else quiet + 1
            await (asyncio.wait(tasks, timeout=5) if tasks else asyncio.sleep(0))

    async def _accept(self, client_in: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._ends.append(client)
        try:
            server_in, server = await asyncio.open_connection("127.0.0.1", self.target, limit=1 << 26)
        except OSError:
            client.transport.abort()
            return
        self._ends.append(server)
        if self._ending:
            client.transport.abort()
            server.transport.abort()
            return
        wire = _Wire(client, server, silent=self._silent)
        self._wires.add(wire)
        back = asyncio.ensure_future(self._answers(wire, server_in))
        try:
            await self._requests(wire, client_in)
        finally:
            if not wire.silent or wire.cut:
                self._cut(wire)
            await asyncio.gather(back, return_exceptions=True)
            self._wires.discard(wire)
            client.close()

    async def _requests(self, wire: _Wire, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                raw, words = await _read_request(stream, self.bytes_per_second)
            except (asyncio.IncompleteReadError, OSError):
                self._cut(wire)
                return
            self.requests.append(words)
            self.answered = 0
            if wire.silent:
                continue
            fault = self._fault(words)
            if fault.kind == "keep":
                self.kept.append(raw)
            if fault.kind in ("before", "keep"):
                self._cut(wire)
                return
            if fault.kind == "error":
                wire.client.write(f"-{fault.text}\r\n".encode())
                continue
            if fault.kind == "delay":
                self.delayed += 1
                await asyncio.sleep(fault.amount)
                self.delayed -= 1
            wire.left = int(fault.amount) if fault.kind == "reply" else None
            wire.then = fault.then
            wire.silent = wire.silent or fault.kind == "swallow"
            wire.server.write(raw)
            if fault.kind == "after":
                with contextlib.suppress(OSError):
                    await wire.server.drain()
                self._cut(wire)
                return

    async def _answers(self, wire: _Wire, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                data = await stream.read(1 << 16)
            except OSError:
                data = b""
            if not data:
                if not wire.silent:
                    self._cut(wire)
                return
            self.answered += len(data)
            if wire.silent:
                continue
            if wire.left is None:
                wire.client.write(data)
                continue
            if wire.then is not None:
                then, wire.then = wire.then, None
                await asyncio.to_thread(then)
            wire.client.write(data[: wire.left])
            wire.left -= len(data[: wire.left])
            if wire.left == 0:
                self._cut(wire)
                return

    def _fault(self, words: list[bytes]) -> Fault:
        if self._next and words[0].upper().startswith(self._next[0][0]):
            return self._next.popleft()[1]
        return PASS if self._each is None else self._each(words)

    def _cut(self, wire: _Wire) -> None:
        if wire.cut:
            return
        wire.cut = True
        # In order, not by reset: a reset would throw away what the server has not read yet.
        wire.server.close()
        wire.client.close()

    async def _deliver(self, raw: bytes) -> bytes:
        stream, writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            writer.write(raw)
            return await stream.read(1 << 16)
        finally:
            writer.close()


async def _read_request(
    stream: asyncio.StreamReader, bytes_per_second: float | None = None
) -> tuple[bytes, list[bytes]]:
    """One request as it came, and its words."""
    head = await stream.readuntil(b"\r\n")
    raw, words = [head], []
    for _ in range(int(head[1:])):
        size = await stream.readuntil(b"\r\n")
        left = int(size[1:]) + 2
        pieces = []
        while left:
            pieces.append(await stream.readexactly(left if bytes_per_second is None else min(left, _PIECE)))
            left -= len(pieces[-1])
            if bytes_per_second is not None and len(pieces[-1]) == _PIECE:
                await asyncio.sleep(_PIECE / bytes_per_second)
        word = b"".join(pieces)
        raw += (size, word)
        words.append(word[:-2])
    return b"".join(raw), words


@contextlib.contextmanager
def proxied(target: int, *, bytes_per_second: float | None = None) -> Iterator[Proxy]:
    """A proxy for the length of a block."""
    proxy = Proxy(target, bytes_per_second=bytes_per_second)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()

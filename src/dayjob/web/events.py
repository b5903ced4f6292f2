"""The event stream: one reader of Redis for all clients, sent as server-sent events.

Without clients nothing is read. A client that is too slow is disconnected; the browser reconnects.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dayjob.admin.client import AsyncAdmin
from dayjob.errors import DayjobError
from dayjob.web.responses import Refusal, plain, refusal_of

logger = logging.getLogger("dayjob.web")

#: Seconds between two reads, and the share of its time that the reader may spend on reading.
READ_SECONDS = 1.0
MAX_BUSY = 0.1
#: Seconds without an event after which a comment keeps the connection alive.
ALIVE_SECONDS = 15.0
#: Seconds that one client may take to accept an event.
ACCEPT_SECONDS = 20.0
#: The most clients, and the seconds after which a client must reconnect and authenticate again.
MAX_LISTENERS = 500
MAX_LIFE_SECONDS = 900.0
#: The beginning of a stream: how many milliseconds a browser waits before it reconnects.
GREETING = b"retry: 3000\n\n"
COMMENT = b": still here\n\n"

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store", "x-accel-buffering": "no",
}  # fmt: skip


async def pulse(admin: AsyncAdmin) -> dict[str, Any]:
    """The data of one event: the verdict, and the state of each queue."""
    verdict = await admin.verdict()
    listing = await admin.queues()
    return {
        "now": verdict.now,
        "verdict": {"level": verdict.level, "sentence": verdict.sentence, "notes": plain(verdict.notes)},
        "waiting": verdict.waiting,
        "running": verdict.running,
        "sizes": plain(verdict.sizes),
        "queues": [
            {
                "name": view.queue.name, "size": view.queue.size, "age": view.queue.age, "paused": view.queue.paused,
                "running": view.running, "workers": view.workers, "out": view.out,
            }
            for view in listing.queues
        ],
    }  # fmt: skip


def event(name: str, value: Any) -> bytes:
    """One event. Its JSON contains no line end, so a job name cannot start another event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))


class Hub:
    """Reads while there are listeners, and gives each the latest event. For one event loop."""

    def __init__(self, read: Callable[[], Awaitable[Any]], *, every: float = READ_SECONDS) -> None:
        self._read = read
        self._every = every
        self._listeners: set[_Mailbox] = set()
        self._reader: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    @property
    def reading(self) -> bool:
        """Whether Redis is read."""
        return self._reader is not None

    async def listen(self) -> AsyncIterator[bytes]:
        """Events until the hub is closed or the stream has reached its maximum age."""
        box = _Mailbox()
        self._listeners.add(box)
        if self._reader is None:
            self._reader = asyncio.create_task(self._run())
        try:
            end = time.monotonic() + MAX_LIFE_SECONDS
            yield GREETING
            while not self._closed and time.monotonic() < end:
                yield await box.take(ALIVE_SECONDS) or COMMENT
        finally:
            self._listeners.discard(box)
            if not self._listeners and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    def close(self) -> None:
        """End every stream now."""
        self._closed = True
        for box in self._listeners:
            box.put(COMMENT)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                latest = event("pulse", await self._read())
            except DayjobError as error:
                refusal = refusal_of(error)
                latest = event("away", {"error": refusal.error, "hint": refusal.hint})
            except Exception:  # a bug: clients are informed, and the stream continues
                logger.exception("the event stream could not read the verdict")
                latest = event(
                    "away", {"error": "The console has an internal error.", "hint": "See its log."}
                )
            for box in self._listeners:
                box.put(latest)
            took = time.monotonic() - began
            await asyncio.sleep(max(self._every - took, took / MAX_BUSY - took))


class _Mailbox:
    """The latest event for one listener. A slow listener misses events, so none accumulate."""

    def __init__(self) -> None:
        self._latest = b""
        self._there = asyncio.Event()

    def put(self, latest: bytes) -> None:
        self._latest = latest
        self._there.set()

    async def take(self, patience: float) -> bytes:
        """The latest event that was not sent yet; b"" if there is none in time."""
        try:
            await asyncio.wait_for(self._there.wait(), patience)
        except TimeoutError:
            return b""
        self._there.clear()
        return self._latest


class Listened(Protocol):
    """What an event stream sends."""

    def listen(self) -> AsyncIterator[bytes]: ...


class EventStream(Response):
    """Sends events until the client disconnects or is too slow, or there are no more."""

    def __init__(self, hub: Listened) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            done, _ = await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        for task in done:
            task.result()

    async def _send(self, send: Send) -> None:
        stream = self._hub.listen()
        try:
            async for part in stream:
                message = {"type": "http.response.body", "body": part, "more_body": True}
                await asyncio.wait_for(send(message), ACCEPT_SECONDS)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # The client is too slow. The browser reconnects.
            return
        finally:
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def events(request: Request) -> Response:
    """GET /events."""
    hub: Hub = request.app.state.console.hub
    if hub.listeners >= MAX_LISTENERS:
        raise Refusal(503, f"{MAX_LISTENERS} streams are open already.", "Try again later.")
    return Response(headers=HEADERS) if request.method == "HEAD" else EventStream(hub)


def routes() -> list[Route]:
    """The address of the stream."""
    return [Route("/events", events, methods=["GET"])]

"""The console inside a WSGI program: an event loop on a thread answers each request whole. Streams cannot pass."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

#: The address of the stream of a job, and the answer of consoles that cannot send one.
STREAM = re.compile(r"/api/v1/jobs/[^/]+/stream$")
NO_STREAMS = "Streams need a server that speaks ASGI, such as `dayjob web`."


class Answer(NamedTuple):
    """The answer to one request."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class ConsoleThread:
    """Runs the console on an event loop of its own, for threads that wait for its answers."""

    def __init__(self, create: Callable[[], ASGIApp]) -> None:
        self._create = create
        self._app: ASGIApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def answer(self, scope: dict[str, Any], body: bytes) -> Answer:
        """The console's answer to a request, whose `scope` is that of ASGI."""
        if scope["path"] == f"{scope['root_path']}/events":
            # It would never end. After this answer the page polls.
            return Answer(204, [], b"")
        if STREAM.search(scope["path"]):
            return Answer(501, [("content-type", "text/plain")], NO_STREAMS.encode())
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="dayjob-console", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(self._run(scope, body), self._loop).result()

    async def _run(self, scope: dict[str, Any], body: bytes) -> Answer:
        if self._app is None:
            self._app = self._create()
        sent: list[Message] = []
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await asyncio.Event().wait()  # the client stays until it has the answer
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start, *parts = sent
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in parts))


def scope_of(environ: dict[str, Any], root_path: str) -> dict[str, Any]:
    """A request to WSGI in the form of ASGI. `root_path` is the path at which the console is mounted."""
    headers = [
        (name[5:].replace("_", "-").lower().encode("latin-1"), str(value).encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    # WSGI gives empty ones for a request without a body.
    headers += [
        (name.replace("_", "-").lower().encode(), str(environ[name]).encode("latin-1"))
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if environ.get(name)
    ]
    # WSGI has the path as bytes that were read as latin-1.
    path = (
        (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
        .encode("latin-1")
        .decode("utf-8", "replace")
    )
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"), "path": path, "raw_path": path.encode(),
        "root_path": environ.get("SCRIPT_NAME", "") + root_path,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"), "headers": headers,
        "client": (environ.get("REMOTE_ADDR") or "127.0.0.1", 0),
        "server": (environ.get("SERVER_NAME", ""), int(environ.get("SERVER_PORT") or 80)),
    }  # fmt: skip

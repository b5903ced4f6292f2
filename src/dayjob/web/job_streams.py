"""What a job emits, as server-sent events. Each client has a connection to Redis of its own while it reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dayjob.admin.client import AsyncAdmin, JobStream
from dayjob.admin.streams import Emitted
from dayjob.errors import BadOption, DayjobError, JobFailed
from dayjob.web.console import WebConsole
from dayjob.web.events import ALIVE_SECONDS, COMMENT, GREETING, HEADERS, MAX_LIFE_SECONDS, EventStream, event
from dayjob.web.responses import Refusal, refusal_of

#: The most clients of one console.
MAX_READERS = 200


class JobEvents:
    """The events of one client: what was read before the answer began, then what comes."""

    def __init__(self, console: WebConsole, stream: JobStream, first: list[Emitted]) -> None:
        self._console = console
        self._stream = stream
        self._first = first
        self._ending = asyncio.Event()

    async def listen(self) -> AsyncIterator[bytes]:
        """Events until the job has ended, the console stops, or the stream has reached its maximum age."""
        self._console.job_streams.add(self)
        try:
            yield GREETING
            for one in self._first:
                yield _value(one)
            end, quiet = time.monotonic() + MAX_LIFE_SECONDS, time.monotonic() + ALIVE_SECONDS
            while not (self._ending.is_set() or time.monotonic() > end):
                if self._stream.ended:
                    yield event("end", {"state": "completed"})
                    return
                for one in (found := await self._next()):
                    yield _value(one)
                if found:
                    quiet = time.monotonic() + ALIVE_SECONDS
                elif time.monotonic() > quiet:
                    quiet = time.monotonic() + ALIVE_SECONDS
                    yield COMMENT
        except JobFailed as error:
            yield event("failed", {"error": str(error)})
        except DayjobError as error:
            refusal = refusal_of(error)
            yield event("away", {"error": refusal.error, "hint": refusal.hint})
        finally:
            self._console.job_streams.discard(self)
            await self._stream.close()

    async def _next(self) -> list[Emitted]:
        """The next values; none when the console stops."""
        reading = asyncio.ensure_future(self._stream.read())
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else []
        finally:
            reading.cancel()
            ending.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)

    def close(self) -> None:
        """End the stream now."""
        self._ending.set()


def _value(one: Emitted) -> bytes:
    """The event of a value. Its id is what the client sends as Last-Event-ID to continue after it."""
    data: dict[str, Any] = {"value": one.value, "attempt": one.attempt}
    if one.restarted:
        data["restarted"] = True
    return b"id: %b\ndata: %b\n\n" % (one.id.encode(), msgspec.json.encode(data))


async def job_stream(request: Request) -> Response:
    """GET /api/v1/jobs/ID/stream."""
    console: WebConsole = request.app.state.console
    if len(console.job_streams) >= MAX_READERS:
        raise Refusal(503, f"{MAX_READERS} streams are open already.", "Try again later.")
    after = request.headers.get("last-event-id") or request.query_params.get("after", "")
    admin: AsyncAdmin = console.admin_for(request)
    try:
        stream = admin.open_stream(request.path_params["job_id"], after=after)
    except BadOption as error:
        raise Refusal(400, str(error)) from None
    try:
        first = await stream.read()
        if not first and (stream.missing or (after and (stream.ended or stream.failed))):
            # A browser opens an ended stream again and again, until it gets this answer.
            await stream.close()
            if after:
                return Response(status_code=204)
            text = "It was not found: it has ended, its stream has expired, or it never existed."
            raise Refusal(404, text, code="unknown_job")
    except DayjobError as error:
        await stream.close()
        raise refusal_of(error) from None
    if request.method == "HEAD":
        await stream.close()
        return Response(headers=HEADERS)
    return EventStream(JobEvents(console, stream, first))


def routes() -> list[Route]:
    """The address of the streams of jobs."""
    return [Route("/api/v1/jobs/{job_id}/stream", job_stream, methods=["GET"], name="job_stream")]

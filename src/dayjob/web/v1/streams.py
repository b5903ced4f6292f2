"""Long actions over HTTP: one JSON line per step, the result last. A client that disconnects stops the action."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dayjob.admin.views import BulkProgress, Preview, Tally
from dayjob.errors import DayjobError
from dayjob.web.console import WebConsole
from dayjob.web.responses import Refusal, plain, problem_of, refusal_of

NDJSON = "application/x-ndjson"
HEADERS = {"x-accel-buffering": "no", "cache-control": "no-store"}

#: Work that calls a progress function, and stops when it returns False.
Work = Callable[[Callable[[BulkProgress], bool]], Coroutine[Any, Any, Tally]]


class StreamLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: the progress, in the last line the result, or what a dry run found."""

    progress: BulkProgress | None = None
    tally: Tally | None = None
    #: Of a dry run: the only line.
    preview: Preview | None = None


def previewed(preview: Preview) -> Response:
    """The answer to a dry run."""
    return Response(_line({"preview": preview}), media_type=NDJSON, headers=HEADERS)


async def streamed(console: WebConsole, work: Work) -> Response:
    """The progress of `work` as lines. Raises the errors that `work` raises before its first step."""
    watch = StreamedWork()
    watch.task = console.start(work(watch.report))
    await watch.step()
    if watch.task.done():
        watch.task.result()
    return _Lines(watch)


class StreamedWork:
    """Between the work and the client: the latest progress, and whether to continue."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Tally]
        self.latest: BulkProgress | None = None
        self._news = asyncio.Event()
        self._on = True

    def report(self, progress: BulkProgress) -> bool:
        self.latest = progress
        self._news.set()
        return self._on

    def stop(self) -> None:
        self._on = False

    async def step(self) -> None:
        """Wait until there is new progress or the work has ended."""
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait((self.task, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        self._news.clear()


class _Lines(StreamingResponse):
    """Sends the lines. When the client disconnects, the work is asked to stop."""

    def __init__(self, watch: StreamedWork) -> None:
        super().__init__(_lines(watch), media_type=NDJSON, headers=HEADERS)
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watch.stop()


async def _lines(watch: StreamedWork) -> AsyncIterator[bytes]:
    while not watch.task.done():
        if watch.latest is not None:
            yield _line({"progress": watch.latest})
        await watch.step()
    if watch.latest is not None:
        yield _line({"progress": watch.latest})
    yield _last(watch.task)


def _last(task: asyncio.Task[Tally]) -> bytes:
    try:
        return _line({"tally": task.result()})
    except DayjobError as error:
        refusal = refusal_of(error)
    except (
        Exception
    ):  # logged where the work was started; the status is already sent, so the last line reports the error
        refusal = Refusal(500, "The console has an internal error.", "See its log.")
    return _line(problem_of(refusal))


def _line(value: object) -> bytes:
    return msgspec.json.encode(plain(value)) + b"\n"

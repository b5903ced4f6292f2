"""The frame of every page: navigation with counts, shortcuts, and the message if Redis does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Verdict
from dayjob.errors import BadOption, DayjobError, StoreError
from dayjob.web.charts import clock
from dayjob.web.console import WebConsole
from dayjob.web.render import line, render
from dayjob.web.responses import refusal_of

T = TypeVar("T")
Values = dict[str, Any]
Gather = Callable[[Request, AsyncAdmin], Awaitable[Values]]
Endpoint = Callable[[Request], Awaitable[Response]]

#: Seconds for which all pages share one verdict.
FRESH_SECONDS = 1.0

#: What the browser asks before it acts on jobs: verb to its effect.
ASKS = {one.name: one.effect for one in verbs.rows("job") if one.asks}
#: The verbs for jobs that undo takes back.
UNDOES = [one.name for one in verbs.rows("job") if one.undoes]

#: Groups of pages: address, icon, label, key after `g`, and the field with its count.
NAV = (
    (
        ("/", "home", "Home", "h", None), ("/queues", "queues", "Queues", "q", "waiting"), ("/limits", "limits", "Limits", "y", None),
        ("/busy_workers", "busy", "Busy workers", "b", "running"), ("/worker_pools", "pools", "Worker pools", "w", None),
    ),
    (
        ("/jobs", "jobs", "Jobs", "j", None), ("/scheduled_jobs", "scheduled", "Scheduled", "s", "scheduled"),
        ("/retry_jobs", "retry", "Retry", "r", "retry"), ("/dead_jobs", "dead", "Dead", "d", "dead"),
        ("/done_jobs", "done", "Done", "o", "done"), ("/batches", "batches", "Batches", "k", None),
        ("/workflows", "workflows", "Workflows", "z", None), ("/broken", "broken", "Broken", "n", "broken"),
    ),
    (
        ("/history", "history", "History", "v", None), ("/sources", "sources", "Sources", "u", None),
        ("/failures", "failures", "Failures", "f", None), ("/metrics", "metrics", "Metrics", "m", None),
        ("/periodic", "periodic", "Periodic", "p", None), ("/calendar", "calendar", "Calendar", "c", None), ("/redis", "redis", "Redis", "i", None),
        ("/timeline", "timeline", "Timeline", "l", None), ("/audit", "audit", "Audit", "a", None), ("/enqueue", "enqueue", "Enqueue", "e", None),
        ("/api", "api", "API", "x", None),
    ),
)  # fmt: skip
#: Pages that are in the navigation only if they have entries, or if one of them is open.
_RARE = ("done", "broken")

SHORTCUTS = (
    ("?", "These shortcuts"), ("Ctrl+K", "Search everywhere"), ("/", "Filter"), ("j k", "Next row, previous row"), ("Enter", "Open the row"),
    ("x", "Select the row"), ("Escape", "Clear selection"), ("r", "Refresh now"), ("p", "Pause or resume"), ("n", "Next page"),
    ("t", "Light or dark"), ("z", "Times as spans or moments"), *((f"g {key}", words) for group in NAV for _, _, words, key, _ in group), ("g ,", "Settings"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NavEntry:
    """One entry of the navigation."""

    path: str
    icon: str
    words: str
    key: str
    here: bool
    count: int | None
    alarm: bool


def page(template: str, here: str, title: str) -> Callable[[Gather], Endpoint]:
    """An endpoint that reads the data of a page and renders it. If Redis does not answer, the page shows the error."""

    def decorate(gather: Gather) -> Endpoint:
        @functools.wraps(gather)
        async def endpoint(request: Request) -> Response:
            console: WebConsole = request.app.state.console
            try:
                verdict = await look(console)
                values = await gather(request, console.admin_for(request))
            except StoreError as error:
                shell = around(request, None, here, title)
                return render(request, "away.html", **shell, away=line(str(error)).rstrip(".") + ".")
            except BadOption as error:
                refusal = refusal_of(error)
                return await failure(request, refusal.status, refusal.error, refusal.hint)
            if isinstance(values.get("response"), Response):
                answer: Response = values["response"]
                return answer
            status = values.pop("status", 200)
            shell = around(request, verdict, here, title)
            return render(request, values.pop("template", template), status=status, **(shell | values))

        return endpoint

    return decorate


def around(request: Request, verdict: Verdict | None, here: str, title: str) -> Values:
    """The data of the frame of every page."""
    console: WebConsole = request.app.state.console
    return {
        "console": console, "title": title, "here": here, "nav": navigation(here, verdict), "shortcuts": SHORTCUTS,
        "now": verdict.now if verdict else time.time(), "verdict": verdict, "can": console.may_act(request),
        "verbs": verbs, "asks": ASKS, "undoes": UNDOES, "clock": clock,
        "spaces": _spaces(request, console),
    }  # fmt: skip


def _spaces(request: Request, console: WebConsole) -> list[tuple[str, str, bool]]:
    """The namespaces that this app serves: name, address, and whether this page is of it. Empty if there is one only."""
    if len(console.all) == 1:
        return []
    root = quote(request.scope.get("root_path", "").removesuffix(console.mounted_at))
    return [(one.admin.namespace, f"{root}{quote(one.mounted_at)}/", one is console) for one in console.all]


def navigation(here: str, verdict: Verdict | None) -> list[list[NavEntry]]:
    """The pages with their counts."""

    def entry(path: str, icon: str, words: str, key: str, counted: str | None) -> NavEntry | None:
        count = None
        if verdict is not None and counted is not None:
            count = getattr(verdict, counted, None)
            count = max(0, getattr(verdict.sizes, counted)) if count is None else count
        if counted in _RARE and not count and path != here:
            return None
        return NavEntry(
            path, icon, words, key, path == here, count, counted in ("dead", "broken") and bool(count)
        )

    return [[found for one in group if (found := entry(*one)) is not None] for group in NAV]


async def failure(request: Request, status: int, error: str, hint: str, further: str = "") -> Response:
    """A page for a bad address; `further` is an address that searches further."""
    shell = around(request, None, "", "Not found" if status == 404 else "Request failed")
    # Errors continue a line of a terminal: "dayjob: no pool ...".
    sentence = error[:1].upper() + error[1:]
    return render(request, "failure.html", status=status, **shell, error=sentence, hint=hint, further=further)


# Slow reads are shared by all requests within a short time.


class PageCache:
    """The latest answer of one kind, and the lock for reading the next."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.read_at = float("-inf")
        self.value: Any = None
        #: Why the last read failed: waiting requests get this error at once, instead of waiting for Redis one after the other.
        self.error: StoreError | None = None


page_caches: weakref.WeakKeyDictionary[WebConsole, dict[str, PageCache]] = weakref.WeakKeyDictionary()


async def recent(console: WebConsole, key: str, seconds: float, read: Callable[[], Awaitable[T]]) -> T:
    """The answer of `read`, at most this many seconds old. One request reads, the others wait for it."""
    page_cache = page_caches.setdefault(console, {}).setdefault(key, PageCache())
    async with page_cache.turn:
        if time.monotonic() - page_cache.read_at > (FRESH_SECONDS if page_cache.error else seconds):
            try:
                page_cache.value, page_cache.error = await read(), None
            except StoreError as error:
                page_cache.error = error
            page_cache.read_at = time.monotonic()
        if page_cache.error is not None:
            raise page_cache.error.with_traceback(None)
        value: T = page_cache.value
        return value


async def look(console: WebConsole) -> Verdict:
    """The verdict, at most a second old."""
    return await recent(console, "verdict", FRESH_SECONDS, console.admin.verdict)


async def warm_up(console: WebConsole) -> None:
    """Read once before the first request, because the first read takes much longer. Errors are left to requests."""
    with contextlib.suppress(DayjobError, TimeoutError):
        async with asyncio.timeout(1.0):
            # Not cached: the first request reads the current data.
            await console.admin.verdict()
            # The minutes of the last hour stay in memory once they are read.
            await console.admin.throughput()


def whole(request: Request, key: str, otherwise: int = 0, most: int = 1_000_000_000) -> int:
    """An integer of the query, or a default."""
    text = request.query_params.get(key, "")
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 15 else otherwise

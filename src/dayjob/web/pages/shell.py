"""What every page has around it: navigation with counts, the shortcuts, and the words for when Redis is away."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Verdict
from dayjob.errors import BadOption, DayjobError, StoreError
from dayjob.web.charts import clock
from dayjob.web.console import Console
from dayjob.web.render import line, render
from dayjob.web.responses import refusal_of

T = TypeVar("T")
Values = dict[str, Any]
Gather = Callable[[Request, AsyncAdmin], Awaitable[Values]]
Endpoint = Callable[[Request], Awaitable[Response]]

#: Seconds for which one verdict serves every page.
FRESH = 1.0

#: What the browser asks before it acts on jobs: verb to its effect.
ASKS = {one.name: one.effect for one in verbs.rows("job") if one.asks}

#: Groups of pages: address, icon, words, key after `g`, and where its count is.
NAV = (
    (
        ("/", "home", "Home", "h", None), ("/queues", "queues", "Queues", "q", "waiting"),
        ("/busy_workers", "busy", "Busy workers", "b", "running"), ("/worker_pools", "pools", "Worker pools", "w", None),
    ),
    (
        ("/jobs", "jobs", "Jobs", "j", None), ("/scheduled_jobs", "scheduled", "Scheduled", "s", "scheduled"),
        ("/retry_jobs", "retry", "Retry", "r", "retry"), ("/dead_jobs", "dead", "Dead", "d", "dead"),
        ("/done_jobs", "done", "Done", "o", "done"), ("/broken", "broken", "Broken", "n", "broken"),
    ),
    (
        ("/failures", "failures", "Failures", "f", None), ("/metrics", "metrics", "Metrics", "m", None),
        ("/periodic", "periodic", "Periodic", "p", None), ("/redis", "redis", "Redis", "i", None),
        ("/audit", "audit", "Audit", "a", None), ("/enqueue", "enqueue", "Enqueue", "e", None),
    ),
)  # fmt: skip
#: Pages that are in the navigation only when there is something on them, or one is there.
_RARE = ("done", "broken")

SHORTCUTS = (
    ("?", "These shortcuts"), ("/", "Filter"), ("j k", "Next row, row before"), ("Enter", "Open the row"),
    ("x", "Select the row"), ("Escape", "Clear selection"), ("r", "Refresh now"), ("p", "Pause or resume"), ("n", "Next page"),
    ("t", "Light or dark"), *((f"g {key}", words) for group in NAV for _, _, words, key, _ in group), ("g ,", "Settings"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NavEntry:
    """One line of the navigation."""

    path: str
    icon: str
    words: str
    key: str
    here: bool
    count: int | None
    alarm: bool


def page(template: str, here: str, title: str) -> Callable[[Gather], Endpoint]:
    """An endpoint that gathers what a page shows, and shows it. With Redis away the page is there, and says so."""

    def decorate(gather: Gather) -> Endpoint:
        @functools.wraps(gather)
        async def endpoint(request: Request) -> Response:
            console: Console = request.app.state.console
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
    """What the frame of every page needs."""
    console: Console = request.app.state.console
    return {
        "console": console, "title": title, "here": here, "nav": navigation(here, verdict), "shortcuts": SHORTCUTS,
        "now": verdict.now if verdict else time.time(), "verdict": verdict, "can": console.may_act(request),
        "verbs": verbs, "asks": ASKS, "clock": clock,
    }  # fmt: skip


def navigation(here: str, verdict: Verdict | None) -> list[list[NavEntry]]:
    """The pages, with how much is on them."""

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
    """A page that says what is wrong with the address; `further` is one that looks better."""
    shell = around(request, None, "", "Not found" if status == 404 else "Request failed")
    return render(request, "failure.html", status=status, **shell, error=error, hint=hint, further=further)


# What takes long to read serves all who look within a while.


class PageCache:
    """The latest of one kind of answer, and the turn to read it anew."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.read_at = float("-inf")
        self.value: Any = None
        #: Why there is none: those who waited are told at once, instead of each waiting for Redis in turn.
        self.error: StoreError | None = None


_shelves: weakref.WeakKeyDictionary[Console, dict[str, PageCache]] = weakref.WeakKeyDictionary()


async def recent(console: Console, key: str, seconds: float, read: Callable[[], Awaitable[T]]) -> T:
    """What `read` answers, at most so many seconds old. One reads, the others wait for it."""
    page_cache = _shelves.setdefault(console, {}).setdefault(key, PageCache())
    async with page_cache.turn:
        if time.monotonic() - page_cache.read_at > (FRESH if page_cache.error else seconds):
            try:
                page_cache.value, page_cache.error = await read(), None
            except StoreError as error:
                page_cache.error = error
            page_cache.read_at = time.monotonic()
        if page_cache.error is not None:
            raise page_cache.error.with_traceback(None)
        value: T = page_cache.value
        return value


async def look(console: Console) -> Verdict:
    """The verdict, at most a second old."""
    return await recent(console, "verdict", FRESH, console.admin.verdict)


async def warm_up(console: Console) -> None:
    """Look once before anybody does: the first look takes several times as long. What is wrong is said to who asks."""
    with contextlib.suppress(DayjobError, TimeoutError):
        async with asyncio.timeout(1.0):
            # Not kept: whoever comes sees what is there then.
            await console.admin.verdict()


def whole(request: Request, key: str, otherwise: int = 0, most: int = 1_000_000_000) -> int:
    """A whole number of the query, or another where it is none."""
    text = request.query_params.get(key, "")
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 15 else otherwise

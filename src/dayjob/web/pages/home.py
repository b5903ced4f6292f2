"""Home: the verdict, the counts, the last hour, and the jobs that fail most, wait longest and run longest."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Note
from dayjob.web.charts import spark
from dayjob.web.console import WebConsole
from dayjob.web.order import FullList
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.shell import Values, look, page, recent
from dayjob.web.render import share

#: How many rows each of the short tables has.
SOME = 5
#: How many failed jobs of each set are read.
MAX_SEARCHED = 500
_DAY = 86400.0
_SETS = {
    "scheduled": "/scheduled_jobs", "retry": "/retry_jobs", "dead": "/dead_jobs", "done": "/done_jobs",
    "broken": "/broken", "pools": "/worker_pools", "busy": "/busy_workers", "redis": "/redis",
}  # fmt: skip


@page("home.html", "/", "Home")
async def home(request: Request, admin: AsyncAdmin) -> Values:
    """The first page."""
    console: WebConsole = request.app.state.console
    verdict = await look(console)
    listing = await admin.queues()
    flow = await recent(console, "throughput", 2.0, console.admin.throughput)
    vitals = await recent(console, "vitals", 2.0, console.admin.vitals)
    failures = await recent(
        console, "failing", 5.0, lambda: console.admin.failures(window=_DAY, most=MAX_SEARCHED)
    )
    capacity = await recent(console, "scale", 2.0, console.admin.scale)
    busy = await admin.busy(most=SOME)
    marked = await marks(console)
    leads = drawings.to_history(request)
    waiting = sorted(
        (one for one in listing.queues if one.queue.size),
        key=lambda one: (-(one.queue.age or 0), -one.queue.size),
    )
    names = {one.queue.name for one in listing.queues}
    # The same condition as on the page of queues.
    ended, failed = sum(one.out for one in listing.queues), sum(one.fails for one in listing.queues)
    return {
        "queues": listing.queues, "waiting": waiting[:SOME], "failing": [one for one in failures.groups if one.mark.ignored_until is None][:SOME], "busy": busy,
        "capacity": capacity, "failures": failures,
        "failing_order": FullList.at(request, sorting.FAILURES, "/failures", "groups of failures of the last 24 h", window="24"),
        "waiting_order": FullList.at(request, sorting.QUEUES, "/queues", "queues"),
        "busy_order": FullList.at(request, sorting.BUSY, "/busy_workers", "busy workers"),
        "oldest": max((one.queue.age or 0.0 for one in waiting), default=0.0),
        "rate": max(0.0, ended - failed), "failed_rate": f"{share(failed, ended)} failed" if ended else "in the last 5 minutes",
        "throughput": drawings.attempts(
            "Completed and failed per minute, last hour", flow.starts, flow.step, flow.ended, flow.failed, marked, leads
        ),
        "backlog": drawings.backlog("Waiting, last hour", flow.starts, flow.step, flow.waiting, marked, leads, verdict.waiting),
        "sparks": {"waiting": spark(flow.waiting, 3), "ended": spark(flow.ended), "busy": spark(vitals.busy), "retry": spark(vitals.retry, 3), "scheduled": spark(vitals.scheduled, 2), "dead": spark(vitals.dead, 1)},
        "fresh": not names and not verdict.pools and not verdict.sizes.dead and not any(flow.ended),
        "places": lambda note: place_of(note, names),
    }  # fmt: skip


def place_of(note: Note, names: set[str]) -> tuple[str, dict[str, Any]] | None:
    """The page about a note of the verdict."""
    if note.kind == "failing":
        return "/failures", {"name": note.subject}
    if note.kind == "no_worker":
        # It may be about several queues, of which it has the first as its subject.
        return "/queues", {"show": "stray"}
    if note.kind == "outbox":
        return "/redis", {}
    if note.subject in _SETS and note.subject not in names:
        return _SETS[note.subject], {}
    if note.subject in names:
        return "/queue", {"name": note.subject}
    return None

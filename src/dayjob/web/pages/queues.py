"""Queues: all of them, and a page for each."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import QueueDetail, QueueView
from dayjob.web import charts
from dayjob.web.pages.shell import Values, failure, page

_KINDS = (("", "All"), ("waiting", "With jobs"), ("paused", "Paused"), ("stray", "No worker"))


@page("queues.html", "/queues", "Queues")
async def queues(request: Request, admin: AsyncAdmin) -> Values:
    """Every queue by name. `q` filters by part of a name, `show` by kind."""
    listing = await admin.queues()
    part = request.query_params.get("q", "")
    show = request.query_params.get("show", "")
    found = [one for one in listing.queues if part in one.queue.name and _is(one, show)]
    return {"queues": found, "q": part, "show": show, "kinds": _KINDS, "now": listing.now}


def _is(one: QueueView, show: str) -> bool:
    return {
        "waiting": one.queue.size > 0,
        "paused": one.queue.paused,
        "stray": one.unattended,
    }.get(show, True)


@page("queue.html", "/queues", "Queue")
async def queue(request: Request, admin: AsyncAdmin) -> Values:
    """One queue, by its name in the query."""
    name = request.query_params.get("name", "")
    if not name:
        return {
            "response": await failure(
                request, 404, "No queue is named.", "Choose one from the list of queues."
            )
        }
    detail = await admin.queue(name)
    registered = (await admin.pools(workers=False)).pools
    runs_on = [pool for pool in registered if pool.id in detail.pools]
    return {"detail": detail, "now": detail.now, "flow": _flow(detail), "runs_on": runs_on}


def _flow(detail: QueueDetail) -> charts.Chart | Markup:
    """Attempts of the last hour."""
    series = detail.series
    return charts.bars(
        [one.at for one in series], 60, [one.runs for one in series], [one.fails for one in series],
        "Completed and failed attempts in each minute of the last hour",
    )  # fmt: skip

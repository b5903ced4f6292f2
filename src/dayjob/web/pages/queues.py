"""Queues: all of them, and a page for each."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import QueueDetail, QueueView
from dayjob.web import charts
from dayjob.web.charts import SECONDS, Chart, Leads, Mark, Series
from dayjob.web.order import FullList, Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import last_row, part
from dayjob.web.pages.shell import Values, failure, page

#: How many keys of a queue a page shows.
MAX_KEYS = 50
#: How many running jobs and groups of failures a page shows.
MAX_EXCERPT = 10
_KINDS = (("", "All"), ("waiting", "With jobs"), ("paused", "Paused"), ("stray", "No worker"))


@page("queues.html", "/queues", "Queues")
async def queues(request: Request, admin: AsyncAdmin) -> Values:
    """Every queue. `q` filters by part of a name, `show` by kind."""
    order = Order.of(request, sorting.QUEUES)
    listing = await admin.queues(sort=order.sort)
    part = request.query_params.get("q", "")
    show = request.query_params.get("show", "")
    found = [one for one in listing.queues if part in one.queue.name and _is(one, show)]
    return {"queues": found, "q": part, "show": show, "kinds": _KINDS, "now": listing.now, "order": order}


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
    order = Order.of(request, sorting.KEYS)
    detail = await admin.queue(name)
    registered = (await admin.pools(workers=False)).pools
    marked = await marks(request.app.state.console, name)
    runs_on = [pool for pool in registered if pool.id in detail.pools]
    keys, rows = None, None
    if detail.view.queue.by_key:
        # One more shows whether there is a next page.
        keys = await admin.queue_keys(name, most=last_row(request, MAX_KEYS) + 1, sort=order.sort)
        rows = part(request, keys.keys, MAX_KEYS, None)
    busy, failing = Order.of(request, sorting.BUSY, "busy"), Order.of(request, sorting.FAILURES, "failing")
    return {
        "busy": busy.first(detail.busy, MAX_EXCERPT), "busy_order": busy, "failing": failing.first(detail.failures, MAX_EXCERPT), "failing_order": failing,
        "next_order": FullList.at(request, sorting.JOBS["waiting"], "/jobs", "waiting jobs of this queue", state="waiting", name=name),
        "detail": detail, "now": detail.now, "pictures": _pictures(detail, marked, drawings.to_history(request, name=name)), "runs_on": runs_on, "keys": keys, "key_rows": rows, "order": order,
    }  # fmt: skip


def _pictures(detail: QueueDetail, marked: tuple[Mark, ...], leads: Leads) -> list[Chart]:
    """The last hour: attempts that ended, jobs that waited, jobs that came in and were fetched."""
    series = detail.series
    starts = [one.at for one in series]
    flow = (
        Series("in", [one.incoming for one in series], 2),
        # The last minute is not over: its number is no rate of a minute.
        Series("out", [*(one.out for one in series[:-1]), None], 0),
    )
    oldest = (Series("oldest", [one.oldest for one in series], 3),)
    return [
        drawings.attempts(
            "Completed and failed per minute, last hour", starts, 60, [one.runs for one in series], [one.fails for one in series], marked, leads
        ),
        drawings.backlog("Waiting, last hour", starts, 60, [one.size for one in series], marked, leads, max(0, detail.view.queue.size)),
        charts.lines("In and out per minute, last hour", starts, 60, flow, marks=marked, to=leads),
        charts.lines("Wait of the oldest job, last hour", starts, 60, oldest, unit=SECONDS, area=True, marks=marked, to=leads),
    ]  # fmt: skip

"""Worker pools and busy workers."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.detail_views import PoolDetail
from dayjob.text import span
from dayjob.web import charts
from dayjob.web.charts import Chart, Mark, Span
from dayjob.web.order import FullList, Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import last_row, part
from dayjob.web.pages.shell import Values, failure, page
from dayjob.web.render import address

#: How many busy workers a page shows.
MAX_BUSY = 200
#: How many of them the page of a pool shows.
MAX_BUSY_OF_POOL = 100


@page("pools.html", "/worker_pools", "Worker pools")
async def pools(request: Request, admin: AsyncAdmin) -> Values:
    """The live pools, and the dead ones."""
    order = Order.of(request, sorting.POOLS)
    found = await admin.pools(workers=False, sort=order.sort)
    statuses = [pool.status for pool in found.pools if pool.status and pool.lease > 0]
    return {
        "pools": found,
        "order": order,
        "dead_order": Order.of(request, sorting.CONDEMNED, "dead"),
        "workers": sum(status.concurrency for status in statuses),
        "running": sum(sum(status.running.values()) for status in statuses),
        "picture": drawings.workers(
            "Busy workers, last hour",
            await admin.vitals(),
            await marks(request.app.state.console),
            drawings.to_timeline(request),
        ),
    }


@page("busy.html", "/busy_workers", "Busy workers")
async def busy(request: Request, admin: AsyncAdmin) -> Values:
    """Workers that have run a job for more than 0.5 s; `pool` is the ID of one pool."""
    order = Order.of(request, sorting.BUSY)
    pool_id = request.query_params.get("pool") or None
    # One more shows whether there is a next page.
    found = await admin.busy(pool_id=pool_id, most=last_row(request, MAX_BUSY) + 1, sort=order.sort)
    return {"busy": part(request, found, MAX_BUSY, None), "pool_id": pool_id, "order": order}


#: Seconds that the Gantt chart of a pool shows at most.
SHOWN_SECONDS = 900.0


@page("pool.html", "/worker_pools", "Worker pool")
async def pool(request: Request, admin: AsyncAdmin) -> Values:
    """One pool, by its ID in the query."""
    pool_id = request.query_params.get("id", "")
    if not pool_id:
        return {
            "response": await failure(request, 404, "No pool is named.", "Choose one from the list of pools.")
        }
    found = await admin.pool(pool_id)
    busy = Order.of(request, sorting.BUSY, "busy")
    return {
        "detail": found, "now": found.now, "picture": _workers(request, found, await marks(request.app.state.console)), "busy": busy.first(found.workers, MAX_BUSY_OF_POOL), "busy_order": busy,
        "ended_order": FullList.at(request, sorting.HISTORY, "/history", "attempts of this pool", pool=pool_id),
        "events_order": FullList.at(request, sorting.TIMELINE, "/timeline", "events of this pool", pool=pool_id),
        "actions_order": FullList.at(request, sorting.AUDIT, "/audit", "actions on this pool", about=f"pool {pool_id}"),
    }  # fmt: skip


def _workers(request: Request, found: PoolDetail, marked: tuple[Mark, ...]) -> Chart:
    """What the workers are doing, and the last attempts that they ended."""
    running = [
        Span(
            one.worker.name, one.worker.started_at, found.now, 1 if one.worker.stuck else 2, f"runs for {one.running_for:.0f} s",
            address(request, "/job", id=one.worker.id, name=one.worker.name),
        )
        for one in found.workers
    ]  # fmt: skip
    ended = [
        Span(
            one.name, one.started_at, one.ended_at, 1 if one.failed else 0, one.outcome.replace("_", " "),
            address(request, "/job", id=one.id, name=one.name),
        )
        for one in found.ended
        if one.started_at is not None
    ]  # fmt: skip
    spans = running + ended
    # A minute at least: a pool that started just now has not done more.
    earliest = min((one.start for one in spans), default=found.now)
    first = max(found.now - SHOWN_SECONDS, min(earliest, found.now - 60))
    title = f"Workers, last {span(found.now - first)}"
    return charts.gantt(
        title,
        first,
        found.now,
        spans,
        keys=((2, "running"), (0, "ended"), (1, "failed or stuck")),
        marks=marked,
    )

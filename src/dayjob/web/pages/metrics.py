"""Metrics: throughput, failures, wait and run times by job over 1, 24 or 72 hours."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Metrics
from dayjob.web import charts
from dayjob.web.charts import Chart, Mark
from dayjob.web.console import WebConsole
from dayjob.web.order import Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import last_row, part
from dayjob.web.pages.shell import Values, page, recent, whole

#: How many jobs a page shows. Each row has a chart, so more would make the page slow.
MAX_JOBS = 100
_STEPS = {1: "1 minute", 24: "15 minutes", 72: "1 hour"}


@page("metrics.html", "/metrics", "Metrics")
async def metrics(request: Request, admin: AsyncAdmin) -> Values:
    """The metrics of `hours`, for one job by `name` or for all."""
    asked = whole(request, "hours", 1)
    hours = asked if asked in _STEPS else 1
    name = request.query_params.get("name", "")
    order = Order.of(request, sorting.METRICS)
    if name:
        found = await admin.metrics(hours, name=name)
    else:
        busiest = not order.other and last_row(request, MAX_JOBS) == MAX_JOBS
        found = await _of_all(request.app.state.console, hours, MAX_JOBS if busiest else None)
    total = len(found.jobs if name else found.names)
    jobs = part(request, sorting.METRICS.sorted(found.jobs, order.sort), MAX_JOBS, total)
    return {
        "found": found, "jobs": jobs, "order": order, "name": name, "now": found.now, "step": _STEPS[hours],
        "pictures": await _pictures(request, admin, found, name, hours, await marks(request.app.state.console, name)), "spark": charts.spark, "span_range": charts.span_range,
    }  # fmt: skip


async def _of_all(console: WebConsole, hours: int, most: int | None) -> Metrics:
    """The metrics of the busiest jobs or of all. They are cached longer for many hours, because they change slowly."""
    return await recent(
        console, f"metrics {hours} {most}", 2.0 + hours / 5, lambda: console.admin.metrics(hours, most=most)
    )


async def _pictures(
    request: Request, admin: AsyncAdmin, found: Metrics, name: str, hours: int, marked: tuple[Mark, ...]
) -> list[Chart]:
    """Attempts and waiting jobs over time, of one job or of all; of one also how its wait and run times are spread."""
    whose = f'"{name}"' if name else "all jobs"
    ended, failed, waiting = found.ended, found.failed, found.waiting
    only = found.jobs[0] if name and found.jobs else None
    if name:
        none = (0,) * len(found.starts)
        ended, failed = (only.series, only.fails) if only else (none, none)
        waiting = only.waiting if only else (None,) * len(found.starts)
    leads = drawings.to_history(request, name=name)
    drawn = [
        drawings.attempts(
            f"Completed and failed, {whose}", found.starts, found.step, ended, failed, marked, leads
        ),
        drawings.backlog(f"Waiting, {whose}", found.starts, found.step, waiting, marked, leads),
    ]
    if not name:
        return drawn
    spread = await admin.spread(name)
    if only is not None and only.run_times is not None and only.wait_times is not None:
        # The figures of these hours are read already.
        spread = replace(spread, hours=hours, all_runs=only.run_times, all_waits=only.wait_times)
    return drawn + drawings.spread(spread, marked, leads)

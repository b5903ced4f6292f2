"""Metrics: throughput, failures, wait and run times by job over 1, 24 or 72 hours."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import Metrics
from dayjob.web import charts
from dayjob.web.console import Console
from dayjob.web.pages.shell import Values, page, recent, whole

#: How many jobs are shown, the busiest first. Each row has a chart, so more would make the page slow.
MAX_JOBS = 100
_STEPS = {1: "1 minute", 24: "15 minutes", 72: "1 hour"}


@page("metrics.html", "/metrics", "Metrics")
async def metrics(request: Request, admin: AsyncAdmin) -> Values:
    """The metrics of `hours`, for one job by `name` or for all."""
    asked = whole(request, "hours", 1)
    hours = asked if asked in _STEPS else 1
    name = request.query_params.get("name", "")
    found = await (admin.metrics(hours, name=name) if name else _busiest(request.app.state.console, hours))
    jobs = sorted(found.jobs, key=lambda job: (-job.runs.count, job.name))
    return {
        "found": found, "jobs": jobs, "name": name, "now": found.now, "step": _STEPS[hours],
        "throughput": _throughput(found, name), "spark": charts.spark, "span_range": charts.span_range,
    }  # fmt: skip


async def _busiest(console: Console, hours: int) -> Metrics:
    """The metrics of some hours. They are cached longer for many hours, because they change slowly."""
    return await recent(
        console, f"metrics {hours}", 2.0 + hours / 5, lambda: console.admin.metrics(hours, most=MAX_JOBS)
    )


def _throughput(found: Metrics, name: str) -> charts.Chart:
    """Completed and failed attempts in each step, for one job or for all."""
    ended, failed = found.ended, found.failed
    if name:
        none = (0,) * len(found.starts)
        ended, failed = (found.jobs[0].series, found.jobs[0].fails) if found.jobs else (none, none)
    return charts.bars(found.starts, found.step, ended, failed, "Completed and failed attempts")

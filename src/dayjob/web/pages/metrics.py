"""Metrics: throughput, failures, wait and run times by job over 1, 24 or 72 hours."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web import charts
from dayjob.web.pages.home import figures, throughput
from dayjob.web.pages.shell import Values, page, whole

_STEPS = {1: "a minute", 24: "a quarter of an hour", 72: "an hour"}


@page("metrics.html", "/metrics", "Metrics")
async def metrics(request: Request, _admin: AsyncAdmin) -> Values:
    """The figures of `hours`, of one job by `name` or of all."""
    hours = whole(request, "hours", 1)
    found = await figures(request.app.state.console, hours if hours in _STEPS else 1)
    name = request.query_params.get("name", "")
    jobs = sorted(
        (job for job in found.jobs if name in ("", job.name)), key=lambda job: (-job.runs.count, job.name)
    )
    return {
        "found": found, "jobs": jobs, "name": name, "names": [job.name for job in found.jobs], "now": found.now,
        "step": _STEPS[found.hours], "throughput": throughput(found, "Attempts that ended, and that failed", name),
        "spark": charts.spark, "span_range": charts.span_range,
    }  # fmt: skip

"""Failures: jobs in dead and retry, grouped by error and job name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.detail_views import GroupDetail
from dayjob.admin.filters import Filter
from dayjob.admin.views import FailureGroup, State
from dayjob.web import charts
from dayjob.web.charts import Chart, Leads, Mark, Series
from dayjob.web.order import FullList, Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import part
from dayjob.web.pages.shell import Values, failure, page

_WINDOWS = (("1", "1 h"), ("24", "24 h"), ("72", "72 h"), ("", "Ever"))
#: How many jobs of each set are read: as many as can be grouped in the time that a page may take.
MAX_SEARCHED = 1500
#: How many groups a page shows.
MAX_GROUPS = 100


@page("failures.html", "/failures", "Failures")
async def failures(request: Request, admin: AsyncAdmin) -> Values:
    """The groups, largest first. `window` (hours), `name` and `kind` narrow them."""
    asked = request.query_params
    order = Order.of(request, sorting.FAILURES)
    window = asked.get("window", "")
    hours = float(window) if window in ("1", "24", "72") else None
    found = await admin.failures(
        window=None if hours is None else hours * 3600, most=MAX_SEARCHED, sort=order.sort
    )
    name, kind = asked.get("name", ""), asked.get("kind", "")
    groups = [one for one in found.groups if name in ("", one.name) and kind in ("", one.kind)]
    ignored = sum(one.mark.ignored_until is not None for one in groups)
    shows_ignored = bool(asked.get("ignored") or kind)
    if not shows_ignored:
        groups = [one for one in groups if one.mark.ignored_until is None]
    shown = part(request, groups, MAX_GROUPS, len(groups))
    return {
        "ignored": ignored, "shows_ignored": shows_ignored,
        "groups": [_shown(one) for one in shown.rows], "shown": shown, "found": found,
        "attempts": [one for one in found.attempts if name in ("", one.name)],
        "hourly": {one.name: one.last_hour for one in found.attempts}, "windows": _WINDOWS,
        "window": window if hours else "", "name": name, "kind": kind, "now": found.now, "order": order,
        "attempts_order": Order.of(request, sorting.FAILED_ATTEMPTS, "attempts"),
    }  # fmt: skip


def _shown(group: FailureGroup) -> dict[str, Any]:
    shown = {field.name: getattr(group, field.name) for field in fields(group)}
    return shown | {"where": str(Filter.of(name=group.name, kind=group.kind))}


@page("group.html", "/failures", "Failures")
async def group(request: Request, admin: AsyncAdmin) -> Values:
    """One group of failures, by `name` and `kind`."""
    name, kind = request.query_params.get("name", ""), request.query_params.get("kind", "")
    found = await admin.failure_group(name, kind)
    if found is None:
        sentence = f"No job of {name[:200]!r} is in retry or dead with this error."
        hint = f"They were retried or deleted, or they are further back than {MAX_SEARCHED:,} jobs."
        return {"response": await failure(request, 404, sentence, hint)}
    marked = await marks(request.app.state.console, name)
    leads = drawings.to_history(request, name=name, outcome="failed")
    shown = _shown(found.group)
    state: State = "dead" if found.group.dead else "retry"
    jobs = "dead jobs of this group" if found.group.dead else "jobs of this group in retry"
    return {
        "jobs_order": FullList.at(request, sorting.JOBS[state], f"/{state}_jobs", jobs, where=shown["where"]),
        "places_order": Order.of(request, sorting.PLACES, "places"),
        "detail": found, "group": shown, "picture": _over_time(found, marked, leads), "now": found.now,
    }  # fmt: skip


def _over_time(found: GroupDetail, marked: tuple[Mark, ...], leads: Leads) -> Chart:
    """When attempts of the jobs that are in the group now failed."""
    series = (Series("failed", found.failed, 1),)
    summary = f"{sum(found.failed):,} of jobs that are in retry or dead now"
    title = "Failed attempts since the first"
    return charts.bars(title, found.starts, found.step, series, summary=summary, marks=marked, to=leads)

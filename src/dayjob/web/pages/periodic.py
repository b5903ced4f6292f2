"""Periodic: the schedules, in English, with their last and next ticks."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.web.order import FullList, Order
from dayjob.web.pages.shell import Values, failure, page
from dayjob.web.render import address


@page("periodic.html", "/periodic", "Periodic")
async def periodic(request: Request, admin: AsyncAdmin) -> Values:
    """Every schedule that ever ticked."""
    order = Order.of(request, sorting.PERIODIC)
    return {"schedules": await admin.periodic(sort=order.sort), "order": order}


@page("schedule.html", "/periodic", "Schedule")
async def schedule(request: Request, admin: AsyncAdmin) -> Values:
    """One schedule, by its name in the query."""
    name = request.query_params.get("name", "")
    if not name:
        return {
            "response": await failure(
                request, 404, "No schedule is named.", "Choose one from the list of schedules."
            )
        }
    found = await admin.schedule(name)
    args = found.schedule.args
    filled = msgspec.json.encode(args).decode() if isinstance(args, dict) and args else ""
    return {
        "detail": found, "schedule": found.schedule, "now": found.now,
        "runs_order": FullList.at(request, sorting.HISTORY, "/history", "its runs", name=found.schedule.job, schedule=name),
        "ticks_order": FullList.at(request, sorting.TIMELINE, "/timeline", "its ticks", kind="tick", name=name),
        "actions_order": FullList.at(request, sorting.AUDIT, "/audit", "actions on this schedule", about=f"schedule {name}"),
        "other": address(request, "/enqueue", name=found.schedule.job, args=filled),
    }  # fmt: skip

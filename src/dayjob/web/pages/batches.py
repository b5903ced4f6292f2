"""Batches: all of them, and a page for each."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.errors import BadOption
from dayjob.web.order import FullList, Order
from dayjob.web.pages.shell import Values, failure, page, whole

SIZE = 50


@page("batches.html", "/batches", "Batches")
async def batches(request: Request, admin: AsyncAdmin) -> Values:
    """The batches, the newest first."""
    order = Order.of(request, sorting.BATCHES)
    offset = whole(request, "offset", most=999_999)
    found = await admin.batches(offset=offset, size=SIZE, sort=order.sort)
    return {"found": found, "now": found.now, "order": order, "offset": offset}


@page("batch.html", "/batches", "Batch")
async def batch(request: Request, admin: AsyncAdmin) -> Values:
    """One batch, by its id in the query."""
    batch_id = request.query_params.get("id", "")
    try:
        found = await admin.batch(batch_id)
    except BadOption:
        words = "There is no such batch." if batch_id else "No batch is named."
        hint = "Choose one from the list of batches. One that succeeded is kept for a week."
        return {"response": await failure(request, 404, words, hint)}
    actions = await admin.audit(size=20, about=f"batch {batch_id}")
    return {
        "detail": found, "batch": found.batch, "now": found.now, "entries": actions, "nested_order": Order.of(request, sorting.BATCHES, "nested"),
        "actions_order": FullList.at(request, sorting.AUDIT, "/audit", "actions on this batch", about=f"batch {batch_id}"),
    }  # fmt: skip

"""Limits: the rate limits, what each allows and uses, and how many jobs wait for it."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.web.order import Order
from dayjob.web.pages.shell import Values, page


@page("limits.html", "/limits", "Limits")
async def limits(request: Request, admin: AsyncAdmin) -> Values:
    """Every rate limit."""
    order = Order.of(request, sorting.LIMITS)
    return {"limits": await admin.limits(sort=order.sort), "order": order}

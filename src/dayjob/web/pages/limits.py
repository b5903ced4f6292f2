"""Limits: the rate limits, what each allows, uses and keeps back."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.pages.shell import Values, page


@page("limits.html", "/limits", "Limits")
async def limits(_request: Request, admin: AsyncAdmin) -> Values:
    """Every rate limit."""
    return {"limits": await admin.limits()}

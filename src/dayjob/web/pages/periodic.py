"""Periodic: the schedules, in English, with their last and next ticks."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.pages.shell import Values, page


@page("periodic.html", "/periodic", "Periodic")
async def periodic(_request: Request, admin: AsyncAdmin) -> Values:
    """Every schedule that ever ticked."""
    return {"schedules": await admin.periodic()}

"""The audit, and the unreadable entries."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.pages.shell import Values, page, whole
from dayjob.web.render import line
from dayjob.web.responses import broken_text

SIZE = 100


@page("audit.html", "/audit", "Audit")
async def audit(request: Request, admin: AsyncAdmin) -> Values:
    """Actions, newest first; `about` filters by text."""
    about = request.query_params.get("about", "")
    offset = whole(request, "offset", most=10_000)
    lines = await admin.audit(offset=offset, size=SIZE + 1, about=about)
    return {"lines": lines[:SIZE], "about": about, "offset": offset, "size": SIZE, "more": len(lines) > SIZE}


@page("broken.html", "/broken", "Broken entries")
async def broken(request: Request, admin: AsyncAdmin) -> Values:
    """Entries that are not valid jobs."""
    offset = whole(request, "offset", most=9_999)
    found = await admin.broken(offset=offset)
    entries = [
        {
            "index": one.index, "digest": one.digest, "at": one.at, "where": one.where, "why": line(one.why),
            "text": broken_text(one)[:4000],
        }
        for one in found.entries
    ]  # fmt: skip
    return {"entries": entries, "total": found.total, "offset": offset}

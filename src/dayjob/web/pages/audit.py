"""The audit, and the unreadable entries."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.web.order import Order
from dayjob.web.pages.shell import Values, page, whole
from dayjob.web.pages.subjects import link_of
from dayjob.web.render import line
from dayjob.web.responses import broken_text

SIZE = 100
#: Longer broken entries are cut, and the form to repair them starts empty.
MAX_SHOWN = 4000


@page("audit.html", "/audit", "Audit")
async def audit(request: Request, admin: AsyncAdmin) -> Values:
    """Actions, newest first; `about` filters by text."""
    about = request.query_params.get("about", "")
    offset = whole(request, "offset", most=10_000)
    order = Order.of(request, sorting.AUDIT)
    lines = await admin.audit(offset=offset, size=SIZE + 1, about=about, sort=order.sort)
    return {
        "lines": lines[:SIZE], "about": about, "offset": offset, "size": SIZE, "more": len(lines) > SIZE, "order": order, "link_of": link_of,
        "deletions": await admin.bin(), "bin_order": Order.of(request, sorting.BIN, "bin"),
    }  # fmt: skip


@page("broken.html", "/broken", "Broken entries")
async def broken(request: Request, admin: AsyncAdmin) -> Values:
    """Entries that are not valid jobs."""
    offset = whole(request, "offset", most=9_999)
    order = Order.of(request, sorting.BROKEN)
    found = await admin.broken(offset=offset, sort=order.sort)
    entries = [
        {
            "index": one.index, "digest": one.digest, "at": one.at, "where": one.where, "why": line(one.why),
            "text": text[:MAX_SHOWN], "whole": len(text) <= MAX_SHOWN,
        }
        for one in found.entries
        for text in (broken_text(one),)
    ]  # fmt: skip
    return {
        "entries": entries,
        "total": found.total,
        "offset": offset,
        "order": order,
        "sorted_among": found.sorted_among,
    }

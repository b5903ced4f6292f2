"""Worker pools and busy workers."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.shell import Values, page

#: How many busy workers are shown, longest first.
MAX_BUSY = 200


@page("pools.html", "/worker_pools", "Worker pools")
async def pools(request: Request, admin: AsyncAdmin) -> Values:
    """The live pools, and the dead ones."""
    found = await admin.pools(workers=False)
    statuses = [pool.status for pool in found.pools if pool.status and pool.lease > 0]
    return {
        "pools": found,
        "workers": sum(status.concurrency for status in statuses),
        "running": sum(sum(status.running.values()) for status in statuses),
        "picture": drawings.workers(
            "Busy workers, last hour", await admin.vitals(), await marks(request.app.state.console)
        ),
    }


@page("busy.html", "/busy_workers", "Busy workers")
async def busy(_request: Request, admin: AsyncAdmin) -> Values:
    """Workers that have run a job for more than 0.5 s."""
    found = await admin.busy(most=MAX_BUSY + 1)
    return {"busy": found[:MAX_BUSY], "more": len(found) > MAX_BUSY}

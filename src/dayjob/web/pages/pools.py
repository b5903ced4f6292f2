"""Worker pools, and what their workers do."""

from __future__ import annotations

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.pages.shell import Values, page

#: How many busy workers are shown, the longest.
MAX_BUSY = 200


@page("pools.html", "/worker_pools", "Worker pools")
async def pools(_request: Request, admin: AsyncAdmin) -> Values:
    """The pools on the register, and the dead ones."""
    found = await admin.pools(workers=False)
    told = [pool.status for pool in found.pools if pool.status and pool.lease > 0]
    return {
        "pools": found,
        "workers": sum(status.concurrency for status in told),
        "running": sum(sum(status.running.values()) for status in told),
    }


@page("busy.html", "/busy_workers", "Busy workers")
async def busy(_request: Request, admin: AsyncAdmin) -> Values:
    """Workers that have run a job for more than 0.5 s."""
    found = await admin.busy(most=MAX_BUSY + 1)
    return {"busy": found[:MAX_BUSY], "more": len(found) > MAX_BUSY}

"""The pages of the console. They never change anything: buttons call the API."""

from __future__ import annotations

from starlette.routing import Route

from dayjob.web.pages import (
    api,
    audit,
    batches,
    calendar,
    enqueue,
    failures,
    history,
    home,
    jobs,
    limits,
    metrics,
    periodic,
    pools,
    queues,
    redis,
    search,
    settings,
    static,
    timeline,
    workflows,
)
from dayjob.web.pages.shell import failure, warm_up

__all__ = ["failure", "routes", "warm_up"]


def routes() -> list[Route]:
    """Every page, including those that share an address with the JSON API, and the files they load."""
    pages = {
        "/": home.home,
        "/queues": queues.queues,
        "/queue": queues.queue,
        "/limits": limits.limits,
        "/worker_pools": pools.pools,
        "/pool": pools.pool,
        "/busy_workers": pools.busy,
        "/jobs": jobs.jobs,
        "/scheduled_jobs": jobs.scheduled,
        "/retry_jobs": jobs.retry,
        "/dead_jobs": jobs.dead,
        "/done_jobs": jobs.done,
        "/job": jobs.job,
        "/batches": batches.batches,
        "/batch": batches.batch,
        "/workflows": workflows.workflows,
        "/workflow": workflows.workflow,
        "/failures": failures.failures,
        "/failure": failures.group,
        "/history": history.history,
        "/sources": history.sources,
        "/source": history.source,
        "/periodic": periodic.periodic,
        "/schedule": periodic.schedule,
        "/calendar": calendar.calendar,
        "/metrics": metrics.metrics,
        "/redis": redis.redis,
        "/payloads": redis.payloads,
        "/enqueue": enqueue.enqueue,
        "/audit": audit.audit,
        "/timeline": timeline.timeline,
        "/broken": audit.broken,
        "/search": search.search,
        "/settings": settings.settings,
        "/api": api.api,
    }
    return [
        *(Route(path, handler, methods=["GET"]) for path, handler in pages.items()),
        Route("/static/{name}", static.static_file, methods=["GET"]),
    ]

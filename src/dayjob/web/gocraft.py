"""The JSON API of gocraft/work: its addresses and types, so that programs written for it work here.

Lists are never null, and errors are JSON with a fitting status. Times are whole seconds, as its clients expect.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views import BusyWorker, JobView, Pool, QueueView, Status
from dayjob.web.responses import Refusal, shown_key

Handler = Callable[[Request], Awaitable[Response]]

#: Jobs to a page.
SIZE = 20

_MOMENTS = {"retry": "retry_at", "scheduled": "run_at", "dead": "died_at"}
_ESCAPED = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def _answer(value: Any) -> Response:
    """JSON as gocraft writes it: with tabs, and with HTML characters escaped."""
    text = json.dumps(value, indent="\t", ensure_ascii=False).translate(_ESCAPED)
    return Response(text, media_type="application/json; charset=utf-8")


def _admin(request: Request) -> AsyncAdmin:
    admin: AsyncAdmin = request.app.state.console.admin_for(request)
    return admin


# Reads.


async def queues(request: Request) -> Response:
    """GET /queues."""
    found = await _admin(request).queues()
    return _answer([_queue(view) for view in found.queues])


def _queue(view: QueueView) -> dict[str, Any]:
    return {"job_name": view.queue.name, "count": view.queue.size, "latency": int(view.queue.age or 0)}


async def worker_pools(request: Request) -> Response:
    """GET /worker_pools."""
    found = await _admin(request).pools()
    return _answer([_pool(pool) for pool in sorted(found.pools, key=lambda pool: pool.id)])


def _pool(pool: Pool) -> dict[str, Any]:
    status = pool.status or Status()
    return {
        "worker_pool_id": pool.id,
        "started_at": int(status.started_at),
        "heartbeat_at": int(status.beat_at),
        "job_names": sorted(status.names),
        "concurrency": status.concurrency,
        "host": status.host,
        "pid": status.pid,
        "worker_ids": sorted(status.worker_ids),
    }


async def busy_workers(request: Request) -> Response:
    """GET /busy_workers."""
    return _answer([_busy(one) for one in await _admin(request).busy()])


def _busy(one: BusyWorker) -> dict[str, Any]:
    worker = one.worker
    return {
        "worker_id": worker.worker_id,
        "is_busy": True,
        "job_name": worker.name,
        "job_id": worker.id,
        "started_at": int(worker.started_at),
        "args_json": ""
        if worker.args is None
        else json.dumps(worker.args, separators=(",", ":"), ensure_ascii=False),
        "checkin": worker.checkin or "",
        "checkin_at": int(worker.checkin_at or 0),
    }


def _jobs(state: Literal["retry", "scheduled", "dead"]) -> Handler:
    async def page(request: Request) -> Response:
        text = request.query_params.get("page") or "1"
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise Refusal(400, f"page={text[:80]!r} is not a page number.", "The first page is page=1.")
        found = await _admin(request).numbered(state, max(1, int(text)), size=SIZE)
        return _answer({"count": found.total, "jobs": [_job(job) for job in found.jobs]})

    return page


def _job(job: JobView) -> dict[str, Any]:
    shown: dict[str, Any] = {
        _MOMENTS[job.state]: int(job.at or 0), "name": job.name, "id": job.id, "t": int(job.due_at or 0), "args": job.args,
    }  # fmt: skip
    error = job.error or (f"it cannot be read: {job.problem}" if job.problem else "")
    more = {
        "unique": bool(job.unique_key), "unique_key": shown_key(job), "fails": job.fails, "err": error,
        "failed_at": int(job.failed_at or 0),
    }  # fmt: skip
    return shown | {key: value for key, value in more.items() if value}


# Actions.


def _act(verb: Literal["delete", "retry"]) -> Handler:
    words = {"delete": "nothing deleted", "retry": "nothing retried"}[verb]

    async def act(request: Request) -> Response:
        text, job_id = request.path_params["died_at"], request.path_params["job_id"].removesuffix("/")
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise Refusal(400, f"{text[:80]!r} is not a number of seconds since 1970.")
        second = int(text)
        admin = _admin(request)
        job = await admin.at_second("dead", job_id, second)
        if job is None:
            raise Refusal(404, f"{words}: no job {job_id[:200]!r} died at {second}")
        outcome = await (admin.delete(job) if verb == "delete" else admin.retry(job))
        if not outcome.done:
            raise Refusal(409, f"{words}: {outcome.message}")
        return _answer({"status": "ok"})

    return act


def _act_on_all(verb: Literal["delete", "retry"]) -> Handler:
    async def act(request: Request) -> Response:
        await _admin(request).apply(verb, "dead")
        return _answer({"status": "ok"})

    return act


def _route(path: str, handler: Handler, method: str) -> list[Route]:
    """An address, with or without a slash at the end; OPTIONS lists its methods."""

    async def serve(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=200, headers={"allow": f"{method}, OPTIONS"})
        return await handler(request)

    paths = (path,) if path.endswith(":path}") else (path, f"{path}/")
    return [Route(one, serve, methods=[method, "OPTIONS"]) for one in paths]


def routes() -> list[Route]:
    """Gocraft's addresses."""
    table: tuple[tuple[str, Handler, str], ...] = (
        ("/queues", queues, "GET"),
        ("/worker_pools", worker_pools, "GET"),
        ("/busy_workers", busy_workers, "GET"),
        ("/retry_jobs", _jobs("retry"), "GET"),
        ("/scheduled_jobs", _jobs("scheduled"), "GET"),
        ("/dead_jobs", _jobs("dead"), "GET"),
        ("/delete_dead_job/{died_at}/{job_id:path}", _act("delete"), "POST"),
        ("/retry_dead_job/{died_at}/{job_id:path}", _act("retry"), "POST"),
        ("/delete_all_dead_jobs", _act_on_all("delete"), "POST"),
        ("/retry_all_dead_jobs", _act_on_all("retry"), "POST"),
    )
    return [route for path, handler, method in table for route in _route(path, handler, method)]

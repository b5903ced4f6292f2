"""Queues and pools over the API: lists; pause, resume, limit and purge a queue; quiet and stop a pool; stacks."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.responses import Response

from dayjob.admin.views import BusyWorker, Outcome, PoolsView, QueueDetail, QueuesView, Stacks
from dayjob.errors import UnknownQueue
from dayjob.web.codes import ErrorCode, code_of_outcome
from dayjob.web.responses import Refusal
from dayjob.web.v1.inputs import (
    BusyInput,
    NewQueue,
    OnePool,
    OneQueue,
    Pattern,
    PoolsInput,
    Purged,
    QueueLimit,
    QueuesInput,
)
from dayjob.web.v1.streams import StreamLine, previewed, streamed
from dayjob.web.v1.table import Call, Endpoint

T = TypeVar("T")


#: The code of an action on something that does not exist, by the first word of the outcome's subject.
_MISSING: dict[str, ErrorCode] = {
    "job": "unknown_job", "pool": "unknown_pool", "queue": "unknown_queue", "schedule": "unknown_schedule",
}  # fmt: skip


def done(outcome: Outcome) -> Outcome:
    """An outcome that changed something. Raises Refusal for one that did not."""
    if not outcome.found:
        code = _MISSING.get(outcome.subject.partition(" ")[0], "not_found")
        raise Refusal(404, outcome.message, code=code)
    if not outcome.done:
        raise Refusal(409, outcome.message, code=code_of_outcome(outcome.kind))
    return outcome


async def _queues(call: Call[QueuesInput]) -> QueuesView:
    return await call.admin.queues(sort=call.sent.sort)


async def _queue(call: Call[OneQueue]) -> QueueDetail:
    return await call.admin.queue(call.sent.name)


async def _known(acting: Awaitable[T]) -> T:
    """The answer of an action on queues. Raises Refusal for a queue that does not exist."""
    try:
        return await acting
    except UnknownQueue as error:
        raise Refusal(404, error.problem, error.advice("force=true"), code="unknown_queue") from None


async def _existing(acting: Awaitable[Outcome]) -> Outcome:
    """The outcome of an action on a queue, if it changed something. Raises Refusal."""
    return done(await _known(acting))


async def _pause(call: Call[NewQueue]) -> Outcome:
    return await _existing(call.admin.pause(call.sent.name, force=call.sent.force))


async def _resume(call: Call[OneQueue]) -> Outcome:
    return await _existing(call.admin.resume(call.sent.name))


async def _pause_matching(call: Call[Pattern]) -> tuple[Outcome, ...]:
    return await _known(call.admin.pause_matching(call.sent.pattern))


async def _resume_matching(call: Call[Pattern]) -> tuple[Outcome, ...]:
    return await _known(call.admin.resume_matching(call.sent.pattern))


async def _limit(call: Call[QueueLimit]) -> Outcome:
    return await _existing(call.admin.limit(call.sent.name, call.sent.limit, force=call.sent.force))


async def _purge(call: Call[Purged]) -> Response:
    sent = call.sent
    if sent.dry_run:
        return previewed(await call.admin.preview_purge(sent.name))
    return await streamed(
        call.console, lambda report: call.admin.purge(sent.name, progress=report, undo=sent.undo)
    )


async def _pools(call: Call[PoolsInput]) -> PoolsView:
    return await call.admin.pools(sort=call.sent.sort)


async def _busy(call: Call[BusyInput]) -> tuple[BusyWorker, ...]:
    return await call.admin.busy(sort=call.sent.sort)


async def _quiet(call: Call[OnePool]) -> Outcome:
    return done(await call.admin.quiet(call.sent.pool))


async def _resume_pool(call: Call[OnePool]) -> Outcome:
    return done(await call.admin.resume_pool(call.sent.pool))


async def _stop(call: Call[OnePool]) -> Outcome:
    return done(await call.admin.stop(call.sent.pool))


async def _stacks(call: Call[OnePool]) -> Any:
    pool = call.sent.pool
    found = await call.console.shared(f"stacks {pool}", lambda: call.admin.stacks(pool))
    if found is None:
        raise Refusal(
            404,
            f"No pool {call.sent.pool!r} has answered.",
            "It has stopped, or it is stuck.",
            code="unknown_pool",
        )
    return found


ENDPOINTS = (
    Endpoint("GET", "/queues", "queues", "Every queue with its size, age, throughput and workers.", _queues, QueuesView, QueuesInput),
    Endpoint("GET", "/queue", "queues", "One queue in detail.", _queue, QueueDetail, OneQueue, finds=True),
    Endpoint("POST", "/queue/pause", "queues", "Stop fetching from a queue; running jobs continue.", _pause, Outcome, NewQueue, finds=True, moves=True),
    Endpoint("POST", "/queue/resume", "queues", "Fetch from a queue again.", _resume, Outcome, OneQueue, finds=True, moves=True),
    Endpoint("POST", "/queues/pause", "queues", "Stop fetching from every queue that matches a pattern.", _pause_matching, tuple[Outcome, ...], Pattern, finds=True),
    Endpoint("POST", "/queues/resume", "queues", "Fetch again from every paused queue that matches a pattern.", _resume_matching, tuple[Outcome, ...], Pattern, finds=True),
    Endpoint("POST", "/queue/limit", "queues", "Set how many jobs of a queue run at once, over all pools.", _limit, Outcome, QueueLimit, finds=True, moves=True),
    Endpoint("POST", "/queue/purge", "queues", "Delete every waiting job of a queue.", _purge, StreamLine, Purged, streams=True, finds=True),
    Endpoint("GET", "/pools", "pools", "The worker pools with their statuses.", _pools, PoolsView, PoolsInput),
    Endpoint("GET", "/busy", "pools", "The workers that have run a job for more than 0.5 s.", _busy, tuple[BusyWorker, ...], BusyInput),
    Endpoint("POST", "/pool/quiet", "pools", "Ask a pool to stop fetching.", _quiet, Outcome, OnePool, finds=True, moves=True),
    Endpoint("POST", "/pool/resume", "pools", "Ask a quiet pool to fetch jobs again.", _resume_pool, Outcome, OnePool, finds=True, moves=True),
    Endpoint("POST", "/pool/stop", "pools", "Ask a pool to stop, as after a TERM signal.", _stop, Outcome, OnePool, finds=True, moves=True),
    Endpoint("GET", "/pool/stacks", "pools", "The stacks of a pool's busy workers.", _stacks, Stacks, OnePool, finds=True),
)  # fmt: skip

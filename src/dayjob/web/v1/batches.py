"""Batches over the API: the list, one, and what can be done to it."""

from __future__ import annotations

from dayjob.admin.views import Outcome, Tally
from dayjob.admin.views.batches import BatchAudit, BatchDetail, BatchesView
from dayjob.errors import BadOption
from dayjob.web.responses import Refusal
from dayjob.web.v1.group_inputs import BatchesInput, OneBatch
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint


async def _batches(call: Call[BatchesInput]) -> BatchesView:
    return await call.admin.batches(offset=call.sent.offset, size=call.sent.size, sort=call.sent.sort)


async def _batch(call: Call[OneBatch]) -> BatchDetail:
    """One batch. Raises Refusal if there is no such batch."""
    try:
        return await call.admin.batch(call.sent.id)
    except BadOption:
        text = f"There is no batch {call.sent.id[:80]!r}."
        raise Refusal(404, text, "GET /api/v1/batches lists all.", code="unknown_batch") from None


async def _cancel(call: Call[OneBatch]) -> Outcome:
    await _batch(call)
    return done(await call.admin.cancel_batch(call.sent.id))


async def _close(call: Call[OneBatch]) -> Outcome:
    await _batch(call)
    return done(await call.admin.close_batch(call.sent.id))


async def _retry(call: Call[OneBatch]) -> Tally:
    await _batch(call)
    return await call.admin.retry_batch(call.sent.id)


async def _audit(call: Call[OneBatch]) -> BatchAudit:
    await _batch(call)
    return await call.admin.audit_batch(call.sent.id)


async def _repair(call: Call[OneBatch]) -> BatchAudit:
    await _batch(call)
    return await call.admin.audit_batch(call.sent.id, repair=True)


ENDPOINTS = (
    Endpoint("GET", "/batches", "batches", "Batches, the newest first.", _batches, BatchesView, BatchesInput),
    Endpoint("GET", "/batch", "batches", "One batch, with what it waits for.", _batch, BatchDetail, OneBatch, finds=True),
    Endpoint("GET", "/batch/audit", "batches", "Compare the records of a batch with where its members are. Every job is searched.", _audit, BatchAudit, OneBatch, finds=True),
    Endpoint("POST", "/batch/cancel", "batches", "End the members of a batch.", _cancel, Outcome, OneBatch, finds=True, moves=True),
    Endpoint("POST", "/batch/close", "batches", "Close an open batch: only its members can add jobs, and it ends when all have ended.", _close, Outcome, OneBatch, finds=True, moves=True),
    Endpoint("POST", "/batch/retry", "batches", "Retry the dead members of a batch.", _retry, Tally, OneBatch, finds=True),
    Endpoint("POST", "/batch/repair", "batches", "Audit a batch and correct its records.", _repair, BatchAudit, OneBatch, finds=True),
)  # fmt: skip

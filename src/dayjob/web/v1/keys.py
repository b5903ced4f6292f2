"""The keys of a queue over the API: the list; weight, limit, pause, resume and purge of one."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dayjob.admin.views import Outcome, Tally
from dayjob.admin.views.limits import KeysView
from dayjob.web.responses import Refusal
from dayjob.web.v1.inputs import KeysInput, OneQueue
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint

QueueKey = Annotated[str, Meta(max_length=10_000, description="A key of the queue, such as a tenant.")]


class OneKey(OneQueue, kw_only=True):
    """One key of a queue."""

    key: QueueKey


class KeyWeight(OneKey, kw_only=True):
    """How many turns a key takes while another one takes one."""

    weight: Annotated[float, Meta(ge=0.001, le=1000)]


class KeyLimitInput(OneKey, kw_only=True):
    """How many jobs of a key may run at once; null for what the code declares."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None


async def _keyed(call: Call[OneKey] | Call[KeyWeight] | Call[KeyLimitInput]) -> str:
    """The name of the queue that was sent. Raises Refusal if it has no keys."""
    name = call.sent.name
    if not (await call.admin.queue_keys(name, most=1, read=1)).by:
        text = f"The queue {name[:80]!r} has no keys."
        raise Refusal(404, text, "GET /api/v1/queue/keys lists those of a queue.", code="unknown_queue")
    return name


async def _keys(call: Call[KeysInput]) -> KeysView:
    return await call.admin.queue_keys(call.sent.name, most=call.sent.most, sort=call.sent.sort)


async def _weight(call: Call[KeyWeight]) -> Outcome:
    return done(await call.admin.set_weight(await _keyed(call), call.sent.key, call.sent.weight))


async def _limit(call: Call[KeyLimitInput]) -> Outcome:
    return done(await call.admin.limit_key(await _keyed(call), call.sent.key, call.sent.limit))


async def _pause(call: Call[OneKey]) -> Outcome:
    return done(await call.admin.pause_key(await _keyed(call), call.sent.key))


async def _resume(call: Call[OneKey]) -> Outcome:
    return done(await call.admin.resume_key(await _keyed(call), call.sent.key))


async def _purge(call: Call[OneKey]) -> Tally:
    return await call.admin.purge_key(await _keyed(call), call.sent.key)


ENDPOINTS = (
    Endpoint("GET", "/queue/keys", "queues", "The keys of a queue that have waiting jobs, those with most jobs first.", _keys, KeysView, KeysInput),
    Endpoint("POST", "/key/weight", "queues", "Set how many turns a key takes while another one takes one.", _weight, Outcome, KeyWeight, finds=True),
    Endpoint("POST", "/key/limit", "queues", "Limit how many jobs of a key run at once.", _limit, Outcome, KeyLimitInput, finds=True),
    Endpoint("POST", "/key/pause", "queues", "Fetch no more jobs of a key.", _pause, Outcome, OneKey, finds=True),
    Endpoint("POST", "/key/resume", "queues", "Fetch jobs of a paused key again.", _resume, Outcome, OneKey, finds=True),
    Endpoint("POST", "/key/purge", "queues", "Delete the waiting jobs of a key; the bin keeps them for ten minutes.", _purge, Tally, OneKey, finds=True),
)  # fmt: skip

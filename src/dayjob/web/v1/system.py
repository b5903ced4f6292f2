"""The rest of the API: the verdict, schedules, metrics, the server, the audit, broken entries, autoscaling."""

from __future__ import annotations

from typing import Any

import msgspec

from dayjob.admin.scale import Scale
from dayjob.admin.timeline_views import Timeline
from dayjob.admin.views import (
    AuditEntry,
    BrokenEntry,
    Metrics,
    Outcome,
    Periodic,
    RedisView,
    Throughput,
    Verdict,
)
from dayjob.version import __version__
from dayjob.web.options import Role
from dayjob.web.responses import Refusal, broken_text
from dayjob.web.v1.inputs import (
    AuditSlice,
    BrokenSlice,
    DeletedEntry,
    Drain,
    EventsInput,
    Hours,
    MetricsInput,
    Repaired,
    ScheduleInput,
    SchedulesInput,
)
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint, Nothing


class Me(msgspec.Struct, frozen=True):
    """The user of this request, and what they may do."""

    namespace: str
    title: str
    version: str
    actor: str
    role: Role
    read_only: bool
    #: Whether they can change anything.
    may_act: bool


class BrokenView(msgspec.Struct, frozen=True):
    """Bytes that could not be read as a job."""

    index: int
    #: Identifies the entry in an action, together with its index.
    digest: str
    at: float | None
    where: str
    why: str
    text: str


class BrokenViews(msgspec.Struct, frozen=True):
    """Some broken entries, oldest first."""

    total: int
    entries: list[BrokenView]
    #: How many were compared for a sort; 0 where it is the order of all.
    sorted_among: int = 0


async def _me(call: Call[Nothing]) -> Any:
    console, request = call.console, call.request
    return {
        "namespace": console.admin.namespace, "title": console.options.title, "version": __version__,
        "actor": console.actor_of(request), "role": console.role_of(request), "read_only": console.options.read_only,
        "may_act": console.may_act(request),
    }  # fmt: skip


async def _verdict(call: Call[Nothing]) -> Verdict:
    return await call.admin.verdict()


async def _periodic(call: Call[SchedulesInput]) -> tuple[Periodic, ...]:
    return await call.admin.periodic(sort=call.sent.sort)


async def _run(call: Call[ScheduleInput]) -> Outcome:
    return done(await call.admin.run_schedule(call.sent.name))


async def _pause(call: Call[ScheduleInput]) -> Outcome:
    return done(await call.admin.pause_schedule(call.sent.name))


async def _resume(call: Call[ScheduleInput]) -> Outcome:
    return done(await call.admin.resume_schedule(call.sent.name))


async def _metrics(call: Call[MetricsInput]) -> Metrics:
    sent = call.sent
    return await call.admin.metrics(sent.hours, name=sent.name, most=sent.most, sort=sent.sort)


async def _throughput(call: Call[Hours]) -> Throughput:
    return await call.admin.throughput(call.sent.hours)


async def _redis(call: Call[Nothing]) -> RedisView:
    return await call.admin.redis()


async def _audit(call: Call[AuditSlice]) -> tuple[AuditEntry, ...]:
    sent = call.sent
    return await call.admin.audit(offset=sent.offset, size=sent.size, about=sent.about, sort=sent.sort)


async def _events(call: Call[EventsInput]) -> Timeline:
    sent = call.sent
    return await call.admin.events(
        kinds=[sent.kind] if sent.kind else [], pool=sent.pool, name=sent.name, actor=sent.actor,
        since=sent.since, until=sent.until, offset=sent.offset, size=sent.size, sort=sent.sort,
    )  # fmt: skip


async def _scale(call: Call[Drain]) -> Scale:
    return await call.admin.scale(call.sent.within)


# Broken entries.


async def _broken(call: Call[BrokenSlice]) -> Any:
    page = await call.admin.broken(offset=call.sent.offset, size=call.sent.size, sort=call.sent.sort)
    entries = [
        {
            "index": entry.index, "digest": entry.digest, "at": entry.at, "where": entry.where, "why": entry.why,
            "text": broken_text(entry),
        }
        for entry in page.entries
    ]  # fmt: skip
    return {"total": page.total, "entries": entries, "sorted_among": page.sorted_among}


async def _entry(call: Call[Any]) -> BrokenEntry:
    """The entry that was seen. Raises Refusal when it is not there any more."""
    page = await call.admin.broken(offset=call.sent.index, size=1)
    if not page.entries or page.entries[0].digest != call.sent.digest:
        raise Refusal(
            409, "The entry no longer exists. Nothing was changed.", "Reload the list.", code="moved"
        )
    return page.entries[0]


async def _drop(call: Call[DeletedEntry]) -> Outcome:
    return done(await call.admin.delete_broken(await _entry(call), undo=call.sent.undo))


async def _repair(call: Call[Repaired]) -> Outcome:
    return done(await call.admin.repair(await _entry(call), call.sent.payload.encode()))


async def _openapi(call: Call[Nothing]) -> dict[str, Any]:
    described: dict[str, Any] = call.request.app.state.openapi
    return {**described, "servers": [{"url": call.request.scope.get("root_path", "") or "/"}]}


ENDPOINTS = (
    Endpoint("GET", "/me", "console", "The user of this request, and what they may do.", _me, Me),
    Endpoint("GET", "/verdict", "console", "What is wrong, worst first.", _verdict, Verdict),
    Endpoint("GET", "/periodic", "periodic", "The schedules, in English, with their next ticks.", _periodic, tuple[Periodic, ...], SchedulesInput),
    Endpoint("POST", "/periodic/run", "periodic", "Enqueue the job of a schedule now, in addition to its ticks.", _run, Outcome, ScheduleInput, finds=True, moves=True),
    Endpoint("POST", "/periodic/pause", "periodic", "Pause a schedule: its ticks enqueue nothing.", _pause, Outcome, ScheduleInput, finds=True, moves=True),
    Endpoint("POST", "/periodic/resume", "periodic", "Resume a paused schedule.", _resume, Outcome, ScheduleInput, finds=True, moves=True),
    Endpoint("GET", "/metrics", "figures", "Throughput, failures, wait and run times by job name.", _metrics, Metrics, MetricsInput),
    Endpoint("GET", "/throughput", "figures", "Completed, failed and waiting jobs over time, for all jobs together.", _throughput, Throughput, Hours),
    Endpoint("GET", "/scale", "figures", "Whether there are enough workers, in a sentence and in figures for an autoscaler.", _scale, Scale, Drain),
    Endpoint("GET", "/redis", "figures", "The state of the Redis server.", _redis, RedisView),
    Endpoint("GET", "/audit", "console", "Who did what, newest first.", _audit, tuple[AuditEntry, ...], AuditSlice),
    Endpoint("GET", "/events", "console", "What the system and its operators did, newest first.", _events, Timeline, EventsInput),
    Endpoint("GET", "/broken", "broken", "Entries that could not be read as jobs.", _broken, BrokenViews, BrokenSlice),
    Endpoint("POST", "/broken/delete", "broken", "Delete a broken entry.", _drop, Outcome, DeletedEntry, moves=True),
    Endpoint("POST", "/broken/repair", "broken", "Put a repaired version of a broken entry into its queue.", _repair, Outcome, Repaired, moves=True),
    Endpoint("GET", "/openapi.json", "console", "This document.", _openapi, dict[str, Any]),
)  # fmt: skip

"""One pool, one schedule and one group of failures over the API."""

from __future__ import annotations

from dayjob.admin.detail_views import GroupDetail, PoolDetail, ScheduleDetail
from dayjob.admin.views import Outcome
from dayjob.web.responses import Refusal
from dayjob.web.v1.inputs import GroupIgnore, GroupNote, OneGroup, OnePool, ScheduleInput
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint


async def _pool(call: Call[OnePool]) -> PoolDetail:
    return await call.admin.pool(call.sent.pool)


async def _schedule(call: Call[ScheduleInput]) -> ScheduleDetail:
    return await call.admin.schedule(call.sent.name)


async def _group(call: Call[OneGroup]) -> GroupDetail:
    found = await call.admin.failure_group(call.sent.name, call.sent.kind)
    if found is None:
        text = f"No job of {call.sent.name[:200]!r} is in retry or dead with this error."
        raise Refusal(404, text, "GET /api/v1/failures lists the groups.", code="unknown_failure")
    return found


async def _note(call: Call[GroupNote]) -> Outcome:
    return done(await call.admin.note_group(call.sent.name, call.sent.kind, call.sent.text))


async def _ignore(call: Call[GroupIgnore]) -> Outcome:
    return done(await call.admin.ignore_group(call.sent.name, call.sent.kind, call.sent.seconds))


ENDPOINTS = (
    Endpoint("GET", "/pool", "pools", "One pool: its status, its busy workers, what it ended, what operators did to it.", _pool, PoolDetail, OnePool, finds=True),
    Endpoint("GET", "/schedule", "periodic", "One schedule: its ticks, how its jobs ended, the pools that have it, what operators did to it.", _schedule, ScheduleDetail, ScheduleInput, finds=True),
    Endpoint("GET", "/failures/group", "failures", "One group of failures: its newest jobs, when and where they failed, its note.", _group, GroupDetail, OneGroup, finds=True),
    Endpoint("POST", "/failures/note", "failures", "Write a note on a group of failures.", _note, Outcome, GroupNote),
    Endpoint("POST", "/failures/ignore", "failures", "Hide a group of failures from the lists for a time.", _ignore, Outcome, GroupIgnore),
)  # fmt: skip

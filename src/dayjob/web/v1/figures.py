"""The data of the charts over the API: how times are spread, the server and the fleet over time, what will run."""

from __future__ import annotations

from dayjob.admin.views import Calendar, JobSpread, Vitals
from dayjob.admin.views.payloads import PayloadSizes
from dayjob.web.v1 import details
from dayjob.web.v1.inputs import CalendarInput, Hours, PayloadsInput, SpreadInput
from dayjob.web.v1.table import Call, Endpoint


async def _spread(call: Call[SpreadInput]) -> JobSpread:
    return await call.admin.spread(call.sent.name, call.sent.hours)


async def _vitals(call: Call[Hours]) -> Vitals:
    return await call.admin.vitals(call.sent.hours)


async def _calendar(call: Call[CalendarInput]) -> Calendar:
    return await call.admin.calendar(call.sent.hours, since=call.sent.since, sort=call.sent.sort)


async def _payloads(call: Call[PayloadsInput]) -> PayloadSizes:
    return await call.admin.payloads(sort=call.sent.sort)


ENDPOINTS = (
    *details.ENDPOINTS,
    Endpoint("GET", "/payloads", "figures", "How large the payloads of stored jobs are, and the largest of them.", _payloads, PayloadSizes, PayloadsInput),
    Endpoint("GET", "/calendar", "periodic", "What will run in the next hours: scheduled jobs, retries and ticks.", _calendar, Calendar, CalendarInput),
    Endpoint("GET", "/spread", "figures", "How the wait and run times of one job name are spread, by minute and in all.", _spread, JobSpread, SpreadInput),
    Endpoint("GET", "/vitals", "figures", "Memory, round trips, workers and sets over time, as the leader measured them.", _vitals, Vitals, Hours),
)  # fmt: skip

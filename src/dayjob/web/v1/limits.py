"""Rate limits over the API: the list; set, lift, restore, reset and hold one."""

from __future__ import annotations

from dayjob.admin.limits import LimitView
from dayjob.admin.views import Outcome
from dayjob.web.v1.inputs import LimitHold, OneLimit, RateSetting
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint, Nothing


async def _limits(call: Call[Nothing]) -> tuple[LimitView, ...]:
    return await call.admin.limits()


async def _limit(call: Call[OneLimit]) -> LimitView:
    return await call.admin.limit_of(call.sent.name)


async def _set(call: Call[RateSetting]) -> Outcome:
    sent = call.sent
    return done(await call.admin.set_rate(sent.name, sent.n, per=sent.per, burst=sent.burst))


async def _lift(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.lift_limit(call.sent.name))


async def _restore(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.restore_limit(call.sent.name))


async def _reset(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.reset_limit(call.sent.name))


async def _hold(call: Call[LimitHold]) -> Outcome:
    return done(await call.admin.hold_limit(call.sent.name, call.sent.seconds))


ENDPOINTS = (
    Endpoint("GET", "/limits", "limits", "The rate limits: what each allows, uses and keeps back.", _limits, tuple[LimitView, ...]),
    Endpoint("GET", "/limit", "limits", "One rate limit.", _limit, LimitView, OneLimit),
    Endpoint("POST", "/limit/set", "limits", "Set a rate limit for all pools.", _set, Outcome, RateSetting),
    Endpoint("POST", "/limit/lift", "limits", "Let jobs start as if there were no such limit.", _lift, Outcome, OneLimit),
    Endpoint("POST", "/limit/restore", "limits", "Put what the code declares into force again.", _restore, Outcome, OneLimit),
    Endpoint("POST", "/limit/reset", "limits", "Forget what a limit has counted, and end a hold.", _reset, Outcome, OneLimit),
    Endpoint("POST", "/limit/hold", "limits", "Let no job start under a limit for some seconds.", _hold, Outcome, LimitHold),
)  # fmt: skip

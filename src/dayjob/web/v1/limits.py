"""Rate limits over the API: the list; set, lift, restore, reset and hold one."""

from __future__ import annotations

from dayjob.admin.views import Outcome
from dayjob.admin.views.limits import LimitView
from dayjob.web.responses import Refusal
from dayjob.web.v1.inputs import LimitHold, LimitsInput, OneLimit, RateSetting
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint


async def _limits(call: Call[LimitsInput]) -> tuple[LimitView, ...]:
    return await call.admin.limits(sort=call.sent.sort)


async def _existing(call: Call[OneLimit] | Call[RateSetting] | Call[LimitHold]) -> str:
    """The name of the limit that was sent. Raises Refusal if there is no such limit."""
    name = call.sent.name
    if name not in {one.name for one in await call.admin.limits()}:
        text = f"There is no rate limit {name[:80]!r}."
        raise Refusal(404, text, "GET /api/v1/limits lists all.", code="unknown_limit")
    return name


async def _set(call: Call[RateSetting]) -> Outcome:
    sent = call.sent
    return done(
        await call.admin.set_rate(await _existing(call), sent.n, per=sent.per, burst=sent.burst, key=sent.key)
    )


async def _lift(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.lift_limit(await _existing(call), key=call.sent.key))


async def _restore(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.restore_limit(await _existing(call), key=call.sent.key))


async def _reset(call: Call[OneLimit]) -> Outcome:
    return done(await call.admin.reset_limit(await _existing(call), key=call.sent.key))


async def _hold(call: Call[LimitHold]) -> Outcome:
    return done(await call.admin.hold_limit(await _existing(call), call.sent.seconds, key=call.sent.key))


ENDPOINTS = (
    Endpoint("GET", "/limits", "limits", "The rate limits: what each allows and uses, and how many jobs wait for it.", _limits, tuple[LimitView, ...], LimitsInput),
    Endpoint("POST", "/limit/set", "limits", "Set a rate limit for all pools.", _set, Outcome, RateSetting, finds=True),
    Endpoint("POST", "/limit/lift", "limits", "Stop applying a rate limit, until it is set or restored.", _lift, Outcome, OneLimit, finds=True),
    Endpoint("POST", "/limit/restore", "limits", "Apply a rate limit as the code declares it.", _restore, Outcome, OneLimit, finds=True),
    Endpoint("POST", "/limit/reset", "limits", "Forget what a limit has counted, and end a hold.", _reset, Outcome, OneLimit, finds=True),
    Endpoint("POST", "/limit/hold", "limits", "Start no jobs under a rate limit for some seconds.", _hold, Outcome, LimitHold, finds=True),
)  # fmt: skip

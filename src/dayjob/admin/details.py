"""One pool and one schedule, each with what is known of it and what operators did to it. Reads only."""

from __future__ import annotations

from dayjob import cron
from dayjob.admin import history
from dayjob.admin.detail_views import PoolDetail, ScheduleDetail
from dayjob.admin.pools import busy, periodic
from dayjob.admin.session import Session, read_audit
from dayjob.admin.timeline import timeline
from dayjob.admin.views import Pool
from dayjob.errors import BadSchedule, UnknownPool, UnknownSchedule
from dayjob.names import suggest
from dayjob.store.ops import inspect, pools
from dayjob.store.steps import Steps, ask

#: How many actions and ticks are shown.
MAX_ACTIONS = 20
MAX_TICKS = 20
#: How many attempts that ended are read: of a schedule, and of a pool, whose page draws them.
MAX_ATTEMPTS = 20
MAX_OF_POOL = 100
#: Events that are about one pool.
POOL_EVENTS = ("started", "stopped", "died", "leader", "deploy")


def pool(session: Session, pool_id: str) -> Steps[PoolDetail]:
    """One pool, by its ID: status, busy workers, events, actions of operators, attempts that it ended. Raises UnknownPool."""
    now = yield from ask(inspect.now())
    lease = yield from ask(pools.lease(session.keys, pool_id))
    status = yield from ask(pools.status(session.keys, pool_id))
    died_at = yield from ask(pools.condemned_at(session.keys, pool_id))
    actions = yield from read_audit(session, about=f"pool {pool_id}", size=MAX_ACTIONS)
    shown = yield from timeline(session, kinds=POOL_EVENTS, pool=pool_id, size=MAX_ACTIONS)
    events = tuple(one for one in shown.events if one.pool == pool_id)
    if lease is None and died_at is None and status is None and not actions and not events:
        known = [one for one, _ in (yield from ask(pools.leases(session.keys)))]
        near = suggest(pool_id, known) or "; `dayjob pools ls` shows all"
        raise UnknownPool(f"no pool {pool_id[:200]!r}: it stopped, it died, or it never existed{near}")
    leader = yield from ask(pools.leader(session.keys))
    held = yield from ask(inspect.held_count(session.keys, pool_id))
    workers = (yield from busy(session, pool_id=pool_id)) if lease is not None else ()
    found = None if lease is None else Pool(pool_id, lease - now, status)
    ended = yield from history.history(session, pool=pool_id, limit=MAX_OF_POOL)
    return PoolDetail(
        now, pool_id, found, leader == pool_id, held, died_at, workers, actions, events, ended.records
    )


def schedule(session: Session, name: str) -> Steps[ScheduleDetail]:
    """One schedule, by its name: when it ticks next, how its jobs ended, which pools have it, what operators did to it. Raises UnknownSchedule."""
    known = {one.name: one for one in (yield from periodic(session))}
    if name not in known:
        near = suggest(name, list(known)) or "; dayjob periodic ls shows all"
        raise UnknownSchedule(f'no schedule "{name[:200]}"{near}')
    found = known[name]
    registered = yield from pools.pools(session.keys)
    having = tuple(
        one.id for one in registered if one.status is not None and name in (one.status.schedules or ())
    )
    now = yield from ask(inspect.now())
    actions = yield from read_audit(session, about=f"schedule {name}", size=MAX_ACTIONS)
    own = tuple(one for one in actions if one.subject == f"schedule {name}")
    fired = yield from timeline(session, kinds=("tick",), name=name, size=MAX_TICKS)
    ticks = tuple(one for one in fired.events if one.schedule == name)
    runs = yield from history.history(session, found.job, schedule=name, limit=MAX_ATTEMPTS)
    coming = _next(found.spec, found.timezone, now) if found.live else ()
    return ScheduleDetail(now, found, having, coming, own, ticks, runs.records)


def _next(spec: str, timezone: str | None, now: float) -> tuple[float, ...]:
    ticks: list[float] = []
    try:
        rule = cron.parse(spec, timezone)
    except BadSchedule:
        # Its description shows what is wrong with it.
        return ()
    at = rule.next_after(int(now))
    while at is not None and len(ticks) < MAX_TICKS:
        ticks.append(float(at))
        at = rule.next_after(at)
    return tuple(ticks)

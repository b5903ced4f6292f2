"""Pools and what their workers do; schedules, which pools announce."""

from __future__ import annotations

from dayjob import cron
from dayjob.admin.desk import Desk, outcome
from dayjob.admin.views import BusyWorker, Outcome, Periodic, PoolsView
from dayjob.errors import BadOption, BadSchedule
from dayjob.options import suggest
from dayjob.redact import shown
from dayjob.store import codec
from dayjob.store.ops import inspect, operate, pools
from dayjob.store.steps import Steps, ask

#: How many coming ticks of a schedule are shown.
NEXT = 5


def listing(desk: Desk) -> Steps[PoolsView]:
    """The pools with what each says of itself, the condemned ones, and the leader. Statuses are one read."""
    registered = yield from pools.pools(desk.keys)
    condemned = yield from pools.condemned(desk.keys)
    leader = yield from ask(pools.leader(desk.keys))
    return PoolsView(tuple(registered), tuple(condemned), leader)


def busy(desk: Desk) -> Steps[tuple[BusyWorker, ...]]:
    """The workers that have run a job for longer than a moment, the longest first."""
    now = yield from ask(inspect.now())
    registered = yield from pools.pools(desk.keys)
    found = [
        BusyWorker(pool.id, pool.status.host, pool.status.pid, worker, max(0.0, now - worker.started_at))
        for pool in registered
        if pool.status is not None
        for worker in pool.status.workers
    ]
    return tuple(sorted(found, key=lambda one: -one.running_for))


# Schedules.


def periodic(desk: Desk) -> Steps[tuple[Periodic, ...]]:
    """The schedules that ever ticked: in English, with their next ticks."""
    found = yield from ask(inspect.schedules(desk.keys))
    now = yield from ask(inspect.now())
    return tuple(_periodic(desk, schedule, now) for schedule in found)


def _periodic(desk: Desk, schedule: inspect.Schedule, now: float) -> Periodic:
    english = ""
    ticks: list[float] = []
    if schedule.spec:
        try:
            rule = cron.parse(schedule.spec, schedule.timezone)
            english = cron.describe(rule)
            at: int | None = int(now)
            while len(ticks) < NEXT and at is not None:
                at = rule.next_after(at)
                if at is not None:
                    ticks.append(float(at))
        except BadSchedule as error:
            english = f"cannot be read: {error}"
    try:
        args = shown(codec.json_value(schedule.args), desk.hide) if schedule.args else None
    except codec.UNREADABLE:
        args = None
    return Periodic(
        schedule.name, schedule.job, schedule.spec, schedule.timezone, english, schedule.paused, schedule.missed, args,
        float(schedule.last) or None, tuple(ticks),
    )  # fmt: skip


def run_schedule(desk: Desk, name: str) -> Steps[Outcome]:
    """Enqueue the job of a schedule now, beside its ticks. Raises BadOption."""
    schedule = yield from _schedule(desk, name)
    now = yield from ask(inspect.now())
    job_id, op = operate.run_schedule(desk.keys, schedule, now=now)
    yield from ask(op)
    return (yield from outcome(desk, "run", f"schedule {name}", done=True, says=f"Enqueued as {job_id}."))


def pause_schedule(desk: Desk, name: str) -> Steps[Outcome]:
    """Let a schedule tick without enqueueing. Raises BadOption."""
    yield from _schedule(desk, name)
    done = (yield from ask(operate.pause_schedule(desk.keys, name))) == "changed"
    says = "Paused." if done else "It was paused already. Nothing was changed."
    return (yield from outcome(desk, "pause", f"schedule {name}", done=done, says=says))


def resume_schedule(desk: Desk, name: str) -> Steps[Outcome]:
    """Let a paused schedule enqueue again, from its next tick on. Raises BadOption."""
    yield from _schedule(desk, name)
    done = (yield from ask(operate.resume_schedule(desk.keys, name))) == "changed"
    says = "Resumed." if done else "It was not paused. Nothing was changed."
    return (yield from outcome(desk, "resume", f"schedule {name}", done=done, says=says))


def _schedule(desk: Desk, name: str) -> Steps[inspect.Schedule]:
    known = {one.name: one for one in (yield from ask(inspect.schedules(desk.keys)))}
    if name not in known:
        near = suggest(name, list(known))
        raise BadOption(f"no schedule {name!r}{near or '; dayjob periodic ls shows all'}")
    return known[name]

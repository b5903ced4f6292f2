"""Pools: their workers, and the actions on them. Schedules, which pools announce."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from dayjob import cron
from dayjob.admin import sorting
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import DONE_OR_ALREADY, Session, outcome
from dayjob.admin.views import (
    BusyWorker,
    Outcome,
    OutcomeKind,
    Periodic,
    Pool,
    PoolsView,
    Stacks,
    WorkerStack,
    WorkerStatus,
)
from dayjob.errors import BadSchedule, UnknownSchedule
from dayjob.names import suggest
from dayjob.store import codec
from dayjob.store.ops import inspect, operate, pools
from dayjob.store.ops.pools import Status
from dayjob.store.steps import Steps, ask

#: Seconds of one wait for a pool's answer.
WAIT_SECONDS = 1.0
#: How many busy workers are shown.
MAX_BUSY = 10_000
#: How many coming ticks of a schedule are shown.
SHOWN_TICKS = 5


def listing(session: Session, *, workers: bool = True, sort: str = "") -> Steps[PoolsView]:
    """The pools with their statuses, the condemned ones, and the leader. All statuses are read in one request.

    `workers=False` leaves out the busy workers, which are most of the answer if there are many pools. By host, or
    sorted by another column: `-memory`. Raises BadOption.
    """
    sorting.POOLS.read(sort)
    registered = yield from _registered(session, workers=workers)
    condemned = yield from pools.condemned(session.keys)
    leader = yield from ask(pools.leader(session.keys))
    return PoolsView(tuple(sorting.POOLS.sorted(registered, sort)), tuple(condemned), leader)


def busy(
    session: Session,
    *,
    pool_id: str | None = None,
    name: str | None = None,
    most: int = MAX_BUSY,
    sort: str = "",
) -> Steps[tuple[BusyWorker, ...]]:
    """The workers that have run a job for more than 0.5 s; 10,000 at most.

    Of all pools or of one; of all job names or of one. Those that have run longest come first; or sorted by another
    column: `left`. Raises BadOption.
    """
    sorting.BUSY.read(sort)
    now = yield from ask(inspect.now())
    if pool_id is None:
        registered = yield from pools.pools(session.keys)
        reported = [(pool.id, pool.status) for pool in registered if pool.status is not None]
        stale = {pool.id for pool in registered if pool.lease <= 0}
    else:
        status = yield from ask(pools.status(session.keys, pool_id))
        reported = [] if status is None else [(pool_id, status)]
        stale = set()
    everyone = [
        BusyWorker(id_, status.host, status.pid, worker, max(0.0, now - worker.started_at), id_ in stale)
        for id_, status in reported
        for worker in status.workers
        if name in (None, worker.name)
    ]
    some = sorting.BUSY.sorted(everyone, sort)[: max(0, min(most, MAX_BUSY))]
    redactor = Redactor(session)
    yield from redactor.learn(one.worker.name for one in some)
    return tuple(replace(one, worker=_veiled(redactor, one.worker)) for one in some)


def _registered(session: Session, *, workers: bool) -> Steps[list[Pool]]:
    """The pools with redacted arguments. A pool itself hides only what its own code names."""
    registered = yield from pools.pools(session.keys)
    redactor = Redactor(session)
    reported = [pool.status for pool in registered if pool.status is not None] if workers else []
    yield from redactor.learn(worker.name for status in reported for worker in status.workers)
    return [
        pool
        if pool.status is None or not pool.status.workers
        else replace(pool, status=_shown(redactor, pool.status, workers=workers))
        for pool in registered
    ]


def _shown(redactor: Redactor, status: Status, *, workers: bool) -> Status:
    shown = tuple(_veiled(redactor, one) for one in status.workers) if workers else ()
    return msgspec.structs.replace(status, workers=shown)


def _veiled(redactor: Redactor, worker: WorkerStatus) -> WorkerStatus:
    return msgspec.structs.replace(worker, args=redactor.plain(worker.name, worker.args))


# Actions on a pool.


def quiet(session: Session, pool_id: str) -> Steps[Outcome]:
    """Ask a pool to fetch no more jobs, from its next heartbeat on. Its running jobs continue."""
    return (yield from _wish(session, "quiet", pool_id, "It fetches nothing more"))


def resume(session: Session, pool_id: str) -> Steps[Outcome]:
    """Ask a quiet pool to fetch jobs again, from its next heartbeat on."""
    return (yield from _wish(session, "resume", pool_id, "It fetches jobs again"))


def stop(session: Session, pool_id: str) -> Steps[Outcome]:
    """Ask a pool to stop at its next heartbeat, as after SIGTERM. Its parent does not restart the process."""
    return (yield from _wish(session, "stop", pool_id, "It stops"))


def _wish(session: Session, what: operate.PoolRequest, pool_id: str, does: str) -> Steps[Outcome]:
    status = (yield from ask(pools.status(session.keys, pool_id))) if pool_id else None
    subject = f"pool {pool_id}" + (f" ({status.host}, pid {status.pid})" if status else "")
    wished = (yield from ask(operate.ask_pool(session.keys, pool_id, what))) if pool_id else "gone"
    kind: OutcomeKind = "done"
    message = f"{does} at its next heartbeat, within {status.beat if status else 5:g} s."
    if wished == "gone":
        kind, message = "not_found", "There is no such pool any more: it stopped, or it died."
    elif wished == "already":
        kind, message = "already", "It was asked that already."
    return (yield from outcome(session, what, subject, kind, message))


def stacks(session: Session, pool_id: str, *, wait: float = 10.0) -> Steps[Stacks | None]:
    """The stack traces of the busy workers of a pool.

    Waits up to `wait` seconds, at most a minute, for the next heartbeat of the pool. None if the pool is gone, or does
    not answer in that time.
    """
    if (yield from ask(operate.ask_pool(session.keys, pool_id, "stacks"))) == "gone":
        return None
    # In slices, so that no answer is waited for longer than any other.
    for _ in range(math.ceil(min(max(wait, WAIT_SECONDS), 60.0) / WAIT_SECONDS)):
        raw = yield from ask(pools.wait_stacks(session.keys, pool_id, WAIT_SECONDS))
        if raw is not None:
            return _stacks(pool_id, raw)
    return None


class _StackReport(msgspec.Struct):
    at: float
    workers: tuple[WorkerStack, ...]


def _stacks(pool_id: str, raw: bytes) -> Stacks | None:
    try:
        report = msgspec.json.decode(raw, type=_StackReport)
    except codec.UNREADABLE:
        return None
    return Stacks(pool_id, report.at, report.workers)


# Schedules.


def periodic(session: Session, *, sort: str = "") -> Steps[tuple[Periodic, ...]]:
    """All schedules that a pool ever announced: in English, with their last and next ticks. Raises BadOption."""
    sorting.PERIODIC.read(sort)
    found = yield from ask(inspect.schedules(session.keys))
    now = yield from ask(inspect.now())
    redactor = Redactor(session)
    yield from redactor.learn(schedule.job for schedule in found)
    live = (yield from live_schedules(session)) if found else set()
    views = (
        _periodic(redactor, schedule, now, live=live is None or schedule.name in live) for schedule in found
    )
    return tuple(sorting.PERIODIC.sorted(views, sort))


def live_schedules(session: Session) -> Steps[set[str] | None]:
    """Names of the schedules that live pools have; None when a live pool has not listed its own."""
    registered = yield from pools.pools(session.keys)
    live = [pool.status and pool.status.schedules for pool in registered if pool.lease > 0]
    if None in live:
        return None
    return {name for schedules in live for name in schedules or ()}


def _periodic(redactor: Redactor, schedule: inspect.StoredSchedule, now: float, *, live: bool) -> Periodic:
    english = ""
    ticks: list[float] = []
    if schedule.spec:
        try:
            rule = cron.parse(schedule.spec, schedule.timezone)
            english = cron.describe(rule)
            at: int | None = int(now)
            while live and len(ticks) < SHOWN_TICKS and at is not None:
                at = rule.next_after(at)
                if at is not None:
                    ticks.append(float(at))
        except BadSchedule as error:
            english = f"cannot be read: {error}"
    args = redactor.args(schedule.job, schedule.args) if schedule.args else None
    return Periodic(
        schedule.name, schedule.job, schedule.spec, schedule.timezone, english, schedule.paused, schedule.missed, args,
        None if schedule.ticked is None else float(schedule.ticked), tuple(ticks), schedule.paused_by, schedule.paused_at, live,
    )  # fmt: skip


def run_schedule(session: Session, name: str) -> Steps[Outcome]:
    """Enqueue the job of a schedule now, in addition to its ticks. Raises UnknownSchedule."""
    schedule = yield from _schedule(session, name)
    now = yield from ask(inspect.now())
    job_id, op = operate.run_schedule(session.keys, schedule, now=now)
    yield from ask(op)
    return (yield from outcome(session, "run", f"schedule {name}", "done", f"Enqueued as {job_id}."))


def pause_schedule(session: Session, name: str) -> Steps[Outcome]:
    """Let a schedule tick without enqueueing. Raises UnknownSchedule."""
    yield from _schedule(session, name)
    now = yield from ask(inspect.now())
    note = inspect.pause_text(now, session.actor)
    pause = operate.pause_schedule(session.keys, name, note=note, actor=session.actor)
    done = (yield from ask(pause)) == "changed"
    kind, message = DONE_OR_ALREADY["pause"][done]
    return (yield from outcome(session, "pause", f"schedule {name}", kind, message))


def resume_schedule(session: Session, name: str) -> Steps[Outcome]:
    """Let a paused schedule enqueue again, from its next tick on. Raises UnknownSchedule."""
    yield from _schedule(session, name)
    resume = operate.resume_schedule(session.keys, name, actor=session.actor)
    done = (yield from ask(resume)) == "changed"
    kind, message = DONE_OR_ALREADY["resume"][done]
    return (yield from outcome(session, "resume", f"schedule {name}", kind, message))


def _schedule(session: Session, name: str) -> Steps[inspect.StoredSchedule]:
    known = {one.name: one for one in (yield from ask(inspect.schedules(session.keys)))}
    if name not in known:
        near = suggest(name, list(known))
        raise UnknownSchedule(f'no schedule "{name}"{near or "; dayjob periodic ls shows all"}')
    return known[name]

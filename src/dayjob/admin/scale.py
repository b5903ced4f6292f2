"""Scale: waiting jobs, jobs in and out per minute, and how many workers that needs; in figures and in one sentence. Reads only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dayjob.admin.metrics import RECENT_MINUTES
from dayjob.admin.needs import Need, QueueLoad, capacity_sentence, needs
from dayjob.admin.queues import listing
from dayjob.admin.session import Session
from dayjob.admin.views import DrainTime, Pool, QueuesView, QueueView
from dayjob.explain.obstacles import Fleet
from dayjob.store.ops import pools
from dayjob.store.ops.figures import Minute
from dayjob.store.steps import Steps

#: Seconds in which the backlog should be cleared, if the caller names no other number.
WITHIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class QueueScale:
    """One queue."""

    name: str
    waiting: int
    #: Seconds that its oldest job has waited; None when it is empty.
    oldest: float | None
    #: Jobs per minute, as in QueueView; None if the number of incoming jobs is not known.
    in_per_minute: float | None
    out_per_minute: float
    #: Workers that run its jobs, and workers that can. Workers stuck past their timeout are in neither.
    busy: int
    capacity: int
    #: About how many seconds one of its jobs takes; None if none has run recently.
    run_seconds: float | None
    paused: bool
    #: Workers needed for incoming jobs and for the backlog; None if the duration of a job is not known.
    wanted: int | None
    #: How long until it is empty.
    drain: DrainTime


@dataclass(frozen=True, slots=True)
class TotalScale:
    """All queues together. Paused queues want no workers."""

    waiting: int
    oldest: float | None
    in_per_minute: float
    out_per_minute: float
    #: Workers that run a job, and workers that can. Workers stuck past their timeout are in neither.
    busy: int
    capacity: int
    #: Workers that all queues need, plus one for each stuck worker, because it occupies a slot.
    wanted: int
    #: Workers whose job passed its timeout and does not end.
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The figures at one moment."""

    now: float
    #: Seconds in which the backlog should be cleared.
    within: float
    queues: tuple[QueueScale, ...]
    total: TotalScale
    #: Whether there are enough workers for the jobs that come in, and what is missing.
    sentence: str
    #: The queues that fall behind, or of which it is not known, worst first.
    needs: tuple[Need, ...]


def scale(session: Session, within: float = WITHIN_SECONDS) -> Steps[Scale]:
    """The figures of every queue, and whether the fleet has enough workers."""
    queues = yield from listing(session)
    registered = yield from pools.pools(session.keys)
    last = int(queues.now // 60)
    minutes = yield from session.minute_cache.minutes(range(last - RECENT_MINUTES, last + 1), queues.now)
    return scale_of(queues, tuple(registered), tuple(minutes), within)


def scale_of(
    listed: QueuesView, registered: tuple[Pool, ...], minutes: tuple[Minute, ...], within: float
) -> Scale:
    """The figures of every queue. By Little's law, running jobs = jobs per second x seconds per job."""
    queues = tuple(_queue(view, minutes, within) for view in listed.queues)
    fleet = Fleet(registered)
    open_ones = [queue for queue in queues if not queue.paused]
    stuck = sum(status.stuck for status in fleet.statuses)
    total = TotalScale(
        waiting=sum(queue.waiting for queue in queues),
        oldest=max((queue.oldest for queue in open_ones if queue.oldest is not None), default=None),
        in_per_minute=sum(queue.in_per_minute or 0.0 for queue in queues),
        out_per_minute=sum(queue.out_per_minute for queue in queues),
        busy=max(0, sum(sum(status.running.values()) for status in fleet.statuses) - stuck),
        capacity=sum(max(0, status.concurrency - status.stuck) for status in fleet.fetching),
        # A worker runs jobs of any queue, so fractions add up. If the duration of a job is not known, one worker is enough to learn it.
        wanted=math.ceil(sum(_load(view, minutes, within) or 0.0 for view in listed.queues) - 1e-9)
        or int(any(queue.waiting for queue in open_ones)),
        stuck=stuck,
    )
    if total.wanted:
        total = replace(total, wanted=total.wanted + stuck)
    loads = [QueueLoad(view, _run_seconds(view.queue.name, minutes)) for view in listed.queues]
    found = needs(loads, fleet)
    return Scale(listed.now, within, queues, total, capacity_sentence(loads, found, fleet), found)


def _queue(view: QueueView, minutes: tuple[Minute, ...], within: float) -> QueueScale:
    load = _load(view, minutes, within)
    return QueueScale(
        view.queue.name, view.queue.size, view.queue.age, view.incoming, view.out, view.running, max(0, view.workers - view.stuck),
        _run_seconds(view.queue.name, minutes), view.queue.paused, None if load is None else math.ceil(load - 1e-9),
        view.drain,
    )  # fmt: skip


def _load(view: QueueView, minutes: tuple[Minute, ...], within: float) -> float | None:
    """How many workers a queue needs, at most its limit. None if the duration of a job is not known."""
    if view.queue.paused:
        return 0.0
    seconds = _run_seconds(view.queue.name, minutes)
    if seconds is None:
        return None if view.queue.size else 0.0
    incoming = view.out if view.incoming is None else view.incoming
    wanted = (incoming / 60 + view.queue.size / within) * seconds
    return wanted if view.queue.limit is None else min(wanted, view.queue.limit)


def _run_seconds(name: str, minutes: tuple[Minute, ...]) -> float | None:
    found = [minute.times.run(name) for minute in minutes]
    number = sum(histogram.count for histogram in found)
    return sum(histogram.seconds for histogram in found) / number if number else None

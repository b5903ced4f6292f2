"""Queues: the list of all, the details of one, and the actions on one."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field

from dayjob.admin import sorting
from dayjob.admin.bin import ended, new_deletion
from dayjob.admin.failures import groups_of
from dayjob.admin.job_lists import page
from dayjob.admin.job_types import one as job_type
from dayjob.admin.limits import of_queue
from dayjob.admin.metrics import RECENT_MINUTES, RecentWindow, failing, growth, pairs, totals_of, window
from dayjob.admin.pools import busy, periodic
from dayjob.admin.session import DONE_OR_ALREADY, Session, outcome, write_audit
from dayjob.admin.views import (
    BulkProgress,
    DrainTime,
    Outcome,
    Quantiles,
    QueueDetail,
    QueueMinute,
    QueuesView,
    QueueView,
    Tally,
)
from dayjob.errors import Rejected, UnknownQueue
from dayjob.explain.obstacles import UNATTENDED, Fleet, ObstacleKind, obstacle
from dayjob.names import check_name, suggest
from dayjob.store.keys import Keys
from dayjob.store.ops import figures, inspect, job_types, maintain, operate, pools, rollups
from dayjob.store.ops.figures import Counts, Minute, Times
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

#: Jobs that one step of a purge deletes.
PURGE_STEP = 1000
#: How many running jobs the page of a queue shows.
MAX_BUSY_SHOWN = 50
#: How many of the newest jobs of a queue are searched for those of the last minute.
MAX_GALLOPED = 1 << 20
#: A queue whose size changes by fewer jobs a minute than this neither grows nor drains.
MIN_CHANGE = 0.5


def listing(session: Session, *, sort: str = "") -> Steps[QueuesView]:
    """Every queue: size, age, pause, limit, workers, jobs in and out per minute, and failures.

    By name, or sorted by another column: `-waiting`. Raises BadOption.
    """
    sorting.QUEUES.read(sort)
    overview = yield from inspect.all_queues(session.keys)
    fleet = Fleet((yield from pools.pools(session.keys)))
    last = int(overview.now // 60)
    minutes = yield from session.minute_cache.minutes(range(last - RECENT_MINUTES, last + 1), overview.now)
    recent = window([minute.counts for minute in minutes], overview.now)
    crew = _crew(fleet)
    views = (_view(queue, fleet, crew, recent, minutes, overview.now) for queue in overview.queues)
    return QueuesView(overview.now, tuple(sorting.QUEUES.sorted(views, sort)))


def names(session: Session) -> Steps[tuple[str, ...]]:
    """The names of all queues, without reading any of them."""
    return tuple(sorted((yield from ask(maintain.known_jobs(session.keys)))))


@dataclass(slots=True)
class _Crew:
    """By job name: workers that can run it, how many of them are stuck, and running attempts."""

    workers: dict[str, int] = field(default_factory=dict)
    stuck: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)


def _crew(fleet: Fleet) -> _Crew:
    crew = _Crew()
    for status in fleet.fetching:
        # A set, since a pool may have hundreds of names.
        plain = set(status.names) - set(status.async_names) if status.few_threads else ()
        for name in status.names:
            workers = status.threads if name in plain else status.concurrency
            crew.workers[name] = crew.workers.get(name, 0) + workers
            crew.stuck[name] = crew.stuck.get(name, 0) + min(status.stuck, workers)
    for status in fleet.statuses:
        for name, count in status.running.items():
            crew.running[name] = crew.running.get(name, 0) + count
    return crew


def _view(
    queue: inspect.Queue, fleet: Fleet, crew: _Crew, recent: RecentWindow, minutes: list[Minute], now: float
) -> QueueView:
    """`minutes` are those of the window, and some before it."""
    name = queue.name
    workers = crew.workers.get(name, 0)
    why = obstacle(queue, fleet)
    spent = sum(minute.times.run(name).seconds for minute in minutes[-len(recent.parts) :])
    grew = None if queue.wrong else growth(recent.parts, name, queue.size, now)
    return QueueView(
        queue,
        running=crew.running.get(name, 0),
        workers=workers,
        out=recent.out(name),
        incoming=None if queue.wrong else recent.incoming(name, queue.size),
        fails=recent.per_minute(sum(one.failed(name) for one in recent.parts)),
        failing=failing(recent.parts, name),
        utilisation=min(1.0, spent / (workers * recent.seconds)) if workers else None,
        stuck=crew.stuck.get(name, 0),
        obstacle=None if why is None else why.kind,
        growth=grew,
        drain=_drain(queue.size, grew, None if why is None else why.kind),
    )


def _drain(size: int, grew: float | None, obstacle: ObstacleKind | None) -> DrainTime:
    """How long until a queue of this size is empty."""
    if not size:
        return DrainTime("empty")
    if obstacle == "paused":
        return DrainTime("paused")
    if obstacle in UNATTENDED:
        return DrainTime("unattended")
    if grew is None or obstacle == "wrong_type":
        return DrainTime("unknown")
    if grew <= -MIN_CHANGE:
        return DrainTime("draining", seconds=size * 60 / -grew)
    return DrainTime("growing", growth=grew) if grew >= MIN_CHANGE else DrainTime("standing")


def detail(session: Session, name: str) -> Steps[QueueDetail]:
    """One queue: jobs in and out, wait and run times of the last hour, what waits, runs and fails. Raises UnknownQueue."""
    yield from _must_exist(session.keys, "show", name)
    overview = yield from inspect.overview(session.keys, [name])
    registered = yield from pools.pools(session.keys)
    last = int(overview.now // 60)
    minutes = yield from figures.minutes(session.keys, range(last - 60, last + 1), name)
    totals = yield from ask(figures.totals(session.keys))
    times = rollups.merged_times([minute.times for minute in minutes])
    queue = overview.queues[0]
    recent = window([minute.counts for minute in minutes[-RECENT_MINUTES - 1 :]], overview.now)
    fleet = Fleet(registered)
    view = _view(queue, fleet, _crew(fleet), recent, minutes, overview.now)
    able = [pool.id for pool in registered if pool.status is not None and name in pool.status.names]
    rough = 0.0
    if view.incoming is None and not queue.wrong:
        rough = yield from _incoming(session.keys, queue, overview.now, minutes[-2].times)
    following = () if queue.wrong else (yield from page(session, "waiting", name=name, size=10)).jobs
    running = yield from busy(session, name=name, most=MAX_BUSY_SHOWN)
    failed = yield from groups_of(session, name)
    schedules = tuple(one for one in (yield from periodic(session)) if one.job == name)
    described = yield from job_type(session, name)
    limits, per_key = yield from of_queue(session, name)
    return QueueDetail(
        overview.now, view, rough if view.incoming is None else view.incoming, Quantiles.of(times.wait(name)), Quantiles.of(times.run(name)),
        totals_of(totals, name), tuple(able), queue.paused_by, queue.paused_at, following,
        view.incoming is not None, _series([minute.counts for minute in minutes], name), running, failed, schedules, described, limits, per_key,
    )  # fmt: skip


def _series(counts: list[Counts], name: str) -> tuple[QueueMinute, ...]:
    return tuple(
        QueueMinute(
            one.minute * 60, figures.came_in(one, following, name), one.fetched(name), one.ran(name), one.failed(name),
            one.size(name), one.oldest(name),
        )
        for one, following in pairs(counts)[1:]
    )  # fmt: skip


def _incoming(keys: Keys, queue: inspect.Queue, now: float, times: Times) -> Steps[float]:
    """Jobs that came in within the last minute: those that still wait, and those in `times` that waited less than a minute."""
    fresh = yield from _younger(keys, queue, now - 60)
    waits = times.wait(queue.name).buckets
    quick = sum(n for bucket, n in waits.items() if figures.bucket_limit(bucket) <= 60)
    return float(fresh + quick)


def _younger(keys: Keys, queue: inspect.Queue, since: float) -> Steps[int]:
    """About how many jobs of a queue, to within a few percent, were enqueued after a time."""
    low, high = 0, 1
    while high <= min(queue.size, MAX_GALLOPED) and (yield from _after(keys, queue.name, high - 1, since)):
        low, high = high, high * 2
    high = min(high, queue.size)
    while high - low > 1 + low // 32:
        middle = (low + high) // 2
        if (yield from _after(keys, queue.name, middle - 1, since)):
            low = middle
        else:
            high = middle
    return low


def _after(keys: Keys, name: str, place: int, since: float) -> Steps[bool]:
    raw = yield from ask(inspect.queue_entry(keys, name, place))
    at = None if raw is None else inspect.enqueued_at(raw)
    return at is not None and at > since


def _must_exist(keys: Keys, verb: str, name: str, *, forced: str = "") -> Steps[None]:
    """Raises UnknownQueue for a name that was never enqueued or announced, and is neither paused nor limited."""
    known = yield from ask(maintain.known_jobs(keys))
    if name in known:
        return
    # A key of a wrong type must not keep an operator from pausing.
    with contextlib.suppress(Rejected):
        known = sorted({*known, *(yield from ask(job_types.names(keys)))})
    queue = (yield from ask(inspect.queues(keys, [name]))).queues[0]
    if name in known or queue.paused or queue.limit is not None:
        return
    near = suggest(name, known).replace("'", '"').removeprefix(". ")
    problem = f'cannot {verb} "{name}": no such queue in namespace "{keys.namespace}".'
    raise UnknownQueue(problem, near or "`dayjob queues ls` shows all.", forced)


# Actions.


def pause(session: Session, name: str, *, force: bool = False) -> Steps[Outcome]:
    """Stop fetching from a queue. Running jobs continue. `force` allows a queue that does not exist yet. Raises UnknownQueue."""
    check_name(name)
    if not force:
        yield from _must_exist(session.keys, "pause", name, forced="pause a queue that does not exist yet")
    note_ = inspect.pause_text((yield from ask(inspect.now())), session.actor)
    paused = yield from ask(operate.pause(session.keys, name, note=note_, actor=session.actor))
    kind, message = DONE_OR_ALREADY["pause"][paused]
    return (yield from outcome(session, "pause", f"queue {name}", kind, message))


def resume(session: Session, name: str) -> Steps[Outcome]:
    """Fetch from a queue again. Raises UnknownQueue."""
    yield from _must_exist(session.keys, "resume", name)
    lifted = yield from operate.resume(session.keys, name, actor=session.actor)
    kind, message = DONE_OR_ALREADY["resume"][lifted]
    return (yield from outcome(session, "resume", f"queue {name}", kind, message))


def pause_matching(session: Session, pattern: str) -> Steps[tuple[Outcome, ...]]:
    """Pause every queue that matches a pattern such as `mail.*` and is not paused; `*` is every queue. Raises UnknownQueue."""
    return (yield from _each(session, (yield from _matching(session, pattern, paused=False)), pause))


def resume_matching(session: Session, pattern: str) -> Steps[tuple[Outcome, ...]]:
    """Resume every paused queue that matches a pattern such as `mail.*`; `*` is every queue. Raises UnknownQueue."""
    return (yield from _each(session, (yield from _matching(session, pattern, paused=True)), resume))


def _each(
    session: Session, names: list[str], act: Callable[[Session, str], Steps[Outcome]]
) -> Steps[tuple[Outcome, ...]]:
    outcomes: tuple[Outcome, ...] = ()
    for name in names:
        outcomes += ((yield from act(session, name)),)
    return outcomes


def _matching(session: Session, pattern: str, *, paused: bool) -> Steps[list[str]]:
    """The queues that match, and are paused or not. Raises UnknownQueue if no queue at all matches."""
    overview = yield from inspect.all_queues(session.keys)
    found = [queue for queue in overview.queues if fnmatch.fnmatchcase(queue.name, pattern)]
    if not found:
        problem = f"no queue matches {pattern!r} in namespace {session.keys.namespace!r}."
        raise UnknownQueue(problem, "`dayjob queues ls` shows all.")
    return [queue.name for queue in found if queue.paused == paused]


def limit(session: Session, name: str, limit: int | None, *, force: bool = False) -> Steps[Outcome]:
    """Limit how many jobs of a name run at once in all pools; None removes the limit. Raises BadOption, UnknownQueue.

    With `force` also for a queue that does not exist yet.
    """
    check_name(name)
    if not force:
        yield from _must_exist(session.keys, "limit", name, forced="limit a queue that does not exist yet")
    yield from operate.set_concurrency_limit(session.keys, name, limit, actor=session.actor)
    message = "No limit any more." if limit is None else f"At most {limit:,} at once."
    return (yield from outcome(session, "limit", f"queue {name}", "done", message))


def purge(
    session: Session,
    name: str,
    *,
    progress: Callable[[BulkProgress], object] | None = None,
    undo: bool = True,
) -> Steps[Tally]:
    """Delete the jobs that wait in a queue when it begins, in bounded steps. Raises UnknownQueue.

    The bin keeps them for ten minutes; not with undo=False. When `progress` answers False, it stops there.
    """
    yield from _must_exist(session.keys, "purge", name)
    total = (yield from inspect.overview(session.keys, [name])).queues[0].size
    subject = f"queue {name}"
    yield from write_audit(session, "purge", subject, f"begun with {counted(total, 'job')}")
    deletion = new_deletion(session, "purge", subject, undo=undo)
    deleted = 0
    while deleted < total:
        most = min(PURGE_STEP, total - deleted)
        gone = yield from operate.purge(session.keys, name, most=most, deletion=deletion)
        deleted += gone
        stop = progress is not None and progress(BulkProgress(deleted, total, deleted, deleted)) is False
        if not gone or stop:
            break
    message = f"{counted(deleted, 'job')} deleted."
    audited = yield from write_audit(session, "purge", subject, message)
    return Tally(total, total, deleted, message, audited, (yield from ended(deletion, deleted)))

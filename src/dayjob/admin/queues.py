"""Queues: all of them, one with all that is known of it, and what can be done to one."""

from __future__ import annotations

from collections.abc import Callable

from dayjob.admin.desk import Desk, note, outcome
from dayjob.admin.jobs import page
from dayjob.admin.metrics import RECENT, failing, incoming, pairs, rate_of, totals_of
from dayjob.admin.views import (
    Outcome,
    Progress,
    Quantiles,
    QueueDetail,
    QueueMinute,
    QueuesView,
    QueueView,
    Tally,
)
from dayjob.errors import BadOption
from dayjob.options import check_name, suggest
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import figures, inspect, maintain, operate, pools
from dayjob.store.ops.figures import Histogram, Minute
from dayjob.store.steps import Steps, ask
from dayjob.wording import counted

#: Jobs that one step of a purge deletes.
PURGE_STEP = 1000
#: How deep jobs that came in lately are looked for.
MOST_GALLOPED = 1 << 20


def listing(desk: Desk) -> Steps[QueuesView]:
    """Every queue: size, age, pause, limit, how many workers it has, what comes in and goes out, and what fails."""
    overview = yield from inspect.all_queues(desk.keys)
    registered = yield from pools.pools(desk.keys)
    minutes = yield from _recent(desk, overview.now, RECENT)
    return QueuesView(overview.now, tuple(_view(queue, registered, minutes) for queue in overview.queues))


def _recent(desk: Desk, now: float, count: int, only: str | None = None) -> Steps[list[Minute]]:
    """The last whole minutes, and the one under way: its beginning is the end of the last."""
    last = int(now // 60)
    return (yield from figures.minutes(desk.keys, last - count, last, only))


def _view(queue: inspect.Queue, registered: list[pools.Pool], minutes: list[Minute]) -> QueueView:
    """`minutes` are whole ones, and the one under way."""
    name = queue.name
    live = [pool.status for pool in registered if pool.lease > 0 and pool.status is not None]
    workers = sum(status.concurrency for status in live if name in status.names and not status.quiet)
    recent = minutes[-RECENT - 1 :]
    whole = recent[:-1]
    spent = sum(minute.runs[name].seconds for minute in whole if name in minute.runs)
    return QueueView(
        queue,
        running=sum(status.running.get(name, 0) for status in live),
        workers=workers,
        out=rate_of(whole, name),
        incoming=incoming(recent, name),
        fails=sum(minute.failed(name) for minute in whole) / max(1, len(whole)),
        failing=failing(whole, name),
        utilisation=min(1.0, spent / (workers * 60 * len(whole))) if workers and whole else None,
    )


def detail(desk: Desk, name: str) -> Steps[QueueDetail]:
    """One queue: what comes in and goes out, wait and run times of the last hour, the next jobs. Raises BadOption."""
    yield from _known(desk.keys, name)
    overview = yield from ask(inspect.queues(desk.keys, [name]))
    registered = yield from pools.pools(desk.keys)
    minutes = yield from _recent(desk, overview.now, 60, name)
    totals = yield from ask(figures.totals(desk.keys))
    whole = minutes[:-1]
    waits = sum((minute.waits[name] for minute in whole if name in minute.waits), Histogram())
    runs = sum((minute.runs[name] for minute in whole if name in minute.runs), Histogram())
    queue = overview.queues[0]
    view = _view(queue, registered, minutes)
    able = [pool.id for pool in registered if pool.status is not None and name in pool.status.names]
    rough = 0.0
    if view.incoming is None and not queue.wrong:
        rough = yield from _incoming(desk.keys, queue, overview.now, whole)
    following = () if queue.wrong else (yield from page(desk, "waiting", name=name, size=10)).jobs
    return QueueDetail(
        overview.now, view, rough if view.incoming is None else view.incoming, Quantiles.of(waits), Quantiles.of(runs),
        totals_of(totals, name), tuple(able), queue.paused_by, queue.paused_at, following,
        view.incoming is not None, _series(minutes, name),
    )  # fmt: skip


def _series(minutes: list[Minute], name: str) -> tuple[QueueMinute, ...]:
    return tuple(
        QueueMinute(
            one.minute * 60, figures.came_in(one, following, name), one.fetched(name), one.ran(name), one.failed(name),
            one.size(name),
        )
        for one, following in pairs(minutes)[:-1]
    )  # fmt: skip


def _incoming(keys: Keys, queue: inspect.Queue, now: float, minutes: list[Minute]) -> Steps[float]:
    """Jobs of the last minute: those that still wait, and those that waited less than that and were fetched."""
    fresh = yield from _younger(keys, queue, now - 60)
    waits = minutes[-1].waits.get(queue.name, Histogram()) if minutes else Histogram()
    quick = sum(n for bucket, n in waits.buckets.items() if figures.bucket_limit(bucket) <= 60)
    return float(fresh + quick)


def _younger(keys: Keys, queue: inspect.Queue, since: float) -> Steps[int]:
    """How many jobs at the left of a queue were enqueued after a moment, to within a few percent."""
    low, high = 0, 1
    while high <= min(queue.size, MOST_GALLOPED) and (yield from _after(keys, queue.name, high - 1, since)):
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
    raw: bytes | None = yield from ask(Op("LINDEX", (keys.queue(name),), (place,), lambda reply: reply))
    at = None if raw is None else inspect.enqueued_at(raw)
    return at is not None and at > since


def _known(keys: Keys, name: str) -> Steps[None]:
    names = yield from ask(maintain.known_jobs(keys))
    if name not in names:
        near = suggest(name, names)
        raise BadOption(
            f"no queue {name!r} in the namespace {keys.namespace!r}{near or '; dayjob queues ls shows all'}"
        )


# Actions.


def pause(desk: Desk, name: str) -> Steps[Outcome]:
    """Stop fetching from a queue, also one that does not exist yet; what runs goes on."""
    check_name(name)
    now = yield from ask(inspect.now())
    value = inspect.pause_text(now, desk.actor)
    paused: bool = yield from ask(
        Op("SET", (desk.keys.paused(name),), (value, "NX"), lambda reply: reply is not None)
    )
    says = "Paused." if paused else "It was paused already. Nothing was changed."
    return (yield from outcome(desk, "pause", f"queue {name}", done=paused, says=says))


def resume(desk: Desk, name: str) -> Steps[Outcome]:
    """Fetch from a queue again."""
    lifted = yield from operate.resume(desk.keys, name)
    says = "Resumed." if lifted else "It was not paused. Nothing was changed."
    return (yield from outcome(desk, "resume", f"queue {name}", done=lifted, says=says))


def limit(desk: Desk, name: str, limit: int | None) -> Steps[Outcome]:
    """Set how many jobs of a name run at once over all pools, or lift it with None. Raises BadOption."""
    check_name(name)
    yield from operate.set_limit(desk.keys, name, limit)
    says = "No limit any more." if limit is None else f"At most {limit:,} at once."
    return (yield from outcome(desk, "limit", f"queue {name}", done=True, says=says))


def purge(desk: Desk, name: str, *, progress: Callable[[Progress], object] | None = None) -> Steps[Tally]:
    """Delete the jobs that wait in a queue when it begins, in bounded steps. Raises BadOption.

    When `progress` answers False, it stops there.
    """
    yield from _known(desk.keys, name)
    total = (yield from ask(inspect.queues(desk.keys, [name]))).queues[0].size
    subject = f"queue {name}"
    yield from note(desk, "purge", subject, f"begun with {counted(total, 'job')}")
    deleted = 0
    while deleted < total:
        gone = yield from operate.purge(desk.keys, name, most=min(PURGE_STEP, total - deleted))
        deleted += gone
        stop = progress is not None and progress(Progress(deleted, total, deleted, deleted)) is False
        if not gone or stop:
            break
    says = f"{counted(deleted, 'job')} deleted."
    noted = yield from note(desk, "purge", subject, says)
    return Tally(total, total, deleted, says, noted)

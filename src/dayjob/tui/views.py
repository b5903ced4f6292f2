"""Views: the tabs and the views that open from them: how each is read, its actions, and what enter opens."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from dayjob.admin import sorting, verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.filters import Filter
from dayjob.admin.records import AttemptRecord
from dayjob.admin.views import (
    BusyWorker,
    Coming,
    Condemned,
    JobView,
    Note,
    Pool,
    QueueDetail,
    QueueView,
    State,
)
from dayjob.admin.views.limits import LimitView
from dayjob.admin.views.payloads import NameSizes
from dayjob.admin.views.workflows import WorkflowView
from dayjob.errors import UnknownSchedule
from dayjob.store.ops import inspect
from dayjob.store.steps import ask
from dayjob.text import source_text
from dayjob.tui import (
    actions,
    group_views,
    render,
    render_fleet,
    render_history,
    render_limits,
    render_payloads,
    render_timeline,
)
from dayjob.tui.row_filters import all_hold, checked, keys_of
from dayjob.tui.sheet import Sheet
from dayjob.tui.view import SIZE, Read, ReadOptions, View

#: How many seconds of history Home keeps.
PAST_SECONDS = 60


# The tabs.


class Home:
    """The verdict, with a history of the last minute."""

    def __init__(self) -> None:
        self._waiting: deque[float] = deque(maxlen=PAST_SECONDS)
        self._running: deque[float] = deque(maxlen=PAST_SECONDS)

    async def read(self, admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        """Read the verdict."""
        found = await admin.verdict()
        self._waiting.append(found.waiting)
        self._running.append(found.running)
        return render.home(found, tuple(self._waiting), tuple(self._running))


async def _queues(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name",))
    found = await admin.queues(sort=options.sort)
    return render.queues(view for view in found.queues if all_hold(wanted, {"name": view.queue.name}))


async def _pools(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    found = await admin.pools(sort=options.sort)
    return render_fleet.pools(found, await _now(admin))


async def _busy(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name", "source", "id"))
    found = await admin.busy(sort=options.sort)
    return render_fleet.busy(one for one in found if _fits(wanted, one))


def _fits(wanted: Filter, one: BusyWorker) -> bool:
    worker = one.worker
    texts = {
        "name": worker.name,
        "source": source_text(worker.source),
        "id": worker.id,
    }
    return all_hold(wanted, texts)


def _listing(state: State) -> Read:
    async def read(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
        return render.jobs(
            await admin.jobs(state, where=options.where, after=options.after, size=SIZE, sort=options.sort)
        )

    return read


async def _failures(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name", "error", "kind"))
    found = await admin.failures(sort=options.sort)
    fitting = [
        one
        for one in found.groups
        if all_hold(wanted, {"name": one.name, "error": one.sample.error, "kind": one.kind})
    ]
    return _paged(
        render.failures(found, fitting[options.place : options.place + SIZE]), options, len(fitting)
    )


def _paged(sheet: Sheet, options: ReadOptions, total: int) -> Sheet:
    """The same, with the cursor of the next page if there are more rows than were shown."""
    end = options.place + len(sheet.rows)
    return replace(sheet, next=str(end) if end < total else "")


async def _periodic(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name",))
    found = await admin.periodic(sort=options.sort)
    return render_fleet.periodic(
        [one for one in found if all_hold(wanted, {"name": one.job})], await _now(admin)
    )


async def _calendar(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name", "id"))
    found = await admin.calendar(options.hours, sort=options.sort)
    fitting = [one for one in found.entries if all_hold(wanted, {"name": one.name, "id": one.id})]
    return render_fleet.calendar(found, fitting)


def _open_coming(subject: Any) -> View | None:
    if not isinstance(subject, Coming):
        return None
    return job(subject.id, subject.name) if subject.id else schedule(subject.schedule)


async def _metrics(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name",))
    found = await admin.metrics(options.hours, sort=options.sort)
    return render_fleet.metrics(found, [one for one in found.jobs if all_hold(wanted, {"name": one.name})])


async def _redis(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
    return render_fleet.redis(await admin.redis(), await admin.vitals())


async def _audit(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    # One more shows whether there is a next page.
    found = await admin.audit(offset=options.place, size=SIZE + 1, sort=options.sort)
    return _paged(render_fleet.audit(found[:SIZE]), options, options.place + len(found))


async def _history(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name", "source"))
    return await _history_of(admin, options, wanted.name, wanted.source)


async def _history_of(admin: AsyncAdmin, options: ReadOptions, name: str | None, source: str | None) -> Sheet:
    found = await admin.history(name, source=source, limit=SIZE, sort=options.sort, after=options.after)
    return render_history.history(found)


async def _sources(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("source",))
    return render_history.sources(await admin.sources(source=wanted.source, sort=options.sort))


def _attempts_of_source(subject: Any) -> View | None:
    """The last attempts of a source."""
    source: str = subject.source
    return View(
        f"source {source}",
        lambda admin, options: _history_of(admin, options, None, source),
        opens=lambda one: job(one.id, one.name),
        columns=sorting.HISTORY,
    )


async def _limits(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name",))
    found = await admin.limits(sort=options.sort)
    return render_limits.limits([one for one in found if all_hold(wanted, {"name": one.name})])


def _open_limit(subject: Any) -> View | None:
    """The queue of a limit."""
    one: LimitView = subject
    return queue(one.queues[0]) if one.queues else None


async def _payloads(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    return render_payloads.payloads(await admin.payloads(sort=options.sort))


def _open_sizes(subject: Any) -> View | None:
    """The queue of a name."""
    one: NameSizes = subject
    return queue(one.name) if one.name else None


async def _timeline(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    wanted = checked(options.where, ("name",))
    found = await admin.events(name=wanted.name or "", offset=options.place, size=SIZE, sort=options.sort)
    return _paged(
        render_timeline.timeline(found.events), options, options.place + len(found.events) + found.more
    )


async def _broken(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    found = await admin.broken(offset=options.place, size=SIZE, sort=options.sort)
    return _paged(render.broken(found), options, found.sorted_among or found.total)


async def _now(admin: AsyncAdmin) -> float:
    """The server's time, because this machine's clock may be wrong."""
    return await admin._walk(ask(inspect.now()))


# Views that open from a tab.


def queue(name: str) -> View:
    """One queue with its waiting jobs."""

    async def read(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
        page = await admin.jobs(
            "waiting", name=name, where=options.where, after=options.after, size=SIZE, sort=options.sort
        )
        return render.queue(await admin.queue(name), page)

    return View(
        name, read, (*actions.on_jobs("waiting"), actions.MOVE, *actions.QUEUE), _open_job, keys_of("waiting"), marks=True, columns=sorting.JOBS["waiting"], other=_KEYS,
    )  # fmt: skip


def group(name: str, kind: str) -> View:
    """One group of failures with the jobs that failed last."""

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        found = await admin.failure_group(name, kind)
        if found is None:
            return Sheet(((("No job of this group is in retry or dead any more.", "warning"),),))
        return render.group(found)

    return View(f"failures of {name}", read, actions.GROUP, _open_job)


def queue_keys(name: str) -> View:
    """The keys of a queue that have waiting jobs."""

    async def read(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
        # One more shows whether there is a next page.
        found = await admin.queue_keys(name, most=options.place + SIZE + 1, sort=options.sort)
        rows = found.keys[options.place : options.place + SIZE]
        return _paged(render_limits.keys(replace(found, keys=rows)), options, len(found.keys))

    return View(f"keys of {name}", read, columns=sorting.KEYS)


def job(job_id: str, name: str | None) -> View:
    """One job in any state."""

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        found = await admin.job(job_id, name=name)
        if found is None:
            return Sheet((((await admin.explain(job_id, name=name), ""),),))
        return render.job(found)

    return View(f"{name or 'job'} {job_id}", read, (*actions.ONE_JOB, actions.RESCHEDULE, actions.MOVE))


def pool(pool_id: str) -> View:
    """One pool with its workers."""

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        found = await admin.pools()
        for one in found.pools:
            if one.id == pool_id:
                return render_fleet.pool(one, await _now(admin))
        return Sheet((((f"Pool {pool_id} has stopped.", "warning"),),))

    return View(
        f"pool {pool_id}", read, (*actions.on_jobs("running"), *actions.POOL), _open_job, other=_STACKS
    )


def _open_workflow(one: WorkflowView) -> View:
    return group_views.workflow(one.id, lambda node: job(node.job_id, node.name))


def stacks(pool_id: str) -> View:
    """The stacks of a pool's workers. Requested only once, because they cost the pool time."""
    found: list[Sheet] = []

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        if not found:
            found.append(render_fleet.stacks(await admin.stacks(pool_id)))
        return found[0]

    return View(f"stacks of pool {pool_id}", read)


def fixed(title: str, sheet: Sheet) -> View:
    """A view of data that was already read."""

    async def read(_: AsyncAdmin, __: ReadOptions) -> Sheet:
        return sheet

    return View(title, read)


def schedule(name: str) -> View:
    """One schedule with its next ticks and its past runs."""

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        try:
            found = await admin.schedule(name)
        except UnknownSchedule:
            return Sheet((((f"The schedule {name} no longer exists.", "warning"),),))
        return render_history.schedule(found)

    return View(
        f"schedule {name}",
        read,
        actions.SCHEDULE,
        lambda one: job(one.id, one.name) if isinstance(one, AttemptRecord) else None,
    )


def _open_job(subject: Any) -> View | None:
    if isinstance(subject, JobView):
        return job(subject.id, subject.name) if subject.id else None
    return job(subject.worker.id, subject.worker.name) if isinstance(subject, BusyWorker) else None


def _open_pool(subject: Any) -> View | None:
    return None if isinstance(subject, Condemned) else pool(subject.id) if isinstance(subject, Pool) else None


def _open_stacks(subject: Any) -> View | None:
    if isinstance(subject, BusyWorker):
        return stacks(subject.pool_id)
    return stacks(subject.id) if isinstance(subject, Pool) else None


_STACK = verbs.row("worker", "stacks")
_STACKS = (_STACK.key, _STACK.label.lower(), _open_stacks)


def _open_queue(subject: Any) -> View | None:
    return queue(subject.queue.name) if isinstance(subject, QueueView) else None


def _open_keys(subject: Any) -> View | None:
    """The keys of a queue; None if its jobs have none."""
    view = subject.view if isinstance(subject, QueueDetail) else subject
    by_key = isinstance(view, QueueView) and view.queue.by_key
    return queue_keys(view.queue.name) if by_key else None


_KEYS = ("y", "keys", _open_keys)


def _open_note(subject: Any) -> View | None:
    """The view that a note of the verdict is about: a list, or a queue."""
    if not isinstance(subject, Note) or not subject.subject:
        return None
    for tab in TABS:
        if tab.title.lower() == subject.subject:
            return tab
    return queue(subject.subject)


def tabs() -> tuple[View, ...]:
    """The tabs, in the order of their keys."""
    return (View("Home", Home().read, opens=_open_note), *TABS)


def _jobs_in(state: State, *more: actions.Action) -> View:
    return View(
        state.capitalize(), _listing(state), (*actions.on_jobs(state), *more), _open_job, keys_of(state), state,
        marks=True, columns=sorting.JOBS[state],
    )  # fmt: skip


#: All but Home, which keeps a history.
TABS = (
    View("Queues", _queues, actions.QUEUE, _open_queue, ("name",), columns=sorting.QUEUES, other=_KEYS),
    View("Pools", _pools, actions.POOL, _open_pool, columns=sorting.POOLS, other=_STACKS),
    View(
        "Busy",
        _busy,
        actions.on_jobs("running"),
        _open_job,
        ("name", "source", "id"),
        "running",
        columns=sorting.BUSY,
        other=_STACKS,
    ),
    _jobs_in("retry", actions.RESCHEDULE),
    _jobs_in("scheduled", actions.RESCHEDULE),
    _jobs_in("dead"),
    View(
        "Failures",
        _failures,
        actions.GROUP,
        lambda one: group(one.name, one.kind),
        ("name", "error", "kind"),
        columns=sorting.FAILURES,
    ),
    View(
        "Periodic",
        _periodic,
        actions.SCHEDULE,
        lambda one: schedule(one.name),
        ("name",),
        columns=sorting.PERIODIC,
    ),
    View(
        "Metrics",
        _metrics,
        (),
        lambda one: queue(one.name),
        ("name",),
        spans=True,
        columns=sorting.METRICS,
    ),
    View("Redis", _redis),
    View(
        "Audit",
        _audit,
        columns=sorting.AUDIT,
        opens=lambda one: fixed("audit", render_fleet.audit_entry(one)),
    ),
    View(
        "Broken",
        _broken,
        actions.BROKEN,
        lambda one: fixed("broken entry", render.broken_entry(one)),
        columns=sorting.BROKEN,
    ),
    View("Calendar", _calendar, (), _open_coming, ("name", "id"), spans=True, columns=sorting.CALENDAR),
    View(
        "Timeline",
        _timeline,
        (),
        lambda one: fixed("event", render_timeline.timeline_event(one)),
        ("name",),
        columns=sorting.TIMELINE,
    ),
    View(
        "History",
        _history,
        (),
        lambda one: job(one.id, one.name),
        ("name", "source"),
        columns=sorting.HISTORY,
    ),
    View(
        "Batches",
        group_views.batches,
        actions.BATCH,
        lambda one: group_views.batch(one.id),
        columns=sorting.BATCHES,
    ),
    View("Workflows", group_views.workflows, actions.WORKFLOW, _open_workflow, columns=sorting.WORKFLOWS),
    View("Sources", _sources, (), _attempts_of_source, ("source",), columns=sorting.SOURCES),
    View("Limits", _limits, (), _open_limit, ("name",), columns=sorting.LIMITS),
    View("Payloads", _payloads, (), _open_sizes, columns=sorting.PAYLOADS),
)

"""Calendar: what will run in the next hours. Scheduled jobs, retries and the ticks of schedules together. Reads only."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from dayjob import cron
from dayjob.admin import sorting
from dayjob.admin.jobs import source_of, view
from dayjob.admin.pools import live_schedules
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import Calendar, Coming, ComingKind, ComingName
from dayjob.errors import BadOption, BadSchedule
from dayjob.store.ops import inspect
from dayjob.store.steps import Steps, ask, ask_all

#: Hours that can be asked for, and the seconds in one step of each.
STEPS = {1: 120, 24: 1800, 72: 7200}
#: How many jobs of each set are read, and how many entries are listed.
MAX_READ = inspect.MAX_ENTRIES
MAX_LISTED = 200
#: How many ticks of all schedules together are worked out.
MAX_TICKS = 1000
_SETS: tuple[ComingKind, ...] = ("scheduled", "retry")


def calendar(
    session: Session, hours: int = 1, *, since: float | None = None, most: int = MAX_LISTED, sort: str = ""
) -> Steps[Calendar]:
    """What will run in the next 1, 24 or 72 hours: how many jobs in each step, how many of each name, and the first from `since` on.

    Counts of scheduled jobs and retries are exact. Names and the list come from the first 500 of each.
    The list is in the order in which they are due, or sorted by another column: `name`. Raises BadOption.
    """
    sorting.CALENDAR.read(sort)
    if hours not in STEPS:
        raise BadOption(f"hours={hours}: the calendar shows {', '.join(map(str, STEPS))} hours")
    now = yield from ask(inspect.now())
    step = STEPS[hours]
    first = int(now // step) * step
    starts = range(first, first + hours * 3600 + (step if first < now else 0), step)
    end = float(starts[-1] + step)
    scheduled = yield from _counts(session.keys.scheduled, starts, step)
    retry = yield from _counts(session.keys.retry, starts, step)
    # From now on: what is late is due at once, and counts in the first step.
    begin = now if since is None else max(now, since)
    redactor = Redactor(session)
    ticks, cut = yield from _ticks(session, redactor, now, end)
    entries: list[Coming] = []
    looked = []
    for kind in _SETS:
        some, whole = yield from _read(session, redactor, kind, begin if since is not None else None, end)
        entries += some
        looked.append(whole)
    later = [tick for tick in ticks if tick.at >= begin]
    listed = heapq.nsmallest(max(0, most), [*entries, *later], key=lambda one: one.at)
    periodic = [sum(start <= tick.at < start + step for tick in ticks) for start in starts]
    return Calendar(
        now, hours, step, tuple(starts), tuple(scheduled), tuple(retry), tuple(periodic), _by_name([*entries, *later]),
        tuple(sorting.CALENDAR.sorted(listed, sort)), complete=all(looked) and not cut, cut_schedules=cut,
    )  # fmt: skip


def _counts(source: str, starts: Sequence[int], step: int) -> Steps[list[int]]:
    """How many entries of a set are due in each step. What is overdue is in the first."""
    bounds = [*starts, starts[-1] + step]
    below = yield from ask_all([inspect.count_below(source, float(bound)) for bound in bounds[1:]])
    return [upper - lower for lower, upper in zip((0, *below[:-1]), below, strict=True)]


def _read(
    session: Session, redactor: Redactor, kind: ComingKind, since: float | None, end: float
) -> Steps[tuple[list[Coming], bool]]:
    """The first jobs of a set that are due before `end`, and whether these are all."""
    assert kind != "periodic"  # noqa: S101 - ticks are in no set
    source = source_of(session.keys, kind)
    offset = 0 if since is None else (yield from ask(inspect.count_below(source, since)))
    seen = yield from ask(inspect.page(source, offset=offset, size=MAX_READ))
    yield from redactor.learn(entry.job.name for entry in seen.entries if entry.job is not None)
    jobs = (view(redactor, kind, entry) for entry in seen.entries if entry.job is not None)
    found = [Coming(job.at or 0.0, kind, job.name, job.id, job.args) for job in jobs if (job.at or 0.0) < end]
    past_end = bool(seen.entries) and (seen.entries[-1].at or 0.0) >= end
    return found, past_end or seen.next is None


def _ticks(
    session: Session, redactor: Redactor, now: float, end: float
) -> Steps[tuple[list[Coming], tuple[str, ...]]]:
    """The ticks of all schedules that will enqueue a job, and the names of the schedules that tick too often to be worked out."""
    known = yield from ask(inspect.schedules(session.keys))
    live = (yield from live_schedules(session)) if known else set()
    active = [one for one in known if one.spec and not one.paused and (live is None or one.name in live)]
    yield from redactor.learn(one.job for one in active)
    found: list[Coming] = []
    cut: list[str] = []
    for number, schedule in enumerate(active):
        # What one schedule does not use is left for the others.
        share = (MAX_TICKS - len(found)) // (len(active) - number)
        args = redactor.args(schedule.job, schedule.args) if schedule.args else None
        for at in _next(schedule, now, end):
            if share <= 0:
                cut.append(schedule.name)
                break
            share -= 1
            found.append(Coming(at, "periodic", schedule.job, "", args, schedule.name))
    return sorted(found, key=lambda one: one.at), tuple(cut)


def _next(schedule: inspect.StoredSchedule, now: float, end: float) -> Iterator[float]:
    try:
        rule = cron.parse(schedule.spec, schedule.timezone)
    except BadSchedule:
        # The page of schedules shows what is wrong with it.
        return
    at = rule.next_after(int(now))
    while at is not None and at < end:
        yield float(at)
        at = rule.next_after(at)


def _by_name(entries: list[Coming]) -> tuple[ComingName, ...]:
    counts: dict[str, dict[ComingKind, int]] = {}
    for one in entries:
        own = counts.setdefault(one.name, {"scheduled": 0, "retry": 0, "periodic": 0})
        own[one.kind] += 1
    found = [ComingName(name, **own) for name, own in counts.items()]
    return tuple(sorted(found, key=lambda one: (-one.scheduled - one.retry - one.periodic, one.name)))

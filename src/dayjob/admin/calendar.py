"""Calendar: what will run in the next hours. Scheduled jobs, retries and the ticks of schedules together. Reads only."""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Sequence

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
_SETS: tuple[ComingKind, ...] = ("scheduled", "retry")


def calendar(
    session: Session, hours: int = 1, *, since: float | None = None, most: int = MAX_LISTED, sort: str = ""
) -> Steps[Calendar]:
    """What will run in the next 1, 24 or 72 hours: how many jobs in each step, how many of each name, and the first from `since` on.

    The counts in each step are exact. Names and the list come from the first 500 scheduled jobs and retries, and from all ticks.
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
    entries: list[Coming] = []
    looked = []
    for kind in _SETS:
        some, whole = yield from _read(session, redactor, kind, begin if since is not None else None, end)
        entries += some
        looked.append(whole)
    names = _by_name(entries)
    periodic = [0] * len(starts)
    listed = heapq.nsmallest(max(0, most), entries, key=lambda one: one.at)
    for schedule, rule in (yield from _rules(session, redactor)):
        # A tick of this second has passed.
        counts = rule.counts([int(now), *(start - 1 for start in starts[1:]), int(end) - 1])
        periodic = [before + count for before, count in zip(periodic, counts, strict=True)]
        after = int(now) if since is None else max(int(now), math.ceil(begin) - 1)
        names.setdefault(schedule.job, _none())["periodic"] += rule.ticks(after, end - 1, 0).skipped
        listed = _with_ticks(listed, redactor, schedule, rule, after, end, max(0, most))
    return Calendar(
        now, hours, step, tuple(starts), tuple(scheduled), tuple(retry), tuple(periodic), _sorted(names),
        tuple(sorting.CALENDAR.sorted(listed, sort)), complete=all(looked),
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


def _rules(session: Session, redactor: Redactor) -> Steps[list[tuple[inspect.StoredSchedule, cron.Schedule]]]:
    """The schedules that will enqueue jobs, with their rules."""
    known = yield from ask(inspect.schedules(session.keys))
    live = (yield from live_schedules(session)) if known else set()
    active = [one for one in known if one.spec and not one.paused and (live is None or one.name in live)]
    yield from redactor.learn(one.job for one in active)
    found = []
    for schedule in active:
        # The page of schedules shows what is wrong with the others.
        with contextlib.suppress(BadSchedule):
            found.append((schedule, cron.parse(schedule.spec, schedule.timezone)))
    return found


def _with_ticks(
    listed: list[Coming], redactor: Redactor, schedule: inspect.StoredSchedule, rule: cron.Schedule, after: int, end: float, most: int
) -> list[Coming]:  # fmt: skip
    """The first `most` of these entries and of the ticks of a schedule after `after` and before `end`."""
    last = int(listed[-1].at if len(listed) >= most > 0 else end - 1)
    # Not more ticks than fit into the list are worked out, or about twice as many.
    while last - after > 1 and rule.ticks(after, (after + last) // 2, 0).skipped > most:
        last = (after + last) // 2
    args = redactor.args(schedule.job, schedule.args) if schedule.args else None
    ticks = (
        Coming(float(at), "periodic", schedule.job, "", args, schedule.name)
        for at in rule.ticks(after, last, max(0, last - after)).times
    )
    return heapq.nsmallest(most, [*listed, *ticks], key=lambda one: one.at)


def _none() -> dict[ComingKind, int]:
    return {"scheduled": 0, "retry": 0, "periodic": 0}


def _by_name(entries: list[Coming]) -> dict[str, dict[ComingKind, int]]:
    counts: dict[str, dict[ComingKind, int]] = {}
    for one in entries:
        counts.setdefault(one.name, _none())[one.kind] += 1
    return counts


def _sorted(names: dict[str, dict[ComingKind, int]]) -> tuple[ComingName, ...]:
    found = [ComingName(name, **counts) for name, counts in names.items() if any(counts.values())]
    return tuple(sorted(found, key=lambda one: (-one.scheduled - one.retry - one.periodic, one.name)))

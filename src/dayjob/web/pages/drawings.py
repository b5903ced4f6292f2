"""Charts from what the admin layer answers: attempts that ended, jobs that waited, how durations are spread, the server, the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.requests import Request

from dayjob.admin.views import JobSpread, Vitals
from dayjob.web import charts
from dayjob.web.charts import BYTES, COUNT, SECONDS, Chart, Mark, Series, Unit
from dayjob.web.charts.parts import Leads
from dayjob.web.render import address, number, share


def to_history(request: Request, **asked: str) -> Leads:
    """The address of the attempts that ended between two moments."""
    return _between(address(request, "/history", **asked))


def to_timeline(request: Request) -> Leads:
    """The address of the events between two moments."""
    return _between(address(request, "/timeline"))


def _between(path: str) -> Leads:
    # A page has hundreds of these addresses.
    start = f"{path}{'&' if '?' in path else '?'}since="
    return lambda since, until: f"{start}{since:.0f}&until={until:.0f}"


def attempts(
    title: str,
    starts: Sequence[int],
    step: int,
    ended: Sequence[int],
    failed: Sequence[int],
    marks: Iterable[Mark] = (),
    to: Leads | None = None,
) -> Chart:
    """Completed and failed attempts in each step. `to` is the address of the attempts between two moments."""
    bad = [min(some, every) for some, every in zip(failed, ended, strict=True)]
    good = [every - some for some, every in zip(bad, ended, strict=True)]
    series = (Series("completed", good, 0), Series("failed", bad, 1))
    summary = f"{number(sum(good))} completed, {number(sum(bad))} failed"
    return charts.bars(title, starts, step, series, marks=marks, summary=summary, to=to)


def backlog(
    title: str,
    starts: Sequence[int],
    step: int,
    waiting: Sequence[int | None],
    marks: Iterable[Mark] = (),
    to: Leads | None = None,
    present: int | None = None,
) -> Chart:
    """Jobs that waited when each step began, and at `present` in the last, which is not over. `to` is the address of what ended between two moments."""
    if present is None:
        summary = _latest(waiting, COUNT)
    else:
        waiting = (*waiting[:-1], present)
        most = max(size for size in waiting if size is not None)
        summary = f"now {number(present)}, most {number(most)}"
    series = (Series("waiting", waiting, 3),)
    return charts.lines(title, starts, step, series, marks=marks, summary=summary, area=True, to=to)


def spread(found: JobSpread, marks: Iterable[Mark] = (), to: Leads | None = None) -> list[Chart]:
    """Heat maps of the last hour, and histograms of all the hours: first of the run times, then of the wait times."""
    marked = tuple(marks)
    hours = "last hour" if found.hours == 1 else f"last {found.hours} h"
    return [
        charts.heat_map("Run time by minute, last hour", found.starts, 60, found.runs, marks=marked, to=to),
        charts.heat_map("Wait by minute, last hour", found.starts, 60, found.waits, marks=marked, to=to),
        charts.histogram(f"Run time, {hours}", found.all_runs),
        charts.histogram(f"Wait, {hours}", found.all_waits),
    ]


def server(found: Vitals, marks: Iterable[Mark] = (), to: Leads | None = None) -> list[Chart]:
    """The server over time: round trips, memory, commands, clients."""
    marked = tuple(marks)
    trips = (Series("p50", found.trip_p50, 0), Series("p99", found.trip_p99, 3))
    memory = [Series("memory", found.memory, 0)]
    if any(found.max_memory):
        memory.append(Series("limit", found.max_memory, 1))
    return [
        charts.lines(
            "Round trip of an exchange", found.starts, found.step, trips, unit=SECONDS, marks=marked, to=to, summary=_trips(found)
        ),
        charts.lines(
            "Memory", found.starts, found.step, memory, unit=BYTES, marks=marked, to=to, summary=_latest(found.memory, BYTES), area=True
        ),
        charts.lines(
            "Commands per second", found.starts, found.step, (Series("commands", found.commands, 0),), marks=marked, to=to, summary=_latest(found.commands, COUNT)
        ),
        charts.lines(
            "Clients", found.starts, found.step, (Series("clients", found.clients, 2),), marks=marked, to=to, summary=_latest(found.clients, COUNT)
        ),
    ]  # fmt: skip


def _trips(found: Vitals) -> str:
    p50, p99 = (_last(values, SECONDS) for values in (found.trip_p50, found.trip_p99))
    return f"last p50 {p50}, p99 {p99}" if p50 and p99 else "not measured yet"


def workers(title: str, found: Vitals, marks: Iterable[Mark] = (), to: Leads | None = None) -> Chart:
    """How many workers there were, and how many of them were busy."""
    series = (Series("busy", found.busy, 0), Series("workers", found.workers, 2))
    known = [
        (busy, every)
        for busy, every in zip(found.busy, found.workers, strict=True)
        if busy is not None and every
    ]
    used = sum(busy for busy, _ in known) / sum(every for _, every in known) if known else None
    summary = "not measured yet" if used is None else f"{share(used, 1)} busy on average"
    return charts.lines(
        title, found.starts, found.step, series, marks=marks, summary=summary, area=True, to=to
    )


def _last(values: Sequence[float | None], unit: Unit) -> str:
    """The last known number of a series; "" if none is known."""
    known = [value for value in values if value is not None]
    return unit.text(known[-1]) if known else ""


def _latest(values: Sequence[float | None], unit: Unit) -> str:
    """The last known number of a series, and the largest."""
    known = [value for value in values if value is not None]
    return f"last {unit.text(known[-1])}, most {unit.text(max(known))}" if known else "not measured yet"

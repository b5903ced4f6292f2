"""Charts that more than one page has: attempts that ended, jobs that waited, and how durations are spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dayjob.admin.views import JobSpread
from dayjob.web import charts
from dayjob.web.charts import Chart, Mark, Series
from dayjob.web.render import number


def attempts(
    title: str,
    starts: Sequence[int],
    step: int,
    ended: Sequence[int],
    failed: Sequence[int],
    marks: Iterable[Mark] = (),
) -> Chart:
    """Completed and failed attempts in each step."""
    bad = [min(some, every) for some, every in zip(failed, ended, strict=True)]
    good = [every - some for some, every in zip(bad, ended, strict=True)]
    series = (Series("completed", good, 0), Series("failed", bad, 1))
    summary = f"{number(sum(good))} completed, {number(sum(bad))} failed"
    return charts.bars(title, starts, step, series, marks=marks, summary=summary)


def backlog(
    title: str, starts: Sequence[int], step: int, waiting: Sequence[int | None], marks: Iterable[Mark] = ()
) -> Chart:
    """Jobs that waited when each step began."""
    known = [value for value in waiting if value is not None]
    summary = f"{number(known[-1])} at last, {number(max(known))} at most" if known else "not counted yet"
    series = (Series("waiting", waiting, 3),)
    return charts.lines(title, starts, step, series, marks=marks, summary=summary, area=True)


def spread(found: JobSpread, marks: Iterable[Mark] = ()) -> list[Chart]:
    """Heat maps of the last hour, and histograms of all the hours: first of the run times, then of the wait times."""
    marked = tuple(marks)
    hours = "last hour" if found.hours == 1 else f"last {found.hours} h"
    return [
        charts.heat_map("Run time by minute, last hour", found.starts, 60, found.runs, marks=marked),
        charts.heat_map("Wait by minute, last hour", found.starts, 60, found.waits, marks=marked),
        charts.histogram(f"Run time, {hours}", found.all_runs),
        charts.histogram(f"Wait, {hours}", found.all_waits),
    ]

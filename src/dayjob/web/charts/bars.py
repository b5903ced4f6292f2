"""Bars over time, one series on top of the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dayjob.web.charts.parts import Chart, Leads, Mark, Series, TimeFrame, over_time
from dayjob.web.charts.units import COUNT, Unit

#: The share of a step that its bar takes.
BAR = 0.82


def bars(
    title: str,
    starts: Sequence[int],
    step: int,
    series: Sequence[Series],
    *,
    unit: Unit = COUNT,
    to: Leads | None = None,
    marks: Iterable[Mark] = (),
    summary: str = "",
) -> Chart:
    """The sum of some series in each step. The first of them is on top, the last at the bottom."""
    frame = TimeFrame(starts, step)
    totals = [
        sum(value or 0 for value in values) for values in zip(*(one.values for one in series), strict=True)
    ]
    steps = unit.ticks(max(totals, default=0))
    pieces = [piece for place in range(len(starts)) for piece in _bar(place, frame.width, series, steps[-1])]
    return over_time(title, frame, series, unit, pieces, steps=steps, to=to, marks=marks, summary=summary)


def _bar(place: int, width: float, series: Sequence[Series], top: float) -> Iterable[str]:
    foot = 100.0
    for one in reversed(series):
        high = 100 * (one.values[place] or 0) / top
        if high <= 0:
            continue
        foot -= high
        yield (
            f'<rect class="c{one.colour}" x="{place * width + width * (1 - BAR) / 2:.4g}%" y="{foot:.4g}%"'
            f' width="{width * BAR:.4g}%" height="{high:.4g}%"/>'
        )

"""Lines over time. A line has a gap where a number is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dayjob.web.charts import scale
from dayjob.web.charts.parts import Chart, Leads, Mark, Series, TimeFrame, over_time, stretched
from dayjob.web.charts.units import COUNT, Unit

#: The coordinates of one step, and of the height.
STEP, HEIGHT = 10, 1000


def lines(
    title: str,
    starts: Sequence[int],
    step: int,
    series: Sequence[Series],
    *,
    unit: Unit = COUNT,
    to: Leads | None = None,
    marks: Iterable[Mark] = (),
    summary: str = "",
    area: bool = False,
) -> Chart:
    """Each series as a line; with `area` the first of them is filled."""
    frame = TimeFrame(starts, step)
    steps = unit.ticks(scale.most_of([one.values for one in series]))
    top = steps[-1]
    paths = [_path(one, top, filled=area and number == 0) for number, one in enumerate(series)]
    inner = stretched(max(1, len(starts)) * STEP, HEIGHT, "".join(reversed(paths)))
    return over_time(title, frame, series, unit, [inner], steps=steps, to=to, marks=marks, summary=summary)


def _path(series: Series, top: float, *, filled: bool) -> str:
    runs = list(runs_of(series.values))
    found = ""
    for first, values in runs if filled else ():
        points = _points(first, values, top)
        end = STEP * (first + len(values))
        found += (
            f'<path class="area c{series.colour}" d="M{first * STEP} {HEIGHT}L{points}L{end} {HEIGHT}z"/>'
        )
    if not runs:
        return found
    drawn = "".join(f"M{_points(first, values, top)}" for first, values in runs)
    return f'{found}<path class="line c{series.colour}" d="{drawn}"/>'


def _points(first: int, values: Sequence[float], top: float) -> str:
    """The points of a run, each in the middle of its step; the first and the last reach to the ends of theirs."""
    heights = [round(HEIGHT - HEIGHT * value / top) for value in values]
    middle = [f"{STEP * (first + n) + STEP // 2} {y}" for n, y in enumerate(heights)]
    return " ".join(
        [f"{STEP * first} {heights[0]}", *middle, f"{STEP * (first + len(values))} {heights[-1]}"]
    )


def runs_of(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """The parts of a series in which every number is known, each with the place of its first."""
    run: list[float] = []
    for place, value in enumerate((*values, None)):
        if value is not None:
            run.append(value)
        elif run:
            yield place - len(run), run
            run = []

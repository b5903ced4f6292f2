"""How durations are spread: a heat map of minute by duration, and a histogram."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dayjob.admin.scrape import bucket_limit
from dayjob.admin.views import Histogram
from dayjob.text import counted
from dayjob.web.charts import scale
from dayjob.web.charts.parts import (
    Chart,
    Leads,
    Mark,
    TimeFrame,
    TwinRow,
    axis_label,
    axis_labels,
    grid,
    hit,
    plot,
    show_marks,
    stretched,
    time_axis,
    upright,
)
from dayjob.web.charts.units import COUNT
from dayjob.web.render import took

#: The most rows of a heat map, and the shades of its cells.
MAX_ROWS = 12
SHADES = 5
#: How many labels fit below a histogram on a phone.
MAX_ON_PHONES = 5
_QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


@dataclass(frozen=True, slots=True)
class Bands:
    """Durations in bands of equal width on a log scale. Band `n` ends at `limit(n)`."""

    #: The first bucket of the histogram that is shown, how many buckets a band has, and how many bands there are.
    first: int
    wide: int
    count: int

    def of(self, bucket: int) -> int:
        """The band of a bucket."""
        return (bucket - self.first) // self.wide

    def limit(self, band: int) -> float:
        """The longest duration of a band, in seconds."""
        return bucket_limit(self.first + (band + 1) * self.wide - 1)


def bands(histograms: Iterable[Histogram], most: int = MAX_ROWS) -> Bands | None:
    """Bands that contain all durations, at most so many; None if there are no durations."""
    used = [bucket for one in histograms for bucket, number in one.buckets.items() if number]
    if not used:
        return None
    low, high = min(used), max(used)
    wide = max(1, math.ceil((high - low + 1) / most))
    return Bands(low, wide, (high - low) // wide + 1)


def heat_map(
    title: str,
    starts: Sequence[int],
    step: int,
    histograms: Sequence[Histogram],
    *,
    to: Leads | None = None,
    marks: Iterable[Mark] = (),
) -> Chart:
    """How many durations of each length there were in each step: the more, the darker."""
    frame = TimeFrame(starts, step)
    rows = bands(histograms) or Bands(0, 1, 1)
    cells = [_banded(one, rows) for one in histograms]
    most = max((number for one in cells for number in one.values()), default=0)
    lines, labels = time_axis(frame)
    drawn_marks, shown = show_marks(marks, frame)
    hits, table = [], []
    for place, one in enumerate(histograms):
        p50, p95, p99 = (took(one.quantile(q)) for q, _ in _QUANTILES)
        leads = "" if to is None else to(starts[place], starts[place] + step)
        text = f"{counted(one.count, 'job')}" + (f", p50 {p50}, p95 {p95}, p99 {p99}" if one.count else "")
        hits.append(hit(place * frame.width, frame.width, text, at=starts[place], to=leads))
        table.append(TwinRow(float(starts[place]), "", (COUNT.text(one.count), p50, p95, p99), leads))
    inner = stretched(max(1, len(starts)), rows.count, _cells(cells, rows.count, most))
    svg = plot(title, (lines, inner, drawn_marks, *hits), " heat")
    head = ("From", "Jobs", "p50", "p95", "p99")
    ticks = tuple(took(float(f"{rows.limit(band):.2g}")) for band in _spread(rows.count))
    summary = f"the darkest cell is {counted(most, 'job')}" if most else "no job"
    return Chart(title, svg, labels, ticks, (), head, tuple(table), summary, shown)


def _banded(histogram: Histogram, rows: Bands) -> dict[int, int]:
    found: dict[int, int] = {}
    for bucket, number in histogram.buckets.items():
        found[rows.of(bucket)] = found.get(rows.of(bucket), 0) + number
    return found


def _spread(count: int) -> list[int]:
    """The bands that have a label, from the top: at most five, evenly spaced."""
    steps = min(4, count - 1)
    return [round((count - 1) * (steps - n) / steps) for n in range(steps + 1)] if steps else [0]


def shade(number: int, most: int) -> int:
    """How dark a cell is, from 1 to SHADES, on a log scale: one job among thousands is still seen."""
    return 1 + min(SHADES - 1, int(SHADES * math.log1p(number) / math.log1p(most)))


def _cells(cells: Sequence[Mapping[int, int]], rows: int, most: int) -> str:
    """One path for each shade: a page with an element for each cell would be much larger."""
    paths: dict[int, list[str]] = {}
    for place, one in enumerate(cells):
        for band, number in one.items():
            if number:
                paths.setdefault(shade(number, most), []).append(f"M{place} {rows - 1 - band}h1v1h-1z")
    return "".join(f'<path class="h{level}" d="{"".join(some)}"/>' for level, some in sorted(paths.items()))


def histogram(title: str, found: Histogram) -> Chart:
    """How many durations of each length there were, with the quantiles marked."""
    columns = bands([found], 60)
    if columns is None:
        return Chart(
            title, plot(title, (grid(1),)), axis_labels(""), ("1", "0"), (), ("Up to", "Jobs"), (), "no job"
        )
    counts = _banded(found, columns)
    steps = COUNT.ticks(max(counts.values()))
    width = 100 / columns.count
    pieces, rows = [grid(len(steps) - 1)], []
    for band in range(columns.count):
        number, limit = counts.get(band, 0), columns.limit(band)
        high = 100 * number / steps[-1]
        if number:
            pieces.append(
                f'<rect class="c0" x="{(band + 0.05) * width:.4g}%" y="{100 - high:.4g}%" width="{width * 0.9:.4g}%" height="{high:.4g}%"/>'
            )
            rows.append(TwinRow(None, took(limit), (COUNT.text(number),)))
    pieces += [upright(_x(columns, value), "mark") for _, value in _quantiles(found)]
    pieces += [
        hit(band * width, width, f"up to {took(columns.limit(band))}: {counted(counts.get(band, 0), 'job')}")
        for band in range(columns.count)
    ]
    summary = ", ".join(f"{label} {took(value)}" for label, value in _quantiles(found))
    decades = _decades(columns)
    # On a phone every second one of many is hidden.
    often = 'class="often"' if len(decades) > MAX_ON_PHONES else ""
    labels = axis_labels("".join(axis_label(_x(columns, at), took(at), often) for at in decades))
    ticks = tuple(COUNT.text(tick) for tick in reversed(steps))
    return Chart(title, plot(title, pieces), labels, ticks, (), ("Up to", "Jobs"), tuple(rows), summary)


def _quantiles(found: Histogram) -> list[tuple[str, float]]:
    pairs = ((label, found.quantile(q)) for q, label in _QUANTILES)
    return [(label, value) for label, value in pairs if value is not None]


def _x(columns: Bands, seconds: float) -> float:
    """Where a duration is on the log scale of a histogram, in percent."""
    low = math.log(bucket_limit(columns.first - 1))
    high = math.log(columns.limit(columns.count - 1))
    return scale.place(math.log(seconds), low, high)


def _decades(columns: Bands) -> list[float]:
    """Round durations along the axis; of many only every second or third."""
    low, high = bucket_limit(columns.first - 1), columns.limit(columns.count - 1)
    found = [at for at in scale.DURATIONS if low <= at <= high]
    every = max(1, math.ceil(len(found) / scale.MAX_TIMES))
    return found[::every]

"""Charts as SVG: bars over time, sparklines, and ranges of durations. Their labels are HTML around the SVG.

An SVG here stretches to its box, so nothing in it depends on the width of the screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

WIDTH, HEIGHT = 600, 100
#: The shortest and the longest duration that a range shows.
SHORTEST, LONGEST = 0.001, 3600.0


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars over time, with their labels and the same data as rows of a table."""

    svg: Markup
    #: Labels of the vertical axis, from the top.
    ticks: tuple[int, ...]
    #: The times at the beginning, the middle and the end of the axis.
    times: tuple[float, ...]
    rows: tuple[tuple[float, int, int], ...]
    total: int
    failed: int


def bars(starts: Sequence[int], step: int, ended: Sequence[int], failed: Sequence[int], what: str) -> Chart:
    """Attempts in each step, with the failed ones at the bottom of the bar."""
    top = _top(max(ended, default=0))
    wide = WIDTH / max(1, len(starts))
    pieces = [
        Markup('<line class="g" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)
        for y in (0, HEIGHT / 2, HEIGHT)
    ]
    for place, (start, all_of_it, bad) in enumerate(zip(starts, ended, failed, strict=True)):
        left, width = place * wide, wide * 0.8
        bad_high = HEIGHT * min(bad, all_of_it) / top
        high = HEIGHT * all_of_it / top - bad_high
        if high:
            pieces.append(_bar("f0", left, width, HEIGHT - bad_high - high, high))
        if bad_high:
            pieces.append(_bar("f1", left, width, HEIGHT - bad_high, bad_high))
        pieces.append(
            _drawn(
                f'<rect class="hit" x="{left:.1f}" y="0" width="{wide:.1f}" height="{HEIGHT}"'
                f' data-at="{start}" data-v="{all_of_it}|{bad}"/>'
            )
        )
    svg = Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, what, Markup().join(pieces))
    rows = tuple(zip(map(float, starts), ended, failed, strict=True))
    last = starts[-1] + step if starts else 0
    times = (starts[0], (starts[0] + last) / 2, last) if starts else ()
    return Chart(svg, (top, top // 2, 0) if top > 1 else (1, 0), times, rows, sum(ended), sum(failed))


def _bar(kind: str, left: float, width: float, y: float, high: float) -> Markup:
    return _drawn(
        f'<rect class="{kind}" x="{left:.1f}" y="{y:.2f}" width="{width:.1f}" height="{high:.2f}"/>'
    )


def _top(most: int) -> int:
    """The number at the top of an axis: 1, 2, 4, 6, 10, 20 …, so that half of it is an integer."""
    if most <= 1:
        return 1
    unit = 10 ** int(math.log10(most))
    return next(int(unit * factor) for factor in (1, 2, 4, 6, 8, 10, 20) if unit * factor >= most)


def spark(series: Sequence[int]) -> Markup:
    """A row of small bars; the table has the numbers."""
    if not series or not max(series):
        return Markup()
    top = max(series)
    # One path of integers: two hundred rows of sixty elements each would be most of a page.
    path = "".join([f"V{24 - (24 * value // top or value > 0)}h1" for value in series])
    return _drawn(
        f'<svg class="spark f0" viewBox="0 0 {len(series)} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M0 24{path}V24z"/></svg>'
    )


def span_range(p50: float | None, p95: float | None, p99: float | None) -> Markup:
    """The median and the slow end on a scale of 1 ms to 1 h; the table has the numbers."""
    if p50 is None or p95 is None or p99 is None:
        return Markup()
    low, mid, high = (_place(value) for value in (p50, p95, p99))
    return _drawn(
        f'<svg class="range" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{_TICKS}'
        f'<rect class="s" x="{low:.1f}" y="2" width="{max(1.0, high - low):.1f}" height="6"/>'
        f'<rect class="m" x="{low:.1f}" y="2" width="{max(1.0, mid - low):.1f}" height="6"/></svg>'
    )


def _drawn(svg: str) -> Markup:
    """An SVG with only numbers filled in. Escaping them would take most of the time of a page with many charts."""
    return Markup(svg)  # noqa: S704


def _place(seconds: float) -> float:
    """Where a duration is on the scale, from 0 to 100."""
    held = min(max(seconds, SHORTEST), LONGEST)
    return 100 * math.log(held / SHORTEST) / math.log(LONGEST / SHORTEST)


#: Where 10 ms, 0.1 s, ... are.
_TICKS = Markup().join(
    Markup('<line class="t" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="10"/>').format(_place(at))
    for at in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
)


def clock(at: float, *, day: bool) -> str:
    """A time at an axis, in UTC; the browser shows it in the reader's time zone."""
    return f"{datetime.fromtimestamp(at, UTC):{'%d %b %H:%M' if day else '%H:%M'}}"

"""Small charts for tables and tiles: sparklines, and ranges of durations. The numbers are beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from dayjob.web.charts.parts import drawn

#: The shortest and the longest duration that a range shows.
MIN_SECONDS, MAX_SECONDS = 0.001, 3600.0


def spark(series: Sequence[float | None], colour: int = 0) -> Markup:
    """A row of small bars."""
    top = max((value or 0 for value in series), default=0)
    if not top:
        return Markup()
    # One path of integers: two hundred rows of sixty elements each would be most of a page.
    path = "".join(
        [f"V{24 - (int(24 * value // top) or value > 0)}h1" for value in ((one or 0) for one in series)]
    )
    return drawn(
        f'<svg class="spark c{colour}" viewBox="0 0 {len(series)} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M0 24{path}V24z"/></svg>'
    )


def span_range(p50: float | None, p95: float | None, p99: float | None) -> Markup:
    """The median and the slow end on a scale of 1 ms to 1 h."""
    if p50 is None or p95 is None or p99 is None:
        return Markup()
    low, mid, high = (_place(value) for value in (p50, p95, p99))
    return drawn(
        f'<svg class="range" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{_TICKS}'
        f'<rect class="s" x="{low:.1f}" y="2" width="{max(1.0, high - low):.1f}" height="6"/>'
        f'<rect class="m" x="{low:.1f}" y="2" width="{max(1.0, mid - low):.1f}" height="6"/></svg>'
    )


def _place(seconds: float) -> float:
    """Where a duration is on the scale, from 0 to 100."""
    held = min(max(seconds, MIN_SECONDS), MAX_SECONDS)
    return 100 * math.log(held / MIN_SECONDS) / math.log(MAX_SECONDS / MIN_SECONDS)


#: Where 10 ms, 0.1 s, ... are.
_TICKS = Markup().join(
    Markup('<line class="t" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="10"/>').format(_place(at))
    for at in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
)

"""Gantt: spans of time on lanes, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from dayjob.web.charts.parts import Chart, Mark, TimeFrame, TwinRow, drawn, show_marks, time_axis
from dayjob.web.charts.units import SECONDS

#: The most lanes, and the height of one in pixels.
MAX_LANES = 40
LANE = 18


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took some time."""

    label: str
    start: float
    end: float
    colour: int = 0
    #: What is known of it, and its address.
    note: str = ""
    to: str = ""


def lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans on as few lanes as possible, so that no two of a lane overlap."""
    found: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.start):
        free = next((lane for lane in found if lane[-1].end <= span.start), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return found


def gantt(
    title: str,
    first: float,
    last: float,
    spans: Sequence[Span],
    *,
    keys: Sequence[tuple[int, str]],
    marks: Sequence[Mark] = (),
) -> Chart:
    """Spans between two moments. What began before the first is cut there."""
    frame = TimeFrame([int(first)], max(1, int(last) - int(first)))
    inside = [one for one in spans if one.end > first and one.start < last]
    placed = lanes(inside)
    shown = placed[:MAX_LANES]
    lines, labels = time_axis(frame)
    drawn_marks, marked = show_marks(marks, frame)
    bars = "".join(_bar(frame, number, span) for number, lane in enumerate(shown) for span in lane)
    height = max(2, len(shown)) * LANE
    svg = drawn(
        f'<svg class="plot gantt" height="{height}" role="img" aria-label="{escape(title)}">{lines}{bars}{drawn_marks}</svg>'
    )
    rows = tuple(
        TwinRow(one.start, "", (one.label, SECONDS.text(one.end - one.start), one.note), one.to)
        for one in sorted(inside, key=lambda one: one.start)
    )
    left = sum(map(len, placed[MAX_LANES:]))
    summary = f"{len(inside) - left:,} of {len(inside):,}" if left else ""
    return Chart(title, svg, labels, (), tuple(keys), ("From", "Job", "Took", ""), rows, summary, marked)


def _bar(frame: TimeFrame, lane: int, span: Span) -> str:
    left = max(0.0, frame.x(span.start))
    width = max(0.15, min(100.0, frame.x(span.end)) - left)
    leads = f' data-to="{escape(span.to)}"' if span.to else ""
    text = ", ".join(filter(None, (span.label, SECONDS.text(span.end - span.start), span.note)))
    return (
        f'<rect class="span c{span.colour}" x="{left:.4g}%" y="{lane * LANE + 2}" width="{width:.4g}%" height="{LANE - 4}" rx="3"'
        f' data-at="{span.start:.0f}" data-say="{escape(text)}"{leads}/>'
    )

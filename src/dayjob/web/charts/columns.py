"""Columns: a number for each of some steps that are no times, such as sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dayjob.text import counted
from dayjob.web.charts.parts import Chart, TwinRow, axis_label, axis_labels, grid, hit, plot
from dayjob.web.charts.units import COUNT

#: The most labels below.
MAX_LABELS = 10


def columns(title: str, what: str, noun: str, labels: Sequence[str], counts: Sequence[int]) -> Chart:
    """One column for each label. `what` is what a label means, `noun` what is counted."""
    ticks = COUNT.ticks(max(counts, default=0))
    width = 100 / max(1, len(counts))
    every = max(1, math.ceil(len(labels) / MAX_LABELS))
    pieces, below, rows = [grid(len(ticks) - 1)], [], []
    for place, (label, count) in enumerate(zip(labels, counts, strict=True)):
        high = 100 * count / ticks[-1]
        if count:
            pieces.append(
                f'<rect class="c0" x="{(place + 0.05) * width:.4g}%" y="{100 - high:.4g}%" width="{width * 0.9:.4g}%" height="{high:.4g}%"/>'
            )
        if place % every == 0:
            below.append(axis_label((place + 0.5) * width, label))
        rows.append(TwinRow(None, label, (COUNT.text(count),)))
    pieces += [
        hit(
            place * width,
            width,
            f"{what.lower()} {label}: {counted(counts[place], noun.lower().removesuffix('s'))}",
        )
        for place, label in enumerate(labels)
    ]
    names = tuple(COUNT.text(tick) for tick in reversed(ticks))
    return Chart(
        title, plot(title, pieces), axis_labels("".join(below)), names, (), (what, noun), tuple(rows)
    )

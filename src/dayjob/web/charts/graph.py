"""Graph: boxes in columns, each to the right of all that it needs, with lines between them. Drawn on the server as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from dayjob.web.charts.parts import drawn

#: How many boxes and lines a graph may have; a table is easier to read beyond.
MAX_BOXES = 200
MAX_LINES = 1000
#: In pixels: a box, the space between columns and between rows, and the margin.
WIDTH, HEIGHT, GAP, ROW, MARGIN = 176, 46, 56, 14, 10
#: How many characters of a name a box shows.
MAX_CHARS = 20

Tone = Literal["ok", "err", "warn", "run", "idle"]


@dataclass(frozen=True, slots=True)
class Box:
    """One box. Boxes are known by their place in the sequence of all."""

    label: str
    #: The second line, and its colour.
    state: str
    tone: Tone
    #: The boxes from which lines lead to it, and those from which dashed lines do. All of them stand before it in the sequence.
    needs: tuple[int, ...] = ()
    watches: tuple[int, ...] = ()
    #: What is shown when the pointer rests on it, and its address.
    note: str = ""
    to: str = ""


def graph(title: str, boxes: Sequence[Box]) -> Markup | None:
    """The boxes and lines as SVG; None if there are too many, or none."""
    lines = sum(len(box.needs) + len(box.watches) for box in boxes)
    if not 0 < len(boxes) <= MAX_BOXES or lines > MAX_LINES:
        return None
    places = _places(boxes)
    width = max(x for x, _ in places) + WIDTH + MARGIN
    height = max(y for _, y in places) + HEIGHT + MARGIN
    edges = "".join(
        _line(places[number], places[place], "dashed" if dashed else "")
        for place, box in enumerate(boxes)
        for dashed, numbers in ((False, box.needs), (True, box.watches))
        for number in numbers
    )
    drawn_boxes = "".join(_box(box, *places[place]) for place, box in enumerate(boxes))
    return drawn(
        f'<svg class="graph" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group"'
        f' aria-label="{escape(title)}"><g aria-hidden="true">{edges}</g>{drawn_boxes}</svg>'
    )


def _places(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    """Where each box stands: its column is one after the last that it needs. In a column, boxes stand near what they need."""
    depths: list[int] = []
    for box in boxes:
        depths.append(1 + max((depths[n] for n in (*box.needs, *box.watches)), default=-1))
    rows = [0.0] * len(boxes)
    for depth in range(max(depths) + 1):
        column = [n for n, one in enumerate(depths) if one == depth]
        # Those at the end of dashed lines stand below the others.
        column.sort(key=lambda n: (bool(boxes[n].watches), _middle([rows[m] for m in boxes[n].needs])))
        for row, n in enumerate(column):
            rows[n] = row
    return [
        (MARGIN + depth * (WIDTH + GAP), MARGIN + int(row) * (HEIGHT + ROW))
        for depth, row in zip(depths, rows, strict=True)
    ]


def _middle(rows: Sequence[float]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def _line(start: tuple[int, int], end: tuple[int, int], kind: str) -> str:
    x, y = start[0] + WIDTH, start[1] + HEIGHT // 2
    to_x, to_y = end[0], end[1] + HEIGHT // 2
    # All lines to a column turn at one place, so that those of a fan are one line there. Dashed ones turn later.
    turn = to_x - (GAP // 3 if kind else GAP // 2)
    return f'<path class="{f"wire {kind}".strip()}" d="M{x} {y}H{turn}V{to_y}H{to_x}"/>'


def _box(box: Box, x: int, y: int) -> str:
    label = box.label if len(box.label) <= MAX_CHARS else f"{box.label[: MAX_CHARS - 1]}…"
    inner = (
        f"<title>{escape(box.note)}</title>"
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(label)}</text>'
        f'<text class="state" x="{x + 12}" y="{y + 36}">{escape(box.state)}</text>'
    )
    if box.to:
        return f'<a class="box {box.tone}" href="{escape(box.to)}">{inner}</a>'
    return f'<g class="box {box.tone}">{inner}</g>'

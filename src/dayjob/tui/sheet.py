"""Sheet: what one view shows at one moment, as plain values, and how its columns fit a width. No I/O, no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

Tone = Literal["", "ok", "warning", "error", "dim", "bold", "title"]

#: A piece of text and how it is meant.
Piece = tuple[str, Tone]
Line = tuple[Piece, ...]

#: Blank columns between two columns of a table, and the mark before each row.
GAP = 2
MARGIN = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False
    #: The widest it may be, and what it must have before others go for its sake; 0: all that it wants.
    most: int = 40
    least: int = 0
    #: Which columns go first when there is no room: the highest. 0 stays.
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row; its key stays the same from one read to the next."""

    key: str
    cells: tuple[str | Piece, ...]
    #: What it shows: a job, a queue, a pool.
    subject: Any = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """Lines, and a table below them. Without columns the lines are all there is, and scroll."""

    lines: tuple[Line, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    #: What is shown when there are no rows.
    empty: str = ""
    #: What continues the list; "" when this is the end of it.
    next: str = ""
    #: What the whole is about, for actions of a view without rows.
    subject: Any = None


@dataclass(slots=True)
class Layout:
    """How wide each column of a table is; it never shrinks, so that nothing moves sideways from second to second."""

    natural: dict[str, int] = field(default_factory=dict)

    def fit(self, sheet: Sheet, width: int) -> list[tuple[int, int]]:
        """The columns that there is room for, as (index, width); the last of them takes what is left."""
        for i, column in enumerate(sheet.columns):
            cells = (cell_len(text_of(row.cells[i])) for row in sheet.rows)
            widest = max((cell_len(column.title), *cells))
            self.natural[column.title] = max(self.natural.get(column.title, 0), min(column.most, widest))
        return fitted(sheet.columns, [self.natural[column.title] for column in sheet.columns], width - MARGIN)


def fitted(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Choose columns: by rank they go until the rest fits; what cannot go is made narrower, the widest first."""
    chosen = list(range(len(columns)))

    def gaps() -> int:
        return GAP * max(0, len(chosen) - 1)

    def needed() -> int:
        return sum(min(natural[i], columns[i].least or natural[i]) for i in chosen) + gaps()

    while needed() > room and any(columns[i].rank for i in chosen):
        chosen.remove(max(chosen, key=lambda i: (columns[i].rank, i)))
    widths = {i: natural[i] for i in chosen}
    over = sum(widths.values()) + gaps() - room
    while over > 0 and widths and max(widths.values()) > 1:
        widest = max(chosen, key=lambda i: widths[i])
        widths[widest] -= 1
        over -= 1
    if over < 0 and chosen and not columns[chosen[-1]].right:
        widths[chosen[-1]] -= over
    return [(i, widths[i]) for i in chosen]


def text_of(cell: str | Piece) -> str:
    """The text of a cell."""
    return cell if isinstance(cell, str) else cell[0]


def tone_of(cell: str | Piece) -> Tone:
    """How a cell is meant."""
    return "" if isinstance(cell, str) else cell[1]


def clipped(text: str, width: int, *, right: bool = False) -> str:
    """Text in exactly so many cells, with an ellipsis where it was cut."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, max(0, width - 1)) + ("…" if width > 0 else "")
    return " " * (width - size) + text if right else text + " " * (width - size)


def wrapped(text: str, width: int) -> list[str]:
    """Text in lines of so many cells at most, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width or not width > 0:
            line = joined
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width:
            head = set_cell_size(line, width).rstrip()
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line]


def flowing(pieces: Sequence[Piece], width: int) -> list[Line]:
    """Pieces one after the other, broken at blanks into lines of so many cells."""
    lines: list[list[Piece]] = [[]]
    used = 0
    for text, tone in pieces:
        for number, word in enumerate(text.split(" ")):
            joined = f" {word}" if number else word
            if used and used + cell_len(joined) > width:
                lines.append([])
                used, joined = 0, word
            lines[-1].append((joined, tone))
            used += cell_len(joined)
    return [tuple(line) for line in lines]


def spark(values: Sequence[float], width: int) -> str:
    """A row of bars for a series, its newest at the right."""
    if not values or width < 1:
        return ""
    step = max(1.0, len(values) / width)
    groups = [
        values[round(len(values) - step * (n + 1)) : round(len(values) - step * n)]
        for n in range(min(width, len(values)))
    ]
    sums = [sum(group) / max(1, len(group)) for group in reversed(groups)]
    most = max(sums)
    bars = "▁▂▃▄▅▆▇█"
    return (
        "".join(bars[min(7, int(value / most * 7.99))] if value > 0 else " " for value in sums)
        if most
        else ""
    )


def bar(share: float, width: int) -> str:
    """A bar that is filled to a share."""
    filled = round(min(1.0, max(0.0, share)) * width)
    return "█" * filled + "░" * (width - filled)

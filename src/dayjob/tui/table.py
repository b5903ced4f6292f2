"""Body: the widget that draws a sheet. The cursor stays on its row by key, and the row stays on its line of the screen."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from dayjob.tui.sheet import (
    GAP,
    MARGIN,
    Layout,
    Line,
    Row,
    Sheet,
    Tone,
    clipped,
    text_of,
    tone_of,
    wrapped,
)

#: The terminal's own colours, which fit light and dark terminals.
STYLES: dict[Tone, Style] = {
    "": Style(),
    "ok": Style(color="green"),
    "warning": Style(color="yellow"),
    "error": Style(color="red"),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "title": Style(bold=True, color="cyan"),
}
_CURSOR = Style(reverse=True)
_HEAD = Style(bold=True, dim=True)


@dataclass(slots=True)
class Spot:
    """The position in a view; it is kept while another view is open."""

    cursor: int = 0
    #: The key of the row under the cursor.
    key: str = ""
    #: The first row, or line, that is shown.
    top: int = 0
    #: Keys of rows that are marked.
    marks: set[str] = field(default_factory=set)
    layout: Layout = field(default_factory=Layout)


class Body(Widget, can_focus=True):
    """Lines at the top, rows below. Without rows, the lines scroll."""

    DEFAULT_CSS = "Body { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.sheet = Sheet()
        self.spot = Spot()

    # Content.

    def show(self, spot: Spot, sheet: Sheet) -> None:
        """Show a newer sheet. The row under the cursor stays at its place on the screen."""
        keys = [row.key for row in sheet.rows]
        if spot.key in keys:
            place = keys.index(spot.key)
            spot.top += place - spot.cursor
            spot.cursor = place
        spot.marks &= set(keys)
        self.sheet, self.spot = sheet, spot
        self._clamp()
        self.refresh()

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        rows = self.sheet.rows
        return rows[self.spot.cursor] if 0 <= self.spot.cursor < len(rows) else None

    @property
    def marked(self) -> list[Row]:
        """The rows that are marked, in their order."""
        return [row for row in self.sheet.rows if row.key in self.spot.marks]

    # Position.

    def move(self, by: int) -> None:
        """Move the cursor; without rows, scroll."""
        if self.sheet.rows:
            self.spot.cursor += by
        else:
            self.spot.top += by
        self._clamp()
        self.refresh()

    def page(self, by: int) -> None:
        """Move by screens."""
        self.move(by * max(1, self._room() - 1))

    def mark(self) -> None:
        """Mark or unmark the row under the cursor, and move to the next."""
        if self.row is not None:
            self.spot.marks ^= {self.row.key}
            self.move(1)

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._clamp()
        self.refresh()

    def _room(self) -> int:
        """How many rows or lines fit."""
        return max(1, self.size.height - (len(self._head()) if self.sheet.rows else 0))

    def _clamp(self) -> None:
        count = len(self.sheet.rows) or len(self._lines())
        room = self._room()
        self.spot.cursor = max(0, min(self.spot.cursor, len(self.sheet.rows) - 1))
        if self.sheet.rows:
            self.spot.top = max(self.spot.cursor - room + 1, min(self.spot.top, self.spot.cursor))
        self.spot.top = max(0, min(self.spot.top, count - room))
        self.spot.key = self.row.key if self.row else ""

    # Drawing.

    def _lines(self) -> list[Line]:
        """The lines at the top, wrapped to the width; text after a label is indented."""
        found: list[Line] = []
        width = max(1, self.size.width - MARGIN)
        for line in self.sheet.lines:
            size = sum(cell_len(piece) for piece, _ in line)
            if size <= width or not line:
                found.append(line)
            elif len(line) > 2:
                found += _broken(line, width)
            else:
                found += _set_in(line, width)
        if self.sheet.columns and not self.sheet.rows:
            found += [(("", ""),), ((self.sheet.empty, "dim"),)] if found else [((self.sheet.empty, "dim"),)]
        return found

    def _head(self) -> list[Line | None]:
        """The fixed part above the rows: as many lines as leave room for three rows, and None for the titles."""
        lines: list[Line | None] = [*self._lines()]
        return [*lines[: max(0, self.size.height - 4)], None]

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.size.width
        if not self.sheet.rows:
            lines = self._lines()
            place = self.spot.top + y
            return _strip(drawn(lines[place]) if place < len(lines) else [], width)
        head = self._head()
        if y < len(head):
            line = head[y]
            return self._titles(width) if line is None else _strip(drawn(line), width)
        place = self.spot.top + y - len(head)
        if place >= len(self.sheet.rows):
            return Strip.blank(width)
        return self._row(self.sheet.rows[place], width, chosen=place == self.spot.cursor)

    def _titles(self, width: int) -> Strip:
        segments = [Segment(" " * MARGIN)]
        for i, size in self.spot.layout.fit(self.sheet, width):
            column = self.sheet.columns[i]
            segments += [Segment(clipped(column.title, size, right=column.right), _HEAD), Segment(" " * GAP)]
        return Strip(segments[:-1]).adjust_cell_length(width)

    def _row(self, row: Row, width: int, *, chosen: bool) -> Strip:
        mark = "*" if row.key in self.spot.marks else ">" if chosen else " "
        over = _CURSOR if chosen else Style()
        segments = [Segment(f"{mark} ", STYLES["bold"] + over)]
        for i, size in self.spot.layout.fit(self.sheet, width):
            cell = row.cells[i]
            text = clipped(text_of(cell), size, right=self.sheet.columns[i].right)
            # One colour for the whole row; the signs in the text have the same meaning.
            style = (
                over + (STYLES["bold"] if tone_of(cell) == "bold" else Style())
                if chosen
                else STYLES[tone_of(cell)]
            )
            segments += [Segment(text, style), Segment(" " * GAP, over)]
        return Strip(segments[:-1]).adjust_cell_length(width, over)


def _broken(line: Line, width: int) -> list[Line]:
    """A line of many pieces, wrapped between them."""
    found: list[Line] = []
    used = width
    for piece in line:
        if used + cell_len(piece[0].rstrip()) > width:
            found.append(())
            used = 0
        found[-1] = (*found[-1], piece)
        used += cell_len(piece[0])
    return found


def _set_in(line: Line, width: int) -> list[Line]:
    """A label and a text; the text is wrapped and indented."""
    label, (text, tone) = line[:-1], line[-1]
    blank = text[: len(text) - len(text.lstrip(" "))]
    indent = sum(cell_len(piece) for piece, _ in label) + len(blank)
    first, *more = wrapped(text[len(blank) :], max(8, width - indent))
    return [(*label, (blank + first, tone)), *(((" " * indent, ""), (part, tone)) for part in more)]


def drawn(line: Line) -> list[Segment]:
    """A line as it is drawn."""
    return [Segment(" "), *(Segment(text, STYLES[tone]) for text, tone in line)]


def _strip(segments: list[Segment], width: int) -> Strip:
    return Strip(segments).adjust_cell_length(width)

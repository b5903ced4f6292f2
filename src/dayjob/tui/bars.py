"""Bars: the lines above and below the body, and what is in them when there is little room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from dayjob.tui.sheet import Piece
from dayjob.tui.table import STYLES

_CHOSEN = Style(reverse=True, bold=True)

#: A key and what it does.
Keyed = tuple[str, str]


class Bar(Widget):
    """A line of the screen, or more where its text is long."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, id: str) -> None:  # noqa: A002 - textual's word
        super().__init__(id=id)
        self._lines: list[list[Segment]] = []

    def show(self, *lines: list[Segment]) -> None:
        """Draw these."""
        if list(lines) != self._lines:
            self._lines = list(lines)
            self.styles.height = max(1, len(lines))
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One of them."""
        return Strip(self._lines[y] if y < len(self._lines) else []).adjust_cell_length(self.size.width)


def head_line(width: int, namespace: str, where: str, right: Piece) -> list[Segment]:
    """Which namespace, on which server, and how fresh it is; the server goes first."""
    name = f" dayjob  {namespace}"
    last = f"{right[0]} "
    server = f"  {where}"
    if cell_len(name) + cell_len(server) + cell_len(last) >= width:
        server = ""
    gap = max(1, width - cell_len(name) - cell_len(server) - cell_len(last))
    return [
        Segment(name, STYLES["title"]), Segment(server, STYLES["dim"]), Segment(" " * gap), Segment(last, STYLES[right[1]]),
    ]  # fmt: skip


def tab_line(width: int, titles: Sequence[str], chosen: int) -> list[Segment]:
    """The tabs; where there is no room for all, those about the one that is open."""
    names = [f" {title} " for title in titles]
    first, last = _window([cell_len(name) for name in names], chosen, width - 2)
    return [
        Segment("<" if first > 0 else " ", STYLES["dim"]),
        *(Segment(names[i], _CHOSEN if i == chosen else Style()) for i in range(first, last + 1)),
        Segment(">" if last + 1 < len(names) else " ", STYLES["dim"]),
    ]


def _window(sizes: Sequence[int], chosen: int, room: int) -> tuple[int, int]:
    """The first and the last that fit, with the chosen one about in the middle."""
    first = last = chosen
    used = sizes[chosen]
    while True:
        right = last + 1 < len(sizes) and used + sizes[last + 1] <= room
        left = first > 0 and used + sizes[first - 1] <= room
        if right and (not left or last - chosen <= chosen - first):
            last += 1
            used += sizes[last]
        elif left:
            first -= 1
            used += sizes[first]
        else:
            return first, last


def key_line(width: int, keys: Iterable[Keyed], last: Sequence[Keyed]) -> list[Segment]:
    """As many keys as fit, the most wanted first; the last ones always, at the right."""
    room = width - sum(_size(one) for one in last)
    chosen: list[Keyed] = []
    for one in keys:
        if _size(one) > room:
            break
        room -= _size(one)
        chosen.append(one)
    return [*_drawn(chosen), Segment(" " * max(0, room)), *_drawn(last)]


def _size(one: Keyed) -> int:
    return cell_len(f" {one[0]} {one[1]} ")


def _drawn(keys: Sequence[Keyed]) -> list[Segment]:
    found: list[Segment] = []
    for key, what in keys:
        found += [Segment(f" {key}", STYLES["bold"]), Segment(f" {what} ", STYLES["dim"])]
    return found

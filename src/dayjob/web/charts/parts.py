"""Parts of every chart: the plot with its grid, the labels of the time axis, marks of events, and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dayjob.web.charts import scale
from dayjob.web.charts.units import Unit

#: Longer labels do not fit beside an end of the axis.
MAX_CENTRED = 5
#: The address of what happened between two moments.
Leads = Callable[[float, float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers over time with their name; None where a number is not known."""

    label: str
    values: Sequence[float | None]
    #: Which of the colours: 0 neutral, 1 bad, 2 and 3 others.
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on the time axis."""

    at: float
    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class TwinRow:
    """A row of the table that has the data of a chart."""

    #: When it begins; None if the row is not about a time.
    at: float | None
    label: str
    cells: tuple[str, ...]
    #: The address of what happened then; "" if there is none.
    to: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its labels, and the same data as rows of a table."""

    title: str
    svg: Markup
    #: The labels of the horizontal axis, as an SVG.
    axis: Markup
    #: Labels of the vertical axis, from the top.
    ticks: tuple[str, ...]
    #: Colours and what they mean.
    keys: tuple[tuple[int, str], ...]
    head: tuple[str, ...]
    rows: tuple[TwinRow, ...]
    summary: str = ""
    marks: tuple[Mark, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.rows


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """The steps of a time axis, and where each of them is."""

    starts: Sequence[int]
    step: int

    @property
    def first(self) -> float:
        """When the axis begins."""
        return float(self.starts[0]) if self.starts else 0.0

    @property
    def last(self) -> float:
        """When it ends."""
        return float(self.starts[-1] + self.step) if self.starts else 0.0

    @property
    def width(self) -> float:
        """The width of one step, in percent."""
        return 100 / max(1, len(self.starts))

    def x(self, at: float) -> float:
        """Where a moment is, in percent."""
        return scale.place(at, self.first, self.last)


def drawn(svg: str) -> Markup:
    """An SVG with only numbers and escaped texts filled in. Escaping the numbers would take most of the time of a page."""
    return Markup(svg)  # noqa: S704


def plot(title: str, pieces: Iterable[str], kind: str = "") -> Markup:
    """The picture, with a name for those who cannot see it."""
    return drawn(f'<svg class="plot{kind}" role="img" aria-label="{escape(title)}">{"".join(pieces)}</svg>')


def stretched(width: float, height: float, pieces: str) -> str:
    """Part of a picture with coordinates of its own; it is stretched over all of it."""
    return f'<svg viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" width="100%" height="100%">{pieces}</svg>'


def grid(steps: int) -> str:
    """Horizontal lines at the labels of the vertical axis."""
    return "".join(
        f'<line class="g" x1="0" x2="100%" y1="{y:.4g}%" y2="{y:.4g}%"/>'
        for y in (100 * number / steps for number in range(steps + 1))
    )


def upright(x: float, kind: str = "g") -> str:
    """A vertical line."""
    return f'<line class="{kind}" x1="{x:.4g}%" x2="{x:.4g}%" y1="0" y2="100%"/>'


def time_axis(frame: TimeFrame) -> tuple[str, Markup]:
    """Vertical lines at round times, and their labels."""
    if not frame.starts:
        return "", Markup()
    ats, kind = scale.times(frame.first, frame.last)
    lines = "".join(upright(frame.x(at)) for at in ats)
    labels = "".join(
        axis_label(frame.x(at), scale.clock(at, kind), f'data-clock="{kind}" data-at="{at:.0f}"')
        for at in ats
    )
    return lines, axis_labels(labels)


def axis_label(x: float, text: str, more: str = "") -> str:
    """A label centred at `x`; a long one at an end of the axis stays inside of it."""
    inside = len(text) <= MAX_CENTRED
    anchor = "middle" if inside or 1 < x < 99 else "start" if x < 1 else "end"
    return f'<text x="{x:.4g}%" y="1em" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def axis_labels(labels: str) -> Markup:
    """The labels below a plot."""
    return drawn(f'<svg class="xlabels" aria-hidden="true">{labels}</svg>')


def hit(x: float, width: float, text: str, *, at: float | None = None, to: str = "") -> str:
    """A part of the plot that shows `text` under the pointer, and links to `to`."""
    when = "" if at is None else f' data-at="{at:.0f}"'
    leads = f' data-to="{escape(to)}"' if to else ""
    return f'<rect class="hit" x="{x:.4g}%" y="0" width="{width:.4g}%" height="100%"{when} data-say="{escape(text)}"{leads}/>'


def show_marks(marks: Iterable[Mark], frame: TimeFrame) -> tuple[str, tuple[Mark, ...]]:
    """The events within the time of a chart: drawn, and as they are."""
    shown = tuple(one for one in marks if frame.first <= one.at < frame.last)
    pieces = (
        f'{upright(frame.x(one.at), "mark bad" if one.bad else "mark")}<circle class="mark{" bad" if one.bad else ""}"'
        f' cx="{frame.x(one.at):.4g}%" cy="0" r="4"><title>{escape(one.text)}</title></circle>'
        for one in shown
    )
    return "".join(pieces), shown


def over_time(
    title: str,
    frame: TimeFrame,
    series: Sequence[Series],
    unit: Unit,
    pieces: Iterable[str],
    *,
    steps: Sequence[float],
    to: Leads | None = None,
    marks: Iterable[Mark] = (),
    summary: str = "",
) -> Chart:
    """A chart over time from what is drawn in it: adds the grid, the axes, the marks, the hover texts and the table."""
    lines, labels = time_axis(frame)
    drawn_marks, shown = show_marks(marks, frame)
    rows = []
    hits = []
    for place, start in enumerate(frame.starts):
        cells = tuple(unit.text(one.values[place]) for one in series)
        leads = "" if to is None else to(start, start + frame.step)
        rows.append(TwinRow(float(start), "", cells, leads))
        text = ", ".join(f"{cell} {one.label}" for cell, one in zip(cells, series, strict=True))
        hits.append(hit(place * frame.width, frame.width, text, at=start, to=leads))
    svg = plot(title, (grid(max(1, len(steps) - 1)), lines, *pieces, *hits, drawn_marks))
    ticks = tuple(unit.text(tick) for tick in reversed(steps))
    keys = tuple((one.colour, one.label) for one in series)
    head = ("From", *(one.label.capitalize() for one in series))
    return Chart(title, svg, labels, ticks, keys, head, tuple(rows), summary, shown)

"""Draws results as SVG. Each chart has a table twin on the page that shows it.

A chart has its own background in both colour schemes, so that it can be read on any page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from budgets import Budget
from figures import Results, quantity
from systems import SYSTEMS

WIDTH, LABELS, NOTES, ROW, HEAD, FOOT = 800, 276, 156, 24, 62, 34
STYLE = """
  .ground { fill: #ffffff; stroke: #d8dee4 } text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px } .soft { fill: #57606a; font-size: 12px } .group { font-weight: 600 }
  .line { stroke: #d8dee4 } .end { text-anchor: end } .middle { text-anchor: middle }
  .own { fill: #0969da; stroke: #0969da } .peer { fill: #6e7781; stroke: #6e7781 }
  .missed { fill: #bc4c00; stroke: #bc4c00 } .span { stroke-width: 2 } .target { stroke: #24292f; stroke-width: 2 }
  .curve { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 } .soft { fill: #9198a1 } .line { stroke: #30363d }
    .own { fill: #58a6ff; stroke: #58a6ff } .peer { fill: #8b949e; stroke: #8b949e }
    .missed { fill: #f0883e; stroke: #f0883e } .target { stroke: #e6edf3 } .curve { fill: none }
  }"""


@dataclass(frozen=True)
class Dot:
    """One row: a value with what it ranges over, or the heading of a group, which has no value."""

    label: str
    middle: float = 0.0
    low: float = 0.0
    high: float = 0.0
    note: str = ""
    kind: str = "peer"
    target: float | None = None


def dots(title: str, about: str, rows: Sequence[Dot], scale: Callable[[float], str]) -> str:
    """Rows of dots over a logarithmic axis, each with the range of its runs and its target."""
    values = [
        value for row in rows for value in (row.low, row.middle, row.high, row.target or 0.0) if value > 0
    ]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    left, right = LABELS, WIDTH - NOTES
    bottom = HEAD + ROW * len(rows)

    def x(value: float) -> float:
        part = (math.log10(max(value, 10**low)) - low) / (high - low)
        return round(left + part * (right - left), 1)

    parts = [_text(16, 26, title, "title"), _text(16, 45, about, "soft")]
    for power in range(low, high + 1):
        at = x(10**power)
        parts.append(f'<line class="line" x1="{at}" y1="{HEAD - 6}" x2="{at}" y2="{bottom}"/>')
        parts.append(_text(at, bottom + 18, scale(10**power), "soft middle"))
    for number, row in enumerate(rows):
        y = HEAD + ROW * number + ROW // 2
        if not row.middle:
            parts.append(_text(16, y + 4, row.label, "group"))
            continue
        parts.append(_text(left - 12, y + 4, row.label, "end"))
        if row.high > row.low:
            parts.append(
                f'<line class="span {row.kind}" x1="{x(row.low)}" y1="{y}" x2="{x(row.high)}" y2="{y}"/>'
            )
        if row.target is not None:
            at = x(row.target)
            parts.append(f'<line class="target" x1="{at}" y1="{y - 8}" x2="{at}" y2="{y + 8}"/>')
        parts.append(f'<circle class="{row.kind}" cx="{x(row.middle)}" cy="{y}" r="4.5"/>')
        parts.append(_text(right + 12, y + 4, row.note, "soft"))
    return _svg(title, bottom + FOOT, parts)


def curves(
    title: str,
    about: str,
    across: Sequence[float],
    lines: Sequence[tuple[str, str, Sequence[float]]],
    unit: str,
) -> str:
    """Lines over time, from zero. Each line: its label, its class, its values."""
    left, right, top, bottom = 56, WIDTH - NOTES, HEAD, HEAD + 180
    most = max((value for _, _, values in lines for value in values), default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(most / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= 5)
    top_value = math.ceil(most / step) * step
    span = (across[-1] - across[0]) or 1.0
    x = [round(left + (at - across[0]) / span * (right - left), 1) for at in across]

    def y(value: float) -> float:
        return round(bottom - value / top_value * (bottom - top), 1)

    parts = [_text(16, 26, title, "title"), _text(16, 45, about, "soft")]
    for tick in range(round(top_value / step) + 1):
        at = y(tick * step)
        parts.append(f'<line class="line" x1="{left}" y1="{at}" x2="{right}" y2="{at}"/>')
        parts.append(_text(left - 8, at + 4, f"{tick * step:g}", "soft end"))
    for part in range(6):
        minutes = (across[0] + span * part / 5) / 60
        parts.append(
            _text(left + (right - left) * part / 5, bottom + 18, f"{minutes:.1f} min", "soft middle")
        )
    ends: list[float] = []
    for label, kind, values in sorted(lines, key=lambda line: -line[2][-1]):
        points = " ".join(f"{at},{y(value)}" for at, value in zip(x, values, strict=True))
        parts.append(f'<polyline class="curve {kind}" points="{points}"/>')
        # Labels keep apart.
        ends.append(max(y(values[-1]), ends[-1] + 16 if ends else 0.0))
        parts.append(_text(right + 8, ends[-1] + 4, f"{label} {quantity(values[-1])} {unit}", "soft"))
    return _svg(title, bottom + FOOT, parts)


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}\n</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


# The charts of docs/benchmarks.md.


def throughput(results: Results) -> str:
    """All systems, each with the configuration that was fastest, without delay and with one Redis."""
    best: dict[str, str] = {}
    for key in sorted(results.keys("A"), key=lambda one: results.middle(one, "rate")):
        record = results.by_key[key][0]
        if record["variant"] == "" and results.figure(key, "rate") is not None:
            best[f"dayjob, {record['config']}" if record["system"] == "dayjob" else record["system"]] = key
    rows = []
    for label, key in sorted(best.items(), key=lambda pair: -results.middle(pair[1], "rate")):
        figure = results.figure(key, "rate")
        assert figure is not None
        system = SYSTEMS[results.by_key[key][0]["system"]]
        config = results.by_key[key][0]["config"]
        label_ = "bare loop (upper bound)" if label == "bare" else label
        if system.kind != "own" and system.config(config).processes > 1:
            label_ += f", {system.config(config).processes} processes"
        kind = "own" if label.startswith("dayjob") else "peer"
        rows.append(
            Dot(label_, figure.middle, figure.low, figure.high, f"{quantity(figure.middle)} jobs/s", kind)
        )
    if not rows:
        return ""
    about = "jobs per second, logarithmic; each system at its fastest setting; line: lowest to highest run"
    return dots("No-op jobs per second", about, rows, _short)


def latency(results: Results) -> str:
    """From enqueue to start at three loads: from the median to the 99th percentile."""
    keys = results.keys("load")
    rows: list[Dot] = []
    # "20% of capacity": by the number.
    variants = sorted(
        {results.by_key[key][0]["variant"] for key in keys}, key=lambda one: float(one.partition("%")[0])
    )
    for variant in variants:
        rows.append(Dot(variant))
        group = []
        for key in keys:
            record = results.by_key[key][0]
            middle, high = results.middle(key, "p50_ms"), results.middle(key, "p99_ms")
            if record["variant"] == variant and middle:
                own = record["system"] == "dayjob"
                note = f"p50 {quantity(middle)}, p99 {quantity(high)}"
                group.append(Dot(record["system"], middle, middle, high, note, "own" if own else "peer"))
        rows += sorted(group, key=lambda row: row.middle)
    if not any(row.middle for row in rows):
        return ""
    about = "milliseconds from enqueue to start, logarithmic; dot: median; line: to the 99th percentile"
    return dots("Latency under load", about, rows, lambda value: f"{value:g} ms")


def paths(found: Iterable[Budget]) -> str:
    """The paths beside the plain one and their targets."""
    rows = []
    for one in found:
        if one.workload == "paths" and one.figure is not None and one.least is not None:
            note = f"{quantity(one.figure.middle)}, target {one.least:g}"
            kind = "own" if one.verdict == "met" else "missed"
            label = one.what.removesuffix(" / plain")
            rows.append(Dot(label, one.figure.middle, one.figure.low, one.figure.high, note, kind, one.least))
    if not rows:
        return ""
    about = "rate / rate of plain jobs in the same turn, unless named; upright: target; orange: missed"
    return dots("Paths beside the plain one", about, rows, lambda value: f"{value:g}")


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def write(folder: Path, name: str, svg: str, text: str) -> str:
    """Write a chart; the Markdown that shows it, or nothing where nothing was measured."""
    if not svg:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(svg, "utf-8")
    return f"![{text}](images/{name})\n"

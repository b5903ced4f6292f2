"""Arithmetic over results: medians with their spread, and ratios taken round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
#: Between the lowest and the highest, and in place of what is not known.
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
#: Cores used by others during a run, above which it does not count as clean.
CLEAN = 0.25


@dataclass(frozen=True)
class Figure:
    """The median of several runs, and how far they lie apart."""

    middle: float
    low: float
    high: float
    runs: int

    @staticmethod
    def of(values: Iterable[float]) -> Figure | None:
        found = sorted(values)
        return Figure(statistics.median(found), found[0], found[-1], len(found)) if found else None

    def text(self, form: Callable[[float], str]) -> str:
        if self.low == self.high:
            return form(self.middle)
        return f"{form(self.middle)} ({form(self.low)}{DASH}{form(self.high)})"


class Results:
    """The records of one results file, by key."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.raw = results
        self.records: list[Record] = results["records"]
        self.by_key: dict[str, list[Record]] = {}
        for record in self.records:
            self.by_key.setdefault(record["key"], []).append(record)

    def good(self, key: str, field: str) -> list[Record]:
        """The runs of a key that came to their end."""
        return [one for one in self.by_key.get(key, ()) if not one["error"] and one.get(field) is not None]

    def figure(self, key: str, field: str) -> Figure | None:
        return Figure.of(float(one[field]) for one in self.good(key, field))

    def middle(self, key: str, field: str) -> float:
        """The median, or 0 where there is none."""
        figure = self.figure(key, field)
        return 0.0 if figure is None else figure.middle

    def ratio(self, above: str, below: str, field: str) -> Figure | None:
        """How two keys compare, each turn of a round by itself, so that a slow minute hits both."""
        others = {(one["round"], one.get("turn", 0)): float(one[field]) for one in self.good(below, field)}
        found: list[float] = []
        for one in self.good(above, field):
            turn = (one["round"], one.get("turn", 0))
            # What ran once in a round is compared with each turn of the other.
            other = others.get(turn) or others.get((one["round"], 0))
            if other:
                found.append(float(one[field]) / other)
        return Figure.of(found)

    def keys(self, workload: str) -> list[str]:
        return [key for key, found in self.by_key.items() if found[0]["workload"] == workload]

    def fastest(self, keys: Iterable[str], field: str = "rate") -> str | None:
        """The key with the highest median."""
        found = [(figure.middle, key) for key in keys if (figure := self.figure(key, field)) is not None]
        return max(found)[1] if found else None


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which so large a part of an ordered list lies."""
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]


def quantity(value: float) -> str:
    """A number as a reader likes it."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.4f}"

"""Scales: where the labels of an axis are. Round numbers only. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

#: How the labels of a time axis are written: seconds, minutes, or the day too.
Clock = Literal["second", "hour", "day"]

#: The most steps that a vertical axis has, and the most labels of a time axis.
MAX_STEPS = 4
MAX_TIMES = 7
#: Round durations, in seconds.
DURATIONS = (
    *(base * unit for unit in (0.0001, 0.001, 0.01, 0.1) for base in (1, 2, 5)),
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0,
)  # fmt: skip
#: Seconds between two labels of a time axis.
_STEP_SECONDS = (
    10,
    30,
    60,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    14400,
    21600,
    43200,
    86400,
    172800,
    604800,
)


def counts(most: float) -> tuple[float, ...]:
    """The labels of an axis for whole numbers, from 0 to at least `most`."""
    step = 10 ** max(0, math.floor(math.log10(max(most, 1) / MAX_STEPS)))
    step = next(step * factor for factor in (1, 2, 5, 10, 20) if step * factor * MAX_STEPS >= most)
    return _upto(most, step)


def durations(most: float) -> tuple[float, ...]:
    """The labels of an axis for seconds, from 0 to at least `most`."""
    if not most:
        return 0.0, 1.0
    for step in DURATIONS:
        if step * MAX_STEPS >= most:
            return _upto(most, step)
    return _upto(most, 86400.0 * math.ceil(most / 86400.0 / MAX_STEPS))


def amounts(most: float) -> tuple[float, ...]:
    """The labels of an axis for bytes, from 0 to at least `most`: powers of two."""
    step = 2 ** max(0, math.ceil(math.log2(max(most, 1) / MAX_STEPS)))
    return _upto(most, step)


def _upto(most: float, step: float) -> tuple[float, ...]:
    # A duration such as 0.3 is a little more than 3 times 0.1, as computers count.
    return tuple(step * number for number in range(max(1, math.ceil(most / step - 1e-9)) + 1))


def times(first: float, last: float) -> tuple[tuple[float, ...], Clock]:
    """The labels of a time axis, at round times, and how they are written."""
    length = max(60.0, last - first)
    step = next((step for step in _STEP_SECONDS if length / step <= MAX_TIMES), _STEP_SECONDS[-1])
    begin = math.ceil(first / step) * step
    # A day that ends within a step has a few minutes more.
    kind: Clock = "second" if step < 60 else "hour" if length < 1.2 * 86400 else "day"
    return tuple(float(at) for at in range(begin, math.floor(last) + 1, step)), kind


def place(value: float, low: float, high: float) -> float:
    """Where a value is between two others, in percent."""
    return 100 * (value - low) / (high - low) if high > low else 0.0


def most_of(series: Sequence[Sequence[float | None]]) -> float:
    """The largest value of some series; 0 if there are none."""
    return max((value for one in series for value in one if value is not None), default=0.0)


def clock(at: float, kind: Clock = "day") -> str:
    """A moment in UTC; the browser shows it in the reader's time zone. The day alone at midnight, seconds where there are some."""
    moment = datetime.fromtimestamp(at, UTC)
    hour = f"{moment:{'%H:%M:%S' if moment.second else '%H:%M'}}"
    if kind != "day":
        return f"{moment:%H:%M:%S}" if kind == "second" else hour
    return f"{moment.day} {moment:%b}" + ("" if hour == "00:00" else f", {hour}")

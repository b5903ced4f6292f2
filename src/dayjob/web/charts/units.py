"""Units: what the numbers of a chart are, how they are written, and which of them are round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dayjob.web.charts import scale
from dayjob.web.render import NONE, number, size, took


@dataclass(frozen=True, slots=True)
class Unit:
    """What the numbers of a chart are."""

    #: The labels of an axis, from 0 to at least the number that is given.
    ticks: Callable[[float], tuple[float, ...]]
    text: Callable[[float | None], str]


def _took(seconds: float | None) -> str:
    return "0" if seconds == 0 else took(seconds)


def _size(amount: float | None) -> str:
    return NONE if amount is None else "0" if amount == 0 else size(amount)


COUNT = Unit(scale.counts, number)
SECONDS = Unit(scale.durations, _took)
BYTES = Unit(scale.amounts, _size)

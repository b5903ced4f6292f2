"""What was counted: exact totals by job name, and the histograms of each minute. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.steps import Steps, ask_all


def totals(keys: Keys) -> Op[dict[str, dict[str, int]]]:
    """The exact totals: counter to job name to number."""
    return Op("HGETALL", (keys.totals,), (), _read_totals)


def _read_totals(reply: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for raw, value in zip(reply[::2], reply[1::2], strict=True):
        counter, _, name = raw.decode("utf-8", "replace").partition(":")
        if value.lstrip(b"-").isdigit():
            found.setdefault(counter, {})[name] = int(value)
    return found


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations by bucket: bucket b counts those up to 0.1 ms * 2**(b/2)."""

    buckets: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.buckets.values())

    def quantile(self, q: float) -> float | None:
        """The duration, in seconds, that a share `q` of all does not exceed; None when there are none."""
        rest = q * self.count
        for number in sorted(self.buckets):
            rest -= self.buckets[number]
            if rest <= 0:
                return bucket_limit(number)
        return None

    def __add__(self, other: Histogram) -> Histogram:
        sums = dict(self.buckets)
        for number, count in other.buckets.items():
            sums[number] = sums.get(number, 0) + count
        return Histogram(sums)


def bucket_limit(number: int) -> float:
    """The longest duration that a bucket counts, in seconds."""
    return float(0.0001 * 2 ** (number / 2))


@dataclass(frozen=True, slots=True)
class Minute:
    """The figures of one minute since the epoch."""

    minute: int
    #: By job name: how long attempts ran, and how long jobs waited before.
    runs: Mapping[str, Histogram]
    waits: Mapping[str, Histogram]
    #: Round trips of the exchange.
    exchanges: Histogram


def minute(keys: Keys, number: int) -> Op[Minute]:
    """The figures of one minute."""
    return Op("HGETALL", (keys.minute(number),), (), lambda reply: _read_minute(reply, number))


def minutes(keys: Keys, first: int, last: int) -> Steps[list[Minute]]:
    """The figures of the minutes from `first` to `last`, an hour to a round trip; three days are kept."""
    found: list[Minute] = []
    for begin in range(first, last + 1, 60):
        found += yield from ask_all(
            [minute(keys, number) for number in range(begin, min(begin + 60, last + 1))]
        )
    return found


def _read_minute(reply: Any, number: int) -> Minute:
    kinds: dict[str, dict[str, dict[int, int]]] = {"r": {}, "w": {}, "x": {}}
    for raw, count in zip(reply[::2], reply[1::2], strict=True):
        name, _, figure = raw.decode("utf-8", "replace").rpartition("|")
        if figure[:1] in kinds and figure[1:].isdecimal():
            kinds[figure[0]].setdefault(name, {})[int(figure[1:])] = int(count)
    runs, waits, trips = ({name: Histogram(found) for name, found in kinds[kind].items()} for kind in "rwx")
    return Minute(number, runs, waits, trips.get("", Histogram()))

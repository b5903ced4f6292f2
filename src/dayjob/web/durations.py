"""DurationSums: sums up durations from scrape to scrape. Pure.

Redis keeps durations per minute for three days, but a histogram of Prometheus only grows. So DurationSums adds what each
scrape finds. Like any counter it starts at 0 with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dayjob.admin.scrape import Minute, Times, bucket_limit

#: Minutes that may still change when the next has begun.
UNSETTLED_MINUTES = 2

Kind = Literal["run", "wait", "trip"]


@dataclass(slots=True)
class DurationSums:
    """Durations of all minutes that were scraped, each counted once."""

    sums: dict[tuple[Kind, str], dict[int, int]] = field(default_factory=dict)
    _counted: dict[int, dict[tuple[Kind, str, int], int]] = field(default_factory=dict)

    @property
    def since(self) -> int | None:
        """The first minute that the next scrape must read; None before the first."""
        return min(self._counted, default=None)

    def add(self, minutes: Iterable[Minute]) -> None:
        """Count what is new in these minutes."""
        last = 0
        for minute in minutes:
            last = max(last, minute.number)
            before = self._counted.setdefault(minute.number, {})
            for key, number in _cells(minute.times):
                more = number - before.get(key, 0)
                if more > 0:
                    before[key] = number
                    sums = self.sums.setdefault(key[:2], {})
                    sums[key[2]] = sums.get(key[2], 0) + more
        for settled in [number for number in self._counted if number <= last - UNSETTLED_MINUTES]:
            del self._counted[settled]


def _cells(times: Times) -> Iterator[tuple[tuple[Kind, str, int], int]]:
    kinds: tuple[tuple[Kind, Mapping[str, Mapping[int, int]]], ...] = (
        ("run", times.runs), ("wait", times.waits), ("trip", {"": times.trips}),
    )  # fmt: skip
    for kind, by_name in kinds:
        for name, buckets in by_name.items():
            for bucket, number in buckets.items():
                yield (kind, name, bucket), number


def total_time(buckets: Mapping[int, int]) -> float:
    """The approximate sum of all durations, from the middle of each bucket."""
    return sum(number * bucket_limit(bucket) / 2**0.25 for bucket, number in buckets.items())

"""Figures: counts and histograms per job name, gathered here and sent with the exchange once a second."""

from __future__ import annotations

import time
from collections.abc import Iterable

from dayjob.worker.pool_job_type import Lane, bucket

#: Seconds between two deliveries.
EVERY = 1.0


class Figures:
    """What is to be added to the hash of the current minute."""

    def __init__(self) -> None:
        self._next = 0.0
        self._trips: dict[int, int] = {}

    def trip(self, seconds: float) -> None:
        """Note one round trip of the exchange."""
        number = bucket(seconds)
        self._trips[number] = self._trips.get(number, 0) + 1

    def due(self) -> bool:
        """Whether it is time to send again."""
        return time.monotonic() >= self._next

    def pending(self, lanes: Iterable[Lane]) -> bool:
        """Whether anything waits to be sent."""
        return any(lane.runs or lane.waits or lane.fails or lane.taken for lane in lanes)

    def take(self, lanes: Iterable[Lane], *, most: int = 400) -> dict[str, int]:
        """The increments since the last time; what does not fit stays for the next."""
        self._next = time.monotonic() + EVERY
        found: dict[str, int] = {}
        for lane in lanes:
            if len(found) >= most:
                break
            runs, lane.runs = lane.runs, {}
            waits, lane.waits = lane.waits, {}
            for number, count in runs.items():
                found[f"{lane.name}|r{number}"] = count
            for number, count in waits.items():
                found[f"{lane.name}|w{number}"] = count
            if lane.fails:
                found[f"{lane.name}|f"] = lane.fails
                lane.fails = 0
            if lane.taken:
                found[f"{lane.name}|o"] = lane.taken
                lane.taken = 0
        if found:
            trips, self._trips = self._trips, {}
            for number, count in trips.items():
                found[f"|x{number}"] = count
        return found

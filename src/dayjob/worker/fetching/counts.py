"""MinuteCounts: collects counts and histograms per job name. The fetcher sends them once a second."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dayjob.worker.pool_job_type import PoolJobType, bucket

#: Seconds after which collected figures are sent.
FLUSH_INTERVAL_SECONDS = 1.0


class MinuteCounts:
    """The increments for the hash of the current minute."""

    def __init__(self, job_types: Sequence[PoolJobType]) -> None:
        self._job_types = job_types
        self._next = 0.0
        self._trips: dict[int, int] = {}

    def trip(self, seconds: float) -> None:
        """Count the duration of one exchange."""
        number = bucket(seconds)
        self._trips[number] = self._trips.get(number, 0) + 1

    def due(self) -> bool:
        """Whether figures should be sent now."""
        return time.monotonic() >= self._next

    def pending(self) -> bool:
        """Whether there are figures to send."""
        return any(
            job_type.runs or job_type.waits or job_type.fails or job_type.taken
            for job_type in self._job_types
        )

    def take(self, *, most: int = 400) -> dict[str, int]:
        """The increments since the last call. Those that do not fit are left for the next call."""
        self._next = time.monotonic() + FLUSH_INTERVAL_SECONDS
        found: dict[str, int] = {}
        for job_type in self._job_types:
            if len(found) >= most:
                break
            runs, job_type.runs = job_type.runs, {}
            waits, job_type.waits = job_type.waits, {}
            for number, count in runs.items():
                found[f"{job_type.name}|r{number}"] = count
            for number, count in waits.items():
                found[f"{job_type.name}|w{number}"] = count
            if job_type.fails:
                found[f"{job_type.name}|f"] = job_type.fails
                job_type.fails = 0
            if job_type.taken:
                found[f"{job_type.name}|o"] = job_type.taken
                job_type.taken = 0
        if found:
            trips, self._trips = self._trips, {}
            for number, count in trips.items():
                found[f"|x{number}"] = count
        return found

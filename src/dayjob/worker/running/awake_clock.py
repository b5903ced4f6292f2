"""AwakeClock: a clock that stands still while this process does not run."""

from __future__ import annotations

from time import monotonic

#: Seconds that count of the time between two readings. While attempts wait for a worker, the fetcher reads the clock
#: about twice in that time.
MAX_STEP_SECONDS = 0.008


class AwakeClock:
    """Counts the seconds in which this process ran, for deciding that its workers had time to start an attempt.

    On a machine with too few CPUs a process may wait for one longer than an attempt may wait for a worker. By any other
    clock the fetcher would then give its attempts back again and again, before a worker could start them.

    It needs no lock: two threads that read it at once make it run late by one step at most.
    """

    __slots__ = ("_missed", "_read_at")

    def __init__(self) -> None:
        self._missed = 0.0
        self._read_at = monotonic()

    def now(self) -> float:
        """Seconds on this clock. Read it often: what lies between two readings counts as MAX_STEP_SECONDS at most."""
        now = monotonic()
        missed = now - self._read_at - MAX_STEP_SECONDS
        if missed > 0:
            self._missed += missed
        self._read_at = now
        return now - self._missed

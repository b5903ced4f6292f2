"""How many jobs to ask for: pure arithmetic over what the pool is doing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dayjob.store.ops.consume import MOST_FETCHED

#: Seconds of work that may be prefetched, for job types that are quick enough to earn it.
AHEAD = 0.02
#: Seconds after which what no worker took is given back.
PATIENCE = 0.05
#: Seconds without prefetch for a name of which something was given back.
PENANCE = 1.0


@dataclass(frozen=True, slots=True)
class Room:
    """What an exchange may fetch: of any name, and beyond that of the fast ones."""

    free: int
    extra: int
    fast: frozenset[str]


def is_fast(estimate: float | None) -> bool:
    """Whether a job type is quick enough to be prefetched."""
    return estimate is not None and estimate <= AHEAD


def reckon(
    *,
    concurrency: int,
    running: int,
    ready: int,
    estimates: Iterable[tuple[str, float | None]],
    most: int = MOST_FETCHED,
) -> Room:
    """The room of a pool with so many slots, running attempts and attempts ready to start."""
    free = max(0, min(concurrency - running - ready, most))
    fast = [(name, estimate) for name, estimate in estimates if estimate is not None and estimate <= AHEAD]
    if not fast:
        return Room(free, 0, frozenset())
    # What the slowest of the fast ones would let the pool finish: never more than can be used in time.
    slowest = max(2e-6, *(estimate for _, estimate in fast))
    ahead = int(concurrency * AHEAD / slowest)
    extra = max(0, min(ahead - max(0, ready - max(0, concurrency - running)), most - free, 2 * most - ready))
    return Room(free, extra, frozenset(name for name, _ in fast))


def stale(given: Sequence[float], now: float) -> int:
    """How many of the attempts handed over at these times, oldest first, have waited too long."""
    return sum(1 for moment in given if now - moment > PATIENCE)

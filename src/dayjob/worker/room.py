"""How many jobs to ask for: pure arithmetic over what the pool is doing."""

from __future__ import annotations

from collections.abc import Sequence
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
    slow: int,
    ready: int,
    fast: Sequence[tuple[str, float | None]],
    most: int = MOST_FETCHED,
) -> Room:
    """The room of a pool with so many slots, running attempts (some of them slow) and attempts ready to start.

    `fast` are the job types that earn a prefetch, with their estimates in seconds.
    """
    free = max(0, min(concurrency - running - ready, most))
    if not fast:
        return Room(free, 0, frozenset())
    # By the slowest of the fast ones: never more than can be used in time.
    slowest = max(2e-6, *(estimate or 0.0 for _, estimate in fast))
    ahead = int((concurrency - slow) * AHEAD / slowest)
    waiting = max(0, ready - max(0, concurrency - running))
    extra = max(0, min(ahead - waiting, most - free, 2 * most - ready))
    return Room(free, extra, frozenset(name for name, _ in fast))

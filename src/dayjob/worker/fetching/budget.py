"""How many jobs to ask for: pure arithmetic over what the pool is doing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from dayjob.store.ops.consume import MAX_FETCHED

#: Seconds of work that may be prefetched, for job types that are quick enough to earn it.
PREFETCH_SECONDS = 0.02
#: Seconds after which what no worker took is given back.
GIVE_BACK_AFTER_SECONDS = 0.05
#: Seconds without prefetch for a name of which something was given back.
PREFETCH_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FetchBudget:
    """What an exchange may fetch: of any name, and beyond that of the fast ones."""

    free: int
    extra: int
    fast: frozenset[str] = frozenset()
    #: Names that this exchange must not fetch.
    closed: frozenset[str] = frozenset()


def sample(weights: Mapping[str, int], draws: int, rng: random.Random) -> dict[str, int]:
    """So many draws by weight, as a new weight for each name drawn: on average each name gets its share.

    One random point and then equal steps over the names laid end to end: no name gets one more or less than is due.
    """
    names = list(weights)
    rng.shuffle(names)
    step = sum(weights.values()) / draws
    point, upto = rng.random() * step, 0.0
    found: dict[str, int] = {}
    for name in names:
        upto += weights[name]
        while point < upto:
            found[name] = found.get(name, 0) + 1
            point += step
    return found


def fetch_budget(
    *, free: int, ready: int, usable: int, fast: Mapping[str, float], most: int = MAX_FETCHED
) -> FetchBudget:
    """The room of a pool with `free` slots, `ready` attempts waiting, and `usable` slots that come free soon.

    `fast` are the job types that earn a prefetch, with their estimates in seconds: as many are fetched ahead as the
    pool will finish in a moment, by the slowest of them, so that nothing is taken that cannot be used in time.
    """
    free = min(free, most)
    if not fast:
        return FetchBudget(free, 0)
    slowest = max(2e-6, *fast.values())
    ahead = int(usable * PREFETCH_SECONDS / slowest)
    # At most two batches wait: one that is being run, and one on its way.
    extra = max(0, min(ahead - ready, most - free, 2 * most - ready))
    return FetchBudget(free, extra, frozenset(fast))

"""Fetch budget: computes how many jobs an exchange may fetch. Pure functions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from dayjob.store.ops.consume import MAX_FETCHED

#: Seconds of work that may be prefetched, for job types whose attempts take at most as long.
PREFETCH_SECONDS = 0.02
#: Seconds after which an attempt that no worker has started is given back.
GIVE_BACK_AFTER_SECONDS = 0.05
#: Seconds without prefetch for a job name after one of its attempts was given back.
PREFETCH_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FetchBudget:
    """How many jobs an exchange may fetch: `free` of any name, and `extra` of the fast names."""

    free: int
    extra: int
    fast: frozenset[str] = frozenset()
    #: Names that this exchange must not fetch.
    closed: frozenset[str] = frozenset()


def sample(weights: Mapping[str, int], draws: int, rng: random.Random) -> dict[str, int]:
    """Draw names by weight, `draws` times. Returns how often each name was drawn.

    Systematic sampling: one random start and then equal steps over the cumulated weights. So the number of draws of a
    name differs from its exact share by less than one.
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
    """The budget of a pool with `free` slots, `ready` waiting attempts, and `usable` slots that become free soon.

    `fast` are the job types that may be prefetched, with their estimates in seconds. The pool prefetches as many jobs
    as it finishes within PREFETCH_SECONDS if all of them are as slow as the slowest of these types.
    """
    free = min(free, most)
    if not fast:
        return FetchBudget(free, 0)
    slowest = max(2e-6, *fast.values())
    ahead = int(usable * PREFETCH_SECONDS / slowest)
    # At most two batches: one that the workers use up, and one that this exchange fetches.
    extra = max(0, min(ahead - ready, most - free, 2 * most - ready))
    return FetchBudget(free, extra, frozenset(fast))

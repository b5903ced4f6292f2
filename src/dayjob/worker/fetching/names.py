"""NamesWithJobs: the job names that may have jobs, and which of them an exchange asks for."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping

#: Seconds after which an exchange of a busy pool asks for all names, not only for those known to have jobs.
ALL_NAMES_INTERVAL_SECONDS = 0.1
#: If more names than this have jobs, each exchange asks for a random sample of them, by priority.
MAX_NAMES = 12


class NamesWithJobs:
    """The names of one pool whose bell rang, or whose queue was not empty after the last exchange."""

    def __init__(self, priorities: Mapping[str, int], rng: random.Random) -> None:
        self._priorities = priorities
        self._rng = rng
        #: Names whose bell rang since the last request. The listener's thread adds to them.
        self.rung: set[str] = set()
        #: Names whose queues had jobs after the last exchange that asked for them.
        self.live: set[str] = set()
        #: Monotonic time of the last request for all names.
        self._all_at = 0.0
        self.start_over()

    def start_over(self) -> None:
        """Treat all names as if they had jobs, because the pool registered under a new id."""
        self.live = set(self._priorities)
        self._all_at = 0.0

    def ring_all(self) -> None:
        """Make the next exchange ask for all names."""
        self._all_at = 0.0
        self.rung.update(self._priorities)

    def weights(self, *, fetches: bool, settled: Iterable[str]) -> dict[str, int]:
        """The names of the next request with their weights; 0 if the request must not fetch them.

        `fetches` is whether the request may fetch jobs, and `settled` are the names of the outcomes in it.
        """
        now = time.monotonic()
        rung, self.rung = self.rung, set()
        everything = fetches and now - self._all_at >= ALL_NAMES_INTERVAL_SECONDS
        if everything:
            self._all_at = now
            asked = rung | self._priorities.keys()
        else:
            asked = rung | self.live if fetches else rung
        weights = {name: self._priorities[name] for name in asked}
        if len(weights) > MAX_NAMES and not everything:
            weights = sample(weights, MAX_NAMES, self._rng)
        # A rung name that was not drawn is in the request too: the script rings its bell again if it has jobs.
        for name in (*settled, *rung):
            weights.setdefault(name, 0)
        return weights

    def all_weights(self) -> Mapping[str, int]:
        """All names with their weights, for a request that is prepared while the pool is idle."""
        return self._priorities

    def sent_all(self) -> None:
        """Note that a request for all names is sent now."""
        self.rung = set()
        self._all_at = time.monotonic()

    def answered(self, asked: Iterable[str], live: Iterable[str]) -> None:
        """Note which of the names that a request asked for still have jobs."""
        self.live = self.live.difference(asked).union(live)


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

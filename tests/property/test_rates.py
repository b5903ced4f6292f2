"""Random histories of starts, refunds and corrections by several pools: no limit is ever exceeded."""

from __future__ import annotations

import random

import pytest

from dayjob.limits import Rate, Window
from dayjob.outcome import Done
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.rates import Spent
from pools import fill
from rates import RatedPool, RateState, limit_name, too_many

RATES = {
    "even": (Rate(2000, per=1, burst=1), 1),
    "burst": (Rate(3000, per=1, burst=7), 1),
    "uneven": (Rate(1000, per=0.7, burst=3), 1),
    "costly": (Rate(9000, per=1, burst=20), 6),
    "window": (Window(4, per=0.003), 1),
    "long window": (Window(30, per=0.02), 1),
}


class History:
    """What several pools did, with the Redis microsecond of every start that still counts."""

    def __init__(self, keys, link, call, kind, cost, seed):
        self.keys, self.call, self.kind, self.cost = keys, call, kind, cost
        self.random = random.Random(seed)
        fill(keys, link, "a", *(str(n) for n in range(2000)))
        rule = limit_name(keys, link, "a", {"r": kind}, cost)
        self.pools = [RatedPool(keys, link, {"a": rule}) for _ in range(3)]
        #: (pool, token) of attempts that have not started, and the charges that count: time and units.
        self.waiting: list[tuple[RatedPool, str]] = []
        self.charges: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def step(self) -> None:
        what = self.random.random()
        if what < 0.6 or not self.waiting:
            self.start(self.random.choice(self.pools))
        elif what < 0.8:
            pool, token = self.waiting.pop(self.random.randrange(len(self.waiting)))
            pool.undo("a", token)
            del self.charges[pool.id, token]
        else:
            self.spend(*self.waiting.pop(self.random.randrange(len(self.waiting))))

    def start(self, pool: RatedPool) -> None:
        for token in pool.start("a", room=self.random.choice((1, 2, 9))):
            self.waiting.append((pool, token))
            self.charges[pool.id, token] = [(self.at(pool, token), float(self.cost))]

    def at(self, pool: RatedPool, token: str) -> int:
        if isinstance(self.kind, Window):
            return int(self.call("ZSCORE", self.keys.window("r"), f"{pool.id}/{token}"))
        return RateState.of(self.call("GET", self.keys.rate("r"))).last

    def spend(self, pool: RatedPool, token: str) -> None:
        units = self.random.choice((0, 1, self.cost, self.cost * 2))
        marks = pool.charges[token].marks
        pool.settle(Entry("a", token, Done(), spent=Spent(units - self.cost, marks)))
        first = self.charges[pool.id, token][0][0]
        if units <= self.cost:
            self.charges[pool.id, token] = [(first, float(units))]
        # More than was charged is a debt. It delays later starts, and is no start itself.


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", RATES)
def test_no_interval_has_more_starts_than_its_limit_allows(name, seed, keys, link, call):
    kind, cost = RATES[name]
    history = History(keys, link, call, kind, cost, seed)
    for _ in range(150):
        history.step()
    starts = [one for charges in history.charges.values() for one in charges]
    if isinstance(kind, Window):
        # A window counts starts, whatever they spent.
        starts = [(at, 1.0) for at, _ in starts]
    assert len(starts) > 10, "the history must start something"
    assert too_many(starts, kind) == ""


def test_the_check_itself_finds_a_limit_that_is_exceeded():
    assert too_many([(0, 1.0), (500_000, 1.0)], Rate(1, per=1, burst=1))
    assert not too_many([(0, 1.0), (1_000_000, 1.0)], Rate(1, per=1, burst=1))
    assert too_many([(0, 1.0), (1, 1.0), (900_000, 1.0)], Window(2, per=1))
    assert not too_many([(0, 1.0), (1, 1.0), (1_000_001, 1.0)], Window(2, per=1))

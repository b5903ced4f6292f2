"""The limits of a testing block count what the limits in Redis count."""

from __future__ import annotations

import random

import pytest

from dayjob.limits import Limit, Rate, Window
from dayjob.options import JobOptions
from dayjob.outcome import Done
from dayjob.store.ops import rates
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.rates import Spent
from dayjob.testing.limits import Bucket, FakeLimits, Partition, Starts
from pools import fill
from rates import ROUNDING, RatedPool, RateState, limit_name

KINDS = {
    "even": (Rate(2000, per=1, burst=1), 1),
    "burst": (Rate(3000, per=1, burst=7), 1),
    "costly": (Rate(9000, per=1, burst=20), 6),
    "window": (Window(4, per=0.003), 1),
}

#: All jobs, which have no key.
ALL = Partition("a")


class Twins:
    """One history on the server, and the same in a testing block at the times that the server recorded."""

    def __init__(self, keys, link, call, kind, cost, seed):
        self.keys, self.call, self.kind, self.cost = keys, call, kind, cost
        self.random = random.Random(seed)
        fill(keys, link, "a", *(str(n) for n in range(2000)))
        self.pool = RatedPool(keys, link, {"a": limit_name(keys, link, "a", {"r": kind}, cost)})
        options = JobOptions.of({"limits": [Limit("r", kind)], "cost": cost}, "a").for_job("a", "a")
        self.now = 0.0
        self.fake = FakeLimits(lambda: self.now / 1e6, lambda _: options)
        self.marks: dict[str, dict[str, str]] = {}

    def count(self) -> Bucket | Starts:
        return self.fake._count(Limit("r", self.kind), ALL)

    def start(self) -> None:
        for token in self.pool.start("a", room=self.random.choice((1, 2, 9))):
            at = self.at(token)
            # Both add fractions of a microsecond, in another order, and so may differ in the last digits.
            self.now = at + ROUNDING * 200
            assert self.fake.allow(ALL), "the server let a job start that the block would hold back"
            self.now = at
            charge = self.fake.start(ALL, token)
            assert charge is not None
            self.marks[token] = dict(charge.marks)

    def end(self, *, started: bool) -> None:
        token = self.random.choice(sorted(self.marks))
        marks = self.marks.pop(token)
        units = self.random.choice((0, 1, self.cost, self.cost * 2)) - self.cost if started else -self.cost
        if started:
            self.pool.settle(Entry("a", token, Done(), spent=Spent(units, self.pool.charges[token].marks)))
        else:
            self.pool.undo("a", token)
        self.now = self.at("") if units > 0 and isinstance(self.kind, Rate) else self.now
        self.fake.end(token, Spent(units, marks, undone=not started))

    def at(self, token: str) -> float:
        if isinstance(self.kind, Window):
            return float(self.call("ZSCORE", self.keys.window("r"), f"{self.pool.id}/{token}"))
        return float(RateState.of(self.call("GET", self.keys.rate("r"))).last)

    def check(self) -> None:
        count = self.count()
        if isinstance(count, Bucket):
            full_at = float(RateState.of(self.call("GET", self.keys.rate("r"))).full_at)
            assert count.full_at == pytest.approx(full_at, abs=ROUNDING * 200)
        else:
            stored = self.call("ZRANGE", self.keys.window("r"), 0, -1, "WITHSCORES")
            wanted = {
                token.decode().partition("/")[2]: float(at)
                for token, at in zip(stored[::2], stored[1::2], strict=True)
            }
            assert count.at == wanted


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KINDS)
def test_a_history_leaves_the_same_in_redis_and_in_a_block(name, seed, keys, link, call):
    twins = Twins(keys, link, call, *KINDS[name], seed)
    steps = 0
    for _ in range(150):
        if not twins.marks or twins.random.random() < 0.6:
            twins.start()
        else:
            twins.end(started=twins.random.random() < 0.5)
            steps += 1
        if twins.marks:
            twins.check()
    assert steps > 10


def test_both_find_the_same_next_start(keys, link, call):
    kind = Rate(1, per=3600, burst=2)
    twins = Twins(keys, link, call, kind, 1, 0)
    twins.pool.start("a", room=9)
    twins.now = twins.at("")
    for token in ("1", "2"):
        twins.fake.start(ALL, token)
    wait = link.run(rates.limit_states(keys, {"r": "rate"}, cost=1))["r"].wait
    at = twins.fake.next_start([ALL])
    assert at is not None
    # The server computed its answer a moment later. Both round to milliseconds.
    assert -0.002 <= at - twins.now / 1e6 - wait < 600

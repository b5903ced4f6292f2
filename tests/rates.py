"""RatedPool: a pool as Redis sees it, whose job names have rate limits; and the rule that no limit may break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dayjob.limits import Limit, RateKind, Window
from dayjob.outcome import GivenBack
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import rates
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.rates import Charge, RateRule, Spent
from pools import Pool, jobs_of

#: Microseconds by which two times may differ that should be equal: the script rounds to whole ones.
ROUNDING = 2


class RateState(NamedTuple):
    """The state of a rate in Redis microseconds, as `prelude/rate_state.lua` reads it."""

    epoch: int
    last: int
    charged: int
    full_at: int

    @classmethod
    def of(cls, text: bytes) -> RateState:
        epoch, last, charged, rest = map(int, text.split()[:4])
        return cls(epoch, epoch + last, charged, epoch + charged + rest)

    @property
    def text(self) -> str:
        last, rest = self.last - self.epoch, self.full_at - self.epoch - self.charged
        return f"{self.epoch} {last} {self.charged} {rest}"


def limit_name(keys: Keys, link: Link, name: str, kinds: Mapping[str, RateKind], cost: int = 1) -> RateRule:
    """Give a job name rate limits, as a pool does at its start."""
    for limit, kind in kinds.items():
        link.run(rates.declare(keys, Limit(limit, kind)))
    rule = RateRule(cost, tuple(kinds))
    link.run(rates.change_rule(keys, name, rule))
    return rule


class RatedPool(Pool):
    """Knows the rules that it is given, and what its attempts were charged."""

    def __init__(self, keys: Keys, link: Link, rules: Mapping[str, RateRule]) -> None:
        super().__init__(keys, link)
        table = link.run(rates.rate_table(keys))
        self.rules = dict(rules)
        self.kinds = {
            one: rates.kind_of(table.definitions[one]) for rule in rules.values() for one in rule.limits
        }
        self.charges: dict[str, Charge] = {}

    def start(self, name: str, room: int = 500) -> list[str]:
        """Fetch jobs, and note what they were charged. Returns their tokens."""
        reply = self.exchange(name, room=room)
        tokens = [token for token, _, _ in jobs_of(reply)]
        rule = self.rules[name]
        for token in tokens:
            self.charges[token] = Charge(rule.cost, {one: reply.marks.get(one, "") for one in rule.limits})
        return tokens

    def undo(self, name: str, token: str) -> None:
        """Give an attempt back that never started."""
        charge = self.charges[token]
        self.settle(Entry(name, token, GivenBack(), spent=Spent(-charge.cost, charge.marks, undone=True)))


@dataclass
class ModelLimit:
    """A limit whose time is far longer than a test, as plain numbers: a rate never fills up, a window forgets nothing."""

    kind: RateKind
    #: Units of a rate that are used, and the sum of all charges since the epoch began.
    used: float = 0
    charged: float = 0
    epoch: int = 0
    #: The attempts that a window counts.
    starts: set[str] = field(default_factory=set)
    held: bool = False

    def spare(self, cost: int) -> int:
        """How many jobs of this cost may start."""
        if self.held:
            return 0
        if isinstance(self.kind, Window):
            return max(0, self.kind.n - len(self.starts))
        return max(0, int((self.kind.units - self.used) // cost))

    def charge(self, member: str, units: float) -> None:
        """Count a start."""
        self.starts.add(member)
        self.used += units
        self.charged += units

    def correct(self, member: str, spent: Spent, mark: tuple[int, float]) -> None:
        """Take back a charge, as far as nothing that came later used it; or charge what was used beyond it."""
        if spent.undone:
            self.starts.discard(member)
        if spent.units > 0:
            self.used += spent.units
            self.charged += spent.units
        elif mark[0] == self.epoch:
            self.used = min(self.used, max(self.used + spent.units, self.charged - mark[1]))

    def reset(self) -> None:
        """Forget everything, as an operator may ask."""
        self.used = self.charged = 0
        self.epoch += 1
        self.starts.clear()
        self.held = False


def too_many(starts: Sequence[tuple[int, float]], kind: RateKind, rounding: int = ROUNDING) -> str:
    """Whether starts (Redis microsecond, units) break a limit: which interval, or ""."""
    ordered = sorted(starts)
    if isinstance(kind, Window):
        for (first, _), (last, _) in zip(ordered, ordered[kind.n :], strict=False):
            if last - first < kind.seconds * 1_000_000 - rounding:
                return f"{kind.n + 1} starts within {(last - first) / 1e6:.6f} s"
        return ""
    # What starts from i to j is allowed if its units are at most burst + rate * (time of j - time of i). `before` has
    # for the i that is the worst: the units before it, less what the rate allows until its time.
    rate = kind.n / kind.seconds / 1_000_000
    total, before, first = 0.0, float("inf"), 0
    for at, units in ordered:
        if total - rate * at < before:
            before, first = total - rate * at, at
        total += units
        over = total - rate * at - before - kind.units - rate * rounding
        if over > 1e-6:
            return f"{over:.3f} units too many within {(at - first) / 1e6:.6f} s"
    return ""

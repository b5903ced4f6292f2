"""FakeLimits: what the limits of a testing block count, by the clock of the block. They count as the exchange does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dayjob.limits import Limit, Rate, RateKind, Window
from dayjob.options import JobOptions
from dayjob.store.ops.rates import Charge, Spent

#: Times are microseconds since the block began.
MICROSECONDS = 1_000_000


@dataclass(slots=True)
class Bucket:
    """A rate: the moment when its bucket is full again, and what a refund needs to know of the charges."""

    kind: Rate
    full_at: float = 0.0
    last: float = 0.0
    charged: float = 0.0
    #: The sum of all charges up to and including a moment. Redis gives this number to the pool, as a mark.
    charged_by: dict[str, float] = field(default_factory=dict)

    @property
    def interval(self) -> float:
        """How long a unit takes to fill."""
        return self.kind.seconds * MICROSECONDS / self.kind.n

    def spare(self, now: float, cost: int) -> int:
        """How many jobs of this cost may start."""
        free = self.kind.units * self.interval - max(self.full_at - now, 0.0) + 0.5
        return math.floor(free / (cost * self.interval))

    def next_start(self, now: float, cost: int) -> float:
        """When the next job of this cost may start."""
        return max(now, self.full_at + (cost - self.kind.units) * self.interval)

    def start(self, now: float, cost: float, _token: str) -> str:
        """Charge units. Returns the mark by which a refund finds its charge."""
        amount, mark = cost * self.interval, f"{now:.0f}"
        self.full_at = max(self.full_at, now) + amount
        self.charged, self.last = self.charged + amount, now
        self.charged_by[mark] = self.charged
        return mark

    def correct(self, now: float, spent: Spent, mark: str, token: str) -> None:
        """Charge what an attempt used beyond its cost, or take back what it did not use.

        What later jobs used stays used, and a bucket is never fuller than full.
        """
        if spent.units > 0:
            self.start(now, spent.units, token)
            return
        least = self.last + self.charged - self.charged_by[mark]
        self.full_at = min(self.full_at, max(self.full_at + spent.units * self.interval, least))


@dataclass(slots=True)
class Starts:
    """A window: the attempts that started, by their tokens."""

    kind: Window
    at: dict[str, float] = field(default_factory=dict)

    def spare(self, now: float, _cost: int) -> int:
        """How many jobs may start."""
        return self.kind.n - len(self._young(now))

    def next_start(self, now: float, _cost: int) -> float:
        """When the next job may start."""
        young = self._young(now)
        if len(young) < self.kind.n:
            return now
        return young[-self.kind.n] + self.kind.seconds * MICROSECONDS

    def start(self, now: float, _cost: float, token: str) -> str:
        """Record a start."""
        oldest = now - self.kind.seconds * MICROSECONDS
        self.at = {one: at for one, at in self.at.items() if at > oldest}
        self.at[token] = now
        return ""

    def correct(self, _now: float, spent: Spent, _mark: str, token: str) -> None:
        """Forget a start that never was. What a job used does not matter to a window."""
        if spent.undone:
            self.at.pop(token, None)

    def _young(self, now: float) -> list[float]:
        return sorted(at for at in self.at.values() if at > now - self.kind.seconds * MICROSECONDS)


class Partition(NamedTuple):
    """The jobs of one name that have the same key. Without a key, all jobs of the name have the empty one."""

    name: str
    key: str = ""


class FakeLimits:
    """Which jobs may start, and from when on. Not safe to share between threads: the memory's lock guards it."""

    def __init__(self, clock: Callable[[], float], options_of: Callable[[str], JobOptions]) -> None:
        self._clock = clock
        self._begin = clock()
        self._options_of = options_of
        #: What each limit counts, or each of its keys.
        self._counts: dict[str, Bucket | Starts] = {}
        #: The same to the microsecond until which it is held.
        self._held_until: dict[str, float] = {}
        #: Token to the job and key of an attempt that has not ended.
        self._running: dict[str, Partition] = {}

    def allow(self, partition: Partition) -> bool:
        """Whether the next of these jobs may start now."""
        options, now = self._options_of(partition.name), self._now()
        running = list(self._running.values())
        most, rule = options.max_concurrency, options.fair_by
        if most is not None and sum(one.name == partition.name for one in running) >= most:
            return False
        if rule is not None and rule.places and running.count(partition) >= rule.places:
            return False
        return all(
            self._held_until.get(_place(limit, partition), 0.0) <= now
            and self._count(limit, partition).spare(now, options.cost) > 0
            for limit in options.limits
        )

    def start(self, partition: Partition, token: str) -> Charge | None:
        """Count an attempt that starts. Returns what it was charged; None if its name has no rate limits."""
        options, now = self._options_of(partition.name), self._now()
        self._running[token] = partition
        if not options.limits:
            return None
        marks = {
            _place(one, partition): self._count(one, partition).start(now, options.cost, token)
            for one in options.limits
        }
        return Charge(options.cost, marks)

    def end(self, token: str, spent: Spent | None) -> None:
        """Free the place of an attempt that ended, and correct what it was charged."""
        self._running.pop(token, None)
        if spent is not None:
            for place, mark in spent.marks.items():
                self._counts[place].correct(self._now(), spent, mark, token)

    def hold(self, partition: Partition, limits: Iterable[str], seconds: float) -> None:
        """Let nothing start under these limits for some seconds, or nothing of this key. A longer hold stays."""
        until = self._now() + seconds * MICROSECONDS
        held = set(limits)
        for limit in self._options_of(partition.name).limits:
            if limit.name in held:
                held.discard(limit.name)
                held.add(_place(limit, partition))
        for place in held:
            self._held_until[place] = max(self._held_until.get(place, 0.0), until)

    def next_start(self, partitions: Iterable[Partition]) -> float | None:
        """When the first of these jobs may start again, in seconds since the epoch; None if none of them waits."""
        now = self._now()
        waits = [self._next_start(partition, now) for partition in partitions if not self.allow(partition)]
        # Rounded up to milliseconds, as in Redis.
        return min((self._begin + math.ceil(at / 1000) / 1000 for at in waits if at > now), default=None)

    def _next_start(self, partition: Partition, now: float) -> float:
        options = self._options_of(partition.name)
        moments = [self._held_until.get(_place(one, partition), 0.0) for one in options.limits]
        moments += [self._count(one, partition).next_start(now, options.cost) for one in options.limits]
        return max(moments, default=now)

    def _count(self, limit: Limit, partition: Partition) -> Bucket | Starts:
        place = _place(limit, partition)
        if place not in self._counts:
            self._counts[place] = _new_count(limit.kind)
        return self._counts[place]

    def _now(self) -> float:
        return round((self._clock() - self._begin) * MICROSECONDS)


def _place(limit: Limit, partition: Partition) -> str:
    """Where a limit counts these jobs: for itself, or for each key."""
    return limit.name if limit.by is None else f"{limit.name}|{partition.key}"


def _new_count(kind: RateKind) -> Bucket | Starts:
    return Bucket(kind) if isinstance(kind, Rate) else Starts(kind)

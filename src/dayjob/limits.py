"""The limits that a job type may have: how many of its jobs run at once, and how often they start.

`Rate` and `Window` limit starts, `Concurrency` limits what runs at once. They are values: the pool writes them to Redis,
where every pool obeys them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dayjob.errors import BadOption
from dayjob.text import span

#: The highest number of a rate and of a window. A window stores each of its starts.
MAX_RATE = 1_000_000_000
MAX_WINDOW = 10_000
MAX_CONCURRENCY = 1_000_000
#: The longest time of a limit: a year, in seconds. And the most starts that a rate may allow in a second.
MAX_PER_SECONDS = 366 * 86_400.0
MAX_RATE_PER_SECOND = 1_000_000
#: The arguments by which a limit counts: one, several, or "source" for the job's source; None counts all jobs together.
By = str | tuple[str, ...] | None

#: The highest cost of a job.
MAX_COST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `n` units in `per` seconds on average, and at most `burst` at once. A job takes `cost` units, 1 by default.

    In any interval of T seconds at most `burst + n * T / per` units start. `burst` is `n` unless given; `burst=1` spaces
    jobs evenly. With `by`, each value of that argument has a rate of its own. Raises BadOption.
    """

    n: int
    per: float | timedelta = 1.0
    burst: int | None = None
    by: By = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises BadOption."""
        _check_whole("Rate", "n", self.n, MAX_RATE)
        object.__setattr__(self, "per", _duration("Rate", self.per))
        if self.burst is None:
            object.__setattr__(self, "burst", self.n)
        _check_whole("Rate", "burst", self.burst, MAX_RATE)
        if self.n / self.seconds > MAX_RATE_PER_SECOND:
            raise BadOption(f"{self}: a rate may allow up to {MAX_RATE_PER_SECOND:,} units in a second")
        if self.units * self.seconds / self.n > MAX_PER_SECONDS:
            raise BadOption(f"{self}: a burst of {self.units:,} would take more than a year to fill up again")
        object.__setattr__(self, "by", names_in(self.by, "Rate: by"))

    @property
    def seconds(self) -> float:
        """`per` in seconds."""
        return float(self.per)  # type: ignore[arg-type]  # a number since __post_init__

    @property
    def units(self) -> int:
        """How many units may start at once."""
        return self.n if self.burst is None else self.burst

    def __str__(self) -> str:
        burst = "" if self.burst == self.n else f", burst={self.burst}"
        return (
            f"Rate({self.n}, per={self.per:g}{burst}{_shown(self.by)})"
            if isinstance(self.per, float)
            else repr(self)
        )

    def definition(self) -> str:
        """The limit as Redis stores it."""
        return f"rate {self.n} {round(self.seconds * 1_000_000)} {self.units}"


@dataclass(frozen=True, slots=True)
class Window:
    """At most `n` jobs start in any `per` seconds, whatever they cost. Exact. With `by`, for each key. Raises BadOption."""

    n: int
    per: float | timedelta = 1.0
    by: By = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises BadOption."""
        _check_whole("Window", "n", self.n, MAX_WINDOW)
        object.__setattr__(self, "per", _duration("Window", self.per))
        object.__setattr__(self, "by", names_in(self.by, "Window: by"))

    @property
    def seconds(self) -> float:
        """`per` in seconds."""
        return float(self.per)  # type: ignore[arg-type]  # a number since __post_init__

    def __str__(self) -> str:
        return f"Window({self.n}, per={self.seconds:g}{_shown(self.by)})"

    def definition(self) -> str:
        """The limit as Redis stores it."""
        return f"window {self.n} {round(self.seconds * 1_000_000)}"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most `n` jobs of the job type run at once, over all pools; the same as `max_concurrency=n`.

    With `by`, at most `n` for each value of that argument. Raises BadOption.
    """

    n: int
    by: By = None

    def __post_init__(self) -> None:
        """Check the number. Raises BadOption."""
        _check_whole("Concurrency", "n", self.n, MAX_CONCURRENCY)
        object.__setattr__(self, "by", names_in(self.by, "Concurrency: by"))


RateKind = Rate | Window


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate limit with the name under which Redis, operators and `Throttled` know it. `pool.limit(...)` returns one."""

    name: str
    kind: RateKind

    @property
    def by(self) -> tuple[str, ...] | None:
        """The arguments by which it counts; None if it counts all jobs together."""
        return names_in(self.kind.by, self.name)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What distinguishes the jobs of a name by key: these arguments, or the source.

    All limits by key and `fair_by` of a job type use the same key, because a job waits in the queue of its key.
    """

    by: tuple[str, ...]
    #: How many jobs of a key may run at once; 0 for no limit.
    places: int = 0
    #: Whether keys share the seconds worked instead of the number of jobs.
    by_time: bool = False

    @property
    def text(self) -> str:
        """The rule as Redis stores it, behind the limits of the name."""
        return f"|{','.join(self.by)} {self.places}" + (" time" if self.by_time else "")

    @property
    def words(self) -> str:
        """The arguments, for people."""
        return ", ".join(self.by)


def names_in(by: Any, option: str) -> tuple[str, ...] | None:
    """The argument names in a value of `by=` or `fair_by=`. Raises BadOption, which names `option`."""
    if by is None:
        return None
    names = (by,) if isinstance(by, str) else by
    if (
        not isinstance(names, tuple | list)
        or not names
        or not all(isinstance(one, str) and one.isidentifier() for one in names)
        or len(set(names)) < len(names)
    ):
        raise BadOption(
            f"{option}={by!r}: give the name of an argument, a tuple of different names, or 'source'"
        )
    return tuple(names)


def key_rule(limits: Sequence[Any], fair_by: KeyRule | None, *, by_time: bool, where: str) -> KeyRule | None:
    """The key of a job type with these limits; None if it has none. Raises BadOption, which names `where`."""
    if by_time and fair_by is None:
        raise BadOption(f"{where}: fair_by_time=True needs fair_by, such as fair_by='source'")
    used = {one.by: str(one) for one in limits if one.by is not None}
    if fair_by is not None:
        used[fair_by.by] = f"fair_by={fair_by.words!r}"
    if len(used) > 1:
        raise BadOption(
            f"{where}: {' and '.join(used.values())} use different keys. A job waits in the queue of one key: use the same"
            " arguments, as a tuple if you need several"
        )
    for by in used:
        places = [one.n for one in limits if isinstance(one, Concurrency) and one.by is not None]
        return KeyRule(by, places[0] if places else 0, by_time)
    return None


def read_definition(text: str) -> RateKind | None:
    """The limit that Redis stores as `text`; None if it is lifted, or unreadable."""
    words = text.split()
    try:
        if words[:1] == ["rate"]:
            n, per, burst = map(int, words[1:])
            return Rate(n, per / 1_000_000, burst)
        if words[:1] == ["window"]:
            n, per = map(int, words[1:])
            return Window(n, per / 1_000_000)
    except (ValueError, TypeError):
        pass
    return None


def allows(kind: RateKind | None) -> str:
    """What a limit allows, in words: "100 per second, burst 20"; "lifted" for None."""
    if kind is None:
        return "lifted"
    per = {1.0: "second", 60.0: "minute", 3600.0: "hour", 86_400.0: "day"}.get(
        kind.seconds, span(kind.seconds)
    )
    if isinstance(kind, Window):
        return f"{kind.n:,} in any {per}"
    return f"{kind.n:,} per {per}" + ("" if kind.units == kind.n else f", burst {kind.units:,}")


def sort_limits(value: Any, option: str) -> tuple[Any, ...]:
    """Check the value of `limits=`. Raises BadOption, which names `option`."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadOption(f"{option}={value!r}: give a list, such as [Rate(100, per=1)]")
    for one in value:
        if not isinstance(one, Rate | Window | Concurrency | Limit):
            raise BadOption(
                f"{option}: {one!r} is no limit: give Rate, Window, Concurrency or what pool.limit() returned"
            )
    for keyed in (False, True):
        if sum(isinstance(one, Concurrency) and (one.by is not None) == keyed for one in value) > 1:
            raise BadOption(f"{option}: two Concurrency limits: give the lower one")
    names = [one.name for one in value if isinstance(one, Limit)]
    if len(set(names)) < len(names):
        raise BadOption(f"{option}: the same limit is given twice")
    return tuple(value)


def named_limits(job_name: str, limits: Sequence[Any], cost: int, where: str) -> tuple[Limit, ...]:
    """The rate limits among `limits`. One without a name gets that of its job type: `ask/rate`. Raises BadOption."""
    found: list[Limit] = []
    for one in limits:
        if isinstance(one, Concurrency):
            continue
        limit = one
        if not isinstance(one, Limit):
            kind = type(one).__name__.lower()
            number = 1 + sum(isinstance(other.kind, type(one)) and "/" in other.name for other in found)
            limit = Limit(f"{job_name}/{kind}" + (f"-{number}" if number > 1 else ""), one)
        found.append(limit)
        if isinstance(limit.kind, Rate) and cost > limit.kind.units:
            raise BadOption(
                f"{where}: cost={cost} is above the burst {limit.kind.units} of the limit {limit.name!r}, so that no job"
                " could ever start: raise its burst or lower the cost"
            )
    return tuple(found)


def _shown(by: By) -> str:
    return "" if by is None else f", by={by[0] if len(by) == 1 else by!r}"


def _check_whole(kind: str, field: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadOption(f"{kind}: {field}={value!r}: give a whole number from 1 to {most:,}")


def _duration(kind: str, value: Any) -> float:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not math.isfinite(number)
        or not 0.001 <= number <= MAX_PER_SECONDS
    ):
        raise BadOption(f"{kind}: per={value!r}: give seconds from 0.001 to {MAX_PER_SECONDS:,.0f} (a year)")
    return float(number)

"""What was counted: exact totals by job name, the figures of each minute, and roll-ups of many minutes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.steps import Steps, ask_all


def totals(keys: Keys) -> Op[dict[str, dict[str, int]]]:
    """The exact totals: counter to job name to number."""
    return Op("HGETALL", (keys.totals,), (), _read_totals)


def _read_totals(reply: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for raw, value in zip(reply[::2], reply[1::2], strict=True):
        counter, _, name = raw.decode("utf-8", "replace").partition(":")
        if value.lstrip(b"-").isdigit():
            found.setdefault(counter, {})[name] = int(value)
    return found


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations by bucket: bucket b counts those up to 0.1 ms * 2**(b/2)."""

    buckets: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.buckets.values())

    @property
    def seconds(self) -> float:
        """How long all of them took together: about, by the middle of each bucket."""
        return sum(count * bucket_limit(number) / 2**0.25 for number, count in self.buckets.items())

    def quantile(self, q: float) -> float | None:
        """The duration, in seconds, that a share `q` of all does not exceed; None when there are none."""
        rest = q * self.count
        for number in sorted(self.buckets):
            rest -= self.buckets[number]
            if rest <= 0:
                return bucket_limit(number)
        return None

    def __add__(self, other: Histogram) -> Histogram:
        sums = dict(self.buckets)
        for number, count in other.buckets.items():
            sums[number] = sums.get(number, 0) + count
        return Histogram(sums)


#: How many buckets a histogram has: the last one holds what takes a day or more.
BUCKETS = 60


def bucket_limit(number: int) -> float:
    """The longest duration that a bucket counts, in seconds."""
    return float(0.0001 * 2 ** (number / 2))


@dataclass(frozen=True, slots=True)
class Minute:
    """The figures of one minute since the epoch, or of several from there on."""

    minute: int
    #: By job name: how long attempts ran, and how long jobs waited before.
    runs: Mapping[str, Histogram]
    waits: Mapping[str, Histogram]
    #: Round trips of the exchange.
    exchanges: Histogram
    #: By job name: how many of those attempts failed.
    fails: Mapping[str, int] = field(default_factory=dict)
    #: By job name: how many jobs waited when it began; None where nobody counted them.
    sizes: Mapping[str, int] | None = None
    #: By job name: how many jobs were taken from the queue, those that were given back left out.
    taken: Mapping[str, int] = field(default_factory=dict)

    def ran(self, name: str) -> int:
        """How many attempts ended."""
        return self.runs[name].count if name in self.runs else 0

    def fetched(self, name: str) -> int:
        """How many jobs left their queue to be run."""
        return self.taken.get(name, 0)

    def failed(self, name: str) -> int:
        """How many attempts failed."""
        return self.fails.get(name, 0)

    def size(self, name: str) -> int | None:
        """How many jobs waited when it began; None where nobody counted them."""
        return None if self.sizes is None else self.sizes.get(name, 0)


def came_in(one: Minute, following: Minute | None, name: str) -> int | None:
    """How many jobs came into a queue: what went out, and by how much it grew. None where its size is not known.

    True to what flows within a second, since that is how often figures are sent; jobs that were deleted are missing.
    """
    before, after = one.size(name), None if following is None else following.size(name)
    return None if before is None or after is None else max(0, one.fetched(name) + after - before)


def minute(keys: Keys, number: int, only: str | None = None) -> Op[Minute]:
    """The figures of one minute, of all job names or of one."""
    if only is None:
        return Op("HGETALL", (keys.minute(number),), (), lambda reply: _read_minute(reply, number))
    fields = _fields_of(only)
    return Op("HMGET", (keys.minute(number),), fields, lambda reply: _read_some(reply, fields, number))


def minutes(keys: Keys, first: int, last: int, only: str | None = None) -> Steps[list[Minute]]:
    """The figures of the minutes from `first` to `last`, an hour to a round trip; three days are kept where nobody summed them."""
    found: list[Minute] = []
    for begin in range(first, last + 1, 60):
        found += yield from ask_all(
            [minute(keys, number, only) for number in range(begin, min(begin + 60, last + 1))]
        )
    return found


@functools.lru_cache(maxsize=64)
def _fields_of(name: str) -> tuple[bytes, ...]:
    """Every field that a minute can have for one job name, and the mark of all sizes."""
    figures = [f"{kind}{number}" for kind in "rw" for number in range(BUCKETS)]
    return (*(f"{name}|{figure}".encode() for figure in (*figures, "f", "o", "q")), b"|q")


def _read_some(reply: list[bytes | None], fields: Sequence[bytes], number: int) -> Minute:
    found: list[bytes] = []
    for field_, count in zip(fields, reply, strict=True):
        if count is not None:
            found += (field_, count)
    return _read_minute(found, number)


@functools.lru_cache(maxsize=1 << 16)
def _read_field(raw: bytes) -> tuple[str, str, int]:
    """Job name, kind of figure, and number of its bucket or -1. Kept, since every minute has the same fields again."""
    name, _, figure = raw.decode("utf-8", "replace").rpartition("|")
    kind, number = figure[:1], figure[1:]
    if number and not number.isdecimal():
        return name, "", -1
    return name, kind, int(number or -1)


def _read_minute(reply: Any, number: int) -> Minute:
    kinds: dict[str, dict[str, dict[int, int]]] = {"r": {}, "w": {}, "x": {}}
    #: Single numbers: failed, waiting when the minute began, taken from the queue.
    singles: dict[str, dict[str, int]] = {"f": {}, "q": {}, "o": {}}
    for raw, count in zip(reply[::2], reply[1::2], strict=True):
        name, kind, bucket = _read_field(raw)
        try:
            value = int(count)
        except ValueError:
            # Not written by us.
            continue
        if bucket >= 0 and kind in kinds:
            try:
                kinds[kind][name][bucket] = value
            except KeyError:
                kinds[kind][name] = {bucket: value}
        elif bucket < 0 and kind in singles:
            singles[kind][name] = value
    runs, waits, trips = ({name: Histogram(found) for name, found in kinds[kind].items()} for kind in "rwx")
    # Without the mark of the last one, not all sizes were noted.
    counted = singles["q"].pop("", None) is not None
    return Minute(
        number,
        runs,
        waits,
        trips.get("", Histogram()),
        singles["f"],
        singles["q"] if counted else None,
        singles["o"],
    )


# Roll-ups: a minute, a quarter of an hour or an hour as one value. Three days are then not four thousand reads, and a
# value takes about a quarter of the memory that the hash of a minute does, and less of the time to read it.

#: Minutes in one roll-up, and the function of Keys that names it.
SPANS: dict[int, Callable[[Keys, int], str]] = {1: Keys.past, 15: Keys.quarter, 60: Keys.hour}
#: Seconds for which roll-ups are kept: somewhat longer than the hour, the day or the three days that are shown of them.
KEPT = {1: 7200, 15: 93_600, 60: 262_800}
#: Seconds for which minutes are kept, exchange and sample say the same; and once their hour is summed.
KEPT_MINUTES = 262_800
KEPT_SUMMED = 14_400


class _Figures(msgspec.Struct, array_like=True):
    runs: dict[int, int] = {}
    waits: dict[int, int] = {}
    fails: int = 0
    size: int = 0
    taken: int = 0


class _Rollup(msgspec.Struct):
    names: dict[str, _Figures]
    trips: dict[int, int] = {}
    #: Whether the sizes are those of its beginning, rather than unknown.
    counted: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Rollup).decode


def merged(parts: Sequence[Minute], first: int) -> Minute:
    """The sum of some minutes that begin with `first`."""
    runs: dict[str, dict[int, int]] = {}
    waits: dict[str, dict[int, int]] = {}
    trips: dict[int, int] = {}
    fails: dict[str, int] = {}
    taken: dict[str, int] = {}
    sizes = None
    for part in parts:
        for into, found in ((runs, part.runs), (waits, part.waits)):
            for name, histogram in found.items():
                _add(into.setdefault(name, {}), histogram.buckets)
        _add(trips, part.exchanges.buckets)
        for name, number in part.fails.items():
            fails[name] = fails.get(name, 0) + number
        for name, number in part.taken.items():
            taken[name] = taken.get(name, 0) + number
        if part.minute == first:
            sizes = part.sizes
    return Minute(
        first,
        {name: Histogram(buckets) for name, buckets in runs.items()},
        {name: Histogram(buckets) for name, buckets in waits.items()},
        Histogram(trips), fails, sizes, taken,
    )  # fmt: skip


def _add(into: dict[int, int], buckets: Mapping[int, int]) -> None:
    if not into:
        into.update(buckets)
        return
    for number, count in buckets.items():
        try:
            into[number] += count
        except KeyError:
            into[number] = count


def roll_up(keys: Keys, span: int, figures: Minute) -> Op[Any]:
    """Keep the sum of `span` minutes, 1, 15 or 60, as one value."""
    names: dict[str, _Figures] = {}
    for name in {*figures.runs, *figures.waits, *figures.fails, *figures.taken, *(figures.sizes or {})}:
        names[name] = _Figures(
            dict(figures.runs.get(name, Histogram()).buckets), dict(figures.waits.get(name, Histogram()).buckets),
            figures.failed(name), figures.size(name) or 0, figures.fetched(name),
        )  # fmt: skip
    rollup = _Rollup(names, dict(figures.exchanges.buckets), figures.sizes is not None)
    return plain("SET", SPANS[span](keys, figures.minute), _encode(rollup), "EX", KEPT[span])


def let_go(keys: Keys, first: int) -> Steps[None]:
    """Keep the minutes of the hour that begins with `first`, which is summed now, for a few hours only."""
    yield from ask_all(
        [plain("EXPIRE", keys.minute(number), KEPT_SUMMED, "LT") for number in range(first, first + 60)]
    )


def rolled_up(keys: Keys, span: int, first: int) -> Op[Minute | None]:
    """The sum of the `span` minutes from `first` on; None where it was not kept."""
    return Op("GET", (SPANS[span](keys, first),), (), lambda reply: _read_rollup(reply, first))


def _read_rollup(raw: bytes | None, first: int) -> Minute | None:
    try:
        found = None if raw is None else _decode(raw)
    except codec.UNREADABLE:
        return None
    if found is None:
        return None
    names = found.names.items()
    return Minute(
        first,
        {name: Histogram(one.runs) for name, one in names if one.runs},
        {name: Histogram(one.waits) for name, one in names if one.waits},
        Histogram(found.trips),
        {name: one.fails for name, one in names if one.fails},
        {name: one.size for name, one in names if one.size} if found.counted else None,
        {name: one.taken for name, one in names if one.taken},
    )


def spans(keys: Keys, first: int, last: int, span: int) -> Steps[list[Minute]]:
    """The figures of each `span` of minutes from `first` to `last`: from roll-ups, and where there is none from minutes."""
    found: list[Minute] = []
    starts = range(first, last + 1, span)
    for begin in range(0, len(starts), 60):
        batch = starts[begin : begin + 60]
        kept = yield from ask_all([rolled_up(keys, span, start) for start in batch])
        missing = [start for start, one in zip(batch, kept, strict=True) if one is None]
        summed = yield from _sums(keys, missing, span, last)
        for start, one in zip(batch, kept, strict=True):
            found.append(one or summed.get(start) or Minute(start, {}, {}, Histogram()))
    return found


def _sums(keys: Keys, starts: Sequence[int], span: int, last: int) -> Steps[dict[int, Minute]]:
    """The sums of the spans that begin there, of those of which there is a minute."""
    if span == 1:
        single = yield from ask_all([minute(keys, start) for start in starts])
        return dict(zip(starts, single, strict=True))
    there = yield from ask_all([any_minute(keys, start, span) for start in starts])
    sums: dict[int, Minute] = {}
    for start, any_ in zip(starts, there, strict=True):
        if any_:
            parts = yield from minutes(keys, start, min(start + span - 1, last))
            sums[start] = merged(parts, start)
    return sums


def whole(keys: Keys, parts: Sequence[Minute], span: int) -> Steps[Minute]:
    """The sum of all parts, each of `span` minutes. Of single minutes, quarters that were summed before are taken as they are."""
    first = parts[0].minute
    if span > 1:
        return merged(parts, first)
    last = parts[-1].minute
    starts = range(first + -first % 15, last - 13, 15)
    quarters = yield from ask_all([rolled_up(keys, 15, start) for start in starts])
    summed = {start: one for start, one in zip(starts, quarters, strict=True) if one is not None}
    rest = [part for part in parts if part.minute // 15 * 15 not in summed]
    return merged([*summed.values(), *rest], first)


def any_minute(keys: Keys, first: int, span: int) -> Op[bool]:
    """Whether there are figures of any of the `span` minutes from `first` on."""
    return Op("EXISTS", [keys.minute(number) for number in range(first, first + span)], (), bool)

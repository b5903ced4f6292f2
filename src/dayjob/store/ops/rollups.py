"""Roll-ups: the metrics of 1, 15, 60 and 360 minutes, each stored as two values, counts and times.

They make a chart of three days possible without reading four thousand minutes. Counts are small, and a chart needs each of
them. Times are large, but only their sum is shown, which needs a few long roll-ups only. A span that is not rolled up yet
is summed from shorter ones, and in the end from minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.ops.figures import Counts, Minute, Times
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

T = TypeVar("T")

#: Minutes of a roll-up to the seconds for which it is kept: a little longer than the charts that use it (an hour, a day,
#: three days).
KEPT_SECONDS = {1: 7200, 15: 93_600, 60: 262_800, 360: 284_400}
#: Minutes of a roll-up to the minutes of the shorter ones it is summed from.
FINER = {15: 1, 60: 15, 360: 60}

#: Reads minutes that are not rolled up.
ReadMinutes = Callable[[Sequence[int]], Steps[list[Minute]]]


@dataclass(frozen=True, slots=True)
class RollupKind(Generic[T]):
    """How to store, read and sum one of the two values of a roll-up."""

    key: Callable[[Keys, int, int], str]
    write: Callable[[T], bytes]
    #: Raises one of codec.UNREADABLE.
    read: Callable[[bytes, int], T]
    merged: Callable[[Sequence[T], int], T]
    of: Callable[[Minute], T]


class _Counts(msgspec.Struct):
    """Counts as they are stored, by job name."""

    ended: dict[str, int]
    fails: dict[str, int]
    taken: dict[str, int]
    #: Queue sizes at its start; None if the leader did not record them.
    sizes: dict[str, int] | None
    #: Ages of the oldest jobs, and measures: the largest of all its minutes.
    ages: dict[str, int] = {}
    measures: dict[str, int] = {}


class _Times(msgspec.Struct):
    """Times as they are stored, by job name and bucket."""

    runs: dict[str, dict[int, int]]
    waits: dict[str, dict[int, int]]
    trips: dict[int, int]


_encode = msgspec.json.Encoder().encode
_decode_counts = msgspec.json.Decoder(_Counts).decode
_decode_times = msgspec.json.Decoder(_Times).decode


def _write_counts(counts: Counts) -> bytes:
    sizes = None if counts.sizes is None else dict(counts.sizes)
    return _encode(
        _Counts(
            dict(counts.ended), dict(counts.fails), dict(counts.taken), sizes, dict(counts.ages), dict(counts.measures)
        )
    )  # fmt: skip


def _read_counts(raw: bytes, first: int) -> Counts:
    found = _decode_counts(raw)
    return Counts(
        first, found.ended, found.fails, found.taken, found.sizes, ages=found.ages, measures=found.measures
    )


def merged_counts(parts: Sequence[Counts], first: int) -> Counts:
    """The sum of counts that start at the minute `first`; of ages and measures the largest."""
    ended: dict[str, int] = {}
    fails: dict[str, int] = {}
    taken: dict[str, int] = {}
    ages: dict[str, int] = {}
    measures: dict[str, int] = {}
    for part in parts:
        _raise(ages, part.ages)
        _raise(measures, part.measures)
        _add(ended, part.ended)
        _add(fails, part.fails)
        _add(taken, part.taken)
    sizes = next((part.sizes for part in parts if part.minute == first), None)
    return Counts(first, ended, fails, taken, sizes, ages=ages, measures=measures)


def _raise(into: dict[str, int], numbers: Mapping[str, int]) -> None:
    """Keep the larger of two numbers."""
    for name, number in numbers.items():
        into[name] = max(number, into.get(name, number))


def _write_times(times: Times) -> bytes:
    runs, waits = ({name: dict(one) for name, one in kind.items()} for kind in (times.runs, times.waits))
    return _encode(_Times(runs, waits, dict(times.trips)))


def _read_times(raw: bytes, _first: int) -> Times:
    found = _decode_times(raw)
    return Times(found.runs, found.waits, found.trips)


def merged_times(parts: Sequence[Times], _first: int = 0, *, names: Collection[str] | None = None) -> Times:
    """The sum of times, of some job names or of all."""
    runs: dict[str, dict[int, int]] = {}
    waits: dict[str, dict[int, int]] = {}
    trips: dict[int, int] = {}
    for part in parts:
        for into, found in ((runs, part.runs), (waits, part.waits)):
            for name, buckets in found.items():
                if names is None or name in names:
                    _add(into.setdefault(name, {}), buckets)
        _add(trips, part.trips)
    return Times(runs, waits, trips)


K = TypeVar("K", int, str)


def _add(into: dict[K, int], numbers: Mapping[K, int]) -> None:
    if not into:
        into.update(numbers)
        return
    for key, number in numbers.items():
        try:
            into[key] += number
        except KeyError:
            into[key] = number


COUNTS = RollupKind(Keys.counts, _write_counts, _read_counts, merged_counts, lambda minute: minute.counts)
TIMES = RollupKind(Keys.times, _write_times, _read_times, merged_times, lambda minute: minute.times)


# Reading.


def series(keys: Keys, first: int, last: int, span: int, minutes: ReadMinutes) -> Steps[list[Counts]]:
    """The counts of each `span` of minutes, 1, 15 or 60, from `first` to `last`."""
    starts = range(first, last + 1, span)
    found = yield from _sums(keys, COUNTS, span, starts, last, minutes)
    return [found.get(start) or Counts(start) for start in starts]


def times(
    keys: Keys, first: int, last: int, minutes: ReadMinutes, names: Collection[str] | None = None
) -> Steps[Times]:
    """The times of all minutes from `first` to `last` together, of some job names or of all."""
    parts: list[Times] = []
    by_span: dict[int, list[int]] = {}
    for span, start in _pieces(first, last):
        by_span.setdefault(span, []).append(start)
    for span, starts in by_span.items():
        found = yield from _sums(keys, TIMES, span, starts, last, minutes)
        parts += found.values()
    return merged_times(parts, names=names)


def _pieces(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The fewest spans that make up the minutes from `first` to `last`."""
    while first <= last:
        span = max(span for span in KEPT_SECONDS if first % span == 0 and first + span - 1 <= last)
        yield span, first
        first += span


def _sums(
    keys: Keys, kind: RollupKind[T], span: int, starts: Sequence[int], last: int, minutes: ReadMinutes
) -> Steps[dict[int, T]]:
    """The sums of the spans that start at `starts`, by start; a span without data has none."""
    kept: list[T | None] = []
    for begin in range(0, len(starts), 60):
        kept += yield from ask(_rolled_up(keys, kind, span, starts[begin : begin + 60]))
    found = {start: one for start, one in zip(starts, kept, strict=True) if one is not None}
    open_ = [start for start in starts if start not in found]
    if span == 1:
        read = yield from minutes(open_)
        return found | {minute.number: kind.of(minute) for minute in read}
    there = yield from ask_all([_any(keys, span, start) for start in open_])
    open_ = [start for start, any_ in zip(open_, there, strict=True) if any_]
    parts = yield from _parts(keys, kind, span, open_, last, minutes)
    return found | {start: kind.merged(parts[start], start) for start in open_}


def _parts(
    keys: Keys, kind: RollupKind[T], span: int, starts: Sequence[int], last: int, minutes: ReadMinutes
) -> Steps[dict[int, list[T]]]:
    """The parts that each of the spans at `starts` is summed from."""
    finer = FINER[span]
    inner = [one for start in starts for one in range(start, min(start + span, last + 1), finer)]
    found = yield from _sums(keys, kind, finer, inner, last, minutes)
    parts: dict[int, list[T]] = {start: [] for start in starts}
    for one, part in found.items():
        parts[one // span * span].append(part)
    return parts


def _rolled_up(keys: Keys, kind: RollupKind[T], span: int, starts: Sequence[int]) -> Op[list[T | None]]:
    def read(raw: bytes | None, start: int) -> T | None:
        try:
            return None if raw is None else kind.read(raw, start)
        except codec.UNREADABLE:
            # dayjob did not write this value, so sum the span again.
            return None

    return Op(
        "MGET", [kind.key(keys, span, start) for start in starts], (),
        lambda reply: [read(raw, start) for raw, start in zip(reply, starts, strict=True)],
    )  # fmt: skip


def _any(keys: Keys, span: int, first: int) -> Op[bool]:
    """Whether there is any data that a roll-up can be summed from."""
    return Op("EXISTS", _sources(keys, span, first), (), bool)


def _sources(keys: Keys, span: int, first: int) -> list[str]:
    """The keys that a roll-up can be summed from."""
    upto = first + span
    # Roll-ups of 1 minute expire before their minutes do.
    parts = [
        keys.counts(one, start)
        for one in KEPT_SECONDS
        if 15 <= one < span
        for start in range(first, upto, one)
    ]
    return [*parts, *(keys.minute(number) for number in range(first, upto))]


# Writing.


def missing_rollups(keys: Keys, span: int, starts: Sequence[int]) -> Op[list[int]]:
    """Those of the spans at `starts` that have data but are not rolled up."""
    key_list: list[str] = []
    for start in starts:
        key_list += (keys.counts(span, start), *_sources(keys, span, start))
    return Op(
        load("missing_rollups"), key_list, (len(key_list) // len(starts),),
        lambda reply: [starts[index] for index in reply],
    )  # fmt: skip


def roll_up(keys: Keys, span: int, first: int, minutes: ReadMinutes) -> Steps[None]:
    """Store the sum of `span` minutes from `first` on."""
    once = _once(minutes)
    if span == 1:
        (minute,) = yield from once([first])
        counts, times_ = minute.counts, minute.times
    else:
        last = first + span - 1
        counts = merged_counts((yield from _parts(keys, COUNTS, span, [first], last, once))[first], first)
        times_ = merged_times((yield from _parts(keys, TIMES, span, [first], last, once))[first])
    # `missing_rollups` looks at the counts only, so they are stored last.
    yield from ask_all([_keep(keys, TIMES, span, first, times_), _keep(keys, COUNTS, span, first, counts)])


def forget(keys: Keys, first: int, last: int) -> Op[int]:
    """Delete every roll-up that contains one of these minutes."""
    spans = [(span, start) for span in KEPT_SECONDS for start in range(first // span * span, last + 1, span)]
    return Op(
        "DEL", [key(span, start) for span, start in spans for key in (keys.counts, keys.times)], (), int
    )


def _once(minutes: ReadMinutes) -> ReadMinutes:
    """Wrap `minutes` so that each minute is read once for both values."""
    known: dict[int, Minute] = {}

    def read(numbers: Sequence[int]) -> Steps[list[Minute]]:
        for minute in (yield from minutes([number for number in numbers if number not in known])):
            known[minute.number] = minute
        return [known[number] for number in numbers]

    return read


def _keep(keys: Keys, kind: RollupKind[T], span: int, first: int, value: T) -> Op[Any]:
    return plain("SET", kind.key(keys, span, first), kind.write(value), "EX", KEPT_SECONDS[span])

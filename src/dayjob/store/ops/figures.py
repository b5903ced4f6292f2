"""Metrics: exact totals by job name, and the counts and histograms of each minute."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.steps import Steps, ask, ask_all


def totals(keys: Keys) -> Op[dict[str, dict[str, int]]]:
    """The exact totals: counter to job name to number."""
    return Op("HGETALL", (keys.totals,), (), _read_totals)


def _read_totals(reply: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for raw, value in zip(reply[::2], reply[1::2], strict=True):
        counter, _, name = raw.decode("utf-8", "replace").partition(":")
        number = _read_number(value)
        if number is not None:
            found.setdefault(counter, {})[name] = number
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
        """The approximate sum of all durations, computed from the middle of each bucket."""
        return sum(count * bucket_limit(number) / 2**0.25 for number, count in self.buckets.items())

    def quantile(self, q: float) -> float | None:
        """The `q` quantile of the durations, in seconds; None if there are none."""
        rest = q * self.count
        for number in sorted(self.buckets):
            rest -= self.buckets[number]
            if rest <= 0:
                return bucket_limit(number)
        return None


#: Seconds for which a minute is kept (exchange and sample have the same number), and once its hour is rolled up.
KEPT_SECONDS = 262_800
KEPT_ROLLED_UP_SECONDS = 14_400
#: How many buckets a histogram has. The last one counts durations of a day or more.
BUCKETS = 60


def bucket_limit(number: int) -> float:
    """The longest duration that a bucket counts, in seconds."""
    return float(0.0001 * 2 ** (min(number, BUCKETS) / 2))


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by job name, of one minute since the epoch or of several minutes from there on."""

    minute: int
    #: Attempts that ended, and those of them that failed.
    ended: Mapping[str, int] = field(default_factory=dict)
    fails: Mapping[str, int] = field(default_factory=dict)
    #: Jobs that pools fetched from the queue, without those they gave back.
    taken: Mapping[str, int] = field(default_factory=dict)
    #: Jobs that were waiting when the minute began; None if the leader did not count them.
    sizes: Mapping[str, int] | None = None
    #: When the leader counted them, in Redis seconds. Later than the start of the minute in the first minute of a
    #: namespace, and after a time without a leader. None if it did not count them, and for a sum of several minutes.
    counted_at: int | None = None
    #: Milliseconds that the oldest job of each queue had waited when the minute began; of several minutes the longest.
    ages: Mapping[str, int] = field(default_factory=dict)
    #: What the leader measured when the minute began, by name, see Sampler; of several minutes the largest.
    measures: Mapping[str, int] = field(default_factory=dict)

    def ran(self, name: str) -> int:
        """How many attempts ended."""
        return self.ended.get(name, 0)

    def failed(self, name: str) -> int:
        """How many attempts failed."""
        return self.fails.get(name, 0)

    def fetched(self, name: str) -> int:
        """How many jobs pools fetched to run them."""
        return self.taken.get(name, 0)

    def size(self, name: str) -> int | None:
        """How many jobs were waiting when the minute began; None if the leader did not count them."""
        return None if self.sizes is None else self.sizes.get(name, 0)

    def oldest(self, name: str) -> float | None:
        """Seconds that the oldest job had waited when the minute began; 0 if none waited, None if it was not measured."""
        if name in self.ages:
            return self.ages[name] / 1000
        return 0.0 if self.size(name) == 0 else None


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of durations over some minutes: number by bucket."""

    #: By job name: how long attempts ran, and how long jobs waited before an attempt.
    runs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    waits: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: Round trips of the exchange.
    trips: Mapping[int, int] = field(default_factory=dict)

    def run(self, name: str) -> Histogram:
        """How long attempts ran."""
        return Histogram(self.runs.get(name, {}))

    def wait(self, name: str) -> Histogram:
        """How long jobs waited before an attempt."""
        return Histogram(self.waits.get(name, {}))

    def exchange(self) -> Histogram:
        """How long round trips of the exchange took."""
        return Histogram(self.trips)


@dataclass(frozen=True, slots=True)
class Minute:
    """All metrics of one minute."""

    counts: Counts
    times: Times

    @property
    def number(self) -> int:
        """The number of the minute since the epoch."""
        return self.counts.minute


def came_in(one: Counts, following: Counts | None, name: str) -> int | None:
    """How many jobs were added to a queue: those fetched plus the growth of the queue. None if its size is not known.

    May be off by the jobs of one second, because pools send metrics once a second. Deleted jobs are not included.
    """
    if one.sizes is None or following is None or following.sizes is None:
        return None
    return max(0, one.taken.get(name, 0) + following.sizes.get(name, 0) - one.sizes.get(name, 0))


def minute(keys: Keys, number: int, only: str | None = None) -> Op[Minute]:
    """The metrics of one minute, of all job names or of one."""
    if only is None:
        return Op("HGETALL", (keys.minute(number),), (), lambda reply: _read_minute(reply, number))
    fields = _fields_of(only)
    return Op("HMGET", (keys.minute(number),), fields, lambda reply: _read_some(reply, fields, number))


def minutes(keys: Keys, numbers: Sequence[int], only: str | None = None) -> Steps[list[Minute]]:
    """The metrics of some minutes, sixty per round trip."""
    found: list[Minute] = []
    for first in range(0, len(numbers), 60):
        some = numbers[first : first + 60]
        try:
            found += yield from ask_all([minute(keys, number, only) for number in some])
        except Rejected:
            found += yield from _one_by_one(keys, some, only)
    return found


def _one_by_one(keys: Keys, numbers: Sequence[int], only: str | None) -> Steps[list[Minute]]:
    """Like `minutes`, one request per minute: a key of a wrong type counts as empty and does not hide the others."""
    found: list[Minute] = []
    for number in numbers:
        try:
            found.append((yield from ask(minute(keys, number, only))))
        except Rejected:
            found.append(Minute(Counts(number), Times()))
    return found


@functools.lru_cache(maxsize=64)
def _fields_of(name: str) -> tuple[bytes, ...]:
    """Every field that a minute can have for one job name, and the field that marks the sizes as complete."""
    figures = [f"{kind}{number}" for kind in "rw" for number in range(BUCKETS)]
    return (*(f"{name}|{figure}".encode() for figure in (*figures, "f", "o", "q", "a")), b"|q")


def _read_some(reply: list[bytes | None], fields: Sequence[bytes], number: int) -> Minute:
    found: list[bytes] = []
    for field_, count in zip(fields, reply, strict=True):
        if count is not None:
            found += (field_, count)
    return _read_minute(found, number)


@functools.lru_cache(maxsize=1 << 16)
def _read_field(raw: bytes) -> tuple[str, int]:
    """Parse a field to its kind plus job name, and its bucket or -1. Cached, because all minutes have the same fields."""
    name, _, figure = raw.decode("utf-8", "replace").rpartition("|")
    kind, number = figure[:1], figure[1:]
    if kind in ("r", "w", "x") and number.isdecimal() and len(number) <= 2 and int(number) < BUCKETS:
        return kind + name, int(number)
    # Fields that dayjob did not write go under "", which is never read.
    return (kind + name if kind in ("f", "q", "o", "a", "s") and not number else ""), -1


def _read_minute(reply: Any, number: int) -> Minute:
    # Fast code for each field, because two hundred busy names have six thousand fields.
    slots: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (slot, bucket), value in zip(map(_read_field, reply[::2]), _read_numbers(reply[1::2]), strict=True):
        slots[slot][bucket] = value
    kinds: dict[str, dict[str, dict[int, int]]] = {kind: {} for kind in "rwxfqoas"}
    slots.pop("", None)
    for slot, found in slots.items():
        kinds[slot[0]][slot[1:]] = found
    # Failed, waiting when the minute began, taken from the queue, ages of the oldest, measures.
    fails, sizes, taken, ages, measures = (
        {name: one[-1] for name, one in kinds[kind].items()} for kind in "fqoas"
    )
    ended = {name: sum(buckets.values()) for name, buckets in kinds["r"].items()}
    # Without this field, the leader has not recorded all sizes yet.
    mark = sizes.pop("", None)
    if mark is None:
        counts = Counts(number, ended, fails, taken, ages=ages, measures=measures)
    else:
        counted_at = mark if number * 60 <= mark < number * 60 + 60 else number * 60
        counts = Counts(number, ended, fails, taken, sizes, counted_at, ages, measures)
    return Minute(counts, Times(kinds["r"], kinds["w"], kinds["x"].get("", {})))


def _read_numbers(raws: Sequence[bytes]) -> list[int]:
    try:
        return list(map(int, raws))
    except ValueError:
        # Values that dayjob did not write count as 0.
        return [_read_number(raw) or 0 for raw in raws]


def _read_number(raw: bytes) -> int | None:
    """A 64-bit integer as Redis writes it; None for anything else."""
    try:
        return int(raw) if len(raw) <= 20 else None
    except ValueError:
        return None


def round_trips(keys: Keys, number: int) -> Op[Histogram]:
    """The round trips of the exchanges in one minute."""
    fields = [f"|x{bucket}" for bucket in range(BUCKETS)]

    def read(reply: list[bytes | None]) -> Histogram:
        found = ((bucket, _read_number(raw)) for bucket, raw in enumerate(reply) if raw is not None)
        return Histogram({bucket: count for bucket, count in found if count})

    return Op("HMGET", (keys.minute(number),), fields, read)


#: Fields that one request writes.
MAX_FIELDS = 500


def keep_measures(
    keys: Keys, number: int, ages: Mapping[str, int], measures: Mapping[str, int]
) -> Steps[None]:
    """Store the ages of the oldest jobs in milliseconds, and other measures, of a minute whose sizes are stored."""
    fields = [(f"{name}|a", age) for name, age in ages.items()]
    fields += [(f"{name}|s", value) for name, value in measures.items()]
    for first in range(0, len(fields), MAX_FIELDS):
        some = fields[first : first + MAX_FIELDS]
        yield from ask(plain("HSET", keys.minute(number), *(word for pair in some for word in pair)))


def let_go(keys: Keys, first: int, count: int) -> Steps[None]:
    """Shorten the expiry of minutes that are rolled up."""
    yield from ask_all(
        [
            plain("EXPIRE", keys.minute(number), KEPT_ROLLED_UP_SECONDS, "LT")
            for number in range(first, first + count)
        ]
    )

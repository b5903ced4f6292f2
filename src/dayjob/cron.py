"""Schedules: parses cron expressions, computes their ticks, and decides which missed ticks to enqueue.

Pure: times are passed in as seconds since the epoch, and no clock is read. `cronsim` parses the fields and walks the
calendar; this module handles time zones and daylight saving.
"""

from __future__ import annotations

import difflib
import math
import re
import zoneinfo
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from itertools import pairwise, takewhile
from typing import NamedTuple, NoReturn

from cronsim import CronSim, CronSimError

from dayjob.errors import BadSchedule
from dayjob.options import Missed

#: A tick at most this many seconds old is on time. This covers a change of leader and a restart of Redis.
ON_TIME_SECONDS = 60.0

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
#: The six fields in order, each with its valid values.
_FIELDS = (
    ("second", "0-59, '*', '*/10', '1-5' or '0,30'"),
    ("minute", "0-59, '*', '*/10', '1-5' or '0,30'"),
    ("hour", "0-23, '*', '*/2', '9-17' or '8,20'"),
    ("day of month", "1-31, '*', '*/2', '1-7', '1,15', 'L' (the last day) or 'LW' (the last weekday)"),
    ("month", "1-12 or JAN-DEC, '*', '*/3', '1-6' or 'MAR,SEP'"),
    (
        "day of week",
        "0-7 or SUN-SAT (0 and 7 are Sunday), '*', '1-5', 'SAT,SUN', '1#2' (second Monday) or '5L'",
    ),
)
_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # the micro sign
    "μs": Fraction(1, 10**6),  # the Greek letter; Go accepts both
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_PREFIX = re.compile(r"(?:CRON_TZ|TZ)=(\S*)(.*)", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_TEN_YEARS = 3653 * _DAY
#: Farther ahead than cronsim searches for a match.
_FAR = 60 * 366 * _DAY
#: Longer than any sensible expression, so that parsing a hostile one is cheap.
_LONGEST = 1000


class Ticks(NamedTuple):
    """The last ticks of a time span, ascending, and the exact number of earlier ticks that were left out."""

    times: tuple[int, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which a periodic job is enqueued, called ticks; created by `parse()`.

    Daylight saving, in a named time zone: a schedule with ticks in every hour of the day (`*/15 * * * *`,
    `30 * * * *`, `@hourly`) follows the local clock. It skips the hour that does not exist in spring and ticks in both
    passes of the hour that is repeated in autumn, so that the elapsed time between ticks stays the same.
    Any other schedule ticks once for each local time: a tick in the spring gap happens right after the gap, and a tick
    in the repeated hour happens in its first pass only. (Where the clock moves by half an hour, as on Lord Howe Island,
    `0 * * * *` pauses for an hour and a half, because the local hour takes that long.)

    `@every` ticks are the multiples of its duration since the epoch, so that all pools agree on them.
    """

    #: The expression without its time zone; `parse(spec, timezone)` returns an equal schedule.
    spec: str
    #: The name of the time zone whose clock the schedule follows.
    timezone: str
    _rule: _Cron | _Every = field(repr=False, compare=False, kw_only=True)

    def next_after(self, epoch_seconds: float) -> int | None:
        """The first tick strictly after that time, in whole seconds since the epoch; None if there is none."""
        return self._rule.next_after(math.floor(epoch_seconds))

    def ticks(self, after: float, until: float, limit: int) -> Ticks:
        """The last `limit` ticks in (after, until], ascending, and how many came before them.

        The cost grows with `limit` and the number of days, not with the number of ticks: a year of a schedule
        that ticks every second takes milliseconds.
        """
        first, last = math.floor(after), math.floor(until)
        return self._rule.ticks(first, last, limit) if first < last else Ticks((), 0)

    def counts(self, bounds: Sequence[int]) -> list[int]:
        """How many ticks are between each of these times and the next one: in (bound, next bound]. The bounds ascend."""
        return [upper - lower for lower, upper in pairwise(self._rule.totals(bounds))]


@dataclass(frozen=True, slots=True)
class Due:
    """Which ticks since the last processed one get a job."""

    #: The ticks to enqueue a job for, ascending.
    enqueue: tuple[int, ...]
    #: How many ticks get no job; they are counted as missed.
    missed: int
    #: The newest tick processed; pass it as `last` to the next call.
    last: int


def parse(spec: str, timezone: str | None = None) -> Schedule:
    """Parse a schedule.

    `spec` is a cron expression of five fields (minute, hour, day of month, month, day of week) or six (seconds
    first), one of `@hourly @daily @midnight @weekly @monthly @yearly @annually`, or `@every` with a duration of
    whole seconds such as `90s`, `1h30m` or `5000ms`. It may begin with `CRON_TZ=Europe/Paris` or `TZ=...`.
    The time zone is `timezone` or that of the prefix; UTC when neither is given. Raises BadSchedule.
    """
    if not isinstance(spec, str) or len(spec) > _LONGEST:
        raise BadSchedule(
            f"schedule {_shown(spec)}: give a cron expression such as '0 9 * * 1-5' or '@every 5m'"
        )
    name, text = _split_zone(spec, timezone)
    macro, _, rest = text.partition(" ")
    if macro.lower() == "@every":
        if name != "UTC":
            raise BadSchedule(
                f"{_shown(spec)}: @every counts from the epoch and uses no time zone; leave out {name!r}, "
                "or write a cron expression"
            )
        return Schedule(f"@every {rest}", name, _rule=_Every(_read_duration(rest, spec)))
    zone = _find_zone(name, spec)
    return Schedule(text, name, _rule=_Cron.of(_expand(text, spec), zone, spec))


def describe(schedule: Schedule) -> str:
    """The schedule in English, such as "At 09:00 on Monday through Friday (Europe/Paris)"."""
    text = schedule._rule.describe()
    return text if isinstance(schedule._rule, _Every) else f"{text} ({schedule.timezone})"


def due(
    schedule: Schedule,
    last: int,
    now: float,
    policy: Missed,
    limit: int = 100,
) -> Due:
    """Decide which ticks after `last`, up to `now`, get a job.

    The newest tick is on time if it is at most ON_TIME_SECONDS seconds old, and is enqueued under every policy. All other
    ticks are missed: "skip" enqueues none of them, "one" the newest of them, "all" each of them. At most the newest
    `limit` ticks are enqueued; `limit` is at least 1. If no tick is due, or the clock went back, none is enqueued.
    """
    times, skipped = schedule.ticks(last, now, limit)
    if not times:
        return Due((), 0, last)
    on_time = 1 if now - times[-1] <= ON_TIME_SECONDS else 0
    late = {"skip": 0, "one": 1, "all": limit}[policy]
    enqueue = times[max(0, len(times) - late - on_time) :]
    return Due(enqueue, skipped + len(times) - len(enqueue), times[-1])


@dataclass(frozen=True, slots=True)
class _Every:
    """The multiples of a number of seconds since the epoch."""

    period: int

    def next_after(self, after: int) -> int:
        return (after // self.period + 1) * self.period

    def ticks(self, after: int, until: int, limit: int) -> Ticks:
        low, high = after // self.period, until // self.period
        start = max(low, high - limit)
        return Ticks(tuple(n * self.period for n in range(start + 1, high + 1)), start - low)

    def totals(self, bounds: Sequence[int]) -> list[int]:
        return [bound // self.period for bound in bounds]

    def describe(self) -> str:
        left, parts = self.period, []
        for size, unit in ((_DAY, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
            count, left = divmod(left, size)
            if count:
                parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
        if len(parts) == 1:
            return "Every " + parts[0].removeprefix("1 ")
        return "Every " + ", ".join(parts[:-1]) + " and " + parts[-1]


class _Stretch(NamedTuple):
    """A span (low, high] of local times. UTC is local time minus `offset`; in a gap, all ticks happen at its end."""

    low: int
    high: int
    offset: int
    gap: bool

    def tick(self, local: int) -> int:
        return (self.high if self.gap else local) - self.offset


@dataclass(frozen=True, slots=True)
class _Cron:
    """A cron expression and the local clock it follows.

    A local time is an int here: the seconds since the epoch at which a UTC clock shows that time. cronsim gets local
    times only, as if they were UTC. Given a zone, cronsim 2.8 also lets `*/15 * * * *` follow the clock, but it skips the
    spring gap and repeats the autumn hour for six fields, `0 */2 * * *` and `*/10 2 * * *`; and where clocks move by half
    an hour, its result depends on the start time.
    """

    text: str
    zone: tzinfo
    #: Matches the midnight of every day that has ticks.
    days: str
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    @classmethod
    def of(cls, text: str, zone: tzinfo, spec: str) -> _Cron:
        parts = text.split()
        if len(parts) == 5:
            parts.insert(0, "0")
        for index, part in enumerate(parts):
            _check_field(index, part, spec)
        second, minute, hour, *days = parts
        cron = cls(
            text=text,
            zone=zone,
            days=" ".join(("0", "0", "0", *days)),
            hours=_values(f"0 0 {hour} * * *", _DAY, 3600),
            minutes=_values(f"0 {minute} * * * *", 3600, 60),
            seconds=_values(f"{second} * * * * *", 60, 1),
        )
        try:
            first = next(cron._walk(0), None)
        except CronSimError:
            first = None
        if first is None:
            raise BadSchedule(
                f"{_shown(spec)}: never runs: no date has day of month {days[0]!r}, month {days[1]!r} and "
                f"day of week {days[2]!r}; for the last day of the month write 'L'"
            )
        return cron

    def next_after(self, after: int) -> int | None:
        try:
            # Most ticks are near. A short search then avoids computing clock changes for the next sixty years.
            near = self._first(after, after + 2 * _DAY)
            return near if near is not None else self._first(after, after + _FAR)
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def _first(self, after: int, until: int) -> int | None:
        # A match found for one stretch may be in a later one. Keep it, because searching again for each would be slow.
        since, found = 0, None
        for stretch in self._stretches(after, until):
            if found is None or not since <= stretch.low < found:
                since, found = stretch.low, next(self._walk(stretch.low), None)
            if found is None:
                return None
            if found <= stretch.high:
                return stretch.tick(found)
        return None

    def ticks(self, after: int, until: int, limit: int) -> Ticks:
        stretches = self._stretches(after, until)
        counted = [(stretch, self._count(stretch, self._days(stretch))) for stretch in stretches]
        times: list[int] = []
        for stretch, count in reversed(counted):
            wanted = min(count, limit - len(times))
            if wanted > 0:
                walk = self._walk(stretch.high + 1, back=True)
                times += (stretch.tick(next(walk)) for _ in range(wanted))
        return Ticks(tuple(reversed(times)), sum(count for _, count in counted) - len(times))

    def totals(self, bounds: Sequence[int]) -> list[int]:
        """How many ticks there are from the first of these times until each of them."""
        found = [0] * len(bounds)
        for stretch in self._stretches(bounds[0], bounds[-1]):
            days = self._days(stretch)
            begin, end = stretch.tick(stretch.low), stretch.tick(stretch.high)
            for place, bound in enumerate(bounds):
                if bound >= end:
                    found[place] += self._count(stretch, days)
                elif bound > begin:
                    found[place] += self._count(stretch._replace(high=bound + stretch.offset), days)
        return found

    def describe(self) -> str:
        text = CronSim(self.text, _EPOCH).explain()
        return re.sub(r"\b(\d*)([123])th\b", _ordinal, text)

    def _stretches(self, after: int, until: int) -> Iterator[_Stretch]:
        """The spans of local time in (after, until], in order."""
        every_hour = len(self.hours) == 24
        # If `after` is in a repeated hour, the two days before show which local times have already passed.
        begin = after if every_hour else after - 2 * _DAY
        reached: int | None = None
        for start, end, offset in self._offsets(begin, until):
            low, high = start + offset, end + offset
            if every_hour or reached is None:
                reached = low
            if low > reached:
                if start >= after:
                    yield _Stretch(reached, low + 1, offset, gap=True)
                reached = low + 1
            from_here = max(reached, after + offset)
            if high > from_here:
                yield _Stretch(from_here, high, offset, gap=False)
            reached = max(reached, high)

    def _offsets(self, after: int, until: int) -> Iterator[tuple[int, int, int]]:
        """The spans of (after, until] with a constant offset from UTC, as (start, end, offset)."""
        if self.zone is UTC:
            yield after, until, 0
            return
        start, probe = after, after + 1
        offset = self._offset(probe)
        while probe < until:
            ahead = min(probe + _DAY, until)
            if self._offset(ahead) == offset:
                probe = ahead
                continue
            while ahead - probe > 1:
                middle = (probe + ahead) // 2
                probe, ahead = (middle, ahead) if self._offset(middle) == offset else (probe, middle)
            yield start, ahead - 1, offset
            start, probe, offset = ahead - 1, ahead, self._offset(ahead)
        yield start, until, offset

    def _offset(self, at: int) -> int:
        moment = _EPOCH + timedelta(seconds=at)
        return _seconds(moment.astimezone(self.zone).replace(tzinfo=UTC)) - at

    def _walk(self, local: int, *, back: bool = False) -> Iterator[int]:
        """The matching local times after `local`, or before it in reverse order with `back`."""
        return map(_seconds, CronSim(self.text, _EPOCH + timedelta(seconds=local), reverse=back))

    def _days(self, stretch: _Stretch) -> list[int]:
        """The midnights of the days of a stretch that have ticks."""
        midnight = stretch.low // _DAY * _DAY
        days = map(_seconds, CronSim(self.days, _EPOCH + timedelta(seconds=midnight - 1)))
        return list(takewhile(lambda day: day <= stretch.high, days))

    def _count(self, stretch: _Stretch, days: Sequence[int]) -> int:
        """How many ticks the stretch has, counted day by day."""
        total = sum(
            self._times_until(stretch.high - day) - self._times_until(stretch.low - day)
            for day in days
            if day <= stretch.high
        )
        return min(total, 1) if stretch.gap else total

    def _times_until(self, moment: int) -> int:
        """How many ticks a day has from midnight until that many seconds after it, inclusive."""
        if moment < 0:
            return 0
        per_minute = len(self.seconds)
        per_hour = len(self.minutes) * per_minute
        if moment >= _DAY:
            return len(self.hours) * per_hour
        hour, minute, second = moment // 3600, moment // 60 % 60, moment % 60
        total = bisect_left(self.hours, hour) * per_hour
        if hour in self.hours:
            total += bisect_left(self.minutes, minute) * per_minute
            if minute in self.minutes:
                total += bisect_right(self.seconds, second)
        return total


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _values(text: str, span: int, unit: int) -> tuple[int, ...]:
    """The values that one field matches, found by running it over one full cycle."""
    walk = map(_seconds, CronSim(text, _EPOCH - timedelta(seconds=1)))
    return tuple(at // unit for at in takewhile(lambda at: at < span, walk))


def _ordinal(match: re.Match[str]) -> str:
    tens, ones = match.groups()
    return match[0] if tens.endswith("1") else tens + {"1": "1st", "2": "2nd", "3": "3rd"}[ones]


def _split_zone(spec: str, timezone: str | None) -> tuple[str, str]:
    """The name of the time zone and the expression, with single spaces."""
    prefix = _PREFIX.match(spec.strip())
    if prefix is None:
        return ("UTC" if timezone is None else timezone), " ".join(spec.split())
    name, text = prefix.groups()
    if timezone is not None and timezone != name:
        raise BadSchedule(
            f"{_shown(spec)}: has the time zone {name!r} and timezone={timezone!r}; give one of them"
        )
    return name, " ".join(text.split())


def _expand(text: str, spec: str) -> str:
    """`text` as five or six fields."""
    if text.startswith("@"):
        if text.lower() in _MACROS:
            return _MACROS[text.lower()]
        known = (*_MACROS, "@every 5m")
        near = difflib.get_close_matches(text.lower(), known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise BadSchedule(f"{_shown(spec)}: unknown. {hint}There are {', '.join(known)}")
    count = len(text.split())
    if count not in (5, 6):
        raise BadSchedule(
            f"{_shown(spec)}: has {count} field{'' if count == 1 else 's'}; write five (minute, hour, day of month, "
            "month, day of week) as in '30 9 * * 1-5', or six with seconds first"
        )
    return text


def _check_field(index: int, part: str, spec: str) -> None:
    fields = ["*"] * len(_FIELDS)
    fields[index] = part
    try:
        CronSim(" ".join(fields), _EPOCH)
    except CronSimError:
        name, right = _FIELDS[index]
        raise BadSchedule(f"{_shown(spec)}: {name} {_shown(part)} cannot be read; write {right}") from None


def _read_duration(text: str, spec: str) -> int:
    example = "write it as '90s', '5m', '1h30m' or '24h'"
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadSchedule(f"{_shown(spec)}: the duration {_shown(text)} cannot be read; {example}")
    total = sum((Fraction(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
    if total.denominator != 1 or not 1 <= total <= _TEN_YEARS:
        raise BadSchedule(
            f"{_shown(spec)}: the duration must be whole seconds, from one second to ten years; {example}"
        )
    return int(total)


def _find_zone(name: str, spec: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    # ZoneInfo documents KeyError only. Names of folders, paths and invalid file names raise the others.
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        _refuse_zone(name, spec)


def _refuse_zone(name: object, spec: str) -> NoReturn:
    zones = sorted(zoneinfo.available_timezones())
    if not zones:
        raise BadSchedule(
            f"{_shown(spec)}: time zone {_shown(name)}: this machine has no time zone data; pip install tzdata"
        )
    asked = str(name)[:100].lower().replace(" ", "_")
    words = {word: zone for zone in zones for word in (zone.lower().rpartition("/")[2], zone.lower())}
    near = difflib.get_close_matches(asked, words, n=1, cutoff=0.8)
    hint = f". Did you mean {words[near[0]]!r}?" if near else "; write a name such as 'Europe/Paris' or 'UTC'"
    raise BadSchedule(f"{_shown(spec)}: no time zone {_shown(name)}{hint}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

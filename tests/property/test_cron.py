"""Schedules against a matcher that knows nothing of them: it looks at the clock of every minute, or second."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dayjob.cron import describe, due, parse
from dayjob.errors import BadSchedule

ZONES = ["UTC", "America/New_York", "Europe/Paris", "Australia/Lord_Howe", "Asia/Kathmandu"]
FIRST = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
LAST = int(datetime(2040, 12, 31, tzinfo=UTC).timestamp())
DAY = 86_400
slow = settings(deadline=None, max_examples=150)


@dataclass(frozen=True)
class Plain:
    """A schedule as text and as the sets of values that the text means."""

    text: str
    second: frozenset[int] = field(repr=False)
    minute: frozenset[int] = field(repr=False)
    hour: frozenset[int] = field(repr=False)
    day: frozenset[int] = field(repr=False)
    month: frozenset[int] = field(repr=False)
    weekday: frozenset[int] = field(repr=False)

    def matches(self, local: datetime) -> bool:
        *_, day_text, _, weekday_text = self.text.split()
        on_day = local.day in self.day
        on_weekday = local.isoweekday() % 7 in {value % 7 for value in self.weekday}
        both = day_text.startswith("*") or weekday_text.startswith("*")
        return (
            local.second in self.second
            and local.minute in self.minute
            and local.hour in self.hour
            and local.month in self.month
            and (on_day and on_weekday if both else on_day or on_weekday)
        )


@st.composite
def a_field(draw, low, high, near=None):
    """The text of a field, and what it means; its first value is at most `near`."""
    full = range(low, high + 1)
    shape = draw(st.sampled_from(["star", "step", "one", "list", "range", "stepped range", "open step"]))
    start = draw(st.integers(low, near or high))
    end = draw(st.integers(start, high))
    step = draw(st.integers(1, 30))
    if shape == "star":
        return "*", frozenset(full)
    if shape == "step":
        return f"*/{step}", frozenset(full[::step])
    if shape == "list":
        values = [start, *draw(st.lists(st.integers(low, high), max_size=3))]
        return ",".join(map(str, values)), frozenset(values)
    if shape == "range":
        return f"{start}-{end}", frozenset(range(start, end + 1))
    if shape == "open step":
        return f"{start}/{step}", frozenset(range(start, high + 1, step))
    if shape == "stepped range" and start < end:  # a stepped range of one value is read in two ways
        return f"{start}-{end}/{step}", frozenset(range(start, end + 1, step))
    return str(start), frozenset({start})


@st.composite
def schedules(draw, *, seconds=False):
    """Schedules with a liking for any day, and for the hours in which clocks are moved."""

    def any_or(low, high):
        return st.one_of(st.just(("*", frozenset(range(low, high + 1)))), a_field(low, high))

    second = draw(a_field(0, 59)) if seconds else ("0", frozenset({0}))
    hour = draw(st.one_of(any_or(0, 23), a_field(0, 23, near=3)))
    fields = [draw(a_field(0, 59)), hour, draw(any_or(1, 31)), draw(any_or(1, 12)), draw(any_or(0, 7))]
    text = " ".join(part for part, _ in ([second, *fields] if seconds else fields))
    return Plain(text, *(values for _, values in [second, *fields]))


@cache
def changes(zone: str) -> list[int]:
    """The hours in which the clock of the zone was or will be moved."""

    def offset(at):
        return datetime.fromtimestamp(at, ZoneInfo(zone)).utcoffset()

    days = [at for at in range(FIRST, LAST, DAY) if offset(at) != offset(at + DAY)]
    return [
        hour for day in days for hour in range(day, day + DAY, 3600) if offset(hour) != offset(hour + 3600)
    ]


def moments(zone: str):
    anywhere = st.integers(FIRST, LAST)
    if not changes(zone):
        return anywhere
    near = st.builds(
        lambda at, off: at + off, st.sampled_from(changes(zone)), st.integers(-5 * 3600, 3 * 3600)
    )
    return st.one_of(near, near, anywhere)


zoned_moments = st.sampled_from(ZONES).flatmap(lambda zone: st.tuples(st.just(zone), moments(zone)))


def looked_up(plain: Plain, zone: str, after: int, until: int, grain: int) -> list[int]:
    """The ticks in (after, until], found by looking at the local clock every `grain` seconds.

    With ticks in each hour of the day, whatever the clock shows counts. Else what it shows for a second time
    does not, and when it jumps forward over a match, the moment after the jump is a tick.
    """
    every_hour = len(plain.hour) == 24
    step, info = timedelta(seconds=grain), ZoneInfo(zone)
    begin = after // grain * grain
    before = datetime.fromtimestamp(begin, info)
    found = []
    for at in range(begin + grain, until + 1, grain):
        local = datetime.fromtimestamp(at, info)
        clock, skipped = local.replace(tzinfo=None, fold=0), before.replace(tzinfo=None, fold=0) + step
        hit = plain.matches(local) and (every_hour or local.fold == 0)
        while skipped < clock and not every_hour and not hit:
            hit = plain.matches(skipped)
            skipped += step
        if hit and at > after:
            found.append(at)
        before = local
    return found


def walked(schedule, after: int, until: int) -> list[int]:
    found, at = [], schedule.next_after(after)
    while at is not None and at <= until:
        found.append(at)
        at = schedule.next_after(at)
    return found


def readable(plain: Plain, zone: str):
    """The schedule, or None for one that never runs, such as the 31st of a month that has none."""
    try:
        return parse(plain.text, zone)
    except BadSchedule as refused:
        if "never runs" not in str(refused):
            raise
        return None


@slow
@given(plain=schedules(), where=zoned_moments, hours=st.integers(1, 40))
def test_the_ticks_are_those_that_a_look_at_every_minute_finds(plain, where, hours):
    zone, after = where
    until = after + hours * 3600
    schedule = readable(plain, zone)
    expected = looked_up(plain, zone, after, until, 60)
    if schedule is None:
        assert expected == []
        return
    assert walked(schedule, after, until) == expected
    assert schedule.ticks(after, until, 10_000) == (tuple(expected), 0)


@slow
@given(
    plain=schedules(seconds=True), where=zoned_moments, span=st.integers(1, 6000), limit=st.integers(0, 50)
)
def test_the_ticks_are_those_that_a_look_at_every_second_finds(plain, where, span, limit):
    zone, after = where
    schedule = readable(plain, zone)
    expected = looked_up(plain, zone, after, after + span, 1)
    if schedule is None:
        assert expected == []
        return
    ticks = schedule.ticks(after, after + span, limit)
    assert ticks.times == tuple(expected[max(0, len(expected) - limit) :])
    assert ticks.skipped == len(expected) - len(ticks.times)
    if len(expected) < 500:
        assert walked(schedule, after, after + span) == expected


@slow
@given(plain=schedules(), where=zoned_moments, days=st.integers(1, 800))
def test_long_spans_are_counted_as_the_sum_of_their_days(plain, where, days):
    zone, after = where
    schedule = readable(plain, zone)
    if schedule is None:
        return
    parts = [schedule.ticks(after + n * DAY, after + (n + 1) * DAY, 0).skipped for n in range(min(days, 60))]
    assert schedule.ticks(after, after + len(parts) * DAY, 0).skipped == sum(parts)
    times, skipped = schedule.ticks(after, after + days * DAY, 5)
    assert len(times) == 5 or skipped == 0
    assert list(times) == sorted(set(times))


@slow
@given(
    plain=schedules(seconds=True),
    where=zoned_moments,
    step=st.floats(0, 5 * DAY),
)
def test_the_next_tick_is_later_than_the_moment_and_never_goes_back(plain, where, step):
    zone, after = where
    schedule = readable(plain, zone)
    if schedule is None:
        return
    first = schedule.next_after(after)
    later = schedule.next_after(after + step)
    assert first is not None
    assert later is not None
    assert first > after
    assert later > after + step
    assert later >= first
    assert schedule.next_after(first - 1) == schedule.next_after(first - 0.5) == first
    if after + step < first:
        assert later == first


@given(
    period=st.integers(1, 10**8),
    after=st.floats(0, 4e9),
    span=st.integers(0, 10**7),
    limit=st.integers(0, 20),
)
def test_every_is_arithmetic(period, after, span, limit):
    schedule = parse(f"@every {period}s")
    tick = schedule.next_after(after)
    assert tick % period == 0
    assert after < tick <= after + period
    times, skipped = schedule.ticks(after, after + span, limit)
    assert skipped + len(times) == int((after + span) // period) - int(after // period)
    assert all(after < at <= after + span and at % period == 0 for at in times)


@slow
@given(
    plain=schedules(),
    where=zoned_moments,
    span=st.integers(0, 3 * DAY),
    policy=st.sampled_from(["skip", "one", "all"]),
    limit=st.integers(1, 100),
)
def test_each_tick_since_the_last_is_enqueued_or_counted_once(plain, where, span, policy, limit):
    zone, last = where
    schedule = readable(plain, zone)
    if schedule is None:
        return
    every = schedule.ticks(last, last + span, 10_000).times
    found = due(schedule, last, last + span, policy, limit)
    assert len(found.enqueue) + found.missed == len(every)
    assert found.last == (every[-1] if every else last)
    assert found.enqueue == every[len(every) - len(found.enqueue) :]
    on_time = bool(every) and last + span - every[-1] <= 60
    most = {"skip": 0, "one": 1, "all": limit}[policy] + on_time
    assert len(found.enqueue) == min(most, limit, len(every))


ALPHABET = "0123456789*/-,#@LW? \t=:.ACDEMNORSTUZ_aehimnsuvy+\u00b2\u00b5\n\0"
FIELDS = st.text(alphabet="0123456789*/-,#LWMONFRI", min_size=1, max_size=8)


@settings(deadline=None, max_examples=600)
@given(
    spec=st.one_of(
        st.text(max_size=40),
        st.text(alphabet=ALPHABET, max_size=40),
        st.lists(FIELDS, min_size=5, max_size=6).map(" ".join),
        st.text(alphabet="0123456789.nuµmsh", max_size=12).map("@every {}".format),
        st.text(alphabet="EUPSTCaeiprs/_. 0", max_size=12).map("TZ={} * * * * *".format),
    ),
    zone=st.one_of(st.none(), st.none(), st.text(max_size=12), st.sampled_from(ZONES)),
)
@example(spec="*/" + "9" * 900 + " * * * *", zone=None)
@example(spec="@every " + "9" * 900 + "h", zone=None)
@example(spec="TZ=\0 * * * * *", zone=None)
@example(spec="* * * * *", zone="a" * 10_000)
@example(spec="* * * * *", zone="\ud800")
def test_whatever_is_written_is_read_or_refused_as_a_bad_schedule(spec, zone):
    try:
        schedule = parse(spec, zone)
    except BadSchedule:
        return
    assert describe(schedule)
    assert schedule.next_after(FIRST) > FIRST
    assert parse(schedule.spec, schedule.timezone) == schedule

"""Schedules: what can be written, when they tick, daylight saving, and missed ticks."""

from __future__ import annotations

import copy
import sys
from datetime import UTC, date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from dayjob.cron import Due, Ticks, describe, due, parse
from dayjob.errors import BadSchedule
from server import sooner_than

DAY = 86_400


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """The local time `text` as seconds since the epoch."""
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(local.timestamp())


def next_ticks(spec: str, zone: str, start: str, count: int) -> list[str]:
    """The next ticks as local times with their offset, found one by one and all at once."""
    schedule, found = parse(spec, zone), [at(start, zone)]
    for _ in range(count):
        found.append(schedule.next_after(found[-1]))
    assert schedule.ticks(found[0], found[-1], 1000) == (tuple(found[1:]), 0)
    assert schedule.ticks(found[0], found[-1], 1) == (tuple(found[-1:]), count - 1)
    return [datetime.fromtimestamp(tick, ZoneInfo(zone)).strftime("%d %H:%M:%S %z") for tick in found[1:]]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("30 9 * * 1-5", "2026-03-02T09:30"),
        ("*/10 * * * * *", "2026-02-27T12:00:10"),
        ("0 */5 * * * *", "2026-02-27T12:05"),
        ("@hourly", "2026-02-27T13:00"),
        ("@daily", "2026-02-28T00:00"),
        ("@midnight", "2026-02-28T00:00"),
        ("@Weekly", "2026-03-01T00:00"),
        ("@monthly", "2026-03-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("@annually", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 L * *", "2026-02-28T00:00"),
        ("0 0 13 * FRI", "2026-03-06T00:00"),
        ("  0   9 * * SUN ", "2026-03-01T09:00"),
        ("@every 90s", "2026-02-27T12:01:30"),
        ("@every 1h30m", "2026-02-27T13:30"),
        ("@every 24h", "2026-02-28T00:00"),
    ],
)
def test_the_next_tick_after_a_friday_noon(spec, expected):
    assert parse(spec).next_after(at("2026-02-27T12:00")) == at(expected)


def test_a_tick_is_never_the_moment_asked_about_but_a_fraction_before_it_will_do():
    schedule, noon = parse("0 * * * *"), at("2026-02-27T12:00")
    assert schedule.next_after(noon) == noon + 3600
    assert schedule.next_after(noon - 0.001) == noon
    assert schedule.next_after(noon + 0.001) == noon + 3600


def test_without_a_time_zone_the_clock_is_utc():
    assert parse("0 9 * * *").timezone == "UTC"
    assert parse("0 9 * * *").next_after(0) == 9 * 3600


@pytest.mark.parametrize(
    "spec",
    ["CRON_TZ=Asia/Kathmandu 0 9 * * *", "TZ=Asia/Kathmandu 0 9 * * *", " TZ=Asia/Kathmandu\t0 9 * * *"],
)
def test_a_prefix_names_the_time_zone(spec):
    schedule = parse(spec)
    assert schedule == parse("0 9 * * *", "Asia/Kathmandu") == parse(spec, "Asia/Kathmandu")
    assert schedule.next_after(at("2026-05-05T00:00")) == at("2026-05-05T03:15")


@pytest.mark.parametrize("spec", ["TZ=Europe/Paris 0  9 * * 1-5", "@every 1h30m", "@daily", "1 2 3 4 5 6"])
def test_a_schedule_can_be_read_again_from_its_own_words(spec):
    schedule = parse(spec)
    assert parse(schedule.spec, schedule.timezone) == schedule
    again = copy.deepcopy(schedule)
    assert again == schedule
    assert again.next_after(0) == schedule.next_after(0)


def test_a_schedule_cannot_be_changed():
    with pytest.raises(AttributeError):
        parse("@daily").spec = "@hourly"


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("5000ms", 5),
        ("1.5h", 5400),
        ("1m.5m", 90),
        ("1.m", 60),
        ("1000000us", 1),
        ("500ms500ms", 1),
        ("1000000µs", 1),
        ("1000000\u03bcs", 1),
        ("1000000000ns", 1),
    ],
)
def test_every_reads_durations_as_go_does(duration, seconds):
    schedule = parse(f"@every {duration}")
    assert schedule.next_after(0) == seconds
    assert schedule.next_after(seconds * 1000 + 0.5) == seconds * 1001


def test_every_ticks_at_multiples_of_its_duration_wherever_one_starts():
    schedule = parse("@every 7m")
    for start in (0, 1, 1_780_000_000, 1_780_000_123.75):
        assert schedule.next_after(start) % 420 == 0


@pytest.mark.parametrize(
    ("spec", "zone", "words"),
    [
        ("61 * * * *", None, ["'61 * * * *'", "minute '61'", "0-59"]),
        ("*/0 * * * *", None, ["minute '*/0'"]),
        ("0 24 * * *", None, ["hour '24'", "0-23"]),
        ("0 17-9 * * *", None, ["hour '17-9'"]),
        ("0 0 0 * *", None, ["day of month '0'", "1-31", "'L'"]),
        ("0 0 1 FOO *", None, ["month 'FOO'", "JAN-DEC"]),
        ("0 0 * * 8", None, ["day of week '8'", "SUN-SAT"]),
        ("60 * * * * *", None, ["second '60'"]),
        ("* * *", None, ["has 3 fields", "'30 9 * * 1-5'", "seconds first"]),
        ("0 0 12 * * ? 2026", None, ["has 7 fields"]),
        ("", None, ["has 0 fields"]),
        ("TZ=Europe/Paris", None, ["has 0 fields"]),
        ("@dayly", None, ["'@dayly'", "Did you mean '@daily'?"]),
        ("@reboot", None, ["@hourly, @daily"]),
        ("@daily 5", None, ["'@daily 5'", "@hourly"]),
        ("@every", None, ["duration ''", "'1h30m'"]),
        ("@every 5 m", None, ["duration '5 m'"]),
        ("@every -5m", None, ["duration '-5m'"]),
        ("@every 5", None, ["duration '5'"]),
        ("@every 500ms", None, ["whole seconds, from one second"]),
        ("@every 1500ms", None, ["whole seconds"]),
        ("@every 1000000h", None, ["ten years"]),
        ("@every 5m", "Europe/Paris", ["uses no time zone", "'Europe/Paris'"]),
        ("0 0 30 2 *", None, ["never runs", "'30'", "'2'"]),
        ("0 0 */31 * MON#5", None, ["never runs"]),
        ("0 9 * * *", "Europe/Pariss", ["no time zone 'Europe/Pariss'", "Did you mean 'Europe/Paris'?"]),
        ("0 9 * * *", "new york", ["Did you mean 'America/New_York'?"]),
        ("TZ=europe/paris_ 0 9 * * *", None, ["Did you mean 'Europe/Paris'?"]),
        ("0 9 * * *", "America", ["no time zone 'America'"]),
        ("0 9 * * *", "../../etc/passwd", ["no time zone"]),
        ("0 9 * * *", "", ["no time zone ''", "'Europe/Paris'"]),
        ("0 9 * * *", "+02:00", ["no time zone '+02:00'"]),
        ("0 9 * * *", ZoneInfo("Europe/Paris"), ["no time zone zoneinfo"]),
        ("TZ=Asia/Tokyo 0 9 * * *", "UTC", ["'Asia/Tokyo'", "timezone='UTC'", "one of them"]),
        (None, None, ["schedule None", "'0 9 * * 1-5'"]),
        ("*" * 5000, None, ["..."]),
    ],
)
def test_a_bad_schedule_is_refused_with_what_is_wrong_and_what_to_write(spec, zone, words):
    with pytest.raises(BadSchedule) as refused:
        parse(spec, zone)
    for word in words:
        assert word in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_machine_without_time_zone_data_knows_utc_and_says_what_to_install(monkeypatch):
    import zoneinfo

    before = zoneinfo.TZPATH
    # Also what an earlier test has imported of it.
    for name in {"tzdata", *(name for name in sys.modules if name.startswith("tzdata."))}:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.ZoneInfo.clear_cache()
    zoneinfo.reset_tzpath(to=[])
    try:
        assert parse("0 9 * * *").next_after(0) == 9 * 3600
        with pytest.raises(BadSchedule, match="pip install tzdata"):
            parse("0 9 * * *", "Europe/Paris")
    finally:
        zoneinfo.reset_tzpath(to=before)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("*/15 9-17 * * 1-5", "Every 15th minute from 09:00 through 17:59 on Monday through Friday (UTC)"),
        ("CRON_TZ=Europe/Paris 0 9 * * *", "At 09:00 every day (Europe/Paris)"),
        ("0 0 21 * *", "At 00:00 on the 21st day of every month (UTC)"),
        ("0 0 12 * *", "At 00:00 on the 12th day of every month (UTC)"),
        ("@every 1s", "Every second"),
        ("@every 5m", "Every 5 minutes"),
        ("@every 24h", "Every day"),
        ("@every 90s", "Every 1 minute and 30 seconds"),
        ("@every 25h0m2s", "Every 1 day, 1 hour and 2 seconds"),
    ],
)
def test_a_schedule_in_english(spec, text):
    assert describe(parse(spec)) == text


# New York 2026: 8 March 02:00 -> 03:00, 1 November 02:00 -> 01:00. Paris: 29 March 02:00 -> 03:00, 25 October
# 03:00 -> 02:00. Lord Howe: 4 October 02:00 -> 02:30, 5 April 02:00 -> 01:30. Santiago 2026: 5 April 00:00 -> 23:00,
# 6 September 00:00 -> 01:00.
SPRING = [
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["08 03:00:00 -0400", "09 02:30:00 -0400"]),
    ("0 30 2 * * *", "America/New_York", "2026-03-07T12:00", ["08 03:00:00 -0400", "09 02:30:00 -0400"]),
    ("*/10 2 * * *", "America/New_York", "2026-03-07T12:00", ["08 03:00:00 -0400", "09 02:00:00 -0400"]),
    ("0 2,3 * * *", "America/New_York", "2026-03-07T12:00", ["08 03:00:00 -0400", "09 02:00:00 -0400"]),
    ("30 2 8 3 *", "America/New_York", "2026-03-07T12:00", ["08 03:00:00 -0400", "08 02:30:00 -0500"]),
    (
        "0 */2 * * *",
        "Europe/Paris",
        "2026-03-28T23:59",
        ["29 00:00:00 +0100", "29 03:00:00 +0200", "29 04:00:00 +0200"],
    ),
    (
        "30 * * * *",
        "Europe/Paris",
        "2026-03-29T00:45",
        ["29 01:30:00 +0100", "29 03:30:00 +0200", "29 04:30:00 +0200"],
    ),
    (
        "@hourly",
        "Europe/Paris",
        "2026-03-29T00:45",
        ["29 01:00:00 +0100", "29 03:00:00 +0200", "29 04:00:00 +0200"],
    ),
    ("*/15 * * * *", "America/New_York", "2026-03-08T01:40", ["08 01:45:00 -0500", "08 03:00:00 -0400"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04T00:00", ["04 02:30:00 +1100", "05 02:15:00 +1100"]),
    ("*/15 * * * *", "Australia/Lord_Howe", "2026-10-04T01:40", ["04 01:45:00 +1030", "04 02:30:00 +1100"]),
    ("0 0 * * *", "America/Santiago", "2026-09-05T12:00", ["06 01:00:00 -0300", "07 00:00:00 -0300"]),
    ("*/30 * 6 * *", "America/Santiago", "2026-09-05T12:00", ["06 01:00:00 -0300", "06 01:30:00 -0300"]),
]
AUTUMN = [
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["01 01:30:00 -0400", "02 01:30:00 -0500"]),
    ("0 30 1 * * *", "America/New_York", "2026-10-31T12:00", ["01 01:30:00 -0400", "02 01:30:00 -0500"]),
    (
        "*/30 1-2 * * *",
        "America/New_York",
        "2026-10-31T12:00",
        ["01 01:00:00 -0400", "01 01:30:00 -0400", "01 02:00:00 -0500", "01 02:30:00 -0500"],
    ),
    ("0 */2 * * *", "Europe/Paris", "2026-10-25T01:00", ["25 02:00:00 +0200", "25 04:00:00 +0100"]),
    (
        "@hourly",
        "Europe/Paris",
        "2026-10-25T01:30",
        ["25 02:00:00 +0200", "25 02:00:00 +0100", "25 03:00:00 +0100"],
    ),
    (
        "*/15 * * * *",
        "America/New_York",
        "2026-11-01T01:40",
        ["01 01:45:00 -0400", "01 01:00:00 -0500", "01 01:15:00 -0500"],
    ),
    (
        "40 * * * *",
        "Australia/Lord_Howe",
        "2026-04-05T01:00",
        ["05 01:40:00 +1100", "05 01:40:00 +1030", "05 02:40:00 +1030"],
    ),
    ("*/15 5 * * *", "Australia/Lord_Howe", "2026-04-05T00:00", ["05 05:00:00 +1030", "05 05:15:00 +1030"]),
    ("30 23 * * *", "America/Santiago", "2026-04-04T12:00", ["04 23:30:00 -0300", "05 23:30:00 -0400"]),
    (
        "30 * 4 4 *",
        "America/Santiago",
        "2026-04-04T23:00",
        ["04 23:30:00 -0300", "04 23:30:00 -0400", "04 00:30:00 -0400"],
    ),
]


@pytest.mark.parametrize(("spec", "zone", "start", "expected"), SPRING)
def test_the_spring_gap_runs_once_after_it_and_each_hour_goes_on(spec, zone, start, expected):
    assert next_ticks(spec, zone, start, len(expected)) == expected


@pytest.mark.parametrize(("spec", "zone", "start", "expected"), AUTUMN)
def test_the_repeated_hour_runs_once_and_each_hour_goes_on(spec, zone, start, expected):
    assert next_ticks(spec, zone, start, len(expected)) == expected


def test_inside_the_second_pass_of_a_repeated_hour_nothing_of_the_first_comes_again():
    schedule = parse("*/10 1 * * *", "America/New_York")
    second = at("2026-11-01T01:05", "America/New_York", fold=1)
    assert schedule.next_after(second) == at("2026-11-02T01:00", "America/New_York")


def test_a_day_that_a_country_leaves_out_runs_once_when_the_next_begins():
    """Samoa had no 30 December 2011."""
    schedule = parse("30 12 * * *", "Pacific/Apia")
    assert schedule.next_after(at("2011-12-29T13:00", "Pacific/Apia")) == at(
        "2011-12-31T00:00", "Pacific/Apia"
    )


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Paris", "Asia/Kathmandu", "UTC"])
def test_an_hourly_schedule_ticks_each_hour_of_every_year(zone):
    ticks = parse("17 * * * *", zone).ticks(at("2026-01-01T00:00"), at("2028-01-01T00:00"), 20_000)
    assert ticks.skipped == 0
    assert {b - a for a, b in zip(ticks.times, ticks.times[1:], strict=False)} == {3600}


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Europe/Paris", "Australia/Lord_Howe", "America/Santiago"]
)
@pytest.mark.parametrize("spec", ["15 2 * * *", "0 30 1 * * *", "30 23 * * *"])
def test_a_daily_schedule_has_its_tick_on_every_day_of_twenty_years(zone, spec):
    after, until = at("2020-01-01T00:00", zone) - 1, at("2040-12-31T23:59:59", zone)
    times, skipped = parse(spec, zone).ticks(after, until, 100_000)
    days = [datetime.fromtimestamp(tick, ZoneInfo(zone)).date() for tick in times]
    assert skipped == 0
    assert len(days) == len(set(days)) == (date(2041, 1, 1) - date(2020, 1, 1)).days


def test_leap_days_come_when_they_do():
    times, _ = parse("0 12 29 2 *", "Europe/Paris").ticks(at("2020-01-01T00:00"), at("2041-01-01T00:00"), 100)
    assert [datetime.fromtimestamp(tick, UTC).year for tick in times] == [2020, 2024, 2028, 2032, 2036, 2040]


def test_after_the_end_of_the_calendar_there_is_no_tick():
    assert parse("0 0 1 1 *").next_after(at("9999-06-01T00:00")) is None
    assert parse("0 0 1 1 *", "Europe/Paris").next_after(at("9999-06-01T00:00")) is None


def test_ticks_are_the_last_ones_of_the_span_with_the_count_of_the_rest():
    hourly, noon = parse("@hourly"), at("2026-02-27T12:00")
    assert hourly.ticks(noon - 4 * 3600, noon, 10) == Ticks((noon - 10800, noon - 7200, noon - 3600, noon), 0)
    assert hourly.ticks(noon - 4 * 3600, noon, 2) == Ticks((noon - 3600, noon), 2)
    assert hourly.ticks(noon - 0.5, noon + 0.5, 2) == Ticks((noon,), 0)
    assert hourly.ticks(noon - 4 * 3600, noon, 0) == Ticks((), 4)
    assert hourly.ticks(noon, noon, 5) == hourly.ticks(noon, noon - 9999, 5) == Ticks((), 0)
    every = parse("@every 1h")
    assert every.ticks(noon - 4 * 3600, noon, 2) == Ticks((noon - 3600, noon), 2)
    assert every.ticks(noon - 4 * 3600, noon, 0) == Ticks((), 4)
    assert every.ticks(noon, noon - 9999, 5) == Ticks((), 0)


@pytest.mark.parametrize("spec", ["@every 1s", "TZ=America/New_York * * * * * *", "* * * * * *"])
def test_a_year_of_missed_seconds_is_counted_exactly_and_at_once(spec):
    now = at("2026-07-01T00:00")
    # One by one, 31 million ticks take longer.
    with sooner_than(10):
        times, skipped = parse(spec).ticks(now - 365 * DAY, now, 100)
    assert times == tuple(range(now - 99, now + 1))
    assert skipped == 365 * DAY - 100


NOON = at("2026-02-27T12:00")


@pytest.mark.parametrize(
    ("policy", "now", "expected"),
    [
        # Only the tick of noon has come since the last.
        ("skip", NOON + 2.5, Due((NOON,), 0, NOON)),
        ("one", NOON + 60, Due((NOON,), 0, NOON)),
        ("all", NOON, Due((NOON,), 0, NOON)),
        # It is late.
        ("skip", NOON + 60.5, Due((), 1, NOON)),
        ("one", NOON + 60.5, Due((NOON,), 0, NOON)),
        ("all", NOON + 1800, Due((NOON,), 0, NOON)),
        # Nothing has come, or the clock went back.
        ("all", NOON - 0.5, Due((), 0, NOON - 3600)),
        ("all", NOON - 9999, Due((), 0, NOON - 3600)),
        # Four came, the newest is on time.
        ("skip", NOON + 3 * 3600 + 5, Due((NOON + 10800,), 3, NOON + 10800)),
        ("one", NOON + 3 * 3600 + 5, Due((NOON + 7200, NOON + 10800), 2, NOON + 10800)),
        ("all", NOON + 3 * 3600 + 5, Due((NOON, NOON + 3600, NOON + 7200, NOON + 10800), 0, NOON + 10800)),
        # Four came, all late.
        ("skip", NOON + 3 * 3600 + 900, Due((), 4, NOON + 10800)),
        ("one", NOON + 3 * 3600 + 900, Due((NOON + 10800,), 3, NOON + 10800)),
    ],
)
def test_missed_ticks_by_policy(policy, now, expected):
    assert due(parse("@hourly"), NOON - 3600, now, policy) == expected


@pytest.mark.parametrize("policy", ["skip", "one", "all"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("lag", [0.0, 30.0, 500.0])
def test_every_tick_is_either_enqueued_or_counted_and_never_more_than_the_limit(policy, limit, lag):
    last, now = NOON - 50 * 3600, NOON + lag
    found = due(parse("@hourly"), last, now, policy, limit)
    assert len(found.enqueue) + found.missed == 50
    assert len(found.enqueue) <= limit
    assert found.last == NOON
    assert found.enqueue == tuple(range(NOON - 3600 * (len(found.enqueue) - 1), NOON + 1, 3600))
    assert due(parse("@hourly"), found.last, now, policy, limit) == Due((), 0, NOON)


@pytest.mark.parametrize("spec", ["*/7 * * * *", "*/10 2 * * *", "0 */2 * * 1-5", "0 3 * * 7", "@every 47m"])
@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Paris", "2026-03-27T05:13"), ("Europe/Paris", "2026-10-24T01:30"), ("Australia/Lord_Howe", "2026-04-03T22:00"),
        ("America/New_York", "2026-10-31T23:30"), ("UTC", "2026-06-01T00:00"),
    ],
)  # fmt: skip
def test_the_ticks_of_each_step_are_counted_as_they_happen(spec, zone, begin):
    schedule = parse(spec, None if spec.startswith("@every") else zone)
    first = at(begin, zone)
    bounds = [first, *range(first + 601, first + 3 * 86_400, 1800)]
    ticks = schedule.ticks(first, bounds[-1], 100_000).times
    expected = [sum(low < tick <= high for tick in ticks) for low, high in pairwise(bounds)]
    assert schedule.counts(bounds) == expected
    assert sum(expected) == len(ticks)

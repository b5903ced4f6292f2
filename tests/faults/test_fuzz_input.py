"""What people and programs hand in: arguments, schedules, URLs, filters, names. Refused in words, or understood."""

from __future__ import annotations

import json
import os
import random
import string
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dayjob import Enqueuer, Job, WorkerPool
from dayjob.admin.filters import Filter, read_filter
from dayjob.cron import parse
from dayjob.errors import BadArguments, BadOption, BadSchedule, UsageError
from dayjob.names import check_name
from dayjob.option_checks import durability_of
from dayjob.store import addresses as dayjob_settings
from dayjob.text import read_span
from faults.mutator import NASTY, SEED, TIMES, VALUES, hostile

many = settings(
    max_examples=80 * TIMES,
    deadline=None,
    derandomize=TIMES == 1,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TEXT = st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


# Arguments.


class Order:
    """Not something that JSON can carry."""


pool = WorkerPool(namespace="fuzz", redis="redis://127.0.0.1:1")


@pool.job
def typed(
    job: Job,
    n: int,
    text: str = "",
    *,
    ratio: float = 0.5,
    tags: list[str] | None = None,
    kind: Literal["x", "y"] = "x",
) -> None: ...


@pool.job
def dated(at: datetime, data: dict[str, int] | list[Any] | None = None, raw: bytes = b"") -> None: ...


@pool.job
def open_to_all(job: Job, /, **args: Any) -> None: ...


@many
@given(
    st.dictionaries(
        st.sampled_from(["n", "text", "ratio", "tags", "kind", "at", "data", "raw", "self", "job", "x"]),
        JSON | st.binary(max_size=5),
        max_size=4,
    )
)
def test_arguments_are_encoded_or_refused_as_bad_arguments(args):
    for job_type in (typed, dated, open_to_all):
        try:
            raw = job_type.encode((), args)
        except BadArguments:
            pass
        else:
            assert isinstance(json.loads(raw), dict)


def test_whatever_a_worker_is_sent_as_arguments_is_converted_or_refused():
    chance = random.Random(f"{SEED} arguments")
    sample = (
        b'{"n":1,"text":"x","ratio":0.5,"tags":["a"],"kind":"y","at":"2026-01-01T00:00:00Z","data":{"a":1}}'
    )
    inputs = [*NASTY, *VALUES, *(hostile(chance, sample) for _ in range(1500 * TIMES))]
    outcomes = set()
    for raw in inputs:
        for job_type in (typed, dated, open_to_all):
            try:
                job_type.call_args(raw)
            except BadArguments:
                outcomes.add("refused")
            else:
                outcomes.add("taken")
    assert outcomes == {"refused", "taken"}


# Schedules.


CRON = st.text(st.sampled_from("0123456789*/-,?LW# @ABCDEFGJMNOPRSTUVWYadehiklmnorstuvwy"), max_size=30)


@many
@given(
    CRON
    | TEXT
    | st.lists(
        st.sampled_from(
            ["*", "0", "*/5", "1-5", "5-1", "60", "L", "MON#3", "1,2,3", "*/0", "-1", "99999999999"]
        ),
        min_size=4,
        max_size=7,
    ).map(" ".join),
    st.none() | st.sampled_from(["UTC", "Europe/Paris", "../etc/passwd", "", "\x00", "Mars/Olympus"]),
)
@example("0 0 30 2 *", None)
@example("0 0 29 2 1#5", "Europe/Paris")
@example("@every 1e400s", None)
@example("@every -1s", None)
def test_a_schedule_gives_later_moments_or_is_refused_as_a_bad_schedule(spec, timezone):
    try:
        schedule = parse(spec, timezone)
    except BadSchedule:
        return
    start = datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()
    moment = schedule.next_after(start)
    assert moment is None or moment > start


# URLs.


def test_a_url_is_understood_or_refused_and_no_message_shows_its_password():
    chance = random.Random(f"{SEED} urls")
    samples = [
        "redis://user:S3cr3t@host:6379/0", "rediss://:S3cr3t@[::1]:6380/5?ssl_cert_reqs=none", "unix:///run/redis.sock?db=3",
        "redis+sentinel://u:S3cr3t@a:1,b:2/mymaster/0?sentinel_password=Q3ry", "valkey+cluster://:S3cr3t@a,b,c", "embedded:/tmp/x",
    ]  # fmt: skip
    letters = string.printable + "é€\x00\u2028😀%@:/?#[]"
    for _ in range(4000 * TIMES):
        text = list(chance.choice(samples))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            match chance.randrange(3):
                case 0:
                    text[at:at] = chance.choice(letters)
                case 1:
                    del text[at : at + chance.randrange(1, 4)]
                case _:
                    text[at : at + 1] = chance.choice(letters)
        url = "".join(text)
        try:
            shown = f"{dayjob_settings.parse_url(url)} {dayjob_settings.parse_url(url)!r}"
        except BadOption as error:
            shown = str(error)
        # Where it was changed inside, it is another password; where it stands whole in its place, it must not show.
        if ":S3cr3t@" in url:
            assert "S3cr3t" not in shown, url
        if "password=Q3ry" in url:
            assert "Q3ry" not in shown, url


@many
@given(TEXT)
def test_any_text_for_a_server_is_a_target_or_refused(text):
    for environ in ({"DAYJOB_REDIS_URL": text}, {"REDIS_URL": text}, {"DAYJOB_EMBEDDED": text}):
        try:
            target = dayjob_settings.resolve(None, environ=environ, cwd=Path("/nowhere"))
        except UsageError:
            pass
        else:
            assert target.url


# Filters, names and the like.


@many
@given(
    TEXT
    | st.lists(
        st.sampled_from(
            [
                "name=a",
                "not",
                "word",
                "args.a.b=7",
                "args.x~y",
                "since=02:00",
                "until=2026-11-18T02:00Z",
                "since=1h",
                "fails>=2",
                "text~a=b",
                "source!=x",
                "name~b",
                "error~'x y'",
                "age>1h",
                "age<2d",
                "kind=z",
                "source=4",
                "id=7",
                '"',
                "'",
                "\\",
                "age>",
                "age>1e400",
                "age>-1s",
                "=",
                "~~",
            ]
        ),
        max_size=5,
    ).map(" ".join)
)
def test_a_filter_is_understood_and_says_itself_again_or_is_refused(text):
    try:
        found = read_filter(text)
    except BadOption:
        return
    assert isinstance(found, Filter)
    again = read_filter(str(found))
    assert str(again) == str(found)


@many
@given(TEXT | st.sampled_from(["1h", "2d", "1e400s", "-1s", "5", "1w2d", "\u0663h", "inf", "nan", "9" * 400]))
def test_a_span_is_a_number_of_seconds_or_refused(text):
    try:
        value = read_span(text, "age>")
    except BadOption:
        return
    assert 0 <= value < 1e12


@many
@given(TEXT)
def test_names_namespaces_and_options_are_taken_or_refused(text):
    for take in (
        check_name,
        lambda text: durability_of(text, "here"),
        lambda text: Enqueuer(text, redis="redis://127.0.0.1:1"),
        lambda text: Enqueuer("n", redis="redis://127.0.0.1:1").using(id=text, unique_key=text, source=text),
        lambda text: WorkerPool(namespace=text),
        lambda text: WorkerPool().register(text, lambda: None),
        lambda text: WorkerPool().periodic("* * * * *", text),
    ):
        try:
            take(text)
        except UsageError:
            pass


def test_nothing_was_executed():
    assert not os.path.exists("/tmp/dayjob-fuzz-executed")  # noqa: PTH110 - the trap of the mutator


@pytest.mark.parametrize("value", [Order(), object, float("nan"), b"x", "\ud800", {"a": {1: 2}}])
def test_values_that_json_cannot_carry_are_refused(value):
    with pytest.raises(BadArguments, match="odd"):
        open_to_all.encode((), {"odd": value})


@pytest.mark.parametrize(("value", "carried"), [({1, 2}, [1, 2]), (10**400, 10**400)])
def test_odd_values_that_json_can_carry_arrive(value, carried):
    assert json.loads(open_to_all.encode((), {"odd": value})) == {"odd": carried}

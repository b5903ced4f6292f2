"""Filters: how conditions are read, what is refused, and how each compares a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dayjob.admin.filter_checks import MISSING, Hidden, JobFacts
from dayjob.admin.filters import KEYS, MAX_CONDITIONS, read_filter
from dayjob.errors import BadOption
from dayjob.store import codec

NOW = 1_800_000_000.0


def facts(args: object = None, *, argument: object = None, **fields: object) -> JobFacts:
    """A job: `args` as they may be shown; `argument` instead of the value at any path."""
    wire = codec.Wire(
        "mail.send", **{"id": "abc123", "args": msgspec.Raw(msgspec.json.encode(args)), **fields}
    )

    def at_path(path):
        value = args
        for step in path:
            value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
        return value

    return JobFacts(
        wire, NOW + 1800, 600.0, NOW, 2000, lambda: str(wire.err), lambda: args,
        at_path if argument is None else lambda _: argument, ("pool-1", "worker-9", "worker-9/77"), "media",
    )  # fmt: skip


def fits(text: str, job: JobFacts) -> bool | None:
    return read_filter(text).matches(job)


ARGS = {
    "user_id": 7,
    "email": "Ada@example.com",
    "flag": True,
    "none": None,
    "user": {"plan": "pro", "age": 30.5},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("args.user_id=7", True),
        ("args.user_id=7.0", True),
        ("args.user_id=8", False),
        ("args.user_id='\"7\"'", False),
        ("args.user_id!=8", True),
        ("args.user_id!=7", False),
        ("args.user_id>6", True),
        ("args.user_id>=7", True),
        ("args.user_id<7", False),
        ("args.user_id>abc", False),
        ("args.email=Ada@example.com", True),
        ("args.email~example", True),
        ("args.email~Example", False),
        ("args.email>A", True),
        ("args.flag=true", True),
        ("args.flag=1", False),
        ("args.flag>0", False),
        ("args.none=null", True),
        ("args.missing=null", False),
        ("args.missing!=7", True),
        ("args.user.plan=pro", True),
        ("args.user.age>=30", True),
        ("args.user=pro", False),
        ("not args.user_id=7", False),
        ("not args.user_id=8", True),
    ],
)
def test_arguments_are_compared_by_type(text, expected):
    assert fits(text, facts(ARGS)) is expected


def test_a_hidden_argument_answers_neither_a_condition_nor_its_opposite():
    job = facts(ARGS, argument=Hidden)
    for text in ("args.x=7", "not args.x=7", "args.x!=7", "not args.x!=7", "args.x~7", "not args.x>7"):
        assert fits(text, job) is None
    assert fits("args.x=7 name=other", job) is False, "another condition decides"


@pytest.mark.parametrize("path", ["args.password", "args.user.api_key", "args.token.x", "args.http_auth"])
def test_what_looks_like_a_secret_is_refused(path):
    with pytest.raises(BadOption, match="is redacted: jobs cannot be filtered by it"):
        read_filter(f"{path}=x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail", True), ("MAIL", True), ("abc", True), ("bc123", False), ("timeout", True), ("acme", True), ("ada@example", True), ("7", True),
        ("pro", True), ("redacted", False), ("nothing", False), ("not nothing", True), ("mail timeout", True), ("mail nothing", False), ("'no answer'", True),
    ],
)  # fmt: skip
def test_plain_words_are_looked_for_in_name_id_source_error_and_arguments(text, expected):
    job = facts({**ARGS, "card": "[redacted]"}, err="TimeoutError: no answer", source="Acme", fails=1)
    assert fits(text, job) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fails>=2", True), ("fails>2", False), ("fails=2", True), ("fails!=2", False), ("deaths>0", True), ("snoozes>0", False), ("size>1000", True), ("size<2000", False),
        ("age>9m", True), ("age>10m", False), ("age>=10m", True), ("age<1h", True), ("due<1h", True), ("due<20m", False), ("due>20m", True),
        ("source=acme", True), ("source!=acme", False), ("source~ac", True), ("name~mail", True), ("name!=mail", True), ("not name~send", False), ("id=abc123", True),
        ("pool=worker-9", True), ("pool=worker-9/77", True), ("pool=worker", False), ("pool~worker", True), ("tag=media", True), ("tag!=media", False),
    ],
)  # fmt: skip
def test_numbers_spans_and_texts_are_compared(text, expected):
    assert fits(text, facts({}, fails=2, deaths=1, source="acme")) is expected


def test_since_and_until_are_about_when_a_job_came_where_it_is():
    came = datetime.fromtimestamp(NOW - 600, UTC)
    job = facts({})
    assert fits(f"since={came.isoformat()}", job)
    assert not fits(f"since={(came + timedelta(seconds=1)).isoformat()}", job)
    assert fits(f"until={(came + timedelta(seconds=1)).isoformat()}", job)
    assert not fits(f"until={came.isoformat()}", job)
    assert fits("since=11m", job)
    assert not fits("since=9m", job)


def test_a_time_without_a_date_is_the_last_such_time():
    (one,) = read_filter("since=02:00Z").conditions
    moment = datetime.fromtimestamp(one.parsed, UTC)
    assert (moment.hour, moment.minute) == (2, 0)
    age = datetime.now(UTC) - moment
    assert timedelta(0) <= age <= timedelta(days=1, minutes=10)
    assert read_filter(str(read_filter("since=02:00Z"))).conditions == (one,), "it means the same later"


def test_a_time_without_a_zone_is_in_the_zone_of_this_machine():
    (one,) = read_filter("until=2026-11-18T02:00").conditions
    assert one.parsed == datetime(2026, 11, 18, 2).astimezone().timestamp()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nmae=mail", "Unknown filter: nmae. Did you mean 'name'?"),
        ("foo=bar", "Write name=mail, "),
        ("args=7", "Name an argument, as in args.user_id=7"),
        ("name.x=7", "Unknown filter: name"),
        ("name>7", "write name= or name!= or name~"),
        ("fails=many", "write a number"),
        ("since=soon", "write a time such as 02:00"),
        ("since=25:00", "write a time such as 02:00"),
        ("since=9999-99-99", "write a time such as 02:00"),
        ("source=", "needs a value"),
        ("not", "write a condition after it"),
        ("name=a not", "write a condition after it"),
        ("''", "an empty word"),
        (" ".join(f"w{n}" for n in range(MAX_CONDITIONS + 1)), "at most"),
    ],
)
def test_what_cannot_be_read_is_explained(text, message):
    with pytest.raises(BadOption) as caught:
        read_filter(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", KEYS)
def test_every_example_can_be_read_and_written(key):
    found = read_filter(KEYS[key].example)
    assert found.conditions[0].base == key
    assert read_filter(str(found)) == found


@pytest.mark.parametrize(
    "text", ["not not", "text~not", "text~a=b", "text~'x y'", "not text~name=a", "args.a.b='x y'"]
)
def test_a_filter_is_written_as_it_is_read(text):
    found = read_filter(text)
    assert read_filter(str(found)) == found
    assert len(found.conditions) == 1


def test_conditions_of_other_states_are_refused():
    with pytest.raises(
        BadOption, match="due is a filter for jobs in scheduled and retry, not for those in dead"
    ):
        read_filter("due<1h").check("dead")
    read_filter("due<1h").check("retry")


def test_only_names_that_can_match_are_searched():
    wanted = read_filter("name~mail not name=mail.slow timeout")
    assert [name for name in ("mail", "mail.slow", "news") if wanted.fits_name(name)] == ["mail"]
    assert wanted.name is None
    assert read_filter("name=mail").name == "mail"
    assert read_filter("not name=mail").name is None

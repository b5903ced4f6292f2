"""One suite for both enqueuers: whatever one of them promises, the other does too."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import pytest

from dayjob import AsyncEnqueuer, Enqueuer, Job, WorkerPool
from dayjob.errors import (
    BadArguments,
    BadOption,
    JobFailed,
    NotReady,
    Rejected,
    ResultTimeout,
    TooLarge,
    Unavailable,
    UnknownJob,
)
from dayjob.job import running
from dayjob.store.codec import go_json
from driver import Driver
from server import free_port, wait_until


@pytest.fixture(params=["sync", "async"])
def colour(request) -> str:
    return request.param


@pytest.fixture
def make(colour, redis_url, namespace):
    """Make an enqueuer of the colour under test; they are closed at the end."""
    made: list[Driver] = []
    runner = asyncio.Runner() if colour == "async" else None

    def build(**options) -> Driver:
        kind = Enqueuer if runner is None else AsyncEnqueuer
        driver = Driver(kind(**{"namespace": namespace, "redis": redis_url, **options}), runner)
        made.append(driver)
        return driver

    yield build
    for driver in made:
        driver.close()
    if runner is not None:
        runner.close()


@pytest.fixture
def enqueuer(make) -> Driver:
    return make()


@pytest.fixture
def queued(call, keys):
    """The jobs in a queue, oldest first."""
    return lambda name="a": [json.loads(raw) for raw in reversed(call("LRANGE", keys.queue(name), 0, -1))]


@pytest.fixture
def scheduled(call, keys):
    """The scheduled jobs and when they are due."""

    def read() -> list[tuple[dict, float]]:
        flat = call("ZRANGE", keys.scheduled, 0, -1, "WITHSCORES")
        return [(json.loads(raw), float(score)) for raw, score in zip(flat[::2], flat[1::2], strict=True)]

    return read


def redis_now(call) -> float:
    seconds, micros = call("TIME")
    return int(seconds) + int(micros) / 1e6


# What is stored.


def test_enqueue_puts_a_job_at_the_end_of_its_queue(enqueuer, queued, call, keys):
    first = enqueuer.enqueue("a", user_id=7)
    second = enqueuer.enqueue("a", user_id=8, email="x@y")
    assert [job["args"] for job in queued()] == [{"user_id": 7}, {"user_id": 8, "email": "x@y"}]
    assert [job["id"] for job in queued()] == [first.id, second.id]
    assert call("SMEMBERS", keys.known_jobs) == [b"a"]
    assert call("ZCARD", keys.bell("a")) == 1


def test_enqueue_returns_the_job(enqueuer, call):
    before = redis_now(call)
    job = enqueuer.enqueue("a", user_id=7)
    assert isinstance(job, Job)
    assert (job.name, job.args, job.source, job.fails, job.attempt) == ("a", {"user_id": 7}, None, 0, 1)
    assert len(job.id) == 24
    assert job.scheduled_at is None
    assert abs(job.enqueued_at - before) < 2


def test_a_job_needs_no_arguments(enqueuer, queued):
    enqueuer.enqueue("a")
    assert queued()[0]["args"] == {}


def test_every_keyword_is_an_argument(enqueuer, queued):
    given = {"name": "x", "delay": 1, "when": 2, "self": 3, "id": 4, "source": 5, "args": 6}
    enqueuer.enqueue("a", **given)
    assert queued()[0]["args"] == given


def test_enqueue_in_schedules_by_redis_time(enqueuer, scheduled, call, keys):
    before = redis_now(call)
    job = enqueuer.enqueue_in("a", 300, n=1)
    after = redis_now(call)
    [(stored, due)] = scheduled()
    assert stored["id"] == job.id
    assert before + 300 - 0.001 <= due <= after + 300.001
    assert job.scheduled_at == pytest.approx(due, abs=0.0005)
    assert call("SMEMBERS", keys.known_jobs) == [b"a"]
    assert call("ZCARD", keys.due) == 1


def test_a_delay_may_be_a_timedelta(enqueuer, scheduled, call):
    enqueuer.enqueue_in("a", timedelta(minutes=5))
    assert scheduled()[0][1] == pytest.approx(redis_now(call) + 300, abs=2)


def test_a_delay_of_nothing_is_due_at_once(enqueuer, scheduled, call):
    enqueuer.enqueue_in("a", 0)
    assert scheduled()[0][1] <= redis_now(call) + 0.001


def test_enqueue_at_schedules_for_that_moment_in_any_zone(enqueuer, scheduled):
    when = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=5)))
    job = enqueuer.enqueue_at("a", when, n=1)
    assert scheduled()[0][1] == when.timestamp()
    assert job.scheduled_at == when.timestamp()


def test_a_moment_that_has_passed_is_due_at_once(enqueuer, scheduled):
    enqueuer.enqueue_at("a", datetime(2001, 1, 1, tzinfo=UTC))
    assert scheduled()[0][1] == datetime(2001, 1, 1, tzinfo=UTC).timestamp()


def test_only_a_schedule_sooner_than_all_others_wakes_the_leader(enqueuer, call, keys):
    enqueuer.enqueue_in("a", 100)
    assert call("DEL", keys.due) == 1
    enqueuer.enqueue_in("a", 200)
    assert call("EXISTS", keys.due) == 0
    enqueuer.enqueue_in("a", 50)
    assert call("EXISTS", keys.due) == 1


# Unique jobs.


def test_of_two_unique_jobs_with_the_same_arguments_one_waits(enqueuer, queued, call, keys):
    job = enqueuer.enqueue_unique("a", b="<x>", a=1)
    assert enqueuer.enqueue_unique("a", a=1, b="<x>") is None
    assert enqueuer.enqueue_unique("a", a=2, b="<x>") is not None
    assert len(queued()) == 2
    key = keys.unique("a", '{"a":1,"b":"\\u003cx\\u003e"}\n')
    assert job.unique_key == key
    assert call("GET", key) == job.id.encode()
    month = 30 * 86400
    assert month - 10 < call("TTL", key) <= month


def test_a_unique_job_says_so_on_the_wire(enqueuer, queued):
    job = enqueuer.enqueue_unique("a", n=1)
    assert queued()[0]["unique"] is True
    assert queued()[0]["unique_key"] == job.unique_key


def test_the_key_of_a_scheduled_unique_job_lives_a_month_beyond_its_time(enqueuer, call):
    job = enqueuer.enqueue_unique_in("a", 40 * 86400, n=1)
    assert call("TTL", job.unique_key) > 69 * 86400
    assert enqueuer.enqueue_unique_in("a", 5, n=1) is None
    assert enqueuer.enqueue_unique("a", n=1) is None


def test_unique_at_a_moment(enqueuer, scheduled):
    when = datetime(2030, 1, 1, tzinfo=UTC)
    job = enqueuer.enqueue_unique_at("a", when, n=1)
    assert enqueuer.enqueue_unique_at("a", when, n=1) is None
    assert scheduled()[0][1] == when.timestamp()
    assert job.scheduled_at == when.timestamp()


def test_a_key_of_ones_own_makes_a_job_unique(enqueuer, queued, keys):
    job = enqueuer.using(unique_key="user-7").enqueue_unique("a", n=1)
    assert job.unique_key == keys.unique("a", "user-7")
    assert enqueuer.using(unique_key="user-7").enqueue_unique("a", n=2) is None
    assert enqueuer.using(unique_key="user-8").enqueue_unique("a", n=2) is not None
    assert enqueuer.using(unique_key="user-7").enqueue_unique("b", n=2) is not None
    assert [job["args"] for job in queued()] == [{"n": 1}, {"n": 2}]


def test_a_key_map_gives_the_key_that_go_makes_of_it(enqueuer, keys):
    job = enqueuer.using(unique_key={"z": 1.0, "b": [None, True]}).enqueue_unique("a", n=1)
    assert job.unique_key == keys.unique("a", '{"b":[null,true],"z":1}\n')


def test_enqueue_with_a_key_that_is_taken_says_so(enqueuer):
    enqueuer.using(unique_key="k").enqueue("a", n=1)
    with pytest.raises(NotReady, match="enqueue_unique"):
        enqueuer.using(unique_key="k").enqueue("a", n=2)


def test_unique_for_keeps_the_key_for_that_long_whatever_the_job_does(enqueuer, queued, call):
    job = enqueuer.using(unique_for=60).enqueue_unique("a", n=1)
    assert 50 < call("TTL", job.unique_key) <= 60
    assert "unique_key" not in queued()[0]
    assert enqueuer.using(unique_for=60).enqueue_unique("a", n=1) is None


@pytest.mark.parametrize(
    "key",
    [5, {1: 2}, {"a": float("nan")}, {"a": datetime.now(UTC)}, {"a": {1}}, "\ud800", {"a": "\ud800"}, b"x"],
)
def test_a_key_that_cannot_be_one_is_refused_in_words(enqueuer, key):
    with pytest.raises(BadOption, match="unique_key"):
        enqueuer.using(unique_key=key).enqueue_unique("a", n=1)


# Options of using().


def test_a_chosen_id_is_stored_once(enqueuer, queued, call, keys):
    mine = enqueuer.using(id="order-7")
    assert mine.enqueue("a", n=1).id == "order-7"
    assert mine.enqueue("a", n=1).id == "order-7"
    assert [job["id"] for job in queued()] == ["order-7"]
    assert 86000 < call("TTL", keys.job_id("order-7")) <= 86400


def test_the_job_of_an_id_that_was_stored_before_is_marked(enqueuer, make, queued):
    assert not enqueuer.using(id="w7").enqueue("a", n=7).existed
    assert enqueuer.using(id="w7").enqueue("a", n=8).existed
    assert make().using(id="w7").enqueue_in("a", 60, n=8).existed
    assert [job["args"] for job in queued()] == [{"n": 7}]
    assert not enqueuer.enqueue("a").existed


def test_the_job_of_an_id_that_was_stored_before_is_the_stored_one(enqueuer, make):
    first = enqueuer.using(id="w7", source="acme", expires=600).enqueue_in("a", 60, n=7)
    other = make().using(id="w7", source="other").enqueue("b", n=8)
    assert (other.existed, other.name, other.args, other.source) == (True, "a", {"n": 7}, "acme")
    assert other.scheduled_at == pytest.approx(first.scheduled_at, abs=0.001)
    assert other.expires_at == pytest.approx(first.expires_at, abs=0.001)
    assert other.enqueued_at == pytest.approx(first.enqueued_at, abs=0.001)
    now = make().using(id="w8").enqueue("a", n=1)
    later = make().using(id="w8").enqueue_in("a", 60, n=2)
    assert (later.args, later.scheduled_at) == (now.args, None)


LARGE = "x" * 20_000


def test_a_large_job_of_an_id_that_was_stored_before_must_have_the_same_arguments(enqueuer, make, call, keys):
    first = enqueuer.using(id="w7").enqueue_in("a", 60, text=LARGE, n=1)
    assert call("STRLEN", keys.job_id("w7")) < 200
    again = make().using(id="w7").enqueue("a", n=1, text=LARGE)
    assert (again.existed, again.scheduled_at) == (True, pytest.approx(first.scheduled_at, abs=0.001))
    for other in ("b", {"text": LARGE, "n": 1}), ("a", {"text": LARGE, "n": 2}), ("a", {}):
        with pytest.raises(BadOption, match="id='w7' and other arguments .* Use another id"):
            make().using(id="w7").enqueue(other[0], **other[1])
    assert call("ZCARD", keys.scheduled) == 1


@pytest.mark.parametrize("value", [b"1", b"", b"1767225600000 ", b"x {}"])
def test_the_mark_of_another_client_under_an_id_is_understood(enqueuer, call, keys, value):
    call("SET", keys.job_id("w7"), value)
    job = enqueuer.using(id="w7").enqueue("a", n=8)
    assert (job.existed, job.args) == (True, {"n": 8})
    assert call("EXISTS", keys.queue("a")) == 0


def test_a_chosen_id_is_stored_once_among_all_enqueuers(make, queued):
    for _ in range(3):
        make().using(id="order-7").enqueue("a", n=1)
    assert len(queued()) == 1


def test_a_chosen_id_is_stored_once_when_scheduled(enqueuer, scheduled):
    mine = enqueuer.using(id="order-7")
    job = mine.enqueue_in("a", 100, n=1)
    mine.enqueue_in("a", 200, n=1)
    [(stored, due)] = scheduled()
    assert stored["id"] == "order-7"
    assert due == pytest.approx(job.scheduled_at, abs=0.0005)


def test_a_chosen_id_and_a_unique_key_together(enqueuer, queued):
    assert enqueuer.using(id="one", unique_key="k").enqueue_unique("a", n=1).id == "one"
    assert enqueuer.using(id="one", unique_key="k").enqueue_unique("a", n=1).id == "one"
    assert enqueuer.using(id="two", unique_key="k").enqueue_unique("a", n=1) is None
    assert [job["id"] for job in queued()] == ["one"]


@pytest.mark.parametrize("source", ["tenant-42", 42, 0, ""])
def test_a_source_travels_with_the_job(enqueuer, queued, source):
    job = enqueuer.sourced(source).enqueue("a", n=1)
    assert job.source == source
    assert queued()[0]["source"] == source
    assert enqueuer.using(source=source).enqueue("a").source == source


def test_a_job_enqueued_while_one_runs_has_its_source(enqueuer, queued):
    token = running.set(SimpleNamespace(name="outer", id="1", source=9, atomic=False))
    try:
        assert enqueuer.enqueue("a").source == 9
        assert enqueuer.using(source=None).enqueue("a").source is None
        assert enqueuer.sourced("x").enqueue("a").source == "x"
    finally:
        running.reset(token)
    assert [job.get("source") for job in queued()] == [9, None, "x"]
    assert enqueuer.enqueue("a").source is None


def test_expires_is_a_moment_on_the_wire(enqueuer, queued, call):
    job = enqueuer.using(expires=timedelta(minutes=1)).enqueue("a")
    assert queued()[0]["expires"] == pytest.approx((redis_now(call) + 60) * 1000, abs=2000)
    assert job.expires_at == pytest.approx(queued()[0]["expires"] / 1000, abs=0.002)


@pytest.mark.parametrize("option", ["expires", "unique_for"])
@pytest.mark.parametrize("value", [timedelta.max, float("inf"), 2e11])
def test_a_duration_of_more_than_three_thousand_years_is_refused(enqueuer, option, value):
    with pytest.raises(BadOption, match="of up to 100,000,000,000 seconds"):
        enqueuer.using(**{option: value})


def test_the_longest_expiry_can_be_read_again(enqueuer, pool):
    job = enqueuer.using(expires=1e11).enqueue("add", a=1, b=2)
    assert enqueuer.result(job, 60) == 3


def test_options_add_up_and_the_enqueuer_they_come_from_is_unchanged(enqueuer, queued):
    narrow = enqueuer.using(source=1).using(expires=60)
    narrow.enqueue("a")
    enqueuer.enqueue("a")
    assert (queued()[0]["source"], "expires" in queued()[0]) == (1, True)
    assert set(queued()[1]) == {"name", "id", "t", "args", "at"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sauce": 1}, r"using\(\) has no option 'sauce'. Did you mean 'source'\?"),
        ({"id": ""}, "1 to 200 printable"),
        ({"id": 7}, "1 to 200 printable"),
        ({"id": "x" * 201}, "1 to 200 printable"),
        ({"source": 1.5}, "a string, an int, or None"),
        ({"source": True}, "a string, an int, or None"),
        ({"source": "a\ud800"}, "half a character"),
        ({"id": "a\ud800"}, "1 to 200 printable"),
        ({"unique_key": "a\ud800"}, "printable string"),
        ({"unique_key": {"a\ud800": 1}}, "dict of JSON values"),
        ({"unique_key": {"a": "\ud800"}}, "dict of JSON values"),
        ({"expires": 0}, "more than 0 seconds"),
        ({"expires": "soon"}, "seconds as a number"),
        ({"unique_for": -1}, "more than 0 seconds"),
        ({"on_commit": 3}, "on_commit"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(enqueuer, options, text):
    with pytest.raises(BadOption, match=text):
        enqueuer.using(**options)


# Many at once.


def test_enqueue_many_keeps_the_order(enqueuer, queued):
    jobs = enqueuer.enqueue_many("a", ({"n": n} for n in range(1234)))
    assert [job.args["n"] for job in jobs] == list(range(1234))
    assert [job["id"] for job in queued()] == [job.id for job in jobs]
    assert [job["args"]["n"] for job in queued()] == list(range(1234))


def test_enqueue_many_of_none(enqueuer, call, keys):
    assert enqueuer.enqueue_many("a", []) == []
    assert call("EXISTS", keys.queue("a"), keys.known_jobs) == 0


def test_enqueue_many_checks_all_before_it_sends_any(enqueuer, call, keys):
    with pytest.raises(BadArguments):
        enqueuer.enqueue_many("a", [{"n": n} for n in range(700)] + [{"n": object()}])
    assert call("EXISTS", keys.queue("a")) == 0


def test_enqueue_many_with_a_source(enqueuer, queued):
    enqueuer.sourced(5).enqueue_many("a", [{"n": 1}, {"n": 2}])
    assert [job["source"] for job in queued()] == [5, 5]


def test_enqueue_many_unique_ones_leaves_out_those_that_wait(enqueuer, queued):
    jobs = enqueuer.using(unique_for=60).enqueue_many("a", [{"n": 1}, {"n": 1}, {"n": 2}])
    assert [job.args["n"] for job in jobs] == [1, 2]
    assert len(queued()) == 2


def test_enqueue_many_cannot_have_one_id(enqueuer):
    with pytest.raises(BadOption, match="jobs cannot share one id"):
        enqueuer.using(id="x").enqueue_many("a", [{}])


def test_enqueue_many_large_ones_go_in_requests_of_bounded_size(enqueuer, queued):
    jobs = enqueuer.enqueue_many("a", [{"text": "x" * 300_000, "n": n} for n in range(9)])
    assert [job["args"]["n"] for job in queued()] == list(range(9))
    assert len({job.id for job in jobs}) == 9


# What is refused.


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a/b", "{a}", "a|b", "x" * 201, "a\n", "a\ud800", 7, None]
)
def test_a_name_that_cannot_be_one_is_refused(enqueuer, name):
    with pytest.raises(BadOption, match="job name .*: use 1 to 200 characters without spaces"):
        enqueuer.enqueue(name, n=1)


def test_an_id_with_half_a_character_is_refused_and_never_looked_for(enqueuer):
    for method in (enqueuer.result, enqueuer.state):
        with pytest.raises(BadOption, match="half a character"):
            method("a\ud800")


def test_a_namespace_with_half_a_character_is_refused(make):
    with pytest.raises(BadOption, match="such as 'a-b'"):
        make(namespace="a\ud800b")


@pytest.mark.parametrize("name", ["mail.send", "send-mail", "é€", "x" * 200])
def test_other_names_are_taken(enqueuer, queued, name):
    enqueuer.enqueue(name, n=1)
    assert queued(name)[0]["name"] == name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, v], lambda v: {"x": {"y": v}}])
def test_what_json_has_no_number_for_is_refused(enqueuer, value, wrap, call, keys):
    with pytest.raises(BadArguments, match="^a: .*n"):
        enqueuer.enqueue("a", n=wrap(value))
    assert call("EXISTS", keys.queue("a")) == 0


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, Exception("x"), {1: object()}, "\ud800", type, {"x": [object()]}]
)
def test_what_json_cannot_carry_is_refused_and_named(enqueuer, value, call, keys):
    with pytest.raises(BadArguments, match="^a: ") as caught:
        enqueuer.enqueue("a", thing=value)
    assert "thing" in str(caught.value)
    assert call("EXISTS", keys.queue("a")) == 0


@pytest.mark.parametrize("delay", [-1, timedelta(seconds=-1), -0.001])
def test_a_negative_delay_is_refused(enqueuer, delay):
    with pytest.raises(BadOption, match="must not be negative; enqueue\\(\\) is for now"):
        enqueuer.enqueue_in("a", delay)


@pytest.mark.parametrize(
    "delay", ["5", None, True, float("nan"), float("inf"), Decimal(5), timedelta.max, 2e11]
)
def test_a_delay_that_is_none_is_refused(enqueuer, delay):
    with pytest.raises(BadOption, match="give seconds as a number, or a timedelta"):
        enqueuer.enqueue_in("a", delay)


@pytest.mark.parametrize("method", ["enqueue_at", "enqueue_unique_at"])
def test_a_naive_datetime_is_refused_with_what_to_write(enqueuer, method):
    with pytest.raises(BadOption, match="has no time zone: write datetime.now"):
        getattr(enqueuer, method)("a", datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("when", [1794767036, "2030-01-01", None])
def test_a_moment_must_be_a_datetime(enqueuer, when):
    with pytest.raises(BadOption, match="give a datetime with a time zone, or use enqueue_in"):
        enqueuer.enqueue_at("a", when)


def test_a_payload_above_the_limit_is_refused_with_its_size(make, call, keys):
    small = make(max_payload=2000)
    small.enqueue("a", text="x" * 1500)
    with pytest.raises(
        TooLarge, match=r"a: the job has 2,\d\d\d bytes, the limit is 2,000. Store the data elsewhere"
    ):
        small.enqueue("a", text="x" * 2000)
    assert call("LLEN", keys.queue("a")) == 1


def test_the_limit_counts_bytes_not_characters(make):
    with pytest.raises(TooLarge):
        make(max_payload=2000).enqueue("a", text="€" * 800)


def test_a_server_that_refuses_connections_is_unavailable_and_nothing_is_unknown(make):
    nobody = make(redis=f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"Redis at redis://127.0.0.1:\d+/0") as caught:
        nobody.enqueue("a", n=1)
    assert caught.value.sent is False


def test_a_key_of_a_wrong_type_is_rejected_and_nothing_is_stored(enqueuer, call, keys):
    call("SET", keys.queue("a"), "not a list")
    with pytest.raises(Rejected, match="WRONGTYPE"):
        enqueuer.enqueue("a", n=1)
    call("SET", keys.known_jobs, "not a set")
    with pytest.raises(Rejected, match="WRONGTYPE"):
        enqueuer.enqueue("b", n=1)
    assert call("EXISTS", keys.queue("b")) == 0
    assert enqueuer.enqueue_in("c", 5) if call("DEL", keys.known_jobs) else None


def test_a_wrong_database_number_is_rejected(make, redis_url):
    with pytest.raises((Rejected, Unavailable), match=r"9999"):
        make(redis=f"{redis_url}/9999").enqueue("a", n=1)


def test_a_job_that_the_pool_does_not_have_is_unknown(make, redis_url, namespace):
    pool = WorkerPool(namespace=namespace, redis=redis_url)

    @pool.job
    def create_watch(user_id: int) -> None: ...

    enqueuer = make(find=pool.find)
    enqueuer.enqueue("create_watch", user_id=7)
    with pytest.raises(UnknownJob, match="did you mean 'create_watch'"):
        enqueuer.enqueue("create_wach", user_id=7)
    with pytest.raises(BadArguments, match="Did you mean 'user_id'"):
        enqueuer.enqueue("create_watch", user=7)


# How much it costs.


def test_an_enqueue_is_one_command_and_the_name_is_introduced_once(make, server, call, keys):
    enqueuer = make()
    enqueuer.enqueue("a", n=0)
    before = stats(call)
    for n in range(50):
        enqueuer.enqueue("a", n=n)
    after = stats(call)
    assert after["evalsha"] - before["evalsha"] == 50
    assert after.get("sadd", 0) == before.get("sadd", 0)
    assert after.get("eval", 0) == before.get("eval", 0)
    enqueuer.enqueue("b", n=0)
    assert stats(call)["sadd"] - after.get("sadd", 0) == 1
    assert set(call("SMEMBERS", keys.known_jobs)) == {b"a", b"b"}


def test_a_bulk_enqueue_is_one_round_trip_for_a_few_hundred(make, call):
    enqueuer = make()
    enqueuer.enqueue_many("a", [{"n": 0}])
    before = stats(call)["evalsha"]
    enqueuer.enqueue_many("a", [{"n": n} for n in range(2000)])
    assert stats(call)["evalsha"] - before <= 2000 / 300


def test_options_share_the_connection(make, call):
    enqueuer = make()
    before = connected(call)
    for n in range(10):
        enqueuer.using(source=n).enqueue("a")
        enqueuer.sourced(n).enqueue_in("a", 5)
    assert connected(call) - before <= 1
    enqueuer.close()
    # One of an earlier test may have been on its way out.
    wait_until(lambda: connected(call) <= before)
    enqueuer.enqueue("a")


def stats(call) -> dict[str, int]:
    lines = call("INFO", "commandstats").decode().splitlines()[1:]
    return {
        line.partition(":")[0].removeprefix("cmdstat_"): int(line.partition("calls=")[2].partition(",")[0])
        for line in lines
        if line
    }


def connected(call) -> int:
    return sum(b"name=dayjob:enqueuer" in line for line in call("CLIENT", "LIST").splitlines())


# Results.


@pytest.fixture
def pool(redis_url, namespace):
    pool = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2)

    @pool.job(keep=60)
    def add(a: int, b: int) -> int:
        return a + b

    @pool.job(keep=60, max_fails=1)
    def fail() -> None:
        raise ValueError("no good")

    @pool.job
    def forget() -> int:
        return 7

    with pool:
        yield pool


def test_a_result_is_waited_for(enqueuer, pool):
    job = enqueuer.enqueue("add", a=2, b=3)
    assert enqueuer.result(job, timeout=60) == 5
    assert enqueuer.result(job.id, timeout=60) == 5
    assert enqueuer.result(job) == 5


def test_the_result_of_a_dead_job_is_its_error(enqueuer, pool):
    job = enqueuer.enqueue("fail")
    with pytest.raises(JobFailed, match=f"{job.id}: ValueError: no good"):
        enqueuer.result(job, timeout=60)


def test_a_result_that_is_not_kept_times_out_in_words(enqueuer, pool):
    job = enqueuer.enqueue("forget")
    assert pool.drain(60)
    started = time.monotonic()
    with pytest.raises(
        ResultTimeout,
        match=r"no result of job \w+ within 0.2 s: the job was not found. Only job types with keep=",
    ):
        enqueuer.result(job, timeout=0.2)
    assert time.monotonic() - started > 0.15
    with pytest.raises(TimeoutError):
        enqueuer.result(job, timeout=0)


# on_commit. What a commit calls is a plain function, in async code too.


def commits(redis_url, namespace) -> tuple[Enqueuer, list]:
    hooks: list = []
    return Enqueuer(namespace, redis=redis_url, on_commit=hooks.append), hooks


@pytest.mark.parametrize("how", ["enqueue", "enqueue_in", "enqueue_unique", "enqueue_many", "using"])
def test_nothing_is_sent_before_the_commit(redis_url, namespace, call, keys, how):
    enqueuer, hooks = commits(redis_url, namespace)
    if how == "using":
        hooks = []
        enqueuer = Enqueuer(namespace, redis=redis_url).using(on_commit=hooks.append)
        jobs = [enqueuer.enqueue("a", n=1)]
    elif how == "enqueue_in":
        jobs = [enqueuer.enqueue_in("a", 60, n=1)]
    elif how == "enqueue_many":
        jobs = enqueuer.enqueue_many("a", [{"n": 1}, {"n": 2}])
    else:
        jobs = [getattr(enqueuer, how)("a", n=1)]
    assert call("EXISTS", keys.queue("a"), keys.scheduled, keys.known_jobs) == 0
    assert len(hooks) == 1
    hooks[0]()
    stored = call("LRANGE", keys.queue("a"), 0, -1) + call("ZRANGE", keys.scheduled, 0, -1)
    assert {json.loads(raw)["id"] for raw in stored} == {job.id for job in jobs}
    enqueuer.close()


POOL_WAYS = {
    "enqueue": lambda a: [a.enqueue(n=1)],
    "enqueue_many": lambda a: a.enqueue_many([{"n": 1}, {"n": 2}]),
    "aenqueue_many": lambda a: asyncio.run(a.aenqueue_many([{"n": 1}, {"n": 2}])),
}


@pytest.mark.parametrize("how", POOL_WAYS)
def test_jobs_of_a_pool_with_on_commit_wait_for_the_commit(redis_url, namespace, call, keys, how):
    hooks: list = []
    pool = WorkerPool(namespace=namespace, redis=redis_url, on_commit=hooks.append)

    @pool.job
    def a(n: int) -> None: ...

    jobs = POOL_WAYS[how](a)
    assert call("EXISTS", keys.queue("a"), keys.known_jobs) == 0
    (send,) = hooks
    send()
    assert {json.loads(raw)["id"] for raw in call("LRANGE", keys.queue("a"), 0, -1)} == {
        job.id for job in jobs
    }


@pytest.mark.parametrize("how", POOL_WAYS)
def test_jobs_of_a_pool_with_a_durability_are_refused_by_a_server_that_cannot_confirm_it(
    redis_url, namespace, call, keys, how
):
    pool = WorkerPool(namespace=namespace, redis=redis_url, durability="replicas:9")

    @pool.job
    def a(n: int) -> None: ...

    with pytest.raises(Unavailable, match="replicas"):
        POOL_WAYS[how](a)
    assert call("EXISTS", keys.queue("a")) == 0


def test_without_a_commit_nothing_is_ever_sent(redis_url, namespace, call, keys):
    enqueuer, _ = commits(redis_url, namespace)
    enqueuer.enqueue("a", n=1)
    enqueuer.using(on_commit=None).enqueue("a", n=2)
    assert [json.loads(raw)["args"]["n"] for raw in call("LRANGE", keys.queue("a"), 0, -1)] == [2]
    enqueuer.close()


def test_arguments_are_checked_before_the_commit(redis_url, namespace):
    enqueuer, hooks = commits(redis_url, namespace)
    with pytest.raises(BadArguments):
        enqueuer.enqueue("a", n=object())
    assert not hooks


ASYNC_WAYS = {
    "enqueue": lambda q, hooks: q.enqueue("a", n=1),
    "enqueue_in": lambda q, hooks: q.enqueue_in("a", 60, n=1),
    "enqueue_unique": lambda q, hooks: q.enqueue_unique("a", n=1),
    "enqueue_many": lambda q, hooks: q.enqueue_many("a", [{"n": 1}, {"n": 2}]),
    "using": lambda q, hooks: q.using(on_commit=None).using(on_commit=hooks.append).enqueue("a", n=1),
}


@pytest.mark.parametrize("how", ASYNC_WAYS)
def test_in_async_code_nothing_is_sent_before_the_commit(redis_url, namespace, call, keys, how):
    hooks: list = []
    enqueuer = AsyncEnqueuer(namespace, redis=redis_url, on_commit=hooks.append)

    async def work():
        found = await ASYNC_WAYS[how](enqueuer, hooks)
        assert call("EXISTS", keys.queue("a"), keys.scheduled, keys.known_jobs) == 0
        (send,) = hooks
        send()  # here the event loop runs: a commit does not care
        await enqueuer.close()
        return found if isinstance(found, list) else [found]

    jobs = asyncio.run(work())
    stored = call("LRANGE", keys.queue("a"), 0, -1) + call("ZRANGE", keys.scheduled, 0, -1)
    assert {json.loads(raw)["id"] for raw in stored} == {job.id for job in jobs}


def test_an_on_commit_that_is_to_be_awaited_is_awaited(redis_url, namespace, call, keys):
    async def on_commit(send) -> None:
        await asyncio.to_thread(send)

    pool = WorkerPool(namespace=namespace, redis=redis_url, on_commit=on_commit)

    @pool.job
    def a(n: int) -> None: ...

    async def work():
        job = await a.aenqueue(1)
        await pool.async_enqueuer.close()
        return job

    assert call("LLEN", keys.queue("a")) == 0
    job = asyncio.run(work())
    assert [json.loads(raw)["id"] for raw in call("LRANGE", keys.queue("a"), 0, -1)] == [job.id]


def test_an_on_commit_that_fails_in_async_code_raises_its_own_error(redis_url, namespace):
    def on_commit(send) -> None:
        raise LookupError("no transaction here")

    with pytest.raises(LookupError, match="no transaction here"):
        asyncio.run(AsyncEnqueuer(namespace, redis=redis_url, on_commit=on_commit).enqueue("a"))


def test_the_key_of_a_unique_job_is_the_go_json_of_its_arguments(enqueuer, keys):
    args = {"f": 1e20, "i": 2**60, "s": "é<\u2028", "n": None, "l": [1.5, {"k": []}]}
    assert enqueuer.enqueue_unique("a", **args).unique_key == keys.unique("a", go_json(args) + "\n")

"""put.lua, the script that the clients in other languages send, run on a real server by its documented keys and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayjob.errors import Rejected

PUT = (Path(__file__).resolve().parents[2] / "clients" / "put.lua").read_text("utf-8")
PLAIN = '{"name":"a","id":"1","t":1000000000,"args":{},"at":1000000000000}'
EXPIRING = '{"name":"a","id":"1","t":1000000000,"args":{},"expires":7,"at":1000000000000}'


@pytest.fixture
def put(call, keys):
    """Send the script for the job name `a`."""

    def send(*payloads, number=1, mode="now", amount=0, life=0, span=0, unique=False):
        sent = f"{keys.prefix}sent:slot"
        target, bell = (keys.queue("a"), keys.bell("a")) if mode == "now" else (keys.scheduled, keys.due)
        key = keys.unique("a", "{}\n") if unique else sent
        args = (number, "a", mode, amount, "1", life, span, *payloads)
        return call("EVAL", PUT, 6, sent, target, keys.known_jobs, bell, key, sent, *args)

    return send


FAR = {
    "a time to run far ahead": {"mode": "at", "amount": 10**15},
    "a time to run far behind": {"mode": "at", "amount": -(10**15)},
    "a time to run without end": {"mode": "at", "amount": "inf"},
    "a time to run that is no number": {"mode": "at", "amount": "nan"},
    "a delay": {"mode": "in", "amount": 10**15},
    "the life of a unique key": {"life": 10**15},
    "less than no life": {"life": -1},
    "the life of less than a millisecond": {"life": "0.5"},
    "an expiry": {"span": 10**15},
    "an expiry that is too far only with Redis time": {"span": 10**15 - 1},
    "an expiry in the past": {"span": -1},
}


@pytest.mark.parametrize("unique", [False, True], ids=["plain", "unique"])
@pytest.mark.parametrize("what", FAR)
def test_a_time_out_of_range_is_refused_before_anything_is_written(what, unique, put, call, keys):
    with pytest.raises(Rejected, match="nothing was stored: .*out of range"):
        put(EXPIRING, unique=unique, **FAR[what])
    assert call("KEYS", f"{keys.prefix}*") == []


@pytest.mark.parametrize("mode", ["now", "in", "at"])
def test_every_payload_gets_the_moment_it_expires_by_redis_time(mode, put, call, keys):
    other = EXPIRING.replace('"id":"1"', '"id":"2"')
    before = redis_milliseconds(call)
    put(EXPIRING, other, mode=mode, amount=5, span=60000)
    after = redis_milliseconds(call)
    stored = call("LRANGE", keys.queue("a"), 0, -1) or call("ZRANGE", keys.scheduled, 0, -1)
    (moment,) = {int(payload.split(b'"expires":')[1].split(b",")[0]) for payload in stored}
    assert before + 60000 <= moment <= after + 60000
    back = [payload.decode().replace(f'"expires":{moment}', '"expires":7') for payload in stored]
    assert sorted(back) == [EXPIRING, other]


def test_without_an_expiry_a_payload_is_stored_byte_for_byte(put, call, keys):
    put(EXPIRING, PLAIN)
    assert call("LRANGE", keys.queue("a"), 0, -1) == [PLAIN.encode(), EXPIRING.encode()]


def test_a_payload_without_the_place_for_its_expiry_is_refused_and_none_is_stored(put, call, keys):
    with pytest.raises(Rejected, match=r"nothing was stored: .*does not end in"):
        put(EXPIRING, PLAIN, span=60000)
    assert call("KEYS", f"{keys.prefix}*") == []


def test_a_resend_is_answered_as_before_even_where_its_time_is_now_out_of_range(put, call, keys):
    first = put(PLAIN, mode="in", amount=1000)
    assert put(PLAIN, mode="in", amount=10**15) == first
    assert call("ZCARD", keys.scheduled) == 1


def redis_milliseconds(call) -> int:
    seconds, micros = call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000

from __future__ import annotations

import pytest

from dayjob.store.ops import produce
from dayjob.store.ops.produce import Slot, When
from server import wait_until


@pytest.fixture
def schedule(keys, link):
    def send(number, when, *payloads, introduce=True):
        return link.run(
            produce.schedule(keys, Slot("s", number), "mail", payloads, when, introduce=introduce)
        )

    return send


def test_a_delay_counts_from_redis_time(schedule, look, now):
    before = now()
    answer = schedule(1, When("in", 60_000), b"1")
    assert before + 59.999 <= look().scheduled[b"1"] <= now() + 60
    assert answer.due == pytest.approx(look().scheduled[b"1"], abs=1e-6)


def test_a_time_is_stored_to_the_millisecond(schedule, look):
    answer = schedule(1, When("at", 1_900_000_000_123), b"1")
    assert look().scheduled == {b"1": 1_900_000_000.123}
    assert answer.due == 1_900_000_000.123


def test_all_jobs_of_a_request_share_its_time(schedule, look):
    payloads = [b"%d" % i for i in range(produce.MAX_JOBS)]
    schedule(1, When("at", 1_900_000_000_000), *payloads)
    assert look().scheduled == dict.fromkeys(payloads, 1_900_000_000.0)


def test_a_resend_stores_nothing_again(schedule, look, call, keys):
    schedule(1, When("at", 1_900_000_000_000), b"1")
    call("ZREM", keys.scheduled, b"1")
    answer = schedule(1, When("at", 1_900_000_000_000), b"1")
    assert answer.stored
    assert answer.due == 1_900_000_000.0
    assert look().scheduled == {}


@pytest.mark.parametrize(("second", "rings"), [(10_000, True), (30_000, False), (20_000, False)])
def test_the_leader_is_woken_only_by_what_is_due_sooner_than_all_others(schedule, call, keys, second, rings):
    schedule(1, When("at", 1_900_000_020_000), b"1")
    assert call("ZCARD", keys.due) == 1
    call("DEL", keys.due)
    schedule(2, When("at", 1_900_000_000_000 + second), b"2")
    assert call("ZCARD", keys.due) == int(rings)


def test_the_name_becomes_known_only_where_asked(schedule, call, keys):
    schedule(1, When("in", 1), b"1", introduce=False)
    assert call("SMEMBERS", keys.known_jobs) == []
    schedule(2, When("in", 1), b"2")
    assert call("SMEMBERS", keys.known_jobs) == [b"mail"]


def test_a_job_for_the_past_is_due_at_once_and_keeps_its_time(schedule, look):
    schedule(1, When("at", 1_000), b"1")
    assert look().scheduled == {b"1": 1.0}


def test_a_resend_of_a_delay_answers_the_time_of_the_first(schedule, look, call, keys, now):
    first = schedule(1, When("in", 60_000), b"1")
    start = now()
    wait_until(lambda: now() > start + 0.005)
    assert schedule(1, When("in", 60_000), b"1").due == first.due

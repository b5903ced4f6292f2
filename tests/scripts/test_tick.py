from __future__ import annotations

import pytest

from dayjob.store.ops import produce


@pytest.fixture
def tick(keys, link):
    def send(seen=None, newest=None, *, missed=0, jobs=()):
        return link.run(produce.tick(keys, "sched", "a", seen=seen, newest=newest, missed=missed, jobs=jobs))

    return send


@pytest.fixture
def last(call, keys):
    """Set the last tick, or read it."""

    def found(value=None):
        if value is not None:
            call("HSET", keys.periodic, "sched", value)
        return int(call("HGET", keys.periodic, "sched"))

    return found


def test_the_first_sight_of_a_schedule_stores_the_time_and_enqueues_nothing(tick, last, look, now):
    before = int(now())
    answer = tick(None, before, jobs=[(before, b"1")])
    assert (answer.enqueued, answer.last) == (0, last())
    assert before <= last() <= now()
    assert look().queues == {}


def test_a_look_changes_nothing(tick, last, everything):
    last(100)
    before = everything()
    answer = tick(None, None)
    assert (answer.enqueued, answer.last, answer.paused) == (0, 100, False)
    assert everything() == before


def test_open_ticks_are_enqueued_in_order_and_the_last_is_stored(tick, last, look, call, keys, totals):
    last(100)
    answer = tick(100, 300, jobs=[(200, b"2"), (300, b"3")])
    assert (answer.enqueued, answer.last) == (2, 300)
    assert last() == 300
    assert look().queues == {"a": [b"2", b"3"]}
    assert call("ZCARD", keys.bell("a")) == 1
    assert call("SMEMBERS", keys.known_jobs) == [b"a"]
    assert totals() == {"ticked:a": 2}


def test_a_tick_is_enqueued_once_by_any_number_of_schedulers(tick, last, look):
    last(100)
    tick(100, 200, jobs=[(200, b"mine")])
    answer = tick(100, 200, jobs=[(200, b"theirs")])
    assert (answer.enqueued, answer.last) == (0, 200)
    assert look().queues == {"a": [b"mine"]}


def test_a_scheduler_that_is_behind_learns_the_last_tick(tick, last, look):
    last(500)
    assert tick(100, 200, jobs=[(200, b"x")]).last == 500
    assert look().queues == {}


def test_a_scheduler_that_missed_a_tick_of_another_does_not_enqueue_it_again(tick, last, look):
    last(100)
    tick(100, 200, jobs=[(200, b"theirs")])
    answer = tick(100, 300, jobs=[(200, b"mine"), (300, b"next")])
    assert (answer.enqueued, answer.last) == (0, 200)
    assert look().queues == {"a": [b"theirs"]}


def test_a_tick_in_the_future_is_refused(tick, last, look, now):
    last(100)
    at = int(now()) + 60
    assert tick(100, at, jobs=[(at, b"x")]).enqueued == 0
    assert (last(), look().queues) == (100, {})


def test_a_clock_that_went_back_does_not_bring_back_old_ticks(tick, last, look):
    last(500)
    assert tick(500, 400, jobs=[(400, b"x")]).enqueued == 0
    assert tick(500, 500, jobs=[(500, b"x")]).enqueued == 0
    assert (last(), look().queues) == (500, {})


def test_ticks_that_the_policy_leaves_out_are_counted(tick, last, look, totals):
    last(100)
    assert tick(100, 300, missed=7).enqueued == 0
    assert last() == 300
    assert totals() == {"missed:a": 7}


def test_the_ticks_of_a_paused_schedule_are_counted_as_missed(tick, last, look, totals, call, keys):
    last(100)
    call("HSET", keys.periodic, "sched|off", "1")
    answer = tick(100, 300, missed=1, jobs=[(200, b"2"), (300, b"3")])
    assert (answer.enqueued, answer.last, answer.paused) == (0, 300, True)
    assert look().queues == {}
    assert totals() == {"missed:a": 3}


def test_two_schedules_do_not_share_their_last_tick(tick, last, keys, link, look):
    last(100)
    tick(100, 200, jobs=[(200, b"x")])
    answer = link.run(produce.tick(keys, "other", "a", seen=100, newest=200, jobs=[(200, b"y")]))
    assert answer.enqueued == 0
    assert look().queues == {"a": [b"x"]}


def test_only_a_tick_that_enqueued_a_job_counts_as_ticked(tick, last, call, keys):
    def ticked():
        return call("HGET", keys.periodic, "sched|ticked")

    tick(None, None)
    assert ticked() == b""
    last(100)
    tick(100, 200, missed=1)
    assert ticked() == b""
    tick(200, 400, jobs=[(300, b"3"), (400, b"4")])
    assert ticked() == b"400"
    call("HSET", keys.periodic, "sched|off", "1")
    tick(400, 500, jobs=[(500, b"5")])
    assert ticked() == b"400"

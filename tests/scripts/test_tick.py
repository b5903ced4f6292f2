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


@pytest.mark.parametrize("value", ["junk", "", "-5", "1.5", "1e300", "nan", "0x10", "9" * 30])
def test_a_last_tick_that_is_no_number_is_a_first_sight(tick, call, keys, now, look, value):
    call("HSET", keys.periodic, "sched", value)
    before = int(now())
    answer = tick(None, None)
    assert (answer.enqueued, answer.replaced) == (0, "junk")
    assert before <= answer.last <= now()
    assert tick(None, None).replaced == ""
    assert look().queues == {}


def test_a_last_tick_in_the_future_is_replaced_by_the_time_once(tick, last, now):
    last(int(now()) + 30 * 86_400)
    before = int(now())
    answer = tick(None, None)
    assert answer.replaced == "ahead"
    assert before <= answer.last == last() <= now()
    assert tick(None, None).replaced == ""


def test_a_last_tick_a_moment_ahead_is_waited_for(tick, last, now):
    """As after a failover to a server whose clock is a little behind."""
    ahead = last(int(now()) + 30)
    answer = tick(None, None)
    assert (answer.last, answer.replaced) == (ahead, "")


def test_a_tick_that_a_clock_ahead_has_enqueued_is_not_enqueued_again(tick, last, call, keys, now, look):
    """Every second until now, then a jump of 10 minutes, three ticks there, and the clock is right again."""
    late = int(now()) - 1000
    first = late + 600
    last(late)
    assert tick(late, first, jobs=[(first, b"1")]).enqueued == 1
    assert tick(first, first + 2, jobs=[(first + 1, b"2"), (first + 2, b"3")]).enqueued == 2
    # What a clock ahead wrote, as it looks once the clock is right: the same, seen from 10 minutes before.
    shift = int(now()) + 300 - first
    call(
        "HSET", keys.periodic, "sched", first + 2 + shift, "sched|run", f"{first + shift} {first + 2 + shift}"
    )
    answer = tick(None, None)
    assert answer.replaced == "ahead"
    assert call("HGET", keys.periodic, "sched|ahead").decode() == f"{first + shift} {first + 2 + shift}"
    # Time goes on until those ticks are due: as if the pair lay in the past.
    begin = int(now()) - 100
    call("HSET", keys.periodic, "sched", begin, "sched|ahead", f"{begin + 10} {begin + 12}")
    jobs = [(begin + n, b"again %d" % n) for n in range(9, 14)]
    answer = tick(begin, begin + 13, jobs=jobs)
    assert (answer.enqueued, answer.last) == (2, begin + 13)
    assert look().queues["a"][3:] == [b"again 9", b"again 13"]


def test_a_run_of_ticks_begins_anew_after_a_gap(tick, last, call, keys):
    last(100)
    tick(100, 130, jobs=[(120, b"1"), (130, b"2")])
    assert call("HGET", keys.periodic, "sched|run") == b"120 130"
    tick(130, 150, jobs=[(150, b"3")])
    assert call("HGET", keys.periodic, "sched|run") == b"120 150"
    tick(150, 1000, jobs=[(1000, b"4")])
    assert call("HGET", keys.periodic, "sched|run") == b"1000 1000"

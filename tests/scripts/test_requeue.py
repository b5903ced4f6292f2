from __future__ import annotations

import pytest

from dayjob.store.ops import maintain
from dayjob.store.ops.maintain import Move


@pytest.fixture
def requeue(keys, link):
    def send(*moves, source=None, due=True):
        return link.run(
            maintain.requeue(keys, source or keys.scheduled, [Move(*move) for move in moves], due=due)
        )

    return send


@pytest.fixture
def schedule(call, keys):
    return lambda **scores: [call("ZADD", keys.scheduled, score, member) for member, score in scores.items()]


def test_due_members_go_to_their_queues_with_their_new_bytes_in_order(requeue, schedule, look, call, keys):
    schedule(x=1, y=2, z=3)
    assert requeue(("a", b"x", b"X"), ("b", b"y", b"Y"), ("a", b"z", b"Z")) == 3
    assert look().queues == {"a": [b"X", b"Z"], "b": [b"Y"]}
    assert look().scheduled == {}
    assert call("ZCARD", keys.bell("a")) == call("ZCARD", keys.bell("b")) == 1
    assert set(call("SMEMBERS", keys.known_jobs)) == {b"a", b"b"}


def test_they_wait_behind_what_is_in_the_queue_already(requeue, schedule, put, look):
    put("a", "1")
    schedule(x=1)
    requeue(("a", b"x", b"X"))
    assert look().queues == {"a": [b"1", b"X"]}


def test_what_is_not_due_stays_unless_an_operator_moves_it(requeue, call, keys, now, look):
    call("ZADD", keys.scheduled, now() + 60, "x")
    assert requeue(("a", b"x", b"X")) == 0
    assert (list(look().scheduled), look().queues) == ([b"x"], {})
    assert requeue(("a", b"x", b"X"), due=False) == 1
    assert (look().scheduled, look().queues) == ({}, {"a": [b"X"]})


def test_what_somebody_else_moved_is_not_moved_again(requeue, schedule, look, call, keys):
    schedule(x=1)
    requeue(("a", b"x", b"X"))
    assert requeue(("a", b"x", b"X"), ("a", b"x", b"X")) == 0
    assert look().queues == {"a": [b"X"]}


def test_a_member_named_twice_moves_once(requeue, schedule, look):
    schedule(x=1)
    assert requeue(("a", b"x", b"X"), ("a", b"x", b"X")) == 1
    assert look().queues == {"a": [b"X"]}


def test_an_unreadable_member_goes_to_broken_and_is_counted(requeue, schedule, look, totals):
    schedule(x=1, y=2)
    assert requeue((None, b"x", b"header\nx"), ("a", b"y", b"Y")) == 2
    assert look().broken == [b"header\nx"]
    assert look().queues == {"a": [b"Y"]}
    assert totals() == {"broken:": 1}


def test_a_name_whose_queue_has_a_wrong_type_stays_and_the_others_go_on(requeue, schedule, call, keys, look):
    call("SET", keys.queue("a"), "text")
    schedule(x=1, y=2)
    assert requeue(("a", b"x", b"X"), ("b", b"y", b"Y")) == 1
    assert look().scheduled == {b"x": 1.0}
    assert look().queues == {"b": [b"Y"]}
    assert call("GET", keys.queue("a")) == b"text"


def test_a_broken_list_of_a_wrong_type_does_not_stop_the_readable_ones(requeue, schedule, call, keys, look):
    call("SET", keys.broken, "text")
    schedule(x=1, y=2)
    assert requeue((None, b"x", b"X"), ("b", b"y", b"Y")) == 1
    assert look().scheduled == {b"x": 1.0}
    assert look().queues == {"b": [b"Y"]}


def test_known_jobs_of_a_wrong_type_does_not_stop_what_is_due(requeue, schedule, call, keys, look):
    call("SET", keys.known_jobs, "text")
    schedule(y=2)
    assert requeue(("b", b"y", b"Y")) == 1
    assert look().queues == {"b": [b"Y"]}
    assert call("ZCARD", keys.bell("b")) == 1


def test_retry_is_moved_by_the_same_script(requeue, call, keys, look):
    call("ZADD", keys.retry, 1, "x")
    assert requeue(("a", b"x", b"X"), source=keys.retry) == 1
    assert (look().retry, look().queues) == ({}, {"a": [b"X"]})


def test_a_member_with_an_infinite_score_is_never_due(requeue, call, keys, look):
    call("ZADD", keys.scheduled, "+inf", "x")
    assert requeue(("a", b"x", b"X")) == 0
    assert list(look().scheduled) == [b"x"]


def test_a_due_time_is_met_to_the_millisecond(requeue, call, keys, link):
    """A score that `due` calls due must be due here too, whatever floating point makes of it."""
    for i in range(1000):
        call("ZADD", keys.scheduled, f"{1_700_000_000 + i * 7919}.{i:03d}", f"m{i}")
    due = link.run(maintain.read_due(keys.scheduled, most=1000))
    for first in range(0, len(due.members), 100):
        moves = [Move("a", member, member) for member, _ in due.members[first : first + 100]]
        assert link.run(maintain.requeue(keys, keys.scheduled, moves)) == len(moves)

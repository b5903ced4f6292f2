from __future__ import annotations

import pytest

from dayjob.store.ops import consume, maintain, operate
from dayjob.store.steps import walk


@pytest.fixture
def set_limit(keys, link):
    return lambda limit, *, name="a", by="code": link.run(consume.set_limit(keys, name, limit, by=by))


@pytest.fixture
def limits(keys, link):
    return lambda: link.run(consume.get_limits(keys))


def test_a_limit_is_set_with_who_set_it_and_answers_the_one_before(set_limit, limits, call, keys):
    assert set_limit(3) == -1
    assert set_limit(5, by="operator") == 3
    assert set_limit(7, name="b") == -1
    assert limits() == ({"a": 5, "b": 7}, {"a"})


def test_setting_one_rings_the_bell_since_more_may_run_now(set_limit, call, keys):
    set_limit(3)
    assert call("ZCARD", keys.bell("a")) == 1


def test_lifting_a_limit_forgets_its_members_and_rings(set_limit, limits, call, keys):
    set_limit(3)
    call("SADD", keys.held_of("a"), "p/1:a")
    call("DEL", keys.bell("a"))
    assert set_limit(None) == 3
    assert limits() == ({}, set())
    assert (call("EXISTS", keys.held_of("a")), call("ZCARD", keys.bell("a"))) == (0, 1)


def test_changing_a_limit_keeps_its_members(set_limit, call, keys):
    set_limit(3)
    call("SADD", keys.held_of("a"), "p/1:a")
    set_limit(4)
    assert call("SMEMBERS", keys.held_of("a")) == [b"p/1:a"]


def test_attempts_held_before_are_counted_and_those_that_ended_are_not(
    pool, put, set_limit, keys, link, look
):
    put("a", "1", "2", "3")
    pool.fetch("a")
    pool.exchange(done={"a": ["2:a"]})
    set_limit(0)
    assert link.run(consume.seed_limit(keys, "a", "p1", ["1:a", "2:a", "3:a"])) == 0
    assert look().held_sets == {"a": {"p1/1:a", "p1/3:a"}}


def test_seeding_does_not_change_the_limit(set_limit, limits, pool, put, keys, link):
    put("a", "1")
    pool.fetch("a")
    set_limit(4, by="operator")
    assert link.run(consume.seed_limit(keys, "a", "p1", ["1:a"])) == 4
    assert limits() == ({"a": 4}, {"a"})


def test_a_limit_that_is_not_a_number_counts_as_none(set_limit, limits, call, keys):
    call("HSET", keys.limits, "a", "many")
    assert set_limit(3) == -1
    assert limits()[0] == {"a": 3}


def test_a_limit_set_while_jobs_run_is_never_exceeded(pool, put, keys, link):
    put("a", *"12345")
    pool.fetch("a", room=3)
    walk(link, operate.set_limit(keys, "a", 2))
    assert pool.fetch("a") == []
    pool.exchange(done={"a": ["1:a", "2:a"]})
    assert len(pool.fetch("a")) == 1


def test_attempts_of_a_condemned_pool_count_until_they_are_swept(pool, new_pool, put, keys, link):
    """They are held still; whether the machine that runs them is gone is not known."""
    put("a", *"123")
    pool.fetch("a", room=1)
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    walk(link, operate.set_limit(keys, "a", 1))
    assert new_pool().fetch("a") == []


def test_two_that_set_a_new_limit_at_once_do_not_open_it_before_all_is_counted(pool, put, keys, link):
    """As when a fleet restarts with code that has a limit for the first time."""
    put("a", *"1234")
    pool.fetch("a", room=2)
    first = operate.set_limit(keys, "a", 2)
    closing = first.send(link.run(next(first)))
    link.run(closing)
    walk(link, operate.set_limit(keys, "a", 2))
    assert pool.fetch("a") == []

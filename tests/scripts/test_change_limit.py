from __future__ import annotations

import pytest

from dayjob.options import PoolOptions
from dayjob.store.link import walk
from dayjob.store.ops import concurrency, inspect, maintain, operate
from dayjob.worker.chores.trimmer import Trimmer


@pytest.fixture
def set_limit(keys, link):
    return lambda limit, *, name="a", by="code": walk(
        link, operate.set_concurrency_limit(keys, name, limit, by=by)
    )


@pytest.fixture
def limits(keys, link):
    return lambda: link.run(concurrency.get_limits(keys))


def test_a_limit_is_set_with_who_set_it(set_limit, limits):
    set_limit(3)
    set_limit(5, by="operator")
    set_limit(7, name="b")
    assert limits() == ({"a": 5, "b": 7}, {"a"})


def test_setting_one_rings_the_bell_since_more_may_run_now(set_limit, call, keys):
    set_limit(3)
    assert call("ZCARD", keys.bell("a")) == 1


def test_lifting_a_limit_forgets_its_members_and_rings(set_limit, limits, call, keys):
    set_limit(3)
    call("SADD", keys.held_of("a"), "p/1:a")
    call("DEL", keys.bell("a"))
    set_limit(None)
    assert limits() == ({}, set())
    assert (call("EXISTS", keys.held_of("a")), call("ZCARD", keys.bell("a"))) == (0, 1)


def test_changing_a_limit_keeps_its_members(set_limit, call, keys):
    set_limit(3)
    call("SADD", keys.held_of("a"), "p/1:a")
    set_limit(4)
    assert call("SMEMBERS", keys.held_of("a")) == [b"p/1:a"]


def test_a_limit_that_is_not_a_number_counts_as_none(set_limit, limits, call, keys):
    call("HSET", keys.limits, "a", "many")
    set_limit(3)
    assert limits()[0] == {"a": 3}


def test_a_limit_set_while_jobs_run_is_never_exceeded(pool, put, set_limit):
    put("a", *"12345")
    pool.fetch("a", room=3)
    set_limit(2)
    assert pool.fetch("a") == []
    pool.exchange(done={"a": ["1:a", "2:a"]})
    assert len(pool.fetch("a")) == 1


def test_attempts_of_a_condemned_pool_count_until_they_are_swept(pool, new_pool, put, set_limit, keys, link):
    """They are held still; whether the machine that runs them is gone is not known."""
    put("a", *"123")
    pool.fetch("a", room=1)
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    set_limit(1)
    assert new_pool().fetch("a") == []


def test_two_that_set_a_new_limit_at_once_do_not_open_it_before_all_is_counted(
    pool, put, set_limit, keys, link
):
    """As when a fleet restarts with code that has a limit for the first time."""
    put("a", *"1234")
    pool.fetch("a", room=2)
    first = operate.set_concurrency_limit(keys, "a", 2)
    closing = first.send(link.run(next(first)))
    link.run(closing)
    set_limit(2)
    assert pool.fetch("a") == []


def interrupted(link, steps, after):
    """Take `after` steps and no more, as when Ctrl-C or a lost connection ends the caller; true when it was done by then."""
    request = next(steps)
    for _ in range(after):
        answer = link.run_many(request) if isinstance(request, list) else link.run(request)
        try:
            request = steps.send(answer)
        except StopIteration:
            return True
    steps.close()
    return False


@pytest.mark.parametrize("after", range(6))
def test_a_change_that_is_interrupted_leaves_the_name_as_it_was(pool, put, keys, link, limits, after):
    put("a", *"1234")
    pool.fetch("a", room=1)
    done = interrupted(link, operate.set_concurrency_limit(keys, "a", 1), after)
    assert limits() == (({"a": 1}, {"a"}) if done else ({}, set()))
    assert len(pool.fetch("a")) == (0 if done else 3)


@pytest.mark.parametrize("after", range(6))
def test_a_change_after_an_interrupted_one_counts_what_runs(pool, put, keys, link, after):
    put("a", *"1234")
    pool.fetch("a", room=1)
    interrupted(link, operate.set_concurrency_limit(keys, "a", 1), after)
    walk(link, operate.set_concurrency_limit(keys, "a", 2))
    assert len(pool.fetch("a")) == 1


@pytest.mark.parametrize("after", range(1, 5))
def test_attempts_taken_while_a_new_limit_is_counted_count_for_it(pool, put, keys, link, after):
    put("a", *"12345")
    steps = operate.set_concurrency_limit(keys, "a", 2)
    request = next(steps)
    for step in range(10):
        if step == after:
            assert len(pool.fetch("a", room=1)) == 1
        answer = link.run_many(request) if isinstance(request, list) else link.run(request)
        try:
            request = steps.send(answer)
        except StopIteration:
            break
    assert len(pool.fetch("a")) == (1 if after <= step else 2)


def test_a_limit_that_is_lifted_while_a_new_one_is_counted_is_counted_anew(pool, put, keys, link, limits):
    """What was taken after the lift was not counted: the first count is worth nothing."""
    put("a", *"123456")
    steps = operate.set_concurrency_limit(keys, "a", 2)
    request = steps.send(link.run(next(steps)))
    request = steps.send(link.run(request))
    walk(link, operate.set_concurrency_limit(keys, "a", None))
    assert len(pool.fetch("a", room=2)) == 2
    with pytest.raises(StopIteration):
        while True:
            request = steps.send(link.run_many(request) if isinstance(request, list) else link.run(request))
    assert limits() == ({"a": 2}, {"a"})
    assert pool.fetch("a") == []


def test_the_mark_of_an_interrupted_change_is_removed_by_the_leader(pool, put, keys, link, call):
    put("a", *"12")
    interrupted(link, operate.set_concurrency_limit(keys, "a", 1), 2)
    assert call("HLEN", keys.limits) > 0
    trimmer = Trimmer(keys, link, PoolOptions())
    trimmer.repair_limits()
    assert call("HLEN", keys.limits) > 0
    trimmer.repair_limits()
    assert call("HLEN", keys.limits) == 0
    assert len(pool.fetch("a")) == 2


def test_the_leader_leaves_a_limit_of_0_in_force_when_a_change_of_it_was_interrupted(
    put, pool, keys, link, limits
):
    put("a", *"12")
    walk(link, operate.set_concurrency_limit(keys, "a", 0))
    interrupted(link, operate.set_concurrency_limit(keys, "a", 1), 2)
    assert pool.fetch("a") == []
    trimmer = Trimmer(keys, link, PoolOptions())
    trimmer.repair_limits()
    trimmer.repair_limits()
    assert limits() == ({"a": 0}, {"a"})
    assert pool.fetch("a") == []


def test_an_overview_shows_no_limit_while_it_is_counted(put, keys, link):
    put("a", "1")
    interrupted(link, operate.set_concurrency_limit(keys, "a", 1), 2)
    assert link.run(inspect.queues(keys, ["a"])).queues[0].limit is None
    assert link.run(concurrency.get_limits(keys)) == ({}, set())

from __future__ import annotations

import pytest

from dayjob.store.ops import concurrency, maintain
from pools import set_limit


@pytest.fixture
def recount(keys, link):
    return lambda *members: link.run(maintain.recount(keys, "a", members))


@pytest.fixture
def held(pool, put, link, keys):
    """Two attempts of a name with a limit."""
    set_limit(keys, link, "a", 5)
    put("a", "1", "2")
    return [f"p1/{token}" for token in pool.fetch("a")]


def test_members_whose_attempts_are_held_stay(recount, held, look):
    assert recount(*held) == 0
    assert look().held_sets == {"a": set(held)}


def test_members_whose_attempts_are_gone_are_removed_and_the_bell_rings(recount, held, look, call, keys):
    call("SADD", keys.held_of("a"), "p1/9:a", "nobody/1:a", "no slash")
    call("DEL", keys.bell("a"))
    assert recount(*held, "p1/9:a", "nobody/1:a", "no slash") == 3
    assert look().held_sets == {"a": set(held)}
    assert call("ZCARD", keys.bell("a")) == 1


def test_attempts_held_before_the_limit_are_counted_and_those_that_ended_are_not(
    recount, held, pool, look, call, keys
):
    pool.exchange(done={"a": ["2:a"]})
    call("DEL", keys.held_of("a"))
    assert recount(*held) == 0
    assert look().held_sets == {"a": {"p1/1:a"}}


def test_nothing_is_counted_for_a_name_without_a_limit(recount, held, link, keys, look):
    set_limit(keys, link, "a", None)
    assert recount(*held) == 0
    assert look().held_sets == {}


def test_a_recount_does_not_change_the_limit(recount, held, link, keys):
    recount(*held)
    assert link.run(concurrency.get_limits(keys)) == ({"a": 5}, set())


def test_nothing_removed_rings_nothing(recount, held, call, keys):
    call("DEL", keys.bell("a"))
    recount(*held)
    assert call("EXISTS", keys.bell("a")) == 0


def test_attempts_of_a_condemned_pool_keep_their_places(recount, held, look, link, keys):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert recount(*held) == 0
    assert look().held_sets == {"a": set(held)}


def test_a_held_of_a_wrong_type_keeps_its_places_and_frees_the_others(recount, call, keys, look):
    call("SADD", keys.held_of("a"), "p1/1:a", "bad/2:a", "p3/3:a")
    call("SET", keys.held("bad"), "x")
    assert recount("p1/1:a", "bad/2:a", "p3/3:a") == 2
    assert look().held_sets == {"a": {"bad/2:a"}}
    assert call("ZCARD", keys.bell("a")) == 1


def test_a_set_of_a_wrong_type_does_not_stop_the_mending_of_other_names(call, keys, link, look):
    from dayjob.options import PoolOptions
    from dayjob.worker.chores.trimmer import Trimmer
    from dayjob.worker.shared_link import SharedLink

    for name in ("a", "b", "c"):
        set_limit(keys, link, name, 1)
    call("SADD", keys.held_of("a"), "gone/1:a")
    call("SET", keys.held_of("b"), "x")
    call("SADD", keys.held_of("c"), "gone/1:c")
    Trimmer(keys, SharedLink(link), PoolOptions()).repair_limits()
    assert look().held_sets == {}
    assert call("GET", keys.held_of("b")) == b"x"

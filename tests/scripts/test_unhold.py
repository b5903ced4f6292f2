from __future__ import annotations

import pytest

from dayjob.store.ops import consume, maintain


@pytest.fixture
def unhold(keys, link):
    return lambda *members: link.run(maintain.unhold(keys, "a", members))


@pytest.fixture
def held(pool, put, link, keys):
    """Two attempts of a name with a limit."""
    link.run(consume.set_limit(keys, "a", 5, by="code"))
    put("a", "1", "2")
    return [f"p1/{token}" for token in pool.fetch("a")]


def test_members_whose_attempts_are_held_stay(unhold, held, look):
    assert unhold(*held) == 0
    assert look().held_sets == {"a": set(held)}


def test_members_whose_attempts_are_gone_are_removed_and_the_bell_rings(unhold, held, look, call, keys):
    call("SADD", keys.held_of("a"), "p1/9:a", "nobody/1:a", "no slash")
    call("DEL", keys.bell("a"))
    assert unhold(*held, "p1/9:a", "nobody/1:a", "no slash") == 3
    assert look().held_sets == {"a": set(held)}
    assert call("ZCARD", keys.bell("a")) == 1


def test_nothing_removed_rings_nothing(unhold, held, call, keys):
    call("DEL", keys.bell("a"))
    unhold(*held)
    assert call("EXISTS", keys.bell("a")) == 0


def test_attempts_of_a_condemned_pool_keep_their_places(unhold, held, look, link, keys):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert unhold(*held) == 0
    assert look().held_sets == {"a": set(held)}


def test_a_held_of_a_wrong_type_keeps_its_places_and_frees_the_others(unhold, call, keys, look):
    call("SADD", keys.held_of("a"), "p1/1:a", "bad/2:a", "p3/3:a")
    call("SET", keys.held("bad"), "x")
    assert unhold("p1/1:a", "bad/2:a", "p3/3:a") == 2
    assert look().held_sets == {"a": {"bad/2:a"}}
    assert call("ZCARD", keys.bell("a")) == 1


def test_a_set_of_a_wrong_type_does_not_stop_the_mending_of_other_names(call, keys, link, look):
    from dayjob.options import PoolOptions
    from dayjob.worker.chores.trimmer import Trimmer
    from dayjob.worker.shared_link import SharedLink

    for name in ("a", "b", "c"):
        link.run(consume.set_limit(keys, name, 1, by="code"))
    call("SADD", keys.held_of("a"), "gone/1:a")
    call("SET", keys.held_of("b"), "x")
    call("SADD", keys.held_of("c"), "gone/1:c")
    Trimmer(keys, SharedLink(link), PoolOptions()).mend_limits()
    assert look().held_sets == {}
    assert call("GET", keys.held_of("b")) == b"x"

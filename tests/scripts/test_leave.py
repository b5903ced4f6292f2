from __future__ import annotations

import pytest

from dayjob.store.ops import membership


@pytest.fixture
def leave(keys, link):
    return lambda pool_id="p1": link.run(membership.leave(keys, pool_id))


def test_a_pool_that_holds_nothing_leaves_no_trace(pool, leave, link, keys, everything):
    link.run(membership.status(keys, "p1", b"{}"))
    assert leave() == 0
    assert {key for key in everything() if not key.startswith("events:")} == {"known_jobs"}


def test_a_pool_that_holds_something_is_condemned_with_all_of_it(pool, put, leave, keys, call, look):
    put("a", "1", "2")
    pool.fetch("a", room=1)
    assert leave() == 1
    assert call("ZRANGE", keys.condemned, 0, -1) == [b"p1"]
    assert call("ZRANGE", keys.pools, 0, -1) == []
    assert look().held == {"p1": {"1:a": b"1"}}
    assert call("HGET", keys.state("p1"), "last") == b"1"


def test_it_gives_up_its_own_leadership_only(pool, new_pool, leave, call, keys):
    new_pool(pool_id="p2")
    leave("p2")
    assert call("GET", keys.leader) == b"p1"
    leave("p1")
    assert call("EXISTS", keys.leader) == 0


def test_leaving_twice_changes_nothing(pool, put, leave, everything):
    put("a", "1")
    pool.fetch("a")
    leave()
    before = everything()
    assert leave() == 1
    after = everything()
    assert after["condemned"][1].keys() == before["condemned"][1].keys()
    assert after | {"condemned": None} == before | {"condemned": None}


def test_its_next_exchange_is_refused(pool, leave):
    leave()
    assert pool.exchange("a", room=1).status == "refused"


def test_a_leader_key_of_a_wrong_type_keeps_nobody_from_leaving(pool, leave, call, keys):
    call("DEL", keys.leader)
    call("LPUSH", keys.leader, "x")
    assert leave() == 0
    assert call("ZCARD", keys.pools) == 0

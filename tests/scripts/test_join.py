from __future__ import annotations

import pytest

from dayjob.store.ops import maintain, membership


@pytest.fixture
def join(keys, link):
    return lambda pool_id, *names, term=60.0: link.run(
        membership.join(keys, pool_id, names, lease=15.0, term=term)
    )


def test_a_pool_is_registered_with_its_lease_and_its_names(join, call, keys, now):
    before = now()
    answer = join("p1", "a", "b")
    assert answer.registered
    lease_end = float(call("ZSCORE", keys.pools, "p1")) / 1000
    assert before + 14.999 <= lease_end <= now() + 15
    assert set(call("SMEMBERS", keys.known_jobs)) == {b"a", b"b"}
    assert call("HGET", keys.state("p1"), "last") == b"0"


def test_the_first_pool_leads_and_the_second_does_not(join, call, keys):
    assert join("p1").leads
    assert not join("p2").leads
    assert call("GET", keys.leader) == b"p1"
    assert 0 < call("PTTL", keys.leader) <= 60_000


def test_an_id_that_is_registered_is_refused(join, call, keys):
    join("p1")
    assert not join("p1", "late").registered
    assert call("SISMEMBER", keys.known_jobs, "late") == 0


def test_an_id_that_is_condemned_is_refused(join, link, keys, call):
    join("p1")
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert not join("p1").registered
    assert call("ZSCORE", keys.pools, "p1") is None


def test_an_id_that_was_condemned_without_a_trace_is_refused(join, link, keys, call):
    """Its parent proved its death before its own join arrived."""
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert not join("p1").registered
    assert call("EXISTS", keys.pools) == 0


def test_an_id_whose_state_is_left_is_refused(join, call, keys):
    call("HSET", keys.state("p1"), "last", 7)
    assert not join("p1").registered
    assert call("HGET", keys.state("p1"), "last") == b"7"


def test_thousands_of_names_become_known(join, call, keys):
    names = [f"n{i}" for i in range(9000)]
    assert join("p1", *names).registered
    assert call("SCARD", keys.known_jobs) == 9000


def test_a_pool_may_have_no_names(join):
    assert join("p1").registered


def test_a_pool_that_wants_no_leadership_joins_without_it(join, call, keys):
    answer = join("p1", term=0)
    assert (answer.registered, answer.leads) == (True, False)
    assert call("EXISTS", keys.leader) == 0

from __future__ import annotations

import pytest

from dayjob.store.ops import membership


@pytest.fixture
def lead(keys, link):
    return lambda pool_id, term: link.run(membership.lead(keys, pool_id, term=term)).leads


@pytest.mark.parametrize(
    ("holder", "term", "leads", "after"),
    [
        (None, 60.0, True, b"p1"),
        ("p1", 60.0, True, b"p1"),
        ("p2", 60.0, False, b"p2"),
        (None, 0, False, None),
        ("p1", 0, False, None),
        ("p2", 0, False, b"p2"),
    ],
)
def test_only_the_holder_renews_or_gives_up(lead, call, keys, holder, term, leads, after):
    if holder:
        call("SET", keys.leader, holder, "PX", 60_000)
    assert lead("p1", term) is leads
    assert call("GET", keys.leader) == after


def test_a_renewal_lasts_a_whole_term(lead, call, keys):
    call("SET", keys.leader, "p1", "PX", 100)
    lead("p1", 300.0)
    assert 200_000 < call("PTTL", keys.leader) <= 300_000


def test_a_leader_key_of_a_wrong_type_is_mended(lead, call, keys):
    """Or no pool could ever do the chores again: such a key does not expire."""
    call("LPUSH", keys.leader, "x")
    assert lead("p1", 60.0)
    assert call("GET", keys.leader) == b"p1"
    assert call("PTTL", keys.leader) > 0


@pytest.fixture
def lead_round(keys, link):
    return lambda pool_id="p1": link.run(membership.lead(keys, pool_id, term=60.0, lease=15.0))


def test_the_round_condemns_pools_whose_lease_has_expired(lead_round, call, keys):
    call("ZADD", keys.pools, 1, "over", 1 << 50, "fine")
    lead_round()
    assert lead_round().condemned == ["over"]
    assert call("ZRANGE", keys.pools, 0, -1) == [b"fine"]


def test_a_pool_that_does_not_lead_condemns_nobody(lead_round, call, keys):
    call("SET", keys.leader, "p2", "PX", 60_000)
    call("ZADD", keys.pools, 1, "over")
    assert not lead_round().leads
    assert not lead_round().condemned
    assert call("ZRANGE", keys.pools, 0, -1) == [b"over"]


def test_the_round_reports_what_is_due_first(lead_round, call, keys):
    now = float(call("TIME")[0])
    assert lead_round().due_in is None
    call("ZADD", keys.scheduled, now + 500, "x")
    assert 490 < lead_round().due_in <= 500
    call("ZADD", keys.retry, now + 100, "y")
    assert 90 < lead_round().due_in <= 100
    call("ZADD", keys.retry, 1, "z")
    assert lead_round().due_in == 0
    assert lead_round().parked_in is None
    call("ZADD", keys.parked, now + 50, "a")
    assert 40 < lead_round().parked_in <= 50


def test_the_round_reports_sizes_that_the_caps_need(lead_round, call, keys):
    call("ZADD", keys.dead, 7, "x", 8, "y")
    call("ZADD", keys.done, 9, "z")
    call("SADD", keys.known_jobs, "a", "b", "c")
    found = lead_round()
    assert (found.dead, found.done, found.names) == ((2, 7.0), (1, 9.0), 3)


@pytest.mark.parametrize("key", ["scheduled", "retry"])
def test_a_set_of_a_wrong_type_is_left_to_the_chore_that_reads_it(lead_round, call, keys, key):
    call("SET", getattr(keys, key), "x")
    assert lead_round().due_in == 5.0


def test_parked_names_of_a_wrong_type_are_deleted(lead_round, call, keys):
    """Only dayjob uses the key, and exchanges park the names again."""
    call("SET", keys.parked, "x")
    assert lead_round().parked_in is None
    assert call("EXISTS", keys.parked) == 0


def test_the_round_rings_the_bells_of_queues_that_can_be_fetched_from(keys, link, call):
    for name in ("a", "paused"):
        call("LPUSH", keys.queue(name), "x")
    call("SET", keys.paused("paused"), "")
    found = link.run(membership.lead(keys, "p1", term=60.0, names=["a", "empty", "paused"]))
    assert found.rung == 1
    bells = {name: call("ZRANGE", keys.bell(name), 0, -1) for name in ("a", "empty", "paused")}
    assert bells == {"a": [b"1"], "empty": [], "paused": []}


def test_a_pool_that_does_not_lead_rings_no_bell(keys, link, call):
    call("SET", keys.leader, "p2", "PX", 60_000)
    call("LPUSH", keys.queue("a"), "x")
    assert link.run(membership.lead(keys, "p1", term=60.0, names=["a"])).rung == 0
    assert call("EXISTS", keys.bell("a")) == 0


def test_the_round_reports_staged_lists_that_wait_to_be_moved(lead_round, call, keys):
    assert lead_round().released == 0
    call("ZADD", keys.released, 1, "x", 2, "y")
    assert lead_round().released == 2

from __future__ import annotations

import pytest

from dayjob.store.ops import maintain

LEASE = 15.0


@pytest.fixture
def condemn(keys, link):
    def send(*proven, judge=True):
        return link.run(maintain.condemn(keys, lease=LEASE, proven=proven, judge=judge))

    return send


@pytest.fixture
def watched(call, keys, now):
    """A fleet whose last pass was `ago` seconds before now, with no lease judged until `quiet` seconds from now."""

    def set_up(ago=1.0, quiet=-1.0):
        at = int(now() * 1000)
        call("HSET", keys.watch, "last", at - int(ago * 1000), "quiet", at + int(quiet * 1000))

    return set_up


@pytest.fixture
def pools(call, keys, now):
    """Register ids with a lease that ends so many seconds from now."""

    def add(**ends):
        for pool_id, seconds in ends.items():
            call("ZADD", keys.pools, int((now() + seconds) * 1000), pool_id)

    return add


def test_pools_past_their_lease_are_condemned_and_the_others_are_not(condemn, watched, pools, call, keys):
    watched()
    pools(over=-0.1, fresh=5)
    assert condemn() == ["over"]
    assert call("ZRANGE", keys.pools, 0, -1) == [b"fresh"]
    assert call("ZRANGE", keys.condemned, 0, -1) == [b"over"]


def test_a_death_that_is_proven_needs_no_lease_to_end(condemn, watched, pools, call, keys):
    watched()
    pools(killed=10, over=-1)
    assert condemn("killed", judge=False) == ["killed"]
    assert call("ZRANGE", keys.pools, 0, -1) == [b"over"]


def test_a_proven_death_of_an_id_that_redis_forgot_is_condemned_too(condemn):
    assert condemn("forgotten", judge=False) == ["forgotten"]


def test_a_proof_alone_is_no_pass_over_the_leases(condemn, watched, call, keys):
    watched(ago=4.0)
    before = call("HGETALL", keys.watch)
    condemn("x", judge=False)
    assert call("HGETALL", keys.watch) == before


@pytest.mark.parametrize(
    ("ago", "judged"), [(1.0, True), (2.5, True), (5.5, False), (3600.0, False), (-10.0, False)]
)
def test_after_a_gap_or_a_step_backwards_no_lease_is_judged(condemn, watched, pools, ago, judged):
    watched(ago=ago)
    pools(over=-1)
    assert condemn() == (["over"] if judged else [])


def test_the_quiet_time_after_a_gap_is_one_lease(condemn, watched, pools, call, keys, now):
    watched(ago=60)
    pools(over=-1)
    condemn()
    quiet = int(call("HGET", keys.watch, "quiet")) / 1000
    assert now() + LEASE - 10 < quiet <= now() + LEASE
    assert condemn() == []
    watched(quiet=-0.001)
    assert condemn() == ["over"]


def test_a_quiet_time_from_before_the_clock_was_set_back_is_cut_to_one_lease(
    condemn, watched, call, keys, now
):
    watched(ago=1, quiet=3600)
    condemn()
    assert int(call("HGET", keys.watch, "quiet")) / 1000 <= now() + LEASE


def test_a_proven_death_counts_even_in_a_quiet_time(condemn, watched, pools):
    watched(quiet=10)
    pools(killed=10)
    assert condemn("killed") == ["killed"]


def test_the_first_pass_of_all_judges_at_once(condemn, pools):
    pools(over=-1)
    assert condemn() == ["over"]


def test_the_time_a_pool_was_condemned_is_not_renewed(condemn, call, keys):
    call("ZADD", keys.condemned, 5, "p")
    condemn("p")
    assert call("ZSCORE", keys.condemned, "p") == b"5"


def test_at_most_a_hundred_leases_end_in_one_pass(condemn, watched, call, keys):
    watched()
    call("ZADD", keys.pools, *(word for i in range(250) for word in (i, f"p{i}")))
    assert len(condemn()) == 100
    assert (call("ZCARD", keys.pools), call("ZCARD", keys.condemned)) == (150, 100)
    condemn()
    condemn()
    assert (call("ZCARD", keys.pools), call("ZCARD", keys.condemned)) == (0, 250)


def test_a_condemned_pool_is_refused_and_keeps_what_it_holds_frozen(condemn, pool, put, look, keys, call):
    put("a", "1")
    pool.fetch("a")
    condemn("p1", judge=False)
    before = look()
    reply = pool.exchange("a", room=5, done={"a": ["1:a"]})
    assert reply.status == "refused"
    assert look() == before


@pytest.mark.parametrize("judge", [True, False])
def test_a_watch_of_a_wrong_type_is_mended_like_a_gap(condemn, pools, call, keys, now, judge):
    """Or no dead pool would ever be found again: nobody else writes that key."""
    call("SET", keys.watch, "x")
    pools(over=-1, killed=10)
    assert condemn("killed", judge=judge) == ["killed"]
    assert condemn() == ["killed"]
    quiet = int(call("HGET", keys.watch, "quiet")) / 1000
    assert now() + LEASE - 10 < quiet <= now() + LEASE


@pytest.mark.parametrize(("leader", "left"), [("killed", None), ("fresh", b"fresh")])
def test_a_dead_leader_makes_way_and_a_live_one_stays(condemn, watched, pools, call, keys, leader, left):
    watched()
    pools(killed=10, fresh=10)
    call("SET", keys.leader, leader, "PX", 60_000)
    condemn("killed", judge=False)
    assert call("GET", keys.leader) == left

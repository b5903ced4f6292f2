from __future__ import annotations

import pytest

from dayjob.store.ops import maintain, membership, operate


@pytest.fixture
def beat(keys, link):
    return lambda pool_id="p1", *, lease=15.0, term=0.0: link.run(
        membership.beat(keys, pool_id, lease=lease, term=term)
    )


def test_a_beat_renews_the_lease(beat, pool, call, keys, now):
    call("ZADD", keys.pools, 1, "p1")
    before = now()
    answer = beat()
    assert answer.alive
    assert before + 14.999 <= float(call("ZSCORE", keys.pools, "p1")) / 1000 <= now() + 15
    assert before - 0.001 <= answer.now <= now()


def test_a_lease_from_before_the_clock_was_set_back_does_not_outlive_its_pool(beat, pool, call, keys, now):
    """Else a machine that is lost after the step is not missed until the clock has caught up."""
    call("ZADD", keys.pools, int((now() + 3600) * 1000), "p1")
    beat()
    assert float(call("ZSCORE", keys.pools, "p1")) / 1000 <= now() + 15


def test_an_id_that_is_not_registered_is_not_brought_to_life(beat, call, keys):
    assert not beat("nobody").alive
    assert call("EXISTS", keys.pools) == 0


def test_a_condemned_pool_gets_no_lease_again(beat, pool, link, keys, call):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert not beat(term=60.0).alive
    assert call("ZSCORE", keys.pools, "p1") is None


def test_leadership_is_taken_only_when_asked_for_and_free(beat, pool, new_pool, call, keys):
    new_pool(pool_id="p2")
    call("DEL", keys.leader)
    assert not beat().leads
    assert beat(term=60.0).leads
    assert not beat("p2", term=60.0).leads
    assert call("GET", keys.leader) == b"p1"


def test_whoever_leads_already_is_told_so(beat, pool):
    assert beat(term=60.0).leads


def test_it_brings_the_tokens_that_are_to_be_cancelled(beat, pool, put, call, keys):
    put("a", "1", "2")
    pool.fetch("a")
    call("HSET", keys.state("p1"), "cancel:2:a", "1", "suspect", "1:a")
    assert beat().cancel == ("2:a",)
    assert beat().cancel == ("2:a",)


def test_a_wish_to_cancel_is_forgotten_with_its_attempt(beat, pool, put, call, keys):
    """Else the state of a pool that lives for months would grow with every cancel."""
    put("a", "1", "2")
    pool.fetch("a")
    call("HSET", keys.state("p1"), "cancel:1:a", "1", "cancel:2:a", "1")
    pool.exchange(done={"a": ["1:a"]})
    assert beat().cancel == ("2:a",)
    assert set(call("HKEYS", keys.state("p1"))) == {b"last", b"cancel:2:a"}


def test_a_kill_comes_with_the_tokens_to_cancel_and_no_later_cancel_weakens_it(beat, pool, put, link, keys):
    put("a", "1", "2")
    pool.fetch("a")
    assert link.run(operate.cancel(keys, "p1", "1:a"))
    assert link.run(operate.cancel(keys, "p1", "1:a", kill=True))
    assert link.run(operate.cancel(keys, "p1", "1:a"))
    assert link.run(operate.cancel(keys, "p1", "2:a"))
    answer = beat()
    assert sorted(answer.cancel) == ["1:a", "2:a"]
    assert answer.kill == ("1:a",)

from __future__ import annotations

from dayjob.store.ops import maintain, membership, operate


def test_stacks_are_kept_for_a_minute_and_the_request_goes_with_them(pool, link, keys, call):
    assert link.run(operate.ask_pool(keys, "p1", "stacks")) == "new"
    assert link.run(membership.beat(keys, "p1", lease=15.0)).requests == ("stacks",)
    assert link.run(membership.stacks(keys, "p1", b'{"x":1}'))
    assert call("LRANGE", keys.stacks("p1"), 0, -1) == [b'{"x":1}']
    assert 50 <= call("TTL", keys.stacks("p1")) <= 60
    assert link.run(membership.beat(keys, "p1", lease=15.0)).requests == ()


def test_the_newest_stacks_take_the_place_of_the_others(pool, link, keys, call):
    link.run(membership.stacks(keys, "p1", b"1"))
    link.run(membership.stacks(keys, "p1", b"2"))
    assert call("LRANGE", keys.stacks("p1"), 0, -1) == [b"2"]


def test_a_new_request_drops_the_answer_to_an_old_one(pool, link, keys, call):
    link.run(membership.stacks(keys, "p1", b"1"))
    assert link.run(operate.ask_pool(keys, "p1", "stacks")) == "new"
    assert call("EXISTS", keys.stacks("p1")) == 0


def test_the_stacks_of_a_pool_that_is_gone_are_not_written(pool, link, keys, call):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert not link.run(membership.stacks(keys, "p1", b"{}"))
    assert call("EXISTS", keys.stacks("p1")) == 0

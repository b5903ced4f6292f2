"""enqueue_by_key: jobs go to the partitions of their keys, in order, and nowhere else."""

from __future__ import annotations

from keyed import enqueue_by_key, fill_keys, key_name
from pools import fill


def test_jobs_go_to_the_partitions_of_their_keys(keys, link, call):
    key_name(keys, link, "a")
    fill_keys(keys, link, "a", ("x", "1"), ("y", "2"), ("x", "3"))
    assert call("LRANGE", keys.partition("a", "x"), 0, -1) == [b"3", b"1"]
    assert call("LRANGE", keys.partition("a", "y"), 0, -1) == [b"2"]
    assert call("LLEN", keys.queue("a")) == 0
    assert set(call("ZRANGE", keys.turns("a"), 0, -1)) == {b"x", b"y"}
    assert call("EXISTS", keys.bell("a")) == 1


def test_they_wait_behind_older_jobs_that_are_not_sorted_yet(keys, link, call):
    key_name(keys, link, "a")
    fill(keys, link, "a", "0")
    fill_keys(keys, link, "a", ("x", "1"))
    assert call("LRANGE", keys.queue("a"), 0, -1) == [b"1", b"0"]


def test_a_key_that_redis_does_not_have_for_the_name_is_not_used(keys, link, call):
    key_name(keys, link, "a")
    link.run(enqueue_by_key(keys, "a", ("x", "1"), by=("other",)))
    link.run(enqueue_by_key(keys, "b", ("x", "1")))
    assert call("LLEN", keys.queue("a")) == call("LLEN", keys.queue("b")) == 1
    assert call("EXISTS", keys.turns("a"), keys.turns("b")) == 0


def test_a_resend_stores_nothing(keys, link, call):
    key_name(keys, link, "a")
    op = enqueue_by_key(keys, "a", ("x", "1"))
    assert link.run(op).new
    assert not link.run(op).new
    assert call("LLEN", keys.partition("a", "x")) == 1

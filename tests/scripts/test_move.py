from __future__ import annotations

import pytest

from dayjob.store.ops import maintain
from dayjob.store.ops.move import JobMove, move
from monitor import monitor


@pytest.fixture
def trim(keys, link):
    return lambda *members: link.run(maintain.trim(keys, keys.dead, "trimmed:dead", members))


@pytest.fixture
def bury(call, keys):
    return lambda *members: [call("ZADD", keys.dead, i, member) for i, member in enumerate(members)]


def test_members_are_dropped_and_counted_and_the_others_stay(trim, bury, look, totals):
    bury("x", "y", "z")
    assert trim((b"x", "", ""), (b"y", "", "")) == 2
    assert list(look().dead) == [b"z"]
    assert totals() == {"trimmed:dead": 2}


def test_what_is_gone_already_is_not_counted(trim, bury, totals):
    bury("x")
    assert trim((b"x", "", ""), (b"x", "", ""), (b"y", "", "")) == 1
    assert totals() == {"trimmed:dead": 1}
    assert trim((b"x", "", "")) == 0


@pytest.mark.parametrize(("value", "left"), [("id1", {}), ("id2", {"u": b"id2"})])
def test_a_unique_key_goes_with_its_owner_only(trim, bury, call, keys, look, value, left):
    key = keys.unique("a", "u")
    bury("x")
    call("SET", key, value)
    trim((b"x", key, "id1"))
    assert look().unique == {keys.unique("a", rest): content for rest, content in left.items()}


def test_the_key_of_a_member_that_somebody_else_took_out_is_left_alone(trim, call, keys, look):
    key = keys.unique("a", "u")
    call("SET", key, "id1")
    trim((b"x", key, "id1"))
    assert look().unique == {key: b"id1"}


def test_each_member_finds_its_own_key(trim, bury, call, keys, look):
    bury("x", "y", "z")
    for rest in "uvw":
        call("SET", keys.unique("a", rest), f"id-{rest}")
    trim((b"x", keys.unique("a", "u"), "id-u"), (b"y", "", ""), (b"z", keys.unique("a", "w"), "id-w"))
    assert look().unique == {keys.unique("a", "v"): b"id-v"}


def test_a_unique_key_of_a_wrong_type_does_not_stop_the_others(trim, bury, call, keys, look):
    key = keys.unique("a", "u")
    bury("x", "y")
    call("LPUSH", key, "id1")
    assert trim((b"x", key, "id1"), (b"y", "", "")) == 2
    assert look().dead == {}
    assert call("LRANGE", key, 0, -1) == [b"id1"]


def test_jobs_of_a_queue_are_found_behind_jobs_that_were_given_back(put, look, keys, link, call):
    put("a", "1", "2", "3")
    call("RPUSH", keys.queue("a"), "given back")
    moves = [JobMove(b"1"), JobMove(b"2")]
    assert link.run(move(keys, keys.queue("a"), moves, total="deleted:a", source_is="queue")).count == 2
    assert call("LRANGE", keys.queue("a"), 0, -1) == [b"3", b"given back"]


def test_a_search_for_jobs_that_are_gone_reads_a_bounded_number_of_bytes(put, keys, link, server, call):
    call("RPUSH", keys.queue("a"), *[b"x" * 100_000] * 60)
    moves = [JobMove(b"gone %d" % i) for i in range(100)]
    with monitor(server.port, link) as heard:
        assert link.run(move(keys, keys.queue("a"), moves, total="deleted:a", source_is="queue")).count == 0
    assert len([words for words in heard.by_scripts if words[0] == b"LRANGE"]) <= 2

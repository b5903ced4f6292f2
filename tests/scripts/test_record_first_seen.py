from __future__ import annotations

import pytest

from dayjob.store.ops import maintain


@pytest.fixture
def record(keys, link):
    return lambda *states: link.run(maintain.record_first_seen(keys, states))


@pytest.fixture
def seen(keys, link):
    return lambda: link.run(maintain.first_seen(keys))


def test_a_state_keeps_its_first_moment_and_is_forgotten_when_it_is_over(record, seen, call, keys):
    assert record("q:a", "memory_only") == 2
    assert set(seen()) == {"q:a", "memory_only"}
    call("HSET", keys.first_seen, "q:a", 7)
    assert record("q:a", "memory_only") == 0
    assert seen()["q:a"] == 7
    assert record("memory_only") == 1
    assert set(seen()) == {"memory_only"}
    assert record() == 1
    assert call("EXISTS", keys.first_seen) == 0


def test_sets_of_a_wrong_type_are_found_and_those_of_the_right_type_are_not(record, seen, call, keys):
    for key in (keys.scheduled, keys.retry, keys.dead, keys.done):
        call("ZADD", key, 1, "x")
    call("RPUSH", keys.broken, "x")
    assert record() == 0
    call("SET", keys.dead, "x")
    call("SET", keys.broken, "x")
    assert record() == 2
    assert set(seen()) == {keys.dead, keys.broken}


def test_a_server_that_deletes_keys_is_found(record, seen, call):
    assert record() == 0
    call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        assert record() == 1
    finally:
        call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert set(seen()) == {"eviction"}
    assert record() == 1
    assert seen() == {}

from __future__ import annotations

import pytest

from dayjob.limits import Rate
from dayjob.store.ops import maintain
from keyed import key_name


@pytest.fixture
def ring(keys, link):
    return lambda *names: link.run(maintain.ring(keys, names))


@pytest.fixture
def rung(call, keys):
    """The names among a, b and c whose bell rings."""
    return lambda: "".join(name for name in "abc" if call("ZRANGE", keys.bell(name), 0, -1) == [b"1"])


def push(call, keys, *names):
    """As a producer does that knows nothing of bells."""
    for name in names:
        call("LPUSH", keys.queue(name), "x")


def test_every_queue_that_has_something_is_rung_and_no_other(ring, rung, call, keys):
    push(call, keys, "a", "c")
    assert ring("a", "b", "c") == 2
    assert rung() == "ac"


def test_a_paused_queue_is_not_rung(ring, rung, call, keys):
    push(call, keys, "a", "b")
    call("SET", keys.paused("a"), "")
    assert ring("a", "b") == 1
    assert rung() == "b"


@pytest.mark.parametrize(
    ("limit", "running", "rings"), [(2, 1, "a"), (2, 2, ""), (2, 3, ""), (0, 0, ""), ("x", 0, "")]
)
def test_a_queue_at_its_limit_is_not_rung(ring, rung, call, keys, limit, running, rings):
    push(call, keys, "a")
    call("HSET", keys.limits, "a", limit)
    for i in range(running):
        call("SADD", keys.held_of("a"), f"p/{i}:a")
    ring("a")
    assert rung() == rings


def test_a_bell_that_rings_already_has_one_member_still(ring, rung, call, keys):
    push(call, keys, "a")
    ring("a")
    ring("a")
    assert rung() == "a"


def test_a_bell_of_a_wrong_type_is_mended(ring, rung, call, keys):
    push(call, keys, "a")
    call("SET", keys.bell("a"), "x")
    ring("a")
    assert rung() == "a"


def test_keys_of_a_wrong_type_do_not_stop_the_neighbours(ring, rung, call, keys):
    push(call, keys, "b", "c")
    call("SET", keys.queue("a"), "x")
    call("HSET", keys.limits, "b", 5)
    call("SET", keys.held_of("b"), "x")
    assert ring("a", "b", "c") == 1
    assert rung() == "c"


def test_a_name_whose_keys_all_wait_is_rung_when_the_first_may_start(ring, rung, call, keys, link, now):
    key_name(keys, link, "a", kinds={"r": Rate(1, per=60)})
    call("ZADD", keys.blocked("a"), int((now() + 60) * 1000), "x", "inf", "y")
    assert ring("a") == 0
    call("ZADD", keys.parked, now() + 60, "a")
    call("ZADD", keys.blocked("a"), int((now() - 1) * 1000), "z")
    assert ring("a") == 0, "the name is parked until later"
    call("ZADD", keys.parked, now() - 1, "a")
    assert ring("a") == 1
    assert rung() == "a"


def test_no_names_ring_nothing(ring):
    assert ring() == 0

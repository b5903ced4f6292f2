"""What a rate limit counts is restored from the attempts that pools hold, if its key was deleted."""

from __future__ import annotations

import pytest

from dayjob.limits import Rate, Window
from dayjob.store.ops import inspect, rates
from dayjob.store.ops.rates import HeldStart
from rates import RatedPool, RateState, limit_name

HOUR = 3600
KINDS = {"r": Rate(4, per=HOUR), "w": Window(4, per=HOUR)}


@pytest.fixture
def pools(keys, link, put):
    """Two pools that share a rate and a window, with more jobs than may start."""
    rule = limit_name(keys, link, "a", KINDS)
    put("a", *(str(n) for n in range(20)))
    return [RatedPool(keys, link, {"a": rule}) for _ in range(2)]


@pytest.fixture
def restore(keys, link):
    """Let a pool restore its starts, given with their age in seconds: restore(pool, {"1:a": 5}, epochs={})."""

    def made(pool, ages, epochs=None):
        now = link.run(inspect.now())
        starts = [HeldStart(token, now - age, 1) for token, age in ages.items()]
        epochs = epochs or {}
        asked = {
            limit: (rates.kind_of(kind.definition()), epochs.get(limit, ""), starts)
            for limit, kind in KINDS.items()
        }
        return link.run(rates.restore_starts(keys, pool.id, asked))

    return made


@pytest.fixture
def used(keys, link):
    def made() -> list[int]:
        states = link.run(rates.limit_states(keys, {"r": "rate", "w": "window"}, cost=1))
        return [states["r"].used, states["w"].used]

    return made


def test_a_limit_whose_key_was_deleted_counts_what_all_pools_hold(pools, restore, used, call, keys):
    first, second = pools
    ages = dict.fromkeys(first.start("a", room=2), 1.0)
    (other,) = second.start("a", room=1)
    assert used() == [3, 3]
    call("DEL", keys.rate("r"), keys.window("w"))
    epochs = restore(first, ages)
    assert used() == [2, 2]
    restore(second, {other: 1.0})
    assert used() == [3, 3]
    assert restore(first, ages, epochs) == epochs, "each pool restores its starts once"
    assert used() == [3, 3]
    assert len(first.start("a")) == 1


def test_a_limit_that_is_whole_is_left_alone(pools, restore, used, call, keys):
    (token,) = pools[0].start("a", room=1)
    before = call("GET", keys.rate("r")), call("ZRANGE", keys.window("w"), 0, -1, "WITHSCORES")
    assert restore(pools[0], {token: 1.0}) == {"r": "", "w": ""}
    assert (call("GET", keys.rate("r")), call("ZRANGE", keys.window("w"), 0, -1, "WITHSCORES")) == before


def test_a_state_that_expired_is_not_restored(pools, restore, call, keys):
    """The attempt runs for longer than its limit counts it."""
    restore(pools[0], {"1:a": 2.0 * HOUR})
    assert call("EXISTS", keys.rate("r"), keys.window("w")) == 0


def test_a_start_counts_from_its_own_time(pools, restore, call, keys, now):
    restore(pools[0], {"1:a": 600.0})
    full_at = RateState.of(call("GET", keys.rate("r"))).full_at / 1e6
    assert full_at - now() == pytest.approx(HOUR / 4 - 600, abs=5)


def test_what_an_operator_reset_stays_reset(pools, restore, used, link, keys):
    ages = dict.fromkeys(pools[0].start("a", room=2), 1.0)
    assert link.run(rates.reset(keys, "r", ["a"]))
    assert link.run(rates.reset(keys, "w", ["a"]))
    restore(pools[0], ages)
    assert used() == [0, 0]


@pytest.mark.parametrize("limit", ["r", "w"])
def test_a_key_of_a_wrong_type_is_left_alone_and_the_other_limit_is_restored(
    pools, restore, used, call, keys, limit
):
    call("LPUSH", keys.rate("r") if limit == "r" else keys.window("w"), "wrong")
    restore(pools[0], {"1:a": 1.0})
    assert call("TYPE", keys.rate("r") if limit == "r" else keys.window("w")) == b"list"
    assert call("EXISTS", keys.rate("r"), keys.window("w")) == 2

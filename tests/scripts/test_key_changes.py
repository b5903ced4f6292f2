"""Changes of limits by key: what is held counts at once, and keys that waited under the old limit are tried again."""

from __future__ import annotations

from collections import Counter

import pytest

from dayjob.limits import KeyRule, Limit, Rate, Window
from dayjob.outcome import GivenBack
from dayjob.store.link import walk
from dayjob.store.ops import key_changes, rates
from dayjob.store.ops.consume import Entry, KeyedName
from dayjob.store.ops.partitions import KeyChange
from dayjob.store.ops.rates import RateRule, Spent
from dayjob.worker.chores.keys import KeyRepairer
from keyed import BY, KeyedPool, fill_keys, key_name


@pytest.fixture
def keyed(keys, link):
    """Make a pool whose name `a` has keys."""

    def make(**rule):
        return KeyedPool(keys, link, key_name(keys, link, "a", **rule))

    return make


def held_of(call, keys, key="x"):
    return {one.decode() for one in call("SMEMBERS", keys.held_of(f"a|{key}"))}


def deploy(pool, keys, link, places):
    """Change how many jobs of a key may run at once, and let the pool know."""
    rule = RateRule(1, (), KeyRule(BY, places))
    walk(link, key_changes.put_rule(keys, "a", rule))
    pool.rules["a"] = rule


def test_a_limit_that_code_adds_counts_what_is_held_already(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(5)))
    tokens = pool.tokens(room=3)
    deploy(pool, keys, link, 2)
    assert held_of(call, keys) == {f"{pool.id}/{token}" for token in tokens}
    assert pool.take() == []


def test_a_limit_that_an_operator_sets_for_a_key_counts_what_is_held_already(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(5)))
    tokens = pool.tokens(room=3)
    walk(link, key_changes.change_key(keys, "a", "x", KeyChange(limit=2)))
    assert held_of(call, keys) == {f"{pool.id}/{token}" for token in tokens}
    assert pool.take() == []
    walk(link, key_changes.change_key(keys, "a", "x", KeyChange(clear=["limit"])))
    assert held_of(call, keys) == set()


def test_counts_do_not_outlive_their_limit(keyed, keys, link, call):
    pool = keyed(places=2)
    fill_keys(keys, link, "a", ("x", "1"))
    pool.tokens()
    deploy(pool, keys, link, 0)
    assert not call("EXISTS", keys.held_of("a|x"))


def test_a_pool_that_knows_an_older_rule_frees_the_place_of_what_ended(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", ("x", "1"))
    (token,) = pool.tokens()
    walk(link, key_changes.put_rule(keys, "a", RateRule(1, (), KeyRule(BY, 2))))
    assert held_of(call, keys)
    pool.exchange(done={"a": [token]})
    assert held_of(call, keys) == set()


def test_the_units_used_stay_the_same_when_the_rate_of_a_key_becomes_slower(keyed, keys, link):
    pool = keyed(kinds={"r": Rate(10, per=3600, burst=10)})
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(40)))
    assert len(pool.take()) == 10
    link.run(rates.set_limit(keys, "r", Rate(10, per=86_400, burst=10), ["a"]))
    walk(link, key_changes.try_blocked(keys, "a"))
    assert len(pool.take() + pool.take()) <= 2


def test_keys_that_waited_under_a_limit_start_when_it_is_lifted(keyed, keys, link):
    pool = keyed(kinds={"r": Rate(1, per=86_400)})
    fill_keys(keys, link, "a", *((key, f"{key}{n}") for n in range(3) for key in "xy"))
    assert len(pool.take()) == 2
    assert pool.take() == []
    link.run(rates.lift(keys, "r", ["a"]))
    walk(link, key_changes.try_blocked(keys, "a"))
    assert Counter(key for key, _ in pool.take() + pool.take()) == {"x": 2, "y": 2}


@pytest.mark.parametrize("kind", [Rate(2, per=86_400), Window(2, per=86_400)])
def test_a_reset_of_a_limit_forgets_what_every_key_used(kind, keyed, keys, link):
    pool = keyed(kinds={"r": kind})
    fill_keys(keys, link, "a", *((key, f"{key}{n}") for n in range(9) for key in "xy"))
    assert len(pool.take()) == 4
    link.run(rates.reset(keys, "r", ["a"]))
    walk(link, key_changes.try_blocked(keys, "a", ends_hold_of="r"))
    # The reset is no licence: each key has its two starts again, and no more.
    assert Counter(key for key, _ in pool.take() + pool.take() + pool.take()) == {"x": 2, "y": 2}


@pytest.mark.parametrize("kind", [Rate(2, per=86_400), Window(2, per=86_400)])
def test_a_reset_from_before_the_clock_was_set_back_hides_no_starts(kind, keyed, keys, link, call):
    pool = keyed(kinds={"r": kind})
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(9)))
    seconds, _ = call("TIME")
    call("HSET", keys.limits, "limit:r|reset", (int(seconds) + 3600) * 1_000_000)
    assert len(pool.take()) == 2
    walk(link, key_changes.try_blocked(keys, "a"))
    assert pool.take() + pool.take() == []


def test_a_pool_that_knows_another_kind_of_limit_reads_the_rules_again(keyed, keys, link, call):
    pool = keyed(kinds={"r": Window(2, per=60)})
    fill_keys(keys, link, "a", ("x", "1"))
    pool.kind_of["r"] = "rate"
    pool.take()
    assert pool.reply.unknown == ["a"]
    assert call("ZSCORE", keys.blocked("a"), "x") is None


def test_what_one_name_gives_back_of_a_key_wakes_the_same_key_of_another(keys, link, call):
    link.run(rates.declare(keys, Limit("r", Rate(1, per=86_400))))
    rule = RateRule(1, ("r",), KeyRule(BY), frozenset({"r"}))
    pools = {}
    for name in ("a", "b"):
        link.run(rates.change_rule(keys, name, rule))
        fill_keys(keys, link, name, ("x", name))
        pools[name] = KeyedPool(keys, link, rule, name)
    (token,) = pools["a"].tokens()
    assert pools["b"].take() == []
    assert call("ZSCORE", keys.blocked("b"), "x") is not None
    first = pools["a"]
    spent = Spent(-1, {"r|x": first.reply.marks["r|x"]}, undone=True)
    first.rules["b"] = rule
    first.keyed = {"a": KeyedName(["x"]), "b": KeyedName([], ["x"])}
    first.kinds = {"r": "keyed", "r|x": "rate"}
    entries = [Entry("a", token, GivenBack(), spent=spent)]
    super(KeyedPool, first).note(link.run(super(KeyedPool, first).prepare("b", entries=entries)))
    assert call("ZSCORE", keys.blocked("b"), "x") is None
    assert call("ZSCORE", keys.turns("b"), "x") is not None


def test_a_lost_count_of_a_key_that_an_operator_limited_is_counted_again(keyed, keys, link, call):
    pool = keyed()
    walk(link, key_changes.change_key(keys, "a", "x", KeyChange(limit=2)))
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(5)))
    tokens = pool.tokens()
    assert len(tokens) == 2
    call("DEL", keys.held_of("a|x"))
    KeyRepairer(keys, link).repair(["a"])
    assert held_of(call, keys) == {f"{pool.id}/{token}" for token in tokens}

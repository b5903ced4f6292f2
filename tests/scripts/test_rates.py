"""Rate limits in the scripts: nothing starts over a limit, what waits stays in its place and is woken in time."""

from __future__ import annotations

import pytest

from dayjob.limits import Rate, Window
from dayjob.outcome import Done, GivenBack, HeldBack
from dayjob.store.link import walk
from dayjob.store.ops import maintain, operate, rates
from dayjob.store.ops.consume import Entry, Want
from dayjob.store.ops.rates import RateRule, Spent
from pools import jobs_of, set_limit
from rates import RatedPool, RateState, limit_name

HOUR = 3600


@pytest.fixture
def rated(keys, link):
    """A pool whose job names have limits: rated("a", {"r": Rate(1)}, cost=2)."""

    def made(name: str, kinds, cost: int = 1) -> RatedPool:
        return RatedPool(keys, link, {name: limit_name(keys, link, name, kinds, cost)})

    return made


def ids(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def test_a_rate_lets_its_burst_start_and_the_rest_stays_in_its_place(rated, put, look, call, keys):
    pool = rated("a", {"r": Rate(10, per=HOUR, burst=3)})
    put("a", *ids(5))
    assert len(pool.start("a")) == 3
    assert pool.start("a") == []
    assert look().queues["a"] == [b"3", b"4"]
    assert call("EXISTS", keys.bell("a")) == 0


def test_a_window_counts_starts_whatever_they_cost(rated, put):
    pool = rated("a", {"w": Window(2, per=HOUR)}, cost=50)
    put("a", *ids(5))
    assert len(pool.start("a")) == 2
    assert pool.start("a") == []


def test_a_window_counts_a_start_for_its_whole_time_and_no_longer(rated, put, call, keys, now):
    pool = rated("a", {"w": Window(3, per=HOUR)})
    put("a", *ids(9))
    for age, member in ((HOUR + 5, "old/1:a"), (HOUR - 60, "young/1:a"), (HOUR / 2, "young/2:a")):
        call("ZADD", keys.window("w"), int((now() - age) * 1e6), member)
    assert len(pool.start("a")) == 1, "two of the three starts are in the last hour"
    assert call("ZSCORE", keys.window("w"), "young/1:a"), "what counts is not forgotten"
    assert call("ZSCORE", keys.window("w"), "old/1:a") is None
    assert pool.start("a") == []
    assert 30 < float(call("ZSCORE", keys.parked, "a")) - now() <= 61


def test_a_job_starts_only_if_all_its_limits_allow_it(rated, put):
    pool = rated("a", {"r": Rate(10, per=HOUR), "w": Window(4, per=HOUR), "x": Rate(6, per=HOUR)}, cost=2)
    put("a", *ids(9))
    assert len(pool.start("a")) == 3


def test_a_name_that_waits_is_parked_until_its_next_job_fits(rated, put, call, keys, now, link):
    pool = rated("a", {"r": Rate(2, per=100, burst=1)})
    put("a", *ids(3))
    call("DEL", keys.due)
    pool.start("a")
    score = float(call("ZSCORE", keys.parked, "a"))
    assert 25 < score - now() <= 50.1
    assert call("EXISTS", keys.due) == 1
    # The leader's round leaves it alone, and rings it when its time has come.
    assert link.run(maintain.ring(keys, ["a"])) == 0
    call("ZADD", keys.parked, 1, "a")
    assert link.run(maintain.ring(keys, ["a"])) == 1
    assert call("ZSCORE", keys.parked, "a") is None


def test_a_fast_limit_is_woken_at_most_twenty_times_a_second(rated, put, call, keys, now):
    pool = rated("a", {"r": Rate(1000, per=1, burst=100)})
    put("a", *ids(500))
    before = now()
    pool.start("a")
    assert float(call("ZSCORE", keys.parked, "a")) - before > 0.03


def test_names_that_share_a_limit_are_dealt_from_it_together(keys, link, put):
    kind = {"r": Rate(10, per=HOUR)}
    rules = {name: limit_name(keys, link, name, kind) for name in ("a", "b")}
    pool = RatedPool(keys, link, rules)
    put("a", *ids(50))
    put("b", *ids(50))
    fetched = [name for _, name, _ in jobs_of(pool.exchange("a", "b", room=30))]
    assert len(fetched) == 10
    assert {"a", "b"} == set(fetched)


def test_the_other_names_of_a_request_do_not_suffer(keys, link, put):
    pool = RatedPool(keys, link, {"a": limit_name(keys, link, "a", {"r": Rate(1, per=HOUR)})})
    put("a", *ids(50))
    put("plain", *ids(50))
    fetched = [name for _, name, _ in jobs_of(pool.exchange("a", "plain", room=20))]
    assert sorted(fetched) == ["a", *["plain"] * 19]
    # A name that waits for its limit does not keep the fast names from being prefetched.
    reply = pool.exchange("a", Want("plain", 1, fetch=True, fast=True), room=0, extra=5)
    assert len(jobs_of(reply)) == 5


def test_a_resend_charges_nothing(rated, put):
    pool = rated("a", {"r": Rate(3, per=HOUR), "w": Window(4, per=HOUR)})
    put("a", *ids(9))
    pool.exchange("a", room=1)
    for _ in range(3):
        assert pool.resend().status == "again"
    assert len(pool.start("a")) == 2


def test_a_pool_that_does_not_know_the_limits_of_a_name_fetches_nothing_of_it(
    rated, put, new_pool, link, keys
):
    pool = rated("a", {"r": Rate(3, per=HOUR)})
    put("a", *ids(9))
    put("plain", "1")
    stranger = new_pool()
    reply = stranger.exchange("a", "plain", room=9)
    assert [name for _, name, _ in jobs_of(reply)] == ["plain"]
    assert reply.unknown == ["a"]
    stranger.rules, stranger.kinds = {"a": RateRule(2, ("r",))}, {"r": "rate"}
    assert stranger.exchange("a", room=9).unknown == ["a"], "it takes the cost to be another"
    stranger.rules, stranger.kinds = pool.rules, {"r": "window"}
    assert stranger.exchange("a", room=9).unknown == ["a"], "it takes the kind to be another"
    stranger.kinds = pool.kinds
    assert len(stranger.fetch("a")) == 3
    link.run(rates.change_rule(keys, "a", None))
    assert len(stranger.fetch("a")) == 6, "limits that a pool still passes, but the name lost, do not count"


def test_what_never_started_is_refunded(rated, put):
    pool = rated("a", {"r": Rate(4, per=HOUR), "w": Window(4, per=HOUR)})
    put("a", *ids(9))
    tokens = pool.start("a")
    for token in reversed(tokens[1:]):
        pool.undo("a", token)
    assert len(pool.start("a")) == 3


def test_a_window_forgets_what_never_started(rated, put, call, keys):
    pool = rated("a", {"w": Window(2, per=HOUR)})
    put("a", *ids(5))
    first, _ = pool.start("a")
    pool.undo("a", first)
    assert call("ZCARD", keys.window("w")) == 1
    assert len(pool.start("a")) == 1
    assert pool.start("a") == []


def test_a_refund_never_makes_a_bucket_fuller_than_without_the_attempt(rated, put, call, keys):
    """One a minute: A starts, a minute later B starts. A is given back: C must still wait a minute after B."""
    pool = rated("a", {"r": Rate(1, per=60, burst=1)})
    put("a", *ids(9))
    first = pool.start("a")
    # A minute passes.
    state = RateState.of(call("GET", keys.rate("r")))
    earlier = state._replace(full_at=state.full_at - 60_000_001, last=state.last - 60_000_001)
    call("SET", keys.rate("r"), earlier.text)
    second = pool.start("a")
    assert (len(first), len(second)) == (1, 1)
    before = RateState.of(call("GET", keys.rate("r"))).full_at
    pool.undo("a", first[0])
    assert RateState.of(call("GET", keys.rate("r"))).full_at == before
    assert pool.start("a") == []


def test_only_a_held_attempt_is_refunded_and_only_once(rated, put):
    pool = rated("a", {"r": Rate(2, per=HOUR), "w": Window(2, per=HOUR)})
    put("a", *ids(9))
    first, _ = pool.start("a")
    pool.undo("a", first)
    pool.undo("a", first)
    assert len(pool.start("a")) == 1


def test_what_a_job_really_spent_replaces_its_cost(rated, put):
    pool = rated("a", {"r": Rate(100, per=HOUR)}, cost=40)
    put("a", *ids(9))
    first, second = pool.start("a")
    spent = Spent(10 - 40, pool.charges[first].marks)
    pool.settle(Entry("a", first, Done(), spent=spent))
    (third,) = pool.start("a")
    pool.settle(Entry("a", third, Done(), spent=Spent(500, pool.charges[third].marks)))
    pool.settle(Entry("a", second, Done(), spent=Spent(-40, pool.charges[second].marks)))
    assert pool.start("a") == [], "the bucket is in debt"


def test_throttled_holds_the_limit_for_every_name_that_has_it(keys, link, put, look, call, totals, now):
    kind = {"r": Rate(100, per=1)}
    rules = {name: limit_name(keys, link, name, kind) for name in ("a", "b")}
    pool = RatedPool(keys, link, rules)
    put("a", "1", "2")
    put("b", "1")
    (token,) = pool.start("a", room=1)
    pool.settle(Entry("a", token, HeldBack(("r",), 30.0)))
    assert look().queues["a"] == [b"1", b"2"]
    assert pool.start("a") == pool.start("b") == []
    assert 10 < float(call("ZSCORE", keys.parked, "b")) - now() <= 30.1
    assert totals()["held_back:a"] == 1
    assert link.run(rates.reset(keys, "r", ["a", "b"]))
    assert call("EXISTS", keys.bell("b")) == 1
    assert len(pool.start("a")) == 2


def test_an_operators_definition_stays_until_it_is_handed_back_to_the_code(rated, put, link, keys):
    pool = rated("a", {"r": Rate(2, per=HOUR)})
    put("a", *ids(99))
    assert link.run(rates.set_limit(keys, "r", Rate(5, per=HOUR), ["a"]))
    limit_name(keys, link, "a", {"r": Rate(2, per=HOUR)})
    assert len(pool.start("a")) == 5
    assert link.run(rates.lift(keys, "r", ["a"]))
    assert len(pool.start("a", room=20)) == 20
    assert link.run(rates.restore_declared(keys, "r", ["a"]))
    table = link.run(rates.rate_table(keys))
    assert (table.definitions["r"], table.by_operator) == (Rate(2, per=HOUR).definition(), set())
    assert not link.run(rates.lift(keys, "nothing", []))


def test_what_was_used_counts_after_a_change(rated, put, link, keys):
    pool = rated("a", {"r": Rate(10, per=HOUR)})
    put("a", *ids(99))
    assert len(pool.start("a", room=8)) == 8
    link.run(rates.set_limit(keys, "r", Rate(1000, per=HOUR, burst=10), ["a"]))
    assert len(pool.start("a")) == 2


def test_concurrency_and_rate_stand_beside_each_other(rated, put, link, keys, call):
    pool = rated("a", {"r": Rate(100, per=HOUR)})
    put("a", *ids(99))
    set_limit(keys, link, "a", 3)
    tokens = pool.start("a")
    assert len(tokens) == 3
    pool.settle(*(Entry("a", token, Done()) for token in tokens))
    assert len(pool.start("a")) == 3
    set_limit(keys, link, "a", None)
    assert len(pool.start("a")) == 93
    link.run(rates.change_rule(keys, "a", None))
    assert call("HEXISTS", keys.limits, "a") == 0
    assert call("EXISTS", keys.held_of("a")) == 0


def test_a_limit_that_is_set_back_to_a_number_counts_what_is_held(rated, put, link, keys):
    pool = rated("a", {"r": Rate(100, per=HOUR)})
    put("a", *ids(9))
    assert len(pool.start("a", room=2)) == 2
    set_limit(keys, link, "a", 3)
    assert len(pool.start("a")) == 1
    link.run(rates.change_rule(keys, "a", None))
    pool.rules = {}
    assert pool.fetch("a") == []


def test_keys_of_a_wrong_type_stop_their_own_name_only(rated, put, call, keys):
    pool = rated("a", {"r": Rate(100, per=HOUR), "w": Window(5, per=HOUR)})
    put("a", "1")
    put("plain", "1")
    call("HSET", keys.rate("r"), "x", "y")
    reply = pool.exchange("a", "plain", room=5)
    assert ([name for _, name, _ in jobs_of(reply)], reply.wrong) == (["plain"], ["a"])
    call("DEL", keys.rate("r"))
    call("SET", keys.window("w"), "x")
    assert pool.exchange("a", room=5).wrong == ["a"]
    call("DEL", keys.window("w"))
    call("SADD", keys.hold("r"), "x")
    assert pool.exchange("a", room=5).wrong == ["a"]
    call("DEL", keys.hold("r"))
    call("SET", keys.parked, "x")
    assert len(pool.start("a")) == 1


def test_state_of_a_limit_expires_once_it_counts_nothing(rated, put, call, keys):
    pool = rated("a", {"r": Rate(10, per=100), "w": Window(10, per=100)})
    put("a", *ids(3))
    pool.start("a")
    assert 60_000 < call("PTTL", keys.rate("r")) <= 90_100
    assert 100_000 < call("PTTL", keys.window("w")) <= 160_100


def test_a_cost_above_the_burst_of_an_operator_lets_nothing_start(rated, put, link, keys, call, now):
    pool = rated("a", {"r": Rate(10, per=1)}, cost=5)
    put("a", "1")
    link.run(rates.set_limit(keys, "r", Rate(10, per=1, burst=4), ["a"]))
    assert pool.start("a") == []
    assert float(call("ZSCORE", keys.parked, "a")) - now() > 30


def test_a_clock_that_was_set_back_does_not_keep_a_limit_closed(rated, put, call, keys, now):
    pool = rated("a", {"r": Rate(1, per=1), "w": Window(1, per=1)})
    put("a", *ids(3))
    ahead = int((now() + HOUR) * 1e6)
    call("SET", keys.rate("r"), RateState(ahead, ahead, 0, ahead + 500_000).text)
    call("ZADD", keys.window("w"), ahead, "p/1:a")
    pool.start("a")
    assert float(call("ZSCORE", keys.parked, "a")) - now() < 2


def test_a_handler_that_started_and_gave_back_stays_charged(rated, put):
    pool = rated("a", {"r": Rate(2, per=HOUR)})
    put("a", *ids(9))
    first, _ = pool.start("a")
    pool.settle(Entry("a", first, GivenBack()))
    assert pool.start("a") == []


def test_a_resumed_queue_of_a_parked_name_stays_parked(rated, put, link, keys, call):
    pool = rated("a", {"r": Rate(1, per=HOUR)})
    put("a", *ids(3))
    pool.start("a")
    call("SET", keys.paused("a"), "1")
    walk(link, operate.resume(keys, "a"))
    assert call("EXISTS", keys.bell("a")) == 0


def test_operators_can_change_a_limit_whose_keys_have_a_wrong_type(rated, put, link, keys, call):
    pool = rated("a", {"r": Rate(10, per=HOUR)})
    put("a", *ids(9))
    spoiled = (keys.rate("r"), keys.window("r"), keys.hold("r"), keys.parked, keys.bell("a"))
    for key in spoiled:
        call("DEL", key)
        call("RPUSH", key, "x")
    assert link.run(rates.set_limit(keys, "r", Rate(5, per=HOUR), ["a"]))
    assert link.run(rates.limit_states(keys, {"r": "rate"}, cost=1))["r"].wrong
    assert link.run(rates.hold(keys, "r", 5.0, ["a"]))
    assert link.run(rates.reset(keys, "r", ["a"]))
    assert call("TYPE", keys.bell("a")) == b"zset"
    assert link.run(maintain.ring(keys, ["a"])) == 1
    assert call("EXISTS", keys.parked) == 0
    assert len(pool.start("a")) == 5


def test_the_state_of_a_limit_says_what_is_used_and_when_the_next_job_starts(rated, put, link, keys):
    pool = rated("a", {"r": Rate(10, per=100, burst=4), "w": Window(9, per=HOUR)}, cost=2)
    put("a", *ids(9))
    kinds = {"r": "rate", "w": "window"}
    assert {one.wait for one in link.run(rates.limit_states(keys, kinds, cost=2)).values()} == {0.0}
    pool.start("a")
    found = link.run(rates.limit_states(keys, kinds, cost=2))
    assert (found["r"].used, found["w"].used, found["w"].wait) == (4, 2, 0.0)
    assert 5 < found["r"].wait <= 20.1
    link.run(rates.hold(keys, "w", 30.0, ["a"]))
    held = link.run(rates.limit_states(keys, kinds, cost=2))["w"]
    assert 10 < held.held_for <= held.wait <= 30.1

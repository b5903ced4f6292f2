"""What the scripts do with the keys of a name: fair turns, exact limits, and nothing lost."""

from __future__ import annotations

from collections import Counter

import pytest

from dayjob.limits import Rate, Window
from dayjob.outcome import Died, Done, GivenBack, HeldBack, Reaped
from dayjob.store.link import walk
from dayjob.store.op import plain
from dayjob.store.ops import consume, maintain, partitions
from dayjob.store.ops.consume import Entry, KeyedName
from dayjob.store.ops.key_changes import change_key
from keyed import BY, KeyedPool, fill_keys, key_name
from pools import Pool, fill, jobs_of, set_limit


@pytest.fixture
def keyed(keys, link):
    """Make a pool whose name `a` has keys."""

    def make(**rule):
        return KeyedPool(keys, link, key_name(keys, link, "a", **rule))

    return make


def waiting(call, keys, key):
    return [one.decode() for one in reversed(call("LRANGE", keys.partition("a", key), 0, -1))]


def test_keys_take_turns_and_each_keeps_its_order(keyed, keys, link):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", f"x{n}") for n in range(100)), ("y", "y0"), ("y", "y1"))
    taken = [payload for _ in range(6) for _, payload in pool.take(room=1)]
    assert sorted(taken) == ["x0", "x1", "x2", "x3", "y0", "y1"]
    assert [one for one in taken if one[0] == "x"] == ["x0", "x1", "x2", "x3"]
    assert taken.index("y1") <= 4


def test_a_lone_key_gets_everything(keyed, keys, link):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(100)))
    assert len(pool.take(room=70)) == 70


def test_a_key_gains_nothing_by_idling(keyed, keys, link):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(200)))
    assert len(pool.take(room=50)) == 50
    fill_keys(keys, link, "a", *(("y", str(n)) for n in range(200)))
    shares = Counter(key for _ in range(40) for key, _ in pool.take(room=2))
    assert abs(shares["x"] - shares["y"]) <= 2, "what x was given before y came does not count"


def test_a_key_that_went_empty_ahead_of_others_waits_for_them(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(4)), *(("y", str(n)) for n in range(40)))
    while call("EXISTS", keys.partition("a", "x")):
        pool.take(room=1)
    link.run(plain("ZADD", keys.debts("a"), 1000, "x"))
    fill_keys(keys, link, "a", ("x", "again"))
    assert {key for _ in range(10) for key, _ in pool.take(room=1)} == {"y"}


def test_keys_that_are_behind_are_forgotten_over_several_exchanges(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("x", "3"))
    call("ZADD", keys.debts("a"), *(word for n in range(1200) for word in ("-1", f"gone{n}")))
    pool.take(room=1)
    assert call("ZCARD", keys.debts("a")) == 200, "two exchanges removed 500 each"
    pool.take(room=1)
    assert call("ZCARD", keys.debts("a")) == 0


def test_weights_give_shares(keyed, keys, link):
    pool = keyed()
    for key, weight in (("x", 3), ("y", 2), ("z", 1)):
        link.run(partitions.set_key(keys, "a", key, partitions.KeyChange(weight=weight)))
        fill_keys(keys, link, "a", *((key, str(n)) for n in range(1000)))
    shares = Counter(key for _ in range(120) for key, _ in pool.take(room=10))
    assert sum(shares.values()) == 1200
    assert abs(shares["x"] - 600) <= 12
    assert abs(shares["y"] - 400) <= 12


def test_a_key_at_its_limit_waits_and_the_next_place_is_used(keyed, keys, link, call):
    pool = keyed(places=2)
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(4)), ("y", "y0"))
    tokens = pool.tokens()
    assert Counter(map(consume.key_in, tokens)) == {"x": 2, "y": 1}
    assert call("ZSCORE", keys.blocked("a"), "x") == b"inf"
    assert pool.tokens() == []
    assert call("EXISTS", keys.bell("a")) == 0
    first = next(one for one in tokens if consume.key_in(one) == "x")
    reply = pool.exchange("a", done={"a": [first]})
    assert (reply.live, reply.next_keys) == (["a"], {"a": ["x"]})
    assert [payload for _, payload in pool.take()] == ["2"]


def test_a_completion_whose_held_set_was_not_passed_is_sent_again(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", *(("x", str(n)) for n in range(4)))
    pool.counted = False
    first, second = pool.tokens(room=2)
    assert pool.reply.counted == set()
    walk(link, change_key(keys, "a", "x", partitions.KeyChange(limit=2)))
    for reply in (pool.exchange("a", done={"a": [first]}, room=5), pool.resend()):
        assert (reply.stuck, reply.counted, jobs_of(reply)) == ([first], {"a"}, [])
    assert call("SCARD", keys.held_of("a|x")) == 2
    pool.counted = True
    reply = pool.exchange("a", entries=[Entry("a", first, Done())], room=5)
    assert (reply.stuck, [payload for _, _, payload in jobs_of(reply)]) == ([], [b"2"])
    assert call("SCARD", keys.held_of("a|x")) == 2
    assert pool.exchange("a", done={"a": [second]}).stuck == []


def test_what_is_given_back_goes_to_the_head_of_its_key(keyed, keys, link, call):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    (token,) = pool.tokens()
    pool.settle(Entry("a", token, GivenBack()))
    assert waiting(call, keys, "x") == ["1", "2"]
    assert call("SCARD", keys.held_of("a|x")) == call("SCARD", keys.held_of("a")) == 0
    assert pool.take() == [("x", "1")]


def test_a_rescued_attempt_goes_to_the_head_of_its_key_and_frees_its_place(keyed, keys, link, call):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("x", "3"))
    (token,) = pool.tokens()
    assert call("ZSCORE", keys.blocked("a"), "x") == b"inf"
    link.run(maintain.condemn(keys, lease=15.0, proven=[pool.id], judge=False))
    assert link.run(maintain.sweep(keys, pool.id, [Entry("a", token, Reaped(), b"1")])).moved == 1
    assert waiting(call, keys, "x") == ["1", "2", "3"]
    assert (call("EXISTS", keys.held_of("a|x")), call("EXISTS", keys.bell("a"))) == (0, 1)
    other = KeyedPool(keys, link, pool.rules["a"])
    assert other.take() == [("x", "1")]


def test_a_sweep_that_ends_a_job_frees_its_place_too(keyed, keys, link, call):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    (token,) = pool.tokens()
    link.run(maintain.condemn(keys, lease=15.0, proven=[pool.id], judge=False))
    link.run(maintain.sweep(keys, pool.id, [Entry("a", token, Died(counts_failure=False), b"1d")]))
    assert KeyedPool(keys, link, pool.rules["a"]).take() == [("x", "2")]


def test_a_rate_counts_each_key_by_itself_and_wakes_for_the_first(keyed, keys, link, call, now):
    pool = keyed(kinds={"r": Rate(2, per=60)})
    fill_keys(keys, link, "a", *((key, f"{key}{n}") for n in range(3) for key in "xy"))
    assert Counter(key for key, _ in pool.take()) == {"x": 2, "y": 2}
    assert call("ZCARD", keys.turns("a")) == 0
    due = float(call("ZSCORE", keys.blocked("a"), "x")) / 1000
    assert 10 <= due - now() <= 30.1
    assert abs(float(call("ZSCORE", keys.parked, "a")) - due) < 1
    fill_keys(keys, link, "a", ("z", "z0"))
    assert pool.take() == [("z", "z0")], "a key that waits does not hold back another"


def test_a_paused_queue_is_woken_on_time_if_it_is_resumed_before_its_keys_may_start(keyed, keys, link, call):
    pool = keyed(kinds={"r": Rate(1, per=60)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    assert len(pool.take()) == 1
    at = call("ZSCORE", keys.parked, "a")
    call("SET", keys.paused("a"), "")
    assert pool.take() == []
    assert call("ZSCORE", keys.parked, "a") == at
    fill_keys(keys, link, "a", ("y", "1"))
    assert pool.take() == []
    assert call("ZSCORE", keys.parked, "a") is None, "a resumed queue must be rung for the other key"


def test_the_state_of_a_key_that_waits_for_a_rate_takes_few_bytes(keyed, keys, link, call):
    pool = keyed(kinds={"r": Rate(1, per=3600)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    assert len(pool.take()) == 1
    assert call("STRLEN", keys.rate("r|x")) <= 45, "a hundred thousand keys may wait"


def test_names_that_share_a_limit_of_a_key_stay_under_it_together(keys, link):
    rules = {name: key_name(keys, link, name, kinds={"r": Rate(1, per=86_400)}) for name in "ab"}
    for name in rules:
        fill_keys(keys, link, name, ("x", name))
    pool = Pool(keys, link, names=list(rules))
    pool.rules, pool.keyed = rules, {name: KeyedName(["x"]) for name in rules}
    pool.kinds = {"r": "keyed", "r|x": "rate"}
    assert len(jobs_of(pool.exchange("a", "b", room=10))) == 1


def test_a_window_by_key_counts_starts(keyed, keys, link, call):
    pool = keyed(kinds={"w": Window(1, per=60)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("y", "3"))
    assert sorted(pool.take()) == [("x", "1"), ("y", "3")]
    assert call("ZCARD", keys.window("w|x")) == 1


def test_an_override_of_one_key_counts_for_that_key_only(keyed, keys, link, call):
    pool = keyed(kinds={"r": Rate(1, per=60)})
    call("HSET", keys.overrides("r"), "x", "rate 3 60000000 3")
    fill_keys(keys, link, "a", *((key, f"{key}{n}") for n in range(5) for key in "xy"))
    assert Counter(key for key, _ in pool.take()) == {"x": 3, "y": 1}


def test_throttled_holds_only_its_key(keyed, keys, link, call):
    pool = keyed(kinds={"r": Rate(100, per=1)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("y", "3"))
    tokens = {consume.key_in(one): one for one in pool.tokens(room=2)}
    pool.next = ["x", "y"]
    pool.settle(Entry("a", tokens["x"], HeldBack(("r",), 30.0)))
    assert waiting(call, keys, "x") == ["1", "2"]
    assert call("PTTL", keys.hold("r|x")) > 10_000
    fill_keys(keys, link, "a", ("y", "4"))
    pool.next = ["x", "y"]
    assert pool.take() == [("y", "4")] or pool.take() == []
    assert call("ZSCORE", keys.blocked("a"), "x") is not None


def test_a_paused_key_waits_until_it_is_resumed(keyed, keys, link, call):
    pool = keyed()
    link.run(partitions.set_key(keys, "a", "x", partitions.KeyChange(paused=True)))
    fill_keys(keys, link, "a", ("x", "1"), ("y", "2"))
    assert pool.take() == [("y", "2")]
    assert call("ZSCORE", keys.blocked("a"), "x") == b"inf"
    link.run(partitions.set_key(keys, "a", "x", partitions.KeyChange(paused=False)))
    assert call("HEXISTS", keys.key_settings("a"), "x") == 0
    assert call("EXISTS", keys.bell("a")) == 1
    pool.next = []
    assert pool.take() == [("x", "1")]


def test_attempts_are_counted_from_the_moment_a_limit_of_the_whole_name_is_wanted(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", *((key, key) for key in "uvwxyz"))
    tokens = pool.tokens(room=3)
    assert call("EXISTS", keys.held_of("a")) == 0, "without a limit nothing is counted"
    set_limit(keys, link, "a", 4, by="operator")
    assert call("SCARD", keys.held_of("a")) == 3
    pool.next = list("uvwxyz")
    assert len(pool.tokens()) == 1
    assert call("EXISTS", keys.bell("a")) == 0
    pool.exchange("a", done={"a": tokens})
    assert len(pool.tokens()) == 2


def test_foreign_jobs_are_named_and_sorted_in_order(keyed, keys, link, call):
    pool = keyed()
    fill(keys, link, "a", "1", "2", "3")
    assert pool.exchange("a", room=5).unsorted == ["a"]
    jobs = [("x", b"1"), ("y", b"2"), ("x", b"3")]
    assert link.run(partitions.sort_jobs(keys, "a", BY, jobs)) == 3
    assert (waiting(call, keys, "x"), waiting(call, keys, "y")) == (["1", "3"], ["2"])
    assert link.run(partitions.sort_jobs(keys, "a", BY, jobs)) == 0, "another pool has sorted them"
    assert sorted(pool.take()) == [("x", "1"), ("x", "3"), ("y", "2")]


def test_sorting_ends_at_a_job_that_another_pool_has_moved(keyed, keys, link, call):
    keyed()
    fill(keys, link, "a", "1", "2")
    assert link.run(partitions.sort_jobs(keys, "a", BY, [("x", b"1"), ("x", b"other")])) == 1
    assert call("LRANGE", keys.queue("a"), 0, -1) == [b"2"]


def test_a_name_in_a_request_of_code_without_keys_is_not_fetched(keyed, keys, link):
    pool = keyed()
    fill_keys(keys, link, "a", ("x", "1"))
    pool.rules = {}
    pool.keyed = {}
    from pools import Pool  # noqa: PLC0415 - a pool that knows nothing of keys

    plain_pool = Pool(keys, link)
    assert plain_pool.exchange("a", room=5).unknown == ["a"]


def test_a_resend_takes_nothing_and_names_what_was_taken(keyed, keys, link):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("y", "3"))
    tokens = pool.tokens()
    again = pool.resend()
    assert (again.status, sorted(token for batch in again.batches for token in batch.tokens)) == (
        "again",
        sorted(tokens),
    )
    assert {batch.name for batch in again.batches} == {"a"}


def test_sorted_sets_of_a_wrong_type_stop_their_own_name_only(keyed, keys, link, call):
    pool = keyed()
    fill_keys(keys, link, "a", ("x", "1"))
    fill(keys, link, "b", "2")
    call("DEL", keys.turns("a"))
    call("SET", keys.turns("a"), "wrong")
    reply = pool.exchange("a", "b", room=5)
    assert reply.wrong == ["a"]
    assert [batch.name for batch in reply.batches] == ["b"]
    assert link.run(partitions.heal_keys(keys, "a", ["x"], places=0)) == 1
    assert pool.take() == [("x", "1")]


def test_a_lost_held_set_is_counted_again(keyed, keys, link, call):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    (token,) = pool.tokens()
    call("DEL", keys.held_of("a|x"))
    link.run(maintain.recount(keys, "a|x", [f"{pool.id}/{token}"]))
    assert call("SMEMBERS", keys.held_of("a|x")) == [f"{pool.id}/{token}".encode()]


def test_a_key_that_is_blocked_by_attempts_of_nobody_is_freed(keyed, keys, link, call):
    pool = keyed(places=1)
    fill_keys(keys, link, "a", ("x", "1"))
    call("SADD", keys.held_of("a|x"), "gone/1:a|x")
    assert pool.take() == []
    members = link.run(maintain.held_members(keys, "a|x"))
    link.run(maintain.recount(keys, "a|x", members))
    link.run(partitions.heal_keys(keys, "a", ["x"], places=1))
    pool.next = []
    assert pool.take() == [("x", "1")]


def test_an_idle_key_costs_nothing(keyed, keys, link, call):
    pool = keyed(places=1, kinds={"w": Window(5, per=0.001)})
    fill_keys(keys, link, "a", *((str(n), str(n)) for n in range(50)))
    tokens = []
    for _ in range(10):
        tokens += pool.tokens()
    assert len(tokens) == 50
    pool.exchange("a", done={"a": tokens})
    left = [one for one in call("KEYS", f"{keys.prefix}*") if b"|" in one and b"window" not in one]
    assert left == []
    assert call("EXISTS", keys.turns("a"), keys.blocked("a"), keys.debts("a")) == 0

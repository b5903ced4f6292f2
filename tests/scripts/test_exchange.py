"""Fetching, numbering, limits and bells. How attempts end is in test_exchange_settle, shares in test_exchange_shares."""

from __future__ import annotations

import pytest

from dayjob.outcome import GivenBack, NameSuspect, Retried
from dayjob.store.ops import consume, figures, maintain
from dayjob.store.ops.consume import Entry, Want
from monitor import monitor
from pools import jobs_of, payloads_of, set_limit

MIB = 1 << 20


@pytest.fixture
def limit(keys, link):
    return lambda name, value: set_limit(keys, link, name, value)


@pytest.fixture
def rings(call, keys):
    """Whether the bell of a name rings."""
    return lambda name: call("ZRANGE", keys.bell(name), 0, -1) == [b"1"]


# Fetching.


def test_jobs_come_in_the_order_they_were_enqueued_under_new_tokens(pool, put, look, keys):
    put("a", "1", "2", "3")
    reply = pool.exchange("a", room=2)
    assert (reply.status, reply.held) == ("ok", 2)
    assert jobs_of(reply) == [("1:a", "a", b"1"), ("2:a", "a", b"2")]
    assert look().held == {"p1": {"1:a": b"1", "2:a": b"2"}}
    assert look().queues == {"a": [b"3"]}


def test_tokens_number_on_over_names_and_exchanges(pool, put):
    put("a", "1", "2", "3")
    put("b", "4", "5")
    first = pool.exchange("a", "b", room=4, u=0.0)
    second = pool.exchange("a", "b", room=4)
    tokens = [token for token, _, _ in jobs_of(first) + jobs_of(second)]
    assert [consume.number_in(token) for token in tokens] == [1, 2, 3, 4, 5]
    assert sorted(payloads_of(first) + payloads_of(second)) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_queue_of_many_jobs_is_fetched_in_order_over_all_chunks(pool, put, look):
    payloads = [b"%d" % i for i in range(1200)]
    put("a", *payloads)
    found = []
    for _ in range(3):
        found += payloads_of(pool.exchange("a", room=500))
    assert found == payloads
    assert (look().queues, len(look().held["p1"])) == ({}, 1200)


def test_bytes_come_out_as_they_went_in(pool, put):
    odd = b'{"args":{"a":[],"n":12345678901234567890}}\x00\xff\r\n'
    put("a", odd)
    assert payloads_of(pool.exchange("a", room=1)) == [odd]


def test_no_room_fetches_nothing(pool, put, look):
    put("a", "1")
    assert jobs_of(pool.exchange("a", room=0)) == []
    assert look().queues == {"a": [b"1"]}


def test_a_name_that_is_not_wanted_is_not_fetched_but_still_called_live(pool, put):
    put("a", "1")
    put("b", "2")
    reply = pool.exchange(Want("a", 1, fetch=False), "b", room=5)
    assert payloads_of(reply) == [b"2"]
    assert reply.live == ["a"]


def test_a_paused_queue_is_left_alone_until_it_is_resumed(pool, put, call, keys, rings):
    put("a", "1")
    put("b", "2")
    call("SET", keys.paused("a"), "")
    reply = pool.exchange("a", "b", room=5)
    assert payloads_of(reply) == [b"2"]
    assert (reply.live, rings("a")) == ([], False)
    call("DEL", keys.paused("a"))
    assert payloads_of(pool.exchange("a", "b", room=5)) == [b"1"]


def test_extra_room_is_for_fast_names_only(pool, put):
    put("fast", *"12345")
    put("slow", "6")
    wants = (Want("fast", 1, fetch=True, fast=True), Want("slow", 1, fetch=True))
    reply = pool.exchange(*wants, room=2, extra=3)
    names = [name for _, name, _ in jobs_of(reply)]
    assert (names.count("fast"), names.count("slow")) == (4, 1)


@pytest.mark.parametrize(
    ("slow", "fetched"), [("waiting", 2), ("paused", 5), ("limited", 5), ("unwanted", 5)]
)
def test_nothing_is_prefetched_past_a_slow_queue_that_waits_for_a_slot(
    pool, put, call, keys, limit, slow, fetched
):
    put("fast", *"12345")
    put("slow", *"67890")
    if slow == "paused":
        call("SET", keys.paused("slow"), "1")
    if slow == "limited":
        limit("slow", 0)
    wants = (Want("fast", 1, fetch=True, fast=True), Want("slow", 1, fetch=slow != "unwanted"))
    assert len(jobs_of(pool.exchange(*wants, room=2, extra=3))) == fetched


def test_extra_room_alone_fetches_only_what_is_fast_and_wanted(pool, put):
    put("fast", "1", "2")
    put("resting", "4")
    wants = (
        Want("fast", 1, fetch=True, fast=True), Want("slow", 1, fetch=True), Want("resting", 1, fetch=False, fast=True),
    )  # fmt: skip
    assert sorted(payloads_of(pool.exchange(*wants, extra=9))) == [b"1", b"2"]


def test_the_lease_is_renewed(pool, call, keys, now):
    call("ZADD", keys.pools, 1, "p1")
    before = now()
    pool.exchange("a")
    assert before + 14.999 <= float(call("ZSCORE", keys.pools, "p1")) / 1000 <= now() + 15


def test_a_lease_from_before_the_clock_was_set_back_does_not_outlive_its_pool(pool, call, keys, now):
    call("ZADD", keys.pools, int((now() + 3600) * 1000), "p1")
    pool.exchange("a")
    assert float(call("ZSCORE", keys.pools, "p1")) / 1000 <= now() + 15


def test_two_pools_never_get_the_same_job(pool, new_pool, put, look):
    other = new_pool(pool_id="p2")
    put("a", *"1234")
    mine = payloads_of(pool.exchange("a", room=2))
    theirs = payloads_of(other.exchange("a", room=5))
    assert (mine, theirs) == ([b"1", b"2"], [b"3", b"4"])
    assert look().held == {"p1": {"1:a": b"1", "2:a": b"2"}, "p2": {"1:a": b"3", "2:a": b"4"}}


def test_thousands_of_names_are_no_problem(pool, put):
    put("n8999", "1")
    reply = pool.exchange(*(f"n{i}" for i in range(9000)), room=5)
    assert payloads_of(reply) == [b"1"]


# The byte limit.


def test_fetching_stops_at_one_mebibyte(pool, put, look, rings):
    big = [bytes([65 + i]) * (400 * 1024) for i in range(6)]
    put("a", *big)
    reply = pool.exchange("a", room=6)
    assert payloads_of(reply) == big[:3]
    assert (reply.live, rings("a")) == (["a"], True)
    assert look().queues == {"a": big[3:]}


def test_a_job_larger_than_that_still_comes(pool, put, look):
    huge, small = b"x" * (3 * MIB), b"y"
    put("a", huge)
    put("a", small)
    assert payloads_of(pool.exchange("a", room=5)) == [huge]
    assert payloads_of(pool.exchange("a", room=5)) == [small]


def test_the_bytes_are_counted_over_all_names(pool, put, look, rings):
    put("a", b"x" * MIB)
    put("b", "1")
    reply = pool.exchange("a", "b", room=2)
    assert [name for _, name, _ in jobs_of(reply)] == ["a"]
    assert (reply.live, rings("b")) == (["b"], True)
    assert look().queues == {"b": [b"1"]}


def test_no_read_of_a_queue_asks_for_more_than_32_jobs(pool, put, server, link):
    """Jobs may be large: what is read beyond the byte limit is copied to be thrown away, and everybody waits."""
    put("a", *(str(i) for i in range(500)))
    with monitor(server.port, link) as heard:
        assert len(jobs_of(pool.exchange("a", room=500))) == 500
    spans = [-int(words[2]) for words in heard.by_scripts if words[0].upper() == b"LRANGE"]
    assert spans
    assert max(spans) <= 32


# Limits, in the same step.


def test_a_limit_is_counted_in_the_step_that_takes(pool, new_pool, put, limit, look):
    other = new_pool(pool_id="p2")
    limit("a", 3)
    put("a", *"123456")
    assert len(pool.fetch("a", room=2)) == 2
    assert len(other.fetch("a", room=9)) == 1
    assert pool.fetch("a", room=9) == []
    assert look().held_sets == {"a": {"p1/1:a", "p1/2:a", "p2/1:a"}}


def test_what_is_settled_makes_room_in_the_same_exchange(pool, put, limit, look):
    limit("a", 1)
    put("a", "1", "2")
    pool.fetch("a")
    reply = pool.exchange("a", room=1, done={"a": ["1:a"]})
    assert payloads_of(reply) == [b"2"]
    assert look().held_sets == {"a": {"p1/2:a"}}


def test_what_a_limit_keeps_back_is_dealt_to_the_others(pool, put, limit):
    limit("a", 1)
    put("a", *"123")
    put("b", *"456789")
    names = [name for _, name, _ in jobs_of(pool.exchange(Want("a", 9, fetch=True), "b", room=4))]
    assert sorted(names) == ["a", "b", "b", "b"]


def test_a_queue_at_its_limit_is_neither_live_nor_rung_until_a_place_is_free(pool, put, limit, rings):
    limit("a", 1)
    put("a", "1", "2")
    reply = pool.exchange("a", room=9)
    assert (len(jobs_of(reply)), reply.live, rings("a")) == (1, [], False)
    reply = pool.exchange(done={"a": ["1:a"]})
    assert (reply.live, rings("a")) == (["a"], True)


@pytest.mark.parametrize("value", ["0", "-3", "many", ""])
def test_a_limit_of_nothing_or_of_nonsense_lets_nothing_through(pool, put, call, keys, value):
    put("a", "1")
    call("HSET", keys.limits, "a", value)
    assert pool.fetch("a") == []


def test_a_limit_below_what_runs_takes_nothing_and_frees_its_places(pool, put, limit, look):
    limit("a", 3)
    put("a", *"12345")
    pool.fetch("a")
    limit("a", 1)
    assert payloads_of(pool.exchange("a", room=5, done={"a": ["1:a", "2:a"]})) == []
    assert payloads_of(pool.exchange("a", room=5, done={"a": ["3:a"]})) == [b"4"]
    assert look().held_sets == {"a": {"p1/4:a"}}


def test_a_name_without_a_limit_leaves_no_set(pool, put, look):
    put("a", "1")
    pool.fetch("a")
    assert look().held_sets == {}


# Who asks, and did we hear it before?


def test_a_resend_applies_nothing_twice_and_brings_the_same_jobs(pool, put, everything, link):
    put("a", *"12345")
    pool.fetch("a", room=2)
    first = pool.exchange("a", room=2, entries=[Entry("a", "1:a", Retried(0), b"r")], done={"a": ["2:a"]})
    after = everything()
    again = pool.resend()
    assert (again.status, jobs_of(again), again.held) == ("again", jobs_of(first), first.held)
    assert (again.late, again.stuck, again.live) == (0, [], ["a"])
    assert everything() == after


def test_a_resend_brings_many_jobs_of_several_names_in_order(pool, put):
    put("a", *(str(i) for i in range(300)))
    put("b", *(str(i) for i in range(300)))
    first = pool.exchange("a", "b", room=400)
    assert len(jobs_of(first)) == 400
    assert jobs_of(pool.resend()) == jobs_of(first)


def test_a_resend_that_fetched_nothing_brings_nothing_of_before(pool, put):
    put("a", "1")
    pool.fetch("a")
    pool.exchange("a", room=5)
    assert jobs_of(pool.resend()) == []


def test_a_late_copy_of_an_earlier_request_is_refused_without_effect(pool, put, everything, link):
    put("a", *"123")
    pool.exchange("a", room=1)
    copy = pool.last
    pool.exchange("a", room=1)
    before = everything()
    reply = link.run(copy)
    assert (reply.status, jobs_of(reply)) == ("late", [])
    assert everything() == before


def test_a_gap_in_the_numbers_is_applied_and_called_rewound(pool, put, look):
    put("a", "1", "2")
    pool.fetch("a", room=1)
    pool.number += 1
    reply = pool.exchange("a", room=1, done={"a": ["1:a"]})
    assert (reply.status, payloads_of(reply)) == ("rewound", [b"2"])
    assert look().held == {"p1": {"2:a": b"2"}}
    assert pool.resend().status == "again"
    assert pool.exchange("a").status == "ok"


def test_a_state_that_redis_lost_is_called_rewound(pool, put, call, keys):
    put("a", "1")
    pool.exchange("a", room=1)
    pool.exchange("a")
    call("DEL", keys.state("p1"))
    assert pool.exchange("a").status == "rewound"


def test_an_id_that_is_not_registered_is_refused_without_effect(pool, put, everything, link, keys):
    put("a", "1", "2")
    pool.fetch("a", room=1)
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    before = everything()
    reply = pool.exchange(
        "a", room=1, done={"a": ["1:a"]}, figures={"x": 1}, entries=[Entry("a", "1:a", NameSuspect())]
    )
    assert (reply.status, jobs_of(reply)) == ("refused", [])
    assert everything() == before


def test_numbers_of_any_size_are_kept_exactly(pool, put, call, keys, look):
    put("a", "1")
    pool.number, pool.token = 123_456_789_012_345, 987_654_321_098_765
    pool.exchange("a", room=1)
    assert call("HGET", keys.state("p1"), "last") == b"123456789012346"
    assert look().held == {"p1": {"987654321098765:a": b"1"}}


# Bells.


def test_the_bell_rings_on_while_there_is_more_and_is_silenced_by_the_last(pool, put, rings):
    put("a", *"123")
    reply = pool.exchange("a", room=2)
    assert (reply.live, rings("a")) == (["a"], True)
    reply = pool.exchange("a", room=2)
    assert (reply.live, rings("a")) == ([], False)


def test_a_bell_that_somebody_popped_is_passed_on_without_room(pool, put, call, keys, rings):
    put("a", "1")
    call("BZPOPMIN", keys.bell("a"), 1)
    assert not rings("a")
    pool.exchange("a", room=0)
    assert rings("a")


def test_the_bells_of_names_that_are_not_passed_are_left_alone(pool, put, call, keys, rings):
    put("b", "1")
    call("ZADD", keys.bell("c"), 0, "1")
    pool.exchange("a", room=5)
    assert (rings("b"), rings("c")) == (True, True)


def test_what_is_given_back_rings(pool, put, rings):
    put("a", "1")
    pool.fetch("a")
    assert not rings("a")
    pool.settle(Entry("a", "1:a", GivenBack()))
    assert rings("a")


def test_a_bell_of_a_wrong_type_is_mended(pool, put, call, keys, rings):
    put("a", "1", "2")
    call("DEL", keys.bell("a"))
    call("SET", keys.bell("a"), "x")
    assert len(pool.fetch("a", room=1)) == 1
    assert rings("a")
    call("DEL", keys.bell("a"))
    call("SET", keys.bell("a"), "x")
    pool.fetch("a", room=1)
    assert call("EXISTS", keys.bell("a")) == 0


# Wrong types.


def test_a_queue_of_a_wrong_type_is_reported_and_its_neighbours_are_fetched(pool, put, call, keys):
    call("SET", keys.queue("a"), "x")
    put("b", "1")
    reply = pool.exchange("a", "b", room=5)
    assert (reply.wrong, payloads_of(reply)) == (["a"], [b"1"])
    assert call("GET", keys.queue("a")) == b"x"
    call("DEL", keys.queue("a"))
    put("a", "2")
    assert pool.exchange("a", room=5).wrong == []


def test_a_limit_set_of_a_wrong_type_closes_its_name_only(pool, put, call, keys, limit):
    limit("a", 5)
    call("SET", keys.held_of("a"), "x")
    put("a", "1")
    put("b", "2")
    reply = pool.exchange("a", "b", room=5)
    assert (reply.wrong, payloads_of(reply)) == (["a"], [b"2"])


# Figures.


def test_figures_are_added_to_their_minute_and_expire(pool, call, keys):
    pool.exchange("a", figures={"a|r3": 5, "a|w1": 2}, minute=77)
    pool.exchange("a", figures={"a|r3": 1}, minute=77)
    assert call("HGET", keys.minute(77), "a|r3") == b"6"
    assert call("HGET", keys.minute(77), "a|w1") == b"2"
    assert 262_700 < call("TTL", keys.minute(77)) <= figures.KEPT_SECONDS


def test_a_resend_does_not_add_its_figures_again(pool, call, keys):
    pool.exchange("a", figures={"a|r3": 5}, minute=77)
    pool.resend()
    assert call("HGET", keys.minute(77), "a|r3") == b"5"


def test_without_figures_no_minute_is_written(pool, call, keys):
    pool.exchange("a", minute=77)
    assert call("EXISTS", keys.minute(77)) == 0

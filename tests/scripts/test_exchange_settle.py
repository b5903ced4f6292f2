"""How attempts end: every kind of settlement, late ones, stuck ones, unique keys and suspects."""

from __future__ import annotations

import pytest

from dayjob.store.ops import maintain, operate
from dayjob.store.ops.consume import Entry
from pools import jobs_of, payloads_of, set_limit


@pytest.fixture
def held(pool, put):
    """The pool holds jobs 1, 2 and 3 of `a`."""
    put("a", "1", "2", "3")
    pool.fetch("a")
    return pool


@pytest.fixture
def key(keys):
    return keys.unique("a", "u")


# Kinds.


def test_plain_completions_are_dropped_and_counted(held, look, totals):
    reply = held.exchange(done={"a": ["1:a", "3:a"]})
    assert (reply.held, reply.late) == (1, 0)
    assert look().held == {"p1": {"2:a": b"2"}}
    assert totals() == {"done:a": 2}


def test_completions_of_several_names_go_in_one_exchange(held, put, look, totals):
    put("b", "4")
    held.fetch("b")
    held.exchange(done={"a": ["1:a", "2:a", "3:a"], "b": ["4:b"]})
    assert look().jobs == 0
    assert totals() == {"done:a": 3, "done:b": 1}


def test_five_hundred_completions_go_in_one_exchange(pool, put, look, totals):
    put("a", *(str(i) for i in range(500)))
    tokens = pool.fetch("a")
    pool.exchange(done={"a": tokens})
    assert (look().jobs, totals()) == (0, {"done:a": 500})


def test_a_retry_waits_in_retry_and_wakes_the_leader(held, look, totals, now, call, keys):
    before = now()
    held.settle(Entry("retry", "a", "1:a", b"1 again", 2_500))
    assert before + 2.499 <= look().retry[b"1 again"] <= now() + 2.5
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3"}}
    assert call("ZCARD", keys.due) == 1
    assert totals() == {"failed:a": 1, "retried:a": 1}


def test_a_snooze_waits_in_scheduled_and_is_no_fail(held, look, totals, now, call, keys):
    before = now()
    held.settle(Entry("snooze", "a", "1:a", b"1 later", 60_000))
    assert before + 59.999 <= look().scheduled[b"1 later"] < now() + 61
    assert call("ZCARD", keys.due) == 1
    assert totals() == {"snoozed:a": 1}


@pytest.mark.parametrize("kind", ["retry", "snooze"])
@pytest.mark.parametrize(("wait", "whole"), [(9_999, False), (10_000, True), (60_001, True)])
def test_a_long_wait_is_rounded_up_to_a_whole_second_and_a_short_one_is_not(
    held, look, now, kind, wait, whole
):
    """gocraft's pages read no other scores."""
    before = now()
    held.settle(Entry(kind, "a", "1:a", b"1 later", wait))
    [score] = (look().retry if kind == "retry" else look().scheduled).values()
    assert before + wait / 1000 <= score + 0.001
    assert score <= now() + wait / 1000 + whole
    assert score.is_integer() or not whole


@pytest.mark.parametrize(("counts", "expected"), [(1, {"failed:a": 1, "dead:a": 1}), (0, {"dead:a": 1})])
def test_a_dead_job_goes_to_dead_with_the_time(held, look, totals, now, counts, expected):
    before = now()
    held.settle(Entry("dead", "a", "1:a", b"1 died", counts))
    assert int(before) <= look().dead[b"1 died"] <= now()
    assert look().dead[b"1 died"].is_integer()
    assert totals() == expected


def test_the_error_of_a_dead_job_is_kept_for_a_day_where_asked(held, call, keys):
    held.settle(Entry("dead", "a", "1:a", b"1 died", 1, keys.result("id1"), b'{"error":"x"}'))
    assert call("GET", keys.result("id1")) == b'{"error":"x"}'
    assert 86_390 <= call("TTL", keys.result("id1")) <= 86_400


@pytest.mark.parametrize(
    ("counts", "expected"), [(1, {"failed:a": 1, "discarded:a": 1}), (0, {"discarded:a": 1})]
)
def test_a_drop_keeps_nothing_but_the_count(held, look, totals, counts, expected):
    held.settle(Entry("drop", "a", "1:a", b"", counts))
    assert (look().jobs, totals()) == (2, expected)


def test_done_as_an_entry_is_a_plain_completion(held, look, totals):
    held.settle(Entry("done", "a", "1:a"))
    assert (look().jobs, totals()) == (2, {"done:a": 1})


def test_a_kept_job_goes_to_done_until_it_is_dropped_and_its_result_expires_then(
    held, look, totals, now, call, keys
):
    before = now()
    held.settle(Entry("keep", "a", "1:a", b"1 kept", 60_000, keys.result("id1"), b'{"result":7}'))
    assert before + 59.999 <= look().done[b"1 kept"] <= now() + 60
    assert call("GET", keys.result("id1")) == b'{"result":7}'
    assert 59_000 < call("PTTL", keys.result("id1")) <= 60_000
    assert totals() == {"done:a": 1}


def test_a_result_kept_for_no_time_at_all_is_no_error(held, look, keys):
    held.settle(Entry("keep", "a", "1:a", b"1 kept", 0, keys.result("id1"), b"{}"))
    assert list(look().done) == [b"1 kept"]


def test_an_unreadable_job_goes_to_broken(held, look, totals):
    held.settle(Entry("broken", "a", "1:a", b"header\n1"))
    assert look().broken == [b"header\n1"]
    assert totals() == {"broken:a": 1}


def test_what_is_given_back_in_descending_order_comes_first_again(held, put, look, totals):
    put("a", "4")
    held.settle(*(Entry("back", "a", f"{i}:a") for i in (3, 2, 1)))
    assert look().queues == {"a": [b"1", b"2", b"3", b"4"]}
    assert look().held == {}
    assert totals() == {"given_back:a": 3}


def test_a_rewound_attempt_is_given_back_and_counted_apart(held, look, totals):
    held.settle(Entry("rewound", "a", "1:a"))
    assert look().queues == {"a": [b"1"]}
    assert totals() == {"rewound:a": 1}


def test_what_is_given_back_can_be_fetched_in_the_same_exchange_by_its_name_only_if_wanted(held, look):
    assert payloads_of(held.exchange("a", room=1, entries=[Entry("back", "a", "1:a")])) == [b"1"]
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3", "4:a": b"1"}}
    assert jobs_of(held.exchange(room=1, entries=[Entry("back", "a", "4:a")])) == []


# Late outcomes.


@pytest.mark.parametrize(
    "kind", ["retry", "snooze", "dead", "drop", "done", "keep", "back", "rewound", "broken"]
)
def test_the_outcome_of_an_attempt_that_is_gone_changes_nothing_but_the_count(
    held, kind, look, totals, keys, call
):
    before = look()
    reply = held.settle(
        Entry(kind, "a", "99:a", b"late", 1, keys.result("id1") if kind in ("keep", "dead") else "")
    )
    assert (reply.late, reply.stuck) == (1, [])
    assert look() == before
    assert totals() == {"late:a": 1}
    assert call("EXISTS", keys.result("id1")) == 0


def test_late_completions_are_counted_beside_timely_ones(held, look, totals):
    reply = held.exchange(done={"a": ["1:a", "98:a", "99:a"]})
    assert (reply.late, reply.held) == (2, 2)
    assert totals() == {"done:a": 1, "late:a": 2}


def test_an_attempt_of_another_pool_is_not_ours_to_settle(held, new_pool, look):
    other = new_pool(pool_id="p2")
    assert other.exchange(done={"a": ["1:a"]}).late == 1
    assert look().held == {"p1": {"1:a": b"1", "2:a": b"2", "3:a": b"3"}}


def test_a_second_outcome_of_one_attempt_in_the_same_exchange_is_late(held, look, totals):
    reply = held.settle(Entry("retry", "a", "1:a", b"r", 0), Entry("dead", "a", "1:a", b"d", 1))
    assert reply.late == 1
    assert (list(look().retry), look().dead) == ([b"r"], {})


# What cannot be settled now.


@pytest.mark.parametrize(
    ("kind", "place"),
    [("retry", "retry"), ("snooze", "scheduled"), ("dead", "dead"), ("keep", "done"), ("broken", "broken")],
)
def test_an_outcome_whose_place_has_a_wrong_type_is_stuck_and_works_later(
    held, kind, place, call, keys, look, totals
):
    call("SET", getattr(keys, place), "x")
    entry = Entry(kind, "a", "1:a", b"bytes", 1_000)
    reply = held.exchange(entries=[entry, Entry("done", "a", "3:a")], done={"a": ["2:a"]})
    assert (reply.stuck, reply.late, reply.held) == (["1:a"], 0, 1)
    assert look().held == {"p1": {"1:a": b"1"}}
    assert totals() == {"done:a": 2}
    call("DEL", getattr(keys, place))
    assert held.settle(entry).stuck == []
    assert (look().held, list(getattr(look(), place))) == ({}, [b"bytes"])


@pytest.mark.parametrize("kind", ["back", "rewound"])
def test_what_cannot_be_given_back_is_stuck_and_its_name_is_reported(held, kind, call, keys, look):
    call("SET", keys.queue("a"), "x")
    reply = held.settle(Entry(kind, "a", "1:a"))
    assert (reply.stuck, reply.wrong, reply.held) == (["1:a"], ["a"], 3)
    assert look().held["p1"]["1:a"] == b"1"


def test_a_resend_names_the_stuck_tokens_again(held, call, keys):
    """Else the pool would take them for settled, and their outcome would be lost."""
    call("SET", keys.retry, "x")
    first = held.exchange(entries=[Entry("retry", "a", "1:a", b"r", 0), Entry("done", "a", "2:a")])
    again = held.resend()
    assert first.stuck == again.stuck == ["1:a"]


def test_totals_of_a_wrong_type_stop_nothing(held, call, keys, look):
    call("SET", keys.totals, "x")
    assert held.exchange(done={"a": ["1:a"]}).status == "ok"
    assert look().jobs == 2
    assert held.exchange("a").status == "ok"


# Unique keys.


@pytest.mark.parametrize(
    ("value", "first", "left", "runs"),
    [
        (None, 1, None, b"1"),
        ("id1", 1, None, b"1"),
        ("id1", 0, None, b"1"),
        ("id2", 1, b"id2", b"1"),
        ("1", 1, None, b"1"),
        ("1", 0, b"1", b"1"),
        ('{"name":"a"}', 1, None, b'{"name":"a"}'),
        ('{"name":"a"}', 0, b'{"name":"a"}', b"1"),
    ],
    ids=[
        "free",
        "ours",
        "ours on a retry",
        "another's",
        "Go's 1",
        "Go's 1 on a retry",
        "Go's job",
        "Go's job on a retry",
    ],
)
def test_a_unique_key_is_released_by_its_owner_only(held, key, call, look, value, first, left, runs):
    if value:
        call("SET", key, value)
    reply = held.settle(Entry("free", "a", "1:a", number=first, key=key, value="id1"))
    assert call("GET", key) == left
    assert reply.released == {"1:a": runs}
    assert look().held["p1"]["1:a"] == runs
    assert reply.held == 3


def test_a_resend_answers_its_releases_again_without_releasing_what_was_taken_since(held, key, call):
    call("SET", key, '{"name":"a"}')
    first = held.settle(Entry("free", "a", "1:a", number=1, key=key, value="id1"))
    call("SET", key, "1")
    assert held.resend().released == first.released == {"1:a": b'{"name":"a"}'}
    assert call("GET", key) == b"1"


def test_an_attempt_that_is_gone_releases_nothing_and_is_told(held, key, call, totals):
    call("SET", key, "id1")
    reply = held.settle(Entry("free", "a", "99:a", number=1, key=key, value="id1"))
    assert reply.released == {"99:a": None}
    assert (call("GET", key), totals()) == (b"id1", {})


def test_a_key_of_a_wrong_type_is_left_alone_and_the_job_runs(held, key, call):
    call("LPUSH", key, "id1")
    reply = held.settle(Entry("free", "a", "1:a", number=1, key=key, value="id1"))
    assert reply.released == {"1:a": b"1"}
    assert call("LRANGE", key, 0, -1) == [b"id1"]


def test_a_key_goes_with_the_outcome_that_ends_its_job(held, key, call, look):
    call("SET", key, "id1")
    held.settle(Entry("free", "a", "1:a", key=key, value="id1"), Entry("dead", "a", "1:a", b"d", 1))
    assert call("EXISTS", key) == 0
    assert list(look().dead) == [b"d"]


def test_two_releases_find_their_own_keys(held, keys, call):
    for rest, value in (("u", "id1"), ("v", "id2")):
        call("SET", keys.unique("a", rest), value)
    held.settle(
        Entry("free", "a", "1:a", number=1, key=keys.unique("a", "u"), value="id1"),
        Entry("done", "a", "3:a"),
        Entry("free", "a", "2:a", number=1, key=keys.unique("a", "v"), value="id2"),
    )
    assert call("EXISTS", keys.unique("a", "u"), keys.unique("a", "v")) == 0


def test_giving_back_after_a_swap_gives_back_the_newest_job(held, key, call, look):
    call("SET", key, '{"name":"a"}')
    held.settle(Entry("free", "a", "1:a", number=1, key=key, value="id1"))
    held.settle(Entry("back", "a", "1:a"))
    assert look().queues == {"a": [b'{"name":"a"}']}


# Suspects.


def test_a_suspect_is_named_in_the_state_and_cleared_when_it_ends(held, link, keys):
    held.settle(Entry("suspect", "a", "2:a"))
    assert link.run(maintain.read_state(keys, "p1"))[0] == "2:a"
    held.exchange(done={"a": ["1:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] == "2:a"
    held.exchange(done={"a": ["2:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


@pytest.mark.parametrize("kind", ["retry", "dead", "back", "done"])
def test_a_suspect_is_cleared_by_any_outcome(held, link, keys, kind):
    held.settle(Entry("suspect", "a", "2:a"))
    held.settle(Entry(kind, "a", "2:a", b"x", 0))
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


def test_the_next_suspect_is_named_in_the_exchange_that_ends_the_last(held, link, keys):
    held.settle(Entry("suspect", "a", "2:a"))
    held.settle(Entry("done", "a", "2:a"), Entry("suspect", "a", "3:a"))
    assert link.run(maintain.read_state(keys, "p1"))[0] == "3:a"
    held.exchange(entries=[Entry("suspect", "a", "1:a")], done={"a": ["3:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] == "1:a"


def test_an_attempt_that_is_gone_is_not_named(held, link, keys):
    held.settle(Entry("suspect", "a", "99:a"))
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


def test_a_resend_does_not_name_a_suspect_that_ended_since(held, link, keys, call):
    held.settle(Entry("suspect", "a", "2:a"))
    call("HDEL", keys.state("p1"), "suspect")
    held.resend()
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


# Limits.


@pytest.mark.parametrize(
    "kind", ["retry", "snooze", "dead", "drop", "done", "keep", "back", "rewound", "broken"]
)
def test_every_outcome_frees_its_place_in_the_limit(pool, put, kind, link, keys, look):
    set_limit(keys, link, "a", 5)
    put("a", "1", "2")
    pool.fetch("a")
    pool.settle(Entry(kind, "a", "1:a", b"x", 1_000))
    assert look().held_sets == {"a": {"p1/2:a"}}


def test_what_is_stuck_keeps_its_place(pool, put, link, keys, look, call):
    set_limit(keys, link, "a", 5)
    put("a", "1")
    pool.fetch("a")
    call("SET", keys.dead, "x")
    pool.settle(Entry("dead", "a", "1:a", b"x", 1))
    assert look().held_sets == {"a": {"p1/1:a"}}


# Cancelled jobs.


@pytest.mark.parametrize("kind", ["retry", "snooze", "back", "rewound"])
@pytest.mark.parametrize("kill", [False, True])
def test_a_cancelled_job_is_kept_for_its_pool_to_end_and_goes_nowhere_else(
    held, link, keys, look, totals, kind, kill
):
    assert link.run(operate.cancel(keys, "p1", "2:a", kill=kill))
    reply = held.settle(Entry(kind, "a", "1:a", b"r1"), Entry(kind, "a", "2:a", b"r2"))
    assert (reply.cancelled, reply.held) == ({"2:a": kill}, 2)
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3"}}
    assert held.settle(Entry("drop", "a", "2:a", b"", 2)).held == 1
    assert totals()["cancelled:a"] == 1


def test_a_resend_says_of_a_cancelled_job_that_it_was_not_settled(held, link, keys):
    link.run(operate.cancel(keys, "p1", "2:a"))
    held.settle(Entry("back", "a", "2:a"))
    assert held.resend().stuck == ["2:a"]
    assert held.settle(Entry("back", "a", "2:a")).cancelled == {"2:a": False}

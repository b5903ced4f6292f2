"""How attempts end: every kind of settlement, late ones, stuck ones, unique keys and suspects."""

from __future__ import annotations

import pytest

from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    GivenBack,
    Kept,
    NameSuspect,
    Release,
    Retried,
    Rewound,
    Snoozed,
    Unreadable,
)
from dayjob.store.ops import maintain, operate
from dayjob.store.ops.consume import Entry
from pools import jobs_of, payloads_of, set_limit

#: One of each outcome that an exchange settles.
OUTCOMES = (
    Done(),
    Kept(1.0),
    Retried(1.0),
    Snoozed(1.0),
    Died(counts_failure=True),
    Dropped(counts_failure=True),
    Cancelled(),
    GivenBack(),
    Rewound(),
    Unreadable(),
)


def named(outcome):
    return type(outcome).__name__


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
    held.settle(Entry("a", "1:a", Retried(2.5), b"1 again"))
    assert before + 2.499 <= look().retry[b"1 again"] <= now() + 2.5
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3"}}
    assert call("ZCARD", keys.due) == 1
    assert totals() == {"failed:a": 1, "retried:a": 1}


def test_a_snooze_waits_in_scheduled_and_is_no_fail(held, look, totals, now, call, keys):
    before = now()
    held.settle(Entry("a", "1:a", Snoozed(60), b"1 later"))
    assert before + 59.999 <= look().scheduled[b"1 later"] < now() + 61
    assert call("ZCARD", keys.due) == 1
    assert totals() == {"snoozed:a": 1}


@pytest.mark.parametrize("outcome", [Retried, Snoozed])
@pytest.mark.parametrize(("wait", "whole"), [(9.999, False), (10, True), (60.001, True)])
def test_a_long_wait_is_rounded_up_to_a_whole_second_and_a_short_one_is_not(
    held, look, now, outcome, wait, whole
):
    """gocraft's pages read no other scores."""
    before = now()
    held.settle(Entry("a", "1:a", outcome(wait), b"1 later"))
    [score] = (look().retry if outcome is Retried else look().scheduled).values()
    assert before + wait <= score + 0.001
    assert score <= now() + wait + whole
    assert score.is_integer() or not whole


@pytest.mark.parametrize(
    ("counts", "expected"), [(True, {"failed:a": 1, "dead:a": 1}), (False, {"dead:a": 1})]
)
def test_a_dead_job_goes_to_dead_with_the_time(held, look, totals, now, counts, expected):
    before = now()
    held.settle(Entry("a", "1:a", Died(counts), b"1 died"))
    assert int(before) <= look().dead[b"1 died"] <= now()
    assert look().dead[b"1 died"].is_integer()
    assert totals() == expected


def test_the_error_of_a_dead_job_is_kept_for_a_day_where_asked(held, call, keys):
    held.settle(Entry("a", "1:a", Died(counts_failure=True), b"1 died", "id1", b'{"error":"x"}'))
    assert call("GET", keys.result("id1")) == b'{"error":"x"}'
    assert 86_390 <= call("TTL", keys.result("id1")) <= 86_400


@pytest.mark.parametrize(
    ("counts", "expected"), [(True, {"failed:a": 1, "discarded:a": 1}), (False, {"discarded:a": 1})]
)
def test_a_drop_keeps_nothing_but_the_count(held, look, totals, counts, expected):
    held.settle(Entry("a", "1:a", Dropped(counts)))
    assert (look().jobs, totals()) == (2, expected)


def test_done_as_an_entry_is_a_plain_completion(held, look, totals):
    held.settle(Entry("a", "1:a", Done()))
    assert (look().jobs, totals()) == (2, {"done:a": 1})


def test_a_kept_job_goes_to_done_until_it_is_dropped_and_its_result_expires_then(
    held, look, totals, now, call, keys
):
    before = now()
    held.settle(Entry("a", "1:a", Kept(60), b"1 kept", "id1", b'{"result":7}'))
    assert before + 59.999 <= look().done[b"1 kept"] <= now() + 60
    assert call("GET", keys.result("id1")) == b'{"result":7}'
    assert 30_000 < call("PTTL", keys.result("id1")) <= 60_000
    assert totals() == {"done:a": 1}


def test_a_result_kept_for_no_time_at_all_is_no_error(held, look, keys):
    held.settle(Entry("a", "1:a", Kept(0), b"1 kept", "id1", b"{}"))
    assert list(look().done) == [b"1 kept"]


def test_an_unreadable_job_goes_to_broken(held, look, totals):
    held.settle(Entry("a", "1:a", Unreadable(), b"header\n1"))
    assert look().broken == [b"header\n1"]
    assert totals() == {"broken:a": 1}


def test_what_is_given_back_in_descending_order_comes_first_again(held, put, look, totals):
    put("a", "4")
    held.settle(*(Entry("a", f"{i}:a", GivenBack()) for i in (3, 2, 1)))
    assert look().queues == {"a": [b"1", b"2", b"3", b"4"]}
    assert look().held == {}
    assert totals() == {"given_back:a": 3}


def test_a_rewound_attempt_is_given_back_and_counted_apart(held, look, totals):
    held.settle(Entry("a", "1:a", Rewound()))
    assert look().queues == {"a": [b"1"]}
    assert totals() == {"rewound:a": 1}


def test_what_is_given_back_can_be_fetched_in_the_same_exchange_by_its_name_only_if_wanted(held, look):
    assert payloads_of(held.exchange("a", room=1, entries=[Entry("a", "1:a", GivenBack())])) == [b"1"]
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3", "4:a": b"1"}}
    assert jobs_of(held.exchange(room=1, entries=[Entry("a", "4:a", GivenBack())])) == []


# Late outcomes.


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
def test_the_outcome_of_an_attempt_that_is_gone_changes_nothing_but_the_count(
    held, outcome, look, totals, keys, call
):
    before = look()
    reply = held.settle(Entry("a", "99:a", outcome, b"late", "id1", b"{}"))
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
    reply = held.settle(
        Entry("a", "1:a", Retried(0), b"r"), Entry("a", "1:a", Died(counts_failure=True), b"d")
    )
    assert reply.late == 1
    assert (list(look().retry), look().dead) == ([b"r"], {})


# What cannot be settled now.


@pytest.mark.parametrize(
    ("outcome", "place"),
    [
        (Retried(1.0), "retry"),
        (Snoozed(1.0), "scheduled"),
        (Died(counts_failure=False), "dead"),
        (Kept(1.0), "done"),
        (Unreadable(), "broken"),
    ],
)
def test_an_outcome_whose_place_has_a_wrong_type_is_stuck_and_works_later(
    held, outcome, place, call, keys, look, totals
):
    call("SET", getattr(keys, place), "x")
    entry = Entry("a", "1:a", outcome, b"bytes")
    reply = held.exchange(entries=[entry, Entry("a", "3:a", Done())], done={"a": ["2:a"]})
    assert (reply.stuck, reply.late, reply.held) == (["1:a"], 0, 1)
    assert look().held == {"p1": {"1:a": b"1"}}
    assert totals() == {"done:a": 2}
    call("DEL", getattr(keys, place))
    assert held.settle(entry).stuck == []
    assert (look().held, list(getattr(look(), place))) == ({}, [b"bytes"])


@pytest.mark.parametrize("outcome", [GivenBack(), Rewound()])
def test_what_cannot_be_given_back_is_stuck_and_its_name_is_reported(held, outcome, call, keys, look):
    call("SET", keys.queue("a"), "x")
    reply = held.settle(Entry("a", "1:a", outcome))
    assert (reply.stuck, reply.wrong, reply.held) == (["1:a"], ["a"], 3)
    assert look().held["p1"]["1:a"] == b"1"


def test_a_resend_names_the_stuck_tokens_again(held, call, keys):
    """Else the pool would take them for settled, and their outcome would be lost."""
    call("SET", keys.retry, "x")
    first = held.exchange(entries=[Entry("a", "1:a", Retried(0), b"r"), Entry("a", "2:a", Done())])
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
        (None, True, None, b"1"),
        ("id1", True, None, b"1"),
        ("id1", False, None, b"1"),
        ("id2", True, b"id2", b"1"),
        ("1", True, None, b"1"),
        ("1", False, b"1", b"1"),
        ('{"name":"a"}', True, None, b'{"name":"a"}'),
        ('{"name":"a"}', False, b'{"name":"a"}', b"1"),
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
    reply = held.settle(Entry("a", "1:a", Release(key, first_run=first), job_id="id1"))
    assert call("GET", key) == left
    assert reply.released == {"1:a": runs}
    assert look().held["p1"]["1:a"] == runs
    assert reply.held == 3


def test_a_resend_answers_its_releases_again_without_releasing_what_was_taken_since(held, key, call):
    call("SET", key, '{"name":"a"}')
    first = held.settle(Entry("a", "1:a", Release(key, first_run=True), job_id="id1"))
    call("SET", key, "1")
    assert held.resend().released == first.released == {"1:a": b'{"name":"a"}'}
    assert call("GET", key) == b"1"


def test_an_attempt_that_is_gone_releases_nothing_and_is_told(held, key, call, totals):
    call("SET", key, "id1")
    reply = held.settle(Entry("a", "99:a", Release(key, first_run=True), job_id="id1"))
    assert reply.released == {"99:a": None}
    assert (call("GET", key), totals()) == (b"id1", {})


def test_a_key_of_a_wrong_type_is_left_alone_and_the_job_runs(held, key, call):
    call("LPUSH", key, "id1")
    reply = held.settle(Entry("a", "1:a", Release(key, first_run=True), job_id="id1"))
    assert reply.released == {"1:a": b"1"}
    assert call("LRANGE", key, 0, -1) == [b"id1"]


def test_a_key_goes_with_the_outcome_that_ends_its_job(held, key, call, look):
    call("SET", key, "id1")
    held.settle(Entry("a", "1:a", Died(counts_failure=True), b"d", "id1", releases=key))
    assert call("EXISTS", key) == 0
    assert list(look().dead) == [b"d"]


def test_two_releases_find_their_own_keys(held, keys, call):
    for rest, value in (("u", "id1"), ("v", "id2")):
        call("SET", keys.unique("a", rest), value)
    held.settle(
        Entry("a", "1:a", Release(keys.unique("a", "u"), first_run=True), job_id="id1"),
        Entry("a", "3:a", Done()),
        Entry("a", "2:a", Release(keys.unique("a", "v"), first_run=True), job_id="id2"),
    )
    assert call("EXISTS", keys.unique("a", "u"), keys.unique("a", "v")) == 0


def test_giving_back_after_a_swap_gives_back_the_newest_job(held, key, call, look):
    call("SET", key, '{"name":"a"}')
    held.settle(Entry("a", "1:a", Release(key, first_run=True), job_id="id1"))
    held.settle(Entry("a", "1:a", GivenBack()))
    assert look().queues == {"a": [b'{"name":"a"}']}


# Suspects.


def test_a_suspect_is_named_in_the_state_and_cleared_when_it_ends(held, link, keys):
    held.settle(Entry("a", "2:a", NameSuspect()))
    assert link.run(maintain.read_state(keys, "p1"))[0] == "2:a"
    held.exchange(done={"a": ["1:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] == "2:a"
    held.exchange(done={"a": ["2:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
def test_a_suspect_is_cleared_by_any_outcome(held, link, keys, outcome):
    held.settle(Entry("a", "2:a", NameSuspect()))
    held.settle(Entry("a", "2:a", outcome, b"x"))
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


def test_the_next_suspect_is_named_in_the_exchange_that_ends_the_last(held, link, keys):
    held.settle(Entry("a", "2:a", NameSuspect()))
    held.settle(Entry("a", "2:a", Done()), Entry("a", "3:a", NameSuspect()))
    assert link.run(maintain.read_state(keys, "p1"))[0] == "3:a"
    held.exchange(entries=[Entry("a", "1:a", NameSuspect())], done={"a": ["3:a"]})
    assert link.run(maintain.read_state(keys, "p1"))[0] == "1:a"


def test_an_attempt_that_is_gone_is_not_named(held, link, keys):
    held.settle(Entry("a", "99:a", NameSuspect()))
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


def test_a_resend_does_not_name_a_suspect_that_ended_since(held, link, keys, call):
    held.settle(Entry("a", "2:a", NameSuspect()))
    call("HDEL", keys.state("p1"), "suspect")
    held.resend()
    assert link.run(maintain.read_state(keys, "p1"))[0] is None


# Limits.


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
def test_every_outcome_frees_its_place_in_the_limit(pool, put, outcome, link, keys, look):
    set_limit(keys, link, "a", 5)
    put("a", "1", "2")
    pool.fetch("a")
    pool.settle(Entry("a", "1:a", outcome, b"x"))
    assert look().held_sets == {"a": {"p1/2:a"}}


def test_what_is_stuck_keeps_its_place(pool, put, link, keys, look, call):
    set_limit(keys, link, "a", 5)
    put("a", "1")
    pool.fetch("a")
    call("SET", keys.dead, "x")
    pool.settle(Entry("a", "1:a", Died(counts_failure=True), b"x"))
    assert look().held_sets == {"a": {"p1/1:a"}}


# Cancelled jobs.


@pytest.mark.parametrize("outcome", [Retried(0), Snoozed(0), GivenBack(), Rewound()], ids=named)
@pytest.mark.parametrize("kill", [False, True])
def test_a_cancelled_job_is_kept_for_its_pool_to_end_and_goes_nowhere_else(
    held, link, keys, look, totals, outcome, kill
):
    assert link.run(operate.cancel(keys, "p1", "2:a", kill=kill))
    reply = held.settle(Entry("a", "1:a", outcome, b"r1"), Entry("a", "2:a", outcome, b"r2"))
    assert (reply.cancelled, reply.held) == ({"2:a": kill}, 2)
    assert look().held == {"p1": {"2:a": b"2", "3:a": b"3"}}
    assert held.settle(Entry("a", "2:a", Cancelled())).held == 1
    assert totals()["cancelled:a"] == 1


def test_a_resend_says_of_a_cancelled_job_that_it_was_not_settled(held, link, keys):
    link.run(operate.cancel(keys, "p1", "2:a"))
    held.settle(Entry("a", "2:a", GivenBack()))
    assert held.resend().stuck == ["2:a"]
    assert held.settle(Entry("a", "2:a", GivenBack())).cancelled == {"2:a": False}

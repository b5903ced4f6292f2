"""What becomes of the members of a batch, in the scripts that end jobs."""

from __future__ import annotations

import msgspec
import pytest

from dayjob.job import Job
from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    GivenBack,
    Kept,
    Reaped,
    Retried,
    Snoozed,
    Unreadable,
)
from dayjob.store import codec
from dayjob.store.link import walk
from dayjob.store.ops import batches, maintain
from dayjob.store.ops.batches import Member, MemberChunk, NewBatch, member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.member_groups import MemberGroup, bit_args
from dayjob.store.ops.produce import NewJob, Slot, When
from pools import Pool, set_limit

CALLBACKS = {
    event: b'{"name":"called","id":"%b"}' % event.encode() for event in ("success", "complete", "dead")
}


def chunk(count, *, above=(), new=True, closes=True, batch="b", when=When()):  # noqa: B008 - never changed
    payload = b'{"name":"a","args":{"membership":["x",1]},"membership":["%b",0],"at":1}' % batch.encode()
    jobs = [NewJob(Job("a"), payload, when, False, None, None, batch) for _ in range(count)]
    return MemberChunk(
        jobs, (batch, *above), NewBatch("what", dict(CALLBACKS)) if new else None, closes=closes
    )


@pytest.fixture
def add(keys, link):
    sent = iter(range(1, 100))
    return lambda *args, **options: link.run(
        batches.add_members(keys, Slot("s", next(sent)), chunk(*args, **options))
    )


@pytest.fixture
def pool(keys, link):
    return Pool(keys, link, names=["a"])


@pytest.fixture
def read(keys, link):
    return lambda batch="b": walk(link, batches.read(keys, batch))


@pytest.fixture
def called(call, keys):
    return lambda: sorted(
        msgspec.json.decode(raw)["id"]
        for raw in call("ZRANGE", keys.scheduled, 0, -1)
        if raw.startswith(b"{")
    )


def entry(token, outcome, number=0, ids=("b",), above=()):
    member = member_of(((*ids, *(one for one, _ in above)), (number, *(n for _, n in above))), outcome)
    return Entry("a", token, outcome, b"moved" + token.encode(), member=member)


def test_members_are_numbered_by_the_step_that_stores_them_and_arguments_stay_as_they_are(
    add, pool, call, keys
):
    add(2, closes=False)
    add(1, new=False)
    stored = [msgspec.json.decode(raw) for raw in call("LRANGE", keys.queue("a"), 0, -1)[::-1]]
    assert [job["membership"] for job in stored] == [["b", 0], ["b", 1], ["b", 2]]
    assert all(job["args"] == {"membership": ["x", 1]} for job in stored)
    assert codec.membership(codec.read(call("LINDEX", keys.queue("a"), 0))) == (("b",), (2,))


def test_a_resend_adds_no_member_twice(keys, link, read):
    op = batches.add_members(keys, Slot("s", 1), chunk(2))
    assert [link.run(op).new for _ in range(2)] == [True, False]
    assert read().total == 2


@pytest.mark.parametrize("outcome", [Done(), Kept(60), Dropped(counts_failure=False), Cancelled()])
def test_the_last_end_enqueues_the_callbacks_once(add, pool, read, called, keys, outcome):
    add(2)
    pool.fetch("a")
    pool.settle(entry("1:a", outcome))
    assert (read().left, called()) == (1, [])
    pool.settle(entry("2:a", outcome, 1))
    assert called() == ["complete", "success"]
    assert pool.resend().status == "again"
    assert (read().left, read().state) == (0, "succeeded")


@pytest.mark.parametrize("outcome", [Died(counts_failure=True), Dropped(counts_failure=True), Unreadable()])
def test_a_member_that_ends_as_a_failure_keeps_success_away(add, pool, read, called, outcome):
    add(1)
    pool.fetch("a")
    pool.settle(entry("1:a", outcome))
    assert called() == ["complete", "dead"]
    assert (read().dead, read().state) == (1, "failed")


@pytest.mark.parametrize("outcome", [Retried(1), Snoozed(1), GivenBack()])
def test_a_member_that_runs_again_has_not_ended(add, pool, read, called, outcome):
    add(1)
    pool.fetch("a")
    pool.settle(entry("1:a", outcome))
    assert (read().left, read().failed) == (1, int(isinstance(outcome, Retried)))
    assert "complete" not in str(called())


def test_a_late_outcome_ends_no_member(add, pool, read, call, keys):
    add(1)
    pool.fetch("a")
    call("HDEL", keys.held(pool.id), "1:a")
    assert pool.settle(entry("1:a", Done())).late == 1
    assert read().left == 1


# Plain completions of members, which are settled in groups.


def group(*members, ids=("b",), numbers=()):
    """Tokens and numbers of members that completed."""
    tokens, places = zip(*members, strict=True)
    return MemberGroup(ids, numbers, places, {"a": tokens})


def test_members_that_complete_in_one_request_end_at_once_and_the_last_calls_back(
    add, pool, read, called, call, keys
):
    add(4)
    pool.fetch("a")
    pool.exchange(members=[group(("1:a", 0), ("3:a", 2))])
    assert (read().ended, read().left, called()) == (2, 2, [])
    pool.exchange(members=[group(("2:a", 1), ("4:a", 3))])
    assert (called(), read().state) == (["complete", "success"], "succeeded")
    assert pool.resend().status == "again"
    assert (read().ended, call("HGET", keys.totals, "done:a")) == (4, b"4")


def test_a_late_completion_in_a_group_ends_no_member(add, pool, read, call, keys):
    add(3)
    pool.fetch("a")
    call("HDEL", keys.held(pool.id), "2:a")
    reply = pool.exchange(members=[group(("1:a", 0), ("2:a", 1), ("3:a", 2))])
    assert (reply.late, reply.held) == (1, 0)
    assert (read().ended, read().left) == (2, 1)
    bits = call("GET", keys.batch_ended("b"))
    assert [batches.has_bit(bits, n) for n in range(3)] == [True, False, True]
    assert call("HMGET", keys.totals, "done:a", "late:a") == [b"2", b"1"]


def test_a_group_ends_the_batch_above_and_members_that_had_failed_or_were_dead(add, pool, read, keys, call):
    add(0, batch="top", closes=False)
    add(2, above=("top",))
    add(0, batch="top", new=False)
    pool.fetch("a")
    call("SETBIT", keys.batch_failed("b"), 0, 1)
    call("SETBIT", keys.batch_dead("b"), 1, 1)
    pool.exchange(members=[group(("1:a", 0), ("2:a", 1), ids=("b", "top"), numbers=(0,))])
    assert (read().failed, read().dead, read().state) == (0, 0, "succeeded")
    assert (read("top").ended, read("top").state) == (1, "succeeded")


def test_members_of_a_group_free_their_places_in_the_limit(add, pool, keys, link, call):
    set_limit(keys, link, "a", 2)
    add(3)
    pool.fetch("a")
    pool.exchange(members=[group(("1:a", 0), ("2:a", 1))])
    assert call("SCARD", keys.held_of("a")) == 0
    assert len(pool.fetch("a")) == 1


@pytest.mark.parametrize("key", ["batch", "batch_ended", "batch_dead", "batch_failed"])
def test_a_key_of_a_wrong_type_or_none_does_not_keep_a_group_from_being_settled(add, pool, keys, call, key):
    add(2)
    pool.fetch("a")
    call("DEL", getattr(keys, key)("b"))
    assert pool.exchange(members=[group(("1:a", 0))]).held == 1
    call("DEL", getattr(keys, key)("b"))
    call("RPUSH", getattr(keys, key)("b"), "wrong")
    assert pool.exchange(members=[group(("2:a", 1))]).held == 0
    assert call("LRANGE", getattr(keys, key)("b"), 0, -1) == [b"wrong"]


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'["0f",7]', codec.PlainMember(b"0f", 7)),
        (b'["0f",7,"1e",0]', codec.PlainMember(b"0f", 7, b',"1e",0')),
        (b'["0f",-1]', None),
        (b'["w0f",7]', None),
        (b'["0f", 7]', None),
        (b'x"0f",7]', None),
        (b"[]", None),
        (b'["0f",7', None),
        (b'["0f",7' + b',"1e",0' * 8 + b"]", None),
    ],
)
def test_plain_members_are_those_of_batches_as_scripts_write_them(raw, found):
    wire = codec.Wire("a", membership=msgspec.Raw(raw))
    assert [codec.plain_member(wire) for _ in range(2)] == [found] * 2


@pytest.mark.parametrize(
    ("numbers", "parts"),
    [
        ([5], [("u1", 5)]),
        ([7, 5, 6, 9], [("u3", 5), ("u1", 9)]),
        (range(130), [("u63", 0), ("u63", 63), ("u4", 126)]),
        (range(0, 8, 2), [("u1", 0), ("u1", 2), ("u1", 4), ("u1", 6)]),
    ],
)
def test_the_bits_of_members_are_set_in_runs(call, keys, numbers, parts):
    args = bit_args(list(numbers))
    assert [(args[i + 1], args[i + 2]) for i in range(0, len(args), 4)] == parts
    call("BITFIELD", keys.batch_ended("b"), *args)
    bits = call("GET", keys.batch_ended("b"))
    assert [n for n in range(200) if batches.has_bit(bits, n)] == sorted(numbers)


def test_the_end_of_a_member_counts_once_however_often_it_is_noted(add, read, link, keys, called):
    add(2)
    for _ in range(2):
        link.run(batches.change_batch(keys, read(), "completed", [0]))
    assert (read().left, called()) == (1, [])


def test_a_sweep_ends_members_and_calls_back(add, pool, read, called, link, keys):
    add(2)
    pool.fetch("a")
    link.run(maintain.condemn(keys, lease=15.0, proven=[pool.id], judge=False))
    died = entry("2:a", Died(counts_failure=False), 1)
    link.run(maintain.sweep(keys, pool.id, [died, Entry("a", "1:a", Reaped(), b"back")]))
    assert (read().dead, read().left, called()) == (1, 1, ["dead"])


def test_a_batch_goes_up_to_the_one_above_when_it_ends_and_opens_it_again(add, pool, read, link, keys):
    add(0, batch="top", closes=False)
    add(1, above=("top",))
    add(0, batch="top", new=False)
    assert read().above == (("top",), (0,))
    pool.fetch("a")
    pool.settle(entry("1:a", Died(counts_failure=True), above=(("top", 0),)))
    assert (read("top").dead, read("top").state) == (1, "failed")
    link.run(batches.change_batch(keys, read(), "reopened", [0]))
    assert (read("top").left, read("top").dead, read("top").state) == (1, 0, "running")
    link.run(batches.change_batch(keys, read(), "completed", [0]))
    assert (read("top").state, read("top").ended) == ("succeeded", 1)


def test_an_empty_batch_in_another_ends_its_place_there(add, read):
    add(0, batch="top", closes=False)
    add(0, above=("top",))
    add(0, batch="top", new=False)
    assert (read().state, read("top").state, read("top").total) == ("succeeded", "succeeded", 1)


def test_nothing_joins_a_batch_that_has_ended_or_is_gone(add, read):
    add(0)
    assert not add(1, new=False).stored
    assert not add(1, new=False, batch="gone").stored


@pytest.mark.parametrize("key", ["batch", "batch_ended", "batch_dead", "batch_failed"])
def test_a_key_of_a_wrong_type_does_not_keep_members_from_being_settled(add, pool, keys, call, key):
    add(2)
    pool.fetch("a")
    call("DEL", getattr(keys, key)("b"))
    call("RPUSH", getattr(keys, key)("b"), "wrong")
    reply = pool.settle(entry("1:a", Done()), entry("2:a", Died(counts_failure=True), 1))
    assert (reply.held, reply.stuck) == (0, [])
    assert call("LRANGE", getattr(keys, key)("b"), 0, -1) == [b"wrong"]


def test_a_member_of_a_batch_that_is_gone_is_settled(add, pool, keys, call):
    add(1)
    pool.fetch("a")
    call("DEL", keys.batch("b"), keys.batch_ended("b"))
    assert pool.settle(entry("1:a", Done())).held == 0
    assert call("EXISTS", keys.batch("b"), keys.batch_ended("b")) == 0


def test_cancel_and_close_answer_whether_they_changed_something(add, read, link, keys, call):
    add(1, closes=False)
    assert read().state == "open"
    assert link.run(batches.change_batch(keys, read(), "close"))
    assert not link.run(batches.change_batch(keys, read(), "close"))
    assert link.run(batches.change_batch(keys, read(), "cancel"))
    assert not link.run(batches.change_batch(keys, read(), "cancel"))
    assert link.run(batches.cancelled(keys)) == {"b"}
    assert read().state == "cancelled"


def test_batches_are_listed_newest_first(add, keys, link):
    for batch in ("one", "two"):
        add(1, batch=batch)
    found = walk(link, batches.page(keys))
    assert {one.id for one in found} == {"one", "two"}
    assert [one.created_at for one in found] == sorted((one.created_at for one in found), reverse=True)
    assert found[0].callbacks == dict.fromkeys(CALLBACKS, "called")


@pytest.mark.parametrize("raw", [b"[]", b"7", b'["b"]', b'["b",-2]', b'["a b",1]', b'["b",1.5]'])
def test_a_membership_of_another_program_is_ignored(raw):
    assert codec.membership(codec.read(b'{"name":"a","membership":%b}' % raw)) is None
    assert Member(("b",), (1,), "dead").text == "1"

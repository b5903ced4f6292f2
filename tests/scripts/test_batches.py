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
from dayjob.store.ops import batches, maintain
from dayjob.store.ops.batches import Member, MemberChunk, NewBatch, member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.produce import NewJob, Slot, When
from dayjob.store.steps import walk
from pools import Pool

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

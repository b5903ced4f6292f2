"""What an atomic job enqueued: stored by the exchange that completes it, or staged and then released."""

from __future__ import annotations

import msgspec
import pytest

from dayjob.job import Job
from dayjob.outcome import Cancelled, Done, GivenBack, Kept, Retried
from dayjob.store.ops import children
from dayjob.store.ops.children import Children
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.produce import NewJob, When
from pools import Pool, fill, payloads_of


@pytest.fixture
def pool(keys, link):
    """A pool that holds two jobs of `a`."""
    found = Pool(keys, link, names=["a"])
    fill(keys, link, "a", "1", "2")
    assert found.fetch("a") == ["1:a", "2:a"]
    return found


def born(*names, when=When(), count=1, **fields):  # noqa: B008 - never changed
    """Children of these names; the payloads are their numbers."""
    found = Children()
    for n, name in enumerate(names * count):
        found.add([NewJob(Job(name, **fields), f"{name}{n}".encode(), when, "id" in fields, None)])
    return found


def waiting(call, keys, name):
    return call("LRANGE", keys.queue(name), 0, -1)[::-1]


@pytest.mark.parametrize("outcome", [Done(), Kept(60)])
def test_the_step_that_completes_an_attempt_stores_its_children_and_fetches_them(pool, keys, call, outcome):
    entry = Entry("a", "1:a", outcome, b"kept", children=born("a", "b", count=2))
    reply = pool.exchange("a", room=1, entries=[entry])
    assert payloads_of(reply) == [b"a0"]
    assert waiting(call, keys, "a") == [b"a2"]
    assert waiting(call, keys, "b") == [b"b1", b"b3"]
    assert call("ZCARD", keys.bell("b")) == 1
    assert call("SISMEMBER", keys.known_jobs, "b") == 1


def test_a_resend_and_a_late_copy_store_nothing_twice(pool, keys, call):
    pool.settle(Entry("a", "1:a", Done(), children=born("b")))
    first = pool.last
    assert pool.resend().status == "again"
    pool.exchange("a")
    assert pool.link.run(first).status == "late"
    assert waiting(call, keys, "b") == [b"b0"]


def test_an_attempt_that_is_gone_has_no_children(pool, keys, call):
    call("HDEL", keys.held(pool.id), "1:a")
    reply = pool.settle(Entry("a", "1:a", Done(), children=born("b")))
    assert reply.late == 1
    assert call("EXISTS", keys.queue("b"), keys.bell("b")) == 0


def test_children_of_one_attempt_do_not_depend_on_another(pool, keys, call):
    call("HDEL", keys.held(pool.id), "1:a")
    pool.settle(Entry("a", "1:a", Done(), children=born("b")), Entry("a", "2:a", Done(), children=born("c")))
    assert call("EXISTS", keys.queue("b")) == 0
    assert waiting(call, keys, "c") == [b"c0"]


@pytest.mark.parametrize("when", [When("in", 60_000), When("at", 4_000_000_000_000)])
def test_later_children_wait_in_scheduled_and_wake_the_leader(pool, keys, call, when):
    call("DEL", keys.due)
    pool.settle(Entry("a", "1:a", Done(), children=born("b", when=when)))
    ((member, score),) = [call("ZRANGE", keys.scheduled, 0, -1, "WITHSCORES")]
    assert member == b"b0"
    seconds = int(call("TIME")[0])
    assert float(score) == 4e9 or 30 < float(score) - seconds <= 61
    assert call("ZCARD", keys.due) == 1


def test_a_unique_child_is_stored_only_if_its_key_is_free_at_the_end(pool, keys, call):
    taken, free = keys.unique("b", "taken"), keys.unique("b", "free")
    call("SET", taken, "other")
    found = born("b", unique_key=taken)
    found.add(born("b", unique_key=free, id="x").jobs)
    found.add(born("b", id="x").jobs)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    assert waiting(call, keys, "b") == [b"b0"]
    assert (call("GET", taken), call("GET", free)) == (b"other", b"x")
    assert 2_591_900 <= call("TTL", free) <= 2_592_000
    assert call("GET", keys.job_id("x")) == b"0 b0"


@pytest.mark.parametrize("key", ["queue", "scheduled"])
def test_a_wrong_type_of_a_destination_leaves_the_attempt_held(pool, keys, call, key):
    when = When("in", 1000) if key == "scheduled" else When()
    wrong = keys.scheduled if key == "scheduled" else keys.queue("b")
    call("SET", wrong, "wrong")
    found = born("c")
    found.add(born("b", when=when).jobs)
    reply = pool.settle(Entry("a", "1:a", Done(), children=found))
    assert reply.stuck == ["1:a"]
    assert call("EXISTS", keys.queue("c")) == 0
    assert call("HEXISTS", keys.held(pool.id), "1:a") == 1


# Staging.


def stage(pool, token, found):
    """Send the parts, one in each exchange."""
    while (part := found.next_part()) is not None:
        pool.settle(Entry("a", token, part, children=found))


def release_all(link, keys):
    for record in link.run(children.released(keys)):
        while link.run(children.release(keys, record)):
            pass


def test_staged_children_are_released_in_order_by_the_step_that_completes_the_attempt(pool, keys, call, link):
    found = born("b", "a", count=600)
    assert found.large
    stage(pool, "1:a", found)
    assert call("EXISTS", keys.queue("b"), keys.queue("a"), keys.released) == 0
    assert 3590 <= call("TTL", keys.staged(pool.id, "1:a", 0)) <= 3600
    assert call("LLEN", keys.staged(pool.id, "1:a", 1)) == 600
    call("DEL", keys.due)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    assert call("TTL", keys.staged(pool.id, "1:a", 0)) == -1
    assert call("ZCARD", keys.due) == 1
    release_all(link, keys)
    assert waiting(call, keys, "b") == [f"b{n}".encode() for n in range(0, 1200, 2)]
    assert waiting(call, keys, "a") == [f"a{n}".encode() for n in range(1, 1200, 2)]
    assert call("EXISTS", keys.released, keys.staged(pool.id, "1:a", 0), keys.staged(pool.id, "1:a", 1)) == 0


def test_two_leaders_release_each_job_once(pool, keys, call, link):
    found = born("b", count=700)
    stage(pool, "1:a", found)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    (record,) = link.run(children.released(keys))
    assert [link.run(children.release(keys, record)) for _ in range(3)] == [200, 0, 0]
    assert len(waiting(call, keys, "b")) == 700


@pytest.mark.parametrize("outcome", [Retried(1), GivenBack(), Cancelled()])
def test_what_an_attempt_staged_is_not_released_if_it_does_not_complete(pool, keys, call, outcome):
    found = born("b", count=700)
    stage(pool, "1:a", found)
    pool.settle(Entry("a", "1:a", outcome, b"again"))
    assert call("EXISTS", keys.released, keys.queue("b")) == 0
    assert call("TTL", keys.staged(pool.id, "1:a", 0)) > 0


def test_an_attempt_whose_staged_list_is_incomplete_is_not_settled_and_stages_again(pool, keys, call, link):
    found = born("b", count=700)
    stage(pool, "1:a", found)
    call("RPOP", keys.staged(pool.id, "1:a", 0))
    reply = pool.settle(Entry("a", "1:a", Done(), children=found))
    assert reply.stuck == ["1:a"]
    assert call("EXISTS", keys.released) == 0
    found.stage_again()
    stage(pool, "1:a", found)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    release_all(link, keys)
    assert waiting(call, keys, "b") == [f"b{n}".encode() for n in range(700)]


def test_a_part_that_is_sent_again_is_staged_once(pool, keys, call):
    found = born("b", count=700)
    pool.settle(Entry("a", "1:a", found.next_part(), children=found))
    assert pool.resend().status == "again"
    pool.settle(Entry("a", "1:a", found.next_part(), children=found))
    assert call("LLEN", keys.staged(pool.id, "1:a", 0)) == 700


def test_staged_jobs_are_due_and_expire_as_of_the_completion(pool, keys, call, link):
    found = Children()
    payload = b'{"name":"b","expires":1,"at":2}'
    found.add([NewJob(Job("b"), payload, When("in", 60_000), False, None, 30.0) for _ in range(2)])
    stage(pool, "1:a", found)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    completed = int(call("ZRANGE", keys.released, 0, 0, "WITHSCORES")[1])
    release_all(link, keys)
    member, score = call("ZRANGE", keys.scheduled, 0, 0, "WITHSCORES")
    assert float(score) == (completed + 60_000) / 1000
    assert msgspec.json.decode(member)["expires"] == completed + 30_000


def test_a_release_moves_one_mebibyte_at_most(pool, keys, call, link):
    found = Children()
    found.add([NewJob(Job("b"), b"x" * 200_000, When(), False, None) for _ in range(60)])
    stage(pool, "1:a", found)
    pool.settle(Entry("a", "1:a", Done(), children=found))
    (record,) = link.run(children.released(keys))
    assert link.run(children.release(keys, record)) == 10
    assert call("LLEN", keys.queue("b")) == 50

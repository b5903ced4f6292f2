from __future__ import annotations

import pytest

from dayjob.outcome import Cancelled, Died, Dropped, Reaped, Retried, Unreadable
from dayjob.store.ops import maintain
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.maintain import Swept
from pools import set_limit


@pytest.fixture
def sweep(keys, link):
    return lambda *rescues, pool_id="p1": link.run(maintain.sweep(keys, pool_id, rescues))


@pytest.fixture
def condemned(pool, put, link, keys):
    """A condemned pool that holds jobs 1 to 4 of `a` and 5 of `b`, the bells silent."""
    put("a", *"1234")
    put("b", "5")
    pool.exchange("a", "b", room=5)
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))


def back(number, name="a", payload=None):
    return Entry(name, f"{number}:{name}", Reaped(), b"%d" % number if payload is None else payload)


def test_attempts_go_back_to_the_head_of_their_queues_the_oldest_first(
    condemned, sweep, put, look, totals, call, keys
):
    put("a", "new")
    assert sweep(*map(back, (4, 3, 2, 1))) == Swept(True, 4, 1)
    assert look().queues == {"a": [b"1", b"2", b"3", b"4", b"new"]}
    assert look().held == {"p1": {"5:b": b"5"}}
    assert totals() == {"reaped:a": 4}
    assert (call("ZCARD", keys.bell("a")), call("EXISTS", keys.bell("b"))) == (1, 0)


def test_each_kind_goes_where_it_says_with_its_new_bytes(condemned, sweep, look, totals, now, call, keys):
    before = now()
    answer = sweep(
        Entry("a", "4:a", Reaped(), b"d1"),
        Entry("a", "3:a", Died(counts_failure=False), b"d3"),
        Entry("a", "2:a", Retried(15), b"f1"),
        Entry("a", "1:a", Unreadable(), b"h\n1"),
        Entry("b", "5:b", Dropped(counts_failure=False)),
    )
    assert answer == Swept(True, 5, 0)
    found = look()
    assert (found.queues, found.broken, found.held) == ({"a": [b"d1"]}, [b"h\n1"], {})
    assert int(before) <= found.dead[b"d3"] <= now()
    assert before + 14.999 <= found.retry[b"f1"] < now() + 16
    assert found.retry[b"f1"].is_integer()
    assert call("ZCARD", keys.due) == 1
    assert totals() == {
        "reaped:a": 1, "dead:a": 1, "failed:a": 1, "retried:a": 1, "broken:a": 1, "discarded:b": 1,
    }  # fmt: skip


def test_the_pool_is_forgotten_when_nothing_is_left_and_not_before(condemned, sweep, call, keys, link):
    call("SET", keys.pool("p1"), "{}")
    sweep(*map(back, (4, 3, 2, 1)))
    assert call("EXISTS", keys.state("p1"), keys.pool("p1")) == 2
    assert call("ZRANGE", keys.condemned, 0, -1) == [b"p1"]
    assert sweep(back(5, "b")) == Swept(True, 1, 0)
    assert call("EXISTS", keys.state("p1"), keys.pool("p1"), keys.held("p1"), keys.condemned) == 0


def test_a_condemned_pool_that_held_nothing_is_forgotten_at_once(pool, sweep, link, keys, call):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert sweep() == Swept(True, 0, 0)
    assert call("EXISTS", keys.state("p1"), keys.condemned) == 0


def test_a_pool_that_is_not_condemned_is_not_touched(pool, put, sweep, everything):
    put("a", "1")
    pool.fetch("a")
    before = everything()
    assert sweep(back(1)) == Swept(False, 0, 0)
    assert everything() == before


def test_two_sweepers_move_each_attempt_once(condemned, sweep, look):
    sweep(back(4), back(3))
    assert sweep(back(4), back(3), back(2)) == Swept(True, 1, 2)
    assert look().queues == {"a": [b"2", b"3", b"4"]}


def test_places_of_a_limit_become_free_and_ring(pool, put, sweep, link, keys, call, look):
    set_limit(keys, link, "a", 2)
    put("a", *"123")
    pool.fetch("a")
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    call("DEL", keys.bell("a"))
    assert look().held_sets == {"a": {"p1/1:a", "p1/2:a"}}
    sweep(Entry("a", "2:a", Died(counts_failure=False), b"x"))
    assert look().held_sets == {"a": {"p1/1:a"}}
    assert call("ZCARD", keys.bell("a")) == 1


@pytest.mark.parametrize(("value", "left"), [("id1", 0), ("id2", 1)])
@pytest.mark.parametrize(
    "outcome", [Died(counts_failure=False), Dropped(counts_failure=False), Cancelled()], ids=repr
)
def test_what_ends_here_releases_its_unique_key_if_it_owns_it(
    condemned, sweep, call, keys, outcome, value, left
):
    key = keys.unique("a", "u")
    call("SET", key, value)
    sweep(Entry("a", "1:a", outcome, b"x", "id1", releases=key))
    assert call("EXISTS", key) == left


def test_an_attempt_that_is_gone_releases_nothing(condemned, sweep, call, keys):
    key = keys.unique("a", "u")
    call("SET", key, "id1")
    sweep(Entry("a", "99:a", Died(counts_failure=False), b"x", "id1", releases=key))
    assert call("GET", key) == b"id1"


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [
        ("queue", Reaped()),
        ("dead", Died(counts_failure=False)),
        ("retry", Retried(0)),
        ("broken", Unreadable()),
    ],
)
def test_what_has_nowhere_to_go_stays_held_and_its_neighbours_go_on(
    condemned, sweep, look, call, keys, wrong, outcome
):
    call("SET", keys.queue("a") if wrong == "queue" else getattr(keys, wrong), "x")
    assert sweep(Entry("a", "1:a", outcome, b"x"), back(5, "b")) == Swept(True, 1, 4)
    assert look().held["p1"]["1:a"] == b"1"
    assert look().queues["b"] == [b"5"]
    assert call("ZCARD", keys.condemned) == 1


def test_a_fail_that_ends_the_job_is_counted_as_a_fail(condemned, sweep, totals):
    """The culprit of a kill has a fail more in its bytes; the totals say the same."""
    sweep(
        Entry("a", "1:a", Died(counts_failure=True), b"x"),
        Entry("a", "2:a", Dropped(counts_failure=True)),
        Entry("a", "3:a", Died(counts_failure=False), b"y"),
    )
    assert totals() == {"dead:a": 2, "discarded:a": 1, "failed:a": 2}


def test_a_cancelled_job_is_dropped_and_counted_as_cancelled(condemned, sweep, look, totals):
    assert sweep(Entry("a", "1:a", Cancelled())) == Swept(True, 1, 4)
    assert totals() == {"cancelled:a": 1}
    assert "1:a" not in look().held["p1"]

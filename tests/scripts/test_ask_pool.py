from __future__ import annotations

import pytest

from dayjob.store.ops import maintain, membership, operate


@pytest.fixture
def ask(keys, link):
    return lambda what, pool_id="p1": link.run(operate.ask_pool(keys, pool_id, what))


@pytest.fixture
def heard(keys, link):
    return lambda: set(link.run(membership.beat(keys, "p1", lease=15.0)).requests)


def test_a_request_is_read_with_every_beat_until_the_pool_is_gone(ask, heard, pool, link, keys, call):
    """The parent of a supervised pool beats for it, too: what one beat took away the pool might never hear."""
    assert heard() == set()
    assert ask("quiet") == "new"
    assert ask("stop") == "new"
    assert heard() == heard() == {"quiet", "stop"}
    assert ask("quiet") == "already"
    link.run(membership.leave(keys, "p1"))
    assert call("EXISTS", keys.state("p1")) == 0


def test_requests_and_cancels_are_kept_apart(ask, heard, pool, put, link, keys):
    put("a", "1")
    pool.fetch("a")
    link.run(operate.cancel(keys, "p1", "1:a"))
    ask("quiet")
    answer = link.run(membership.beat(keys, "p1", lease=15.0))
    assert (answer.requests, answer.cancel) == (("quiet",), ("1:a",))


def test_nothing_can_be_asked_of_a_pool_that_is_gone(ask, pool, link, keys, call):
    assert ask("stop", "nobody") == "gone"
    assert call("EXISTS", keys.state("nobody")) == 0
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert ask("stop") == "gone"
    assert not any(field.startswith(b"wish:") for field in call("HKEYS", keys.state("p1")))


def test_of_quiet_and_resume_the_last_request_counts_until_the_pool_has_done_it(ask, heard, pool, link, keys):
    assert ask("quiet") == "new"
    assert ask("resume") == "new"
    assert heard() == {"resume"}
    assert ask("resume") == "already"
    link.run(membership.drop_request(keys, "p1", "resume"))
    assert heard() == set()
    ask("resume")
    assert ask("quiet") == "new"
    assert heard() == {"quiet"}

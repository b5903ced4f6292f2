from __future__ import annotations

import pytest

from dayjob.store.ops import maintain, membership


@pytest.fixture
def set_cause(keys, link):
    return lambda token, why: link.run(membership.set_cause(keys, "p1", token, why))


def test_the_culprit_and_the_cause_are_noted_for_the_sweep(pool, put, set_cause, link, keys):
    put("a", "1", "2")
    pool.fetch("a")
    assert set_cause("2:a", "ran too long") == 1
    assert link.run(maintain.read_state(keys, "p1")) == (None, "2:a", "ran too long")


def test_an_attempt_that_ended_in_the_meantime_is_not_to_blame(pool, put, set_cause, link, keys):
    put("a", "1")
    pool.fetch("a")
    pool.exchange(done={"a": ["1:a"]})
    assert set_cause("1:a", "ran too long") == 0
    assert link.run(maintain.read_state(keys, "p1")) == (None, None, None)


def test_a_kill_may_have_a_cause_and_no_culprit(pool, set_cause, link, keys):
    assert set_cause("", "too large") == 1
    assert link.run(maintain.read_state(keys, "p1")) == (None, "", "too large")


@pytest.mark.parametrize("token", ["1:a", ""])
def test_a_pool_that_is_gone_gets_no_state(set_cause, call, keys, token):
    """Nobody would ever delete it."""
    assert set_cause(token, "ran too long") == 0
    assert call("EXISTS", keys.state("p1")) == 0

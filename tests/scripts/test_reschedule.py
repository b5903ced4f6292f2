from __future__ import annotations

import pytest

from dayjob.errors import Rejected
from dayjob.store.ops import operate


def test_the_score_changes_and_the_leader_is_woken(keys, link, call, look, now):
    call("ZADD", keys.scheduled, 5, "x")
    assert link.run(operate.reschedule(keys, keys.scheduled, b"x", "at", 4e9)) == 4e9
    assert look().scheduled == {b"x": 4e9}
    due = link.run(operate.reschedule(keys, keys.scheduled, b"x", "in", 60))
    assert 59 < due - now() <= 60
    assert call("ZCARD", keys.due) == 1


def test_a_job_that_moved_on_does_not_come_back(keys, link, everything):
    assert link.run(operate.reschedule(keys, keys.scheduled, b"x", "in", 60)) is None
    assert everything() == {}


def test_a_time_out_of_range_changes_nothing(keys, link, call, look):
    call("ZADD", keys.scheduled, 5, "x")
    with pytest.raises(Rejected, match="out of range"):
        link.run(operate.reschedule(keys, keys.scheduled, b"x", "at", 1e13))
    assert look().scheduled == {b"x": 5.0}

"""The registration of a pool in Redis."""

from __future__ import annotations

from typing import Any

import pytest

from dayjob.errors import Unavailable
from dayjob.store.keys import Keys
from dayjob.store.ops.membership import Joined
from dayjob.worker.membership import Membership
from dayjob.worker.state import PoolState

KEYS = Keys("test")


class Steps:
    """A connection, a parent process and an announcer that note in which order they are called."""

    def __init__(self, *answers: Any) -> None:
        self.state = PoolState()
        self.answers = list(answers)
        self.calls: list[str] = []
        self.published: list[str] = []
        self.membership = Membership(
            KEYS, self, self.state, ["a"],  # type: ignore[arg-type]
            tag="", lease=15.0, publish=self._publish, restore=self._restore,
        )  # fmt: skip

    def run(self, op):
        self.calls.append("redis")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _publish(self, pool_id: str) -> None:
        self.calls.append("publish")
        self.published.append(pool_id)

    def _restore(self, link, now: float) -> None:
        self.calls.append("restore")


def test_a_pool_publishes_its_id_before_redis_knows_it():
    steps = Steps(Joined(True, 500.0, True))
    steps.membership.join()
    assert steps.calls == ["publish", "redis"]
    assert steps.published == [steps.state.pool_id]
    assert steps.state.leads
    assert 500.0 <= steps.state.clock.now() < 560.0


def test_an_id_is_never_registered_twice():
    steps = Steps(Joined(False, 500.0, False), Joined(True, 500.0, False))
    with pytest.raises(Unavailable):
        steps.membership.join()
    steps.membership.join()
    first, second = steps.published
    assert first != second == steps.state.pool_id


def test_after_a_condemnation_the_limits_are_restored_under_the_new_id():
    steps = Steps(Joined(True, 500.0, False))
    steps.membership.rejoin()
    assert steps.calls == ["publish", "redis", "restore"]


def test_a_pool_that_cannot_leave_leaves_the_rest_to_other_pools(caplog):
    steps = Steps(Unavailable("away"))
    steps.membership.leave()
    assert "Another pool removes it when its lease ends" in caplog.text


@pytest.mark.parametrize(("left", "lines"), [(0, 0), (3, 1)])
def test_attempts_that_a_pool_leaves_behind_are_logged(caplog, left, lines):
    Steps(left).membership.leave()
    assert len(caplog.records) == lines

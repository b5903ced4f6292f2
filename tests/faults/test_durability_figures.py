"""The measure of durability measures: what must be lost is seen to be lost, and what must not be is not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from faults import durability
from faults.durability import (
    SETUPS,
    Figures,
    Said,
    disk,
    failover,
    kill,
    note,
    power_loss,
    promised,
    table,
    trial,
)

BY_NAME = {setup.name: setup for setup in SETUPS}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(durability, "SPAN", (0.3, 0.5))


def test_a_server_that_writes_nothing_loses_all_it_was_told():
    said, found = trial(BY_NAME["nothing on disk"], kill, None, random.Random(1))
    assert said.answered
    assert not found


def test_a_server_that_syncs_always_loses_nothing_that_it_answered():
    said, found = trial(BY_NAME["AOF always"], kill, None, random.Random(1))
    assert said.answered
    assert said.answered <= found


def test_power_takes_what_was_not_synced_and_leaves_what_was():
    with disk() as place:
        if place is None:
            pytest.skip("needs root, a loop device and ext4")
        said, found = trial(BY_NAME["AOF always"], power_loss, place, random.Random(1))
        assert said.answered <= found
        never = replace(BY_NAME["AOF everysec"], options=("--appendonly", "yes", "--appendfsync", "no"))
        # The kernel may write everything to the disk at any moment, also just before the power is lost.
        lost = (answered - found for answered, found in trials(never, place))
        assert any(lost)


def trials(setup, place) -> Iterator[tuple[set[str], set[str]]]:
    """What was answered and what was found, in up to ten losses of power."""
    for seed in range(10):
        said, found = trial(setup, power_loss, place, random.Random(seed))
        yield said.answered, found


def test_a_replica_that_was_waited_for_has_all_that_was_answered():
    said, found = failover(BY_NAME['a replica, `durability="replicas:1"`'], random.Random(1), stalled=True)
    assert said.answered <= found
    said, found = failover(BY_NAME["a replica"], random.Random(1), stalled=True)
    assert said.answered - found


def test_a_line_counts_what_is_missing_and_what_was_unknown():
    line = Figures("s", "AOF always", "power failure")
    note(line, Said({"a", "b", "c"}, {"d", "e"}), {"a", "d"})
    note(line, Said({"f"}, set()), {"f"})
    assert (line.trials, line.answered, line.lost, line.worst, line.unknown, line.found) == (2, 4, 2, 2, 2, 1)
    assert promised(line)
    assert "2 (50.0%)" in table([line])
    assert not promised(Figures("s", "AOF everysec", "power failure"))

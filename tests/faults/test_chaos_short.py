"""The short form of the chaos campaign: real processes, two faults at a time, and a ledger that is checked at the end."""

from __future__ import annotations

import os
import random

import pytest

from chaos import recovery, runner, stops, topologies
from chaos.faults import KINDS
from chaos.stops import Case
from server import running

#: Another one repeats another run.
SEED = int(os.environ.get("CHAOS_SEED", "1"))


@pytest.mark.timeout(400)
def test_under_chaos_nothing_is_lost_and_every_repeat_has_a_cause(tmp_path):
    result = runner.run(tmp_path, SEED, 0.6, small=True, bulk=100_000)
    assert result.violations == []
    assert result.lost == result.unexplained == 0
    # It was a real one.
    assert result.jobs > 100
    assert result.bulk > 1000
    assert result.rests >= 1
    assert len(result.faults) > 8


def test_there_are_faults_of_more_than_twenty_kinds_and_each_area_has_some():
    assert len(KINDS) > 20
    assert {kind.area for kind in KINDS.values()} == {"workers", "jobs", "server", "network", "operator"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    [
        Case(supervised=False, kind="async_stubborn", weather="refused", deadline=0.0),
        Case(supervised=False, kind="blocking", weather="black hole", deadline=0.0),
        Case(supervised=False, kind="mixed", weather="fine", deadline=0.5),
        Case(supervised=True, kind="async_stubborn", weather="refused", deadline=0.5),
        Case(supervised=True, kind="gil", weather="fine", deadline=0.5),
    ],
    ids=str,
)
def test_a_stop_keeps_its_deadline_and_a_second_whatever_its_jobs_and_its_server_do(
    tmp_path, namespace, case
):
    """A machine with too much to do is late for everybody: what is late three times in a row is late by itself."""
    with running(tmp_path) as server:
        program = tmp_path / "stops.py"
        program.write_text(stops.PROGRAM)
        for number in range(3):
            rng = random.Random(f"{SEED}/{number}")
            tried = stops.attempt(case, program, server.port, f"{namespace}-{number}", rng)
            if tried.took - tried.starved < case.deadline + 1.0 and tried.held == 0:
                break
        else:
            raise AssertionError(f"late three times in a row, last {tried}")


@pytest.mark.timeout(120)
def test_a_slot_that_moves_through_a_cluster_under_load_loses_and_doubles_nothing(tmp_path):
    outcome = topologies.reshards(tmp_path, SEED, 3)
    assert outcome.violations == []
    assert outcome.lost == outcome.doubled == 0
    assert outcome.jobs > 10


@pytest.mark.timeout(300)
def test_a_failover_loses_nothing_that_the_replica_had(tmp_path):
    outcome = topologies.failovers(tmp_path, SEED, 1)
    assert outcome.lost == outcome.unexplained == 0
    assert outcome.confirmed > 0


def test_figures_of_a_recovery_say_which_promise_was_broken():
    found = recovery.Recovery(1)
    found.add("kill -9 of a child", 0.4, 1.0)
    assert found.violations == []
    found.add("kill -9 of a child", 1.4, 1.0)
    assert len(found.violations) == 1

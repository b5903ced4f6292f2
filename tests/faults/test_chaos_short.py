"""The short form of the chaos campaign: real processes, two faults at a time, and a ledger that is checked at the end."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from chaos import recovery, runner, stops, topologies
from chaos.faults import KINDS
from chaos.jobs import RULES
from chaos.stops import Case
from server import running

#: Another one repeats another run.
SEED = int(os.environ.get("CHAOS_SEED", "1"))


#: The rules of a campaign, but for how long things take: that depends on what else the machine of these tests does.
UNTIMED = replace(RULES, stop=600.0, resume=None)
#: Seconds. A pool of these tests that is suspended for less keeps its jobs.
LONG_LEASE = "60"


@pytest.mark.timeout(900)
def test_under_chaos_nothing_is_lost_and_every_repeat_has_a_cause(tmp_path):
    result = runner.run(tmp_path, SEED, 0.6, small=True, bulk=100_000, rules=UNTIMED)
    assert result.violations == []
    assert result.lost == result.unexplained == 0
    # It was a real one.
    assert result.jobs > 10
    assert result.bulk > 10
    assert result.rests >= 1
    assert len(result.faults) > 3


def test_there_are_faults_of_more_than_twenty_kinds_and_each_area_has_some():
    assert len(KINDS) > 20
    assert {kind.area for kind in KINDS.values()} == {"workers", "jobs", "server", "network", "operator"}


def test_broken_promises_are_counted_on_both_servers():
    found = ["I12: a: 3 ran at once", "after it was emptied: I20: b", "I22: batch c: stuck", "bulk: 1 lost"]
    assert runner.count_broken(found, "I12", "I20") == 2
    assert runner.count_broken(found, "I21", "I22", "I23") == 1


@pytest.mark.timeout(900)
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
def test_a_stop_waits_neither_for_jobs_that_go_on_nor_for_a_server_that_is_away(tmp_path, namespace, case):
    """Its jobs take a minute. Campaigns measure that a stop takes its deadline and a second at most.

    A machine that suspends the pool or the server for as long keeps the pool from giving back what it holds: an attempt
    that is held after each of five stops is held because of the pool.
    """
    with running(tmp_path) as server:
        program = tmp_path / "stops.py"
        program.write_text(stops.PROGRAM)
        for number in range(5):
            rng = random.Random(f"{SEED}/{number}")
            tried = stops.attempt(case, program, server.port, f"{namespace}-{number}", rng)
            assert tried.took < case.deadline + 30.0
            if tried.held == 0:
                break
        else:
            raise AssertionError(f"held attempts after each stop, last {tried}")


def test_a_slot_that_moves_through_a_cluster_under_load_loses_and_doubles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOS_LEASE", LONG_LEASE)
    outcome = topologies.reshards(tmp_path, SEED, 3, resume=60.0)
    assert outcome.violations == []
    assert outcome.lost == outcome.doubled == 0
    assert outcome.jobs > 3


def test_a_failover_loses_nothing_that_the_replica_had(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOS_LEASE", LONG_LEASE)
    outcome = topologies.failovers(tmp_path, SEED, 1, resume=60.0, down_after=30.0)
    assert outcome.lost == outcome.unexplained == 0
    assert outcome.confirmed > 0


def test_figures_of_a_recovery_say_which_promise_was_broken():
    found = recovery.Recovery(1)
    found.add("kill -9 of a child", 0.4, 1.0)
    assert found.violations == []
    found.add("kill -9 of a child", 1.4, 1.0)
    assert len(found.violations) == 1


@pytest.mark.parametrize(
    ("first", "second", "known"),
    [
        (95.0, 128.0, True),
        (103.0, 128.0, True),
        (89.0, 128.0, False),
        (95.0, 98.0, False),
        (127.0, 130.0, False),
    ],
    ids=["lately", "during a long failover", "long before", "again before it", "after it"],
)
def test_a_repeat_is_explained_by_a_failover_that_its_first_start_was_near(first, second, known):
    assert topologies.forgotten(first, second, [(100.0, 125.0)]) is known

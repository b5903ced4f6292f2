"""When the leader wakes up: a scheduled job must not wait for a blocking command that the server ends too late."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest

from dayjob.store.keys import Keys
from dayjob.worker.chores import chores
from dayjob.worker.chores.chores import IDLE_RING_SECONDS, RING_SECONDS, Chores
from dayjob.worker.chores.due_bell import BLOCKING_OVERRUN_SECONDS, MAX_BLOCKING_SECONDS, DueBell
from dayjob.worker.state import PoolState

KEYS = Keys("shop")


class Silence:
    """A link on which no bell rings. Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple] = []

    def run(self, op):
        self.sent.append((op.command, *op.keys, *op.args))


@pytest.fixture
def leader(monkeypatch):
    """Make the chores of a leader whose next job is due after some seconds, and whose clock stands still."""
    monkeypatch.setattr(chores, "time", SimpleNamespace(monotonic=lambda: 1000.0))

    def make(due: float | None, tick: float | None = None) -> tuple[Chores, Silence, DueBell]:
        link, state = Silence(), PoolState()
        state.leads = True
        bell = DueBell(KEYS, link, beat=5.0)
        made = Chores(
            KEYS, link, state, requeuer=SimpleNamespace(step=lambda: due), releaser=None, reaper=None,
            periodic=SimpleNamespace(step=lambda: tick), trimmer=SimpleNamespace(repair_limits=None), recorder=None, announcer=None,
            watcher=SimpleNamespace(check_server=None, watch_queues=None), key_keeper=SimpleNamespace(repair=None),
            due=bell, lease=15.0, dead_age=0.0,
        )  # fmt: skip
        # The other chores were done a moment ago.
        made._parked_at = math.inf
        made._next = dict.fromkeys(
            ("restore", "round", "ring", "repair", "names", "keys", "forget", "server", "queues", "release"),
            2000.0,
        )
        return made, link, bell

    return make


@pytest.mark.parametrize(("due", "tick"), [(0.3, None), (0.45, 0.3), (None, 0.3)])
def test_the_server_ends_the_wait_before_the_next_job_is_due_even_if_it_is_late(leader, due, tick):
    made, link, _ = leader(due, tick)
    assert made.step() == 0.0
    assert link.sent == [("BZPOPMIN", KEYS.due, f"{0.3 - BLOCKING_OVERRUN_SECONDS:.3f}")]


@pytest.mark.parametrize("due", [0.002, 0.05, BLOCKING_OVERRUN_SECONDS - 0.001])
def test_a_short_wait_does_not_depend_on_the_server(leader, due):
    made, link, _ = leader(due)
    made.step()
    assert link.sent == []


def test_a_leader_with_nothing_due_waits_for_the_bell(leader):
    made, link, _ = leader(None)
    assert made.step() == 0.0
    assert link.sent == [("BZPOPMIN", KEYS.due, f"{MAX_BLOCKING_SECONDS - BLOCKING_OVERRUN_SECONDS:.3f}")]


def test_while_the_listener_waits_for_the_bell_the_chores_send_nothing(leader):
    made, link, bell = leader(None)
    bell.listener_waits()
    stepping = threading.Thread(target=made.step)
    stepping.start()
    bell.ring()
    stepping.join(60)
    assert not stepping.is_alive()
    assert link.sent == []
    assert made._due_at == made._parked_at == 0.0


def test_when_the_listener_stops_waiting_the_chores_wait_by_themselves(leader):
    made, link, bell = leader(None)
    bell.listener_waits()
    stepping = threading.Thread(target=made.step)
    stepping.start()
    bell.listener_stopped()
    stepping.join(60)
    assert not stepping.is_alive()
    made.step()
    # Twice if the listener stopped before the first of the two steps began to wait.
    assert [command for command, *_ in link.sent] in (["BZPOPMIN"], ["BZPOPMIN"] * 2)


def test_a_bell_that_rings_between_two_waits_is_not_lost():
    bell = DueBell(KEYS, Silence(), beat=5.0)
    bell.listener_waits()
    bell.ring()
    bell.listener_stopped()
    assert bell.wait(60.0)
    assert not bell.wait(0.001)


def test_a_closed_bell_waits_no_more():
    bell = DueBell(KEYS, Silence(), beat=5.0)
    bell.listener_waits()
    bell.close()
    assert not bell.wait(60.0)


class Queues(Silence):
    """A link to one queue, for which a number of bells are rung."""

    def __init__(self, rung: int) -> None:
        super().__init__()
        self.rung = rung

    def run(self, op):
        super().run(op)
        return ["a"] if op.command == "SMEMBERS" else self.rung


@pytest.mark.parametrize(("rung", "wait"), [(0, IDLE_RING_SECONDS), (1, RING_SECONDS)])
def test_bells_are_rung_more_often_once_a_job_was_found_whose_program_does_not_ring(leader, rung, wait):
    made, _, _ = leader(0.01)
    made._link = Queues(rung)
    made._next["ring"] = 0.0
    made.step()
    assert made._next["ring"] == 1000.0 + wait

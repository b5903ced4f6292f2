"""When the leader wakes up: a scheduled job must not wait for a blocking command that the server ends too late."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest

from dayjob.store.keys import Keys
from dayjob.store.ops.membership import LeaderRound
from dayjob.worker.chores import chores
from dayjob.worker.chores.chores import IDLE_ROUND_SECONDS, ROUND_SECONDS, Chores
from dayjob.worker.chores.due_bell import BLOCKING_OVERRUN_SECONDS, MAX_BLOCKING_SECONDS, DueBell
from dayjob.worker.fetching.listener import PARTIAL_WAIT_SECONDS, WAIT_SECONDS, Listener
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
            watcher=SimpleNamespace(check_server=None, watch_queues=None), key_repairer=SimpleNamespace(repair=None),
            due=bell, lease=15.0, dead_age=0.0,
        )  # fmt: skip
        # The other chores were done a moment ago.
        made._parked_at = made._release_at = math.inf
        made._next = dict.fromkeys(
            ("restore", "round", "repair", "names", "keys", "forget", "server", "queues"), 2000.0
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
    """A link to some queues, of which each request finds a number that can be fetched from."""

    def __init__(self, names: int, rung: int) -> None:
        super().__init__()
        self.names, self.rung = [f"n{i}" for i in range(names)], rung

    def run(self, op):
        super().run(op)
        if op.command == "SMEMBERS":
            return self.names
        if op.command.name == "ring":
            return self.rung
        return LeaderRound(True, [], None, None, len(self.names), (0, None), (0, None), self.rung, 0)

    @property
    def commands(self) -> list[str]:
        return [command if isinstance(command, str) else command.name for command, *_ in self.sent]


@pytest.fixture
def round_of(leader):
    """Make the round of a leader with this link. Returns its chores."""

    def make(link: Queues) -> Chores:
        made, _, _ = leader(0.01)
        made._link, made._next["round"] = link, 0.0
        made._reaper = SimpleNamespace(sweep_all=lambda ids: None)
        made._trimmer = SimpleNamespace(over_caps=lambda found, now: False, repair_limits=None)
        made._recorder = SimpleNamespace(record=lambda now, names: None, forget_types=None)
        made.step()
        return made

    return make


@pytest.mark.parametrize(("rung", "wait"), [(0, IDLE_ROUND_SECONDS), (1, ROUND_SECONDS)])
def test_rounds_are_more_frequent_once_a_job_was_found_whose_program_does_not_ring(round_of, rung, wait):
    assert round_of(Queues(1, rung))._next["round"] == 1000.0 + wait


@pytest.mark.parametrize(("names", "rings"), [(3, 0), (200, 0), (201, 1), (450, 2)])
def test_a_round_is_one_request_and_one_more_for_each_200_names(round_of, names, rings):
    link = Queues(names, 0)
    made = round_of(link)
    # The first round does not know the names yet.
    assert link.commands == ["lead", "SMEMBERS", *["ring"] * math.ceil(names / 200), "SMEMBERS"]
    link.sent.clear()
    made._next["round"] = 0.0
    made.step()
    assert link.commands == ["lead", *["ring"] * rings]
    asked = [name for _, *words in link.sent for name in link.names if name in words]
    assert sorted(asked) == sorted(link.names)


@pytest.mark.parametrize(("armed", "seconds"), [(["a", "b"], WAIT_SECONDS), (["a"], PARTIAL_WAIT_SECONDS)])
def test_a_listener_that_does_not_wait_for_all_names_looks_again_soon(armed, seconds):
    link = Silence()
    listener = Listener(
        KEYS, link, ["a", "b"], lambda name: None, lambda: None, state=PoolState(), due=DueBell(KEYS, link, beat=5.0)
    )  # fmt: skip
    listener.arm(armed)
    listener.step()
    assert link.sent == [("BZPOPMIN", *(KEYS.bell(name) for name in armed), f"{seconds:.3f}")]

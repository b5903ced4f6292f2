"""The start gate: attempts that need something from Redis before they start."""

from __future__ import annotations

import msgspec
import pytest

from attempts import new_attempt, new_job_type
from dayjob.outcome import NameSuspect, Release
from dayjob.retry import SUSPECT
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import MAX_SETTLED, Entry, Reply
from dayjob.worker.fetching.start_gate import MAX_WAITING_SUSPECTS, StartGate
from dayjob.worker.running.awake_clock import AwakeClock
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS

KEYS = Keys("t")
KEY = KEYS.unique("a", "k")


@pytest.fixture
def gate() -> StartGate:
    return StartGate(KEYS, AwakeClock())


def reply(released=None) -> Reply:
    return Reply("ok", 1.0, 0, 0, [], released or {}, [], [], [])


def unique(number: int = 1, **wire):
    return new_attempt(number, unique=True, unique_key=KEY, **wire)


def suspect(number: int = 1):
    return new_attempt(number, deaths=SUSPECT)


def test_a_plain_attempt_may_start_at_once(gate):
    assert not gate.stops(new_attempt())
    assert not gate.waiting
    assert not gate.due(10)
    assert gate.ask(10) == []
    assert gate.coming == 0


def test_a_unique_attempt_starts_after_its_key_is_released(gate):
    attempt = unique()
    assert gate.stops(attempt)
    assert attempt.job_type.unique
    assert gate.waiting
    assert gate.guarding
    assert gate.due(1)
    entries = gate.ask(1)
    assert entries == [Entry("a", "1:a", Release(KEY, first_run=True), job_id="id1")]
    assert (gate.waiting, gate.coming) == (False, 1)
    assert gate.answered(entries, reply({"1:a": attempt.payload})) == ([attempt], [])
    assert attempt.released
    assert gate.coming == 0


@pytest.mark.parametrize("count", ["fails", "deaths", "snoozes"])
def test_a_later_run_of_a_unique_job_does_not_claim_to_be_the_first(gate, count):
    gate.stops(unique(**{count: 1}))
    assert gate.ask(1)[0].outcome == Release(KEY, first_run=False)


def test_a_unique_attempt_waits_for_a_free_worker(gate):
    attempts = [unique(number) for number in (1, 2, 3)]
    for attempt in attempts:
        assert gate.stops(attempt)
        attempt.given_at += 100
    assert not gate.due(0)
    assert gate.ask(0) == []
    assert [entry.token for entry in gate.ask(2)] == ["1:a", "2:a"]
    assert not gate.due(2), "the two idle slots are taken by those that were asked for"
    assert gate.ask(2) == []
    assert gate.coming == 3


def test_one_exchange_asks_for_a_bounded_number_of_keys(gate):
    for number in range(MAX_SETTLED + 1):
        gate.stops(unique(number))
    assert len(gate.ask(10_000)) == MAX_SETTLED


def test_a_unique_attempt_that_waited_too_long_is_given_back(gate):
    old, new = unique(1), unique(2)
    gate.stops(old)
    gate.stops(new)
    old.given_at -= 2 * GIVE_BACK_AFTER_SECONDS
    new.given_at += 100
    assert gate.due(0)
    assert gate.turn_back(everything=False) == [old]
    assert not gate.due(0)
    assert gate.turn_back(everything=False) == []


def test_a_pool_that_stops_takes_everything_back_that_it_did_not_ask_for(gate):
    asked, waiting, suspected = unique(1), unique(2), suspect(3)
    for attempt in (asked, waiting):
        gate.stops(attempt)
    gate.ask(1)
    gate.stops(suspected)
    assert gate.turn_back(everything=True) == [waiting, suspected]
    assert not gate.waiting
    assert gate.answered([], reply({"1:a": asked.payload})) == ([asked], [])


def test_a_job_whose_key_is_held_until_it_is_done_may_start_at_once(gate):
    assert not gate.stops(unique(unique_until="done"))
    job_type = new_job_type(unique_until="done")
    assert not gate.stops(new_attempt(1, job_type, unique=True, unique_key=KEY))
    assert gate.stops(new_attempt(1, job_type, unique=True, unique_key=KEY, unique_until="start"))


def test_a_key_outside_the_unique_ones_is_not_released(gate):
    assert not gate.stops(new_attempt(1, unique=True, unique_key=KEYS.leader))


def test_the_key_of_a_job_whose_enqueuer_did_not_write_it_is_worked_out(gate):
    attempt = new_attempt(1, unique=True, args=msgspec.Raw(b'{"n": 1}'))
    assert gate.stops(attempt)
    assert gate.ask(1)[0].outcome.unique_key == KEYS.unique("a", '{"n":1}\n')


def test_an_attempt_whose_key_another_job_took_may_not_start(gate):
    attempt = unique()
    gate.stops(attempt)
    entries = gate.ask(1)
    assert gate.answered(entries, reply({"1:a": None})) == ([], [(attempt, None)])


def test_newer_arguments_in_the_key_replace_those_of_the_attempt(gate):
    attempt = unique()
    gate.stops(attempt)
    newer = codec.write(b'"a"', "id1", 1.0, b'{"n": 2}')
    assert gate.answered(gate.ask(1), reply({"1:a": newer})) == ([attempt], [])
    assert attempt.payload == newer
    assert bytes(attempt.wire.args) == b'{"n": 2}'


def test_an_attempt_whose_newer_payload_is_no_job_may_not_start(gate):
    attempt = unique()
    gate.stops(attempt)
    before = attempt.payload
    assert gate.answered(gate.ask(1), reply({"1:a": b"\xff"})) == ([], [(attempt, b"\xff")])
    assert attempt.payload == before


def test_suspects_are_named_one_at_a_time(gate):
    one, two = suspect(1), suspect(2)
    assert gate.stops(one)
    assert gate.stops(two)
    assert gate.due(0)
    assert not gate.guarding
    entries = gate.ask(0)
    assert entries == [Entry("a", "1:a", NameSuspect())]
    assert gate.suspecting
    assert not gate.due(10)
    assert gate.ask(10) == []
    assert gate.answered(entries, reply()) == ([one], [])
    gate.ended(two)
    assert gate.suspecting, "another attempt ended, not the suspect"
    gate.ended(one)
    assert not gate.suspecting
    assert gate.ask(0) == [Entry("a", "2:a", NameSuspect())]


def test_a_suspect_does_not_start_before_it_is_named(gate):
    gate.stops(suspect(1))
    gate.ask(0)
    assert gate.answered(
        [Entry("a", "9:a", NameSuspect()), Entry("a", "1:a", Release(KEY, first_run=True))], reply()
    ) == ([], [])


def test_a_unique_suspect_is_released_first_and_named_then(gate):
    attempt = unique(deaths=SUSPECT)
    gate.stops(attempt)
    entries = gate.ask(1)
    assert [entry.outcome for entry in entries] == [Release(KEY, first_run=False)]
    payload = attempt.payload
    assert gate.answered(entries, reply({"1:a": payload})) == ([], [])
    entries = gate.ask(1)
    assert [entry.outcome for entry in entries] == [NameSuspect()]
    assert gate.answered(entries, reply()) == ([attempt], [])


def test_suspects_count_for_the_budget_when_many_wait(gate):
    for number in range(MAX_WAITING_SUSPECTS):
        gate.stops(suspect(number))
    assert gate.coming == 0
    gate.stops(suspect(1000))
    assert gate.coming == 1


def test_a_named_suspect_counts_for_the_budget_until_it_is_handed_over(gate):
    attempt = suspect()
    gate.stops(attempt)
    gate.ask(0)
    assert gate.coming == 1
    attempt.given_at = 1.0
    assert gate.coming == 0


def test_lost_attempts_are_neither_asked_for_nor_let_through(gate):
    early, late, suspected = unique(1), unique(2), suspect(3)
    for attempt in (early, late, suspected):
        gate.stops(attempt)
    early.lost = suspected.lost = True
    entries = gate.ask(10)
    assert [entry.token for entry in entries] == ["2:a"]
    late.lost = True
    assert gate.answered(entries, reply({"2:a": late.payload})) == ([], [])
    assert not gate.waiting


def test_a_cleared_gate_holds_nothing(gate):
    for number in (1, 2):
        gate.stops(unique(number))
        gate.stops(suspect(number))
    gate.ask(1)
    gate.clear()
    assert (gate.waiting, gate.suspecting, gate.coming, gate.ask(10)) == (False, False, 0, [])

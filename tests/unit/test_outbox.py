"""The outbox: what one exchange carries of what waits to be settled."""

from __future__ import annotations

import math
import time

import pytest

from attempts import new_attempt, new_job_type
from dayjob.outcome import Died, GivenBack, Kept, Retried, Unreadable
from dayjob.retry import SUSPECT
from dayjob.store.codec import PlainMember
from dayjob.store.keys import Keys
from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.member_groups import MemberGroup
from dayjob.worker.fetching.history import HistoryRecorder
from dayjob.worker.fetching.outbox import MAX_STUCK, OutcomeOutbox
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.awake_clock import AwakeClock
from dayjob.worker.state import PoolState

HALF = b"x" * (consume.MAX_BYTES // 2)


@pytest.fixture
def outbox() -> OutcomeOutbox:
    state = PoolState()
    return OutcomeOutbox(StartGate(Keys("t"), AwakeClock()), HistoryRecorder(state), state.emits)


def finished(count: int) -> list[Attempt]:
    """Attempts with a result of half a mebibyte each."""
    job_type = new_job_type()
    attempts = [new_attempt(number, job_type) for number in range(1, count + 1)]
    for attempt in attempts:
        attempt.settlement = Entry("a", attempt.token, Kept(1), b"{}", "id", HALF)
    return attempts


def take_all(outbox: OutcomeOutbox) -> list[list[str]]:
    """The tokens of each exchange, until nothing waits."""
    taken = []
    while outbox.due():
        entries, _ = outbox.take(0.0)
        taken.append([entry.token for entry in entries])
    return taken


def test_large_results_are_spread_over_several_exchanges(outbox):
    outbox.finished.extend(finished(5))
    assert take_all(outbox) == [["1:a", "2:a"], ["3:a", "4:a"], ["5:a"]]


def test_a_result_larger_than_an_exchange_goes_alone(outbox):
    large, small = finished(2)
    large.settlement = Entry("a", "1:a", Kept(1), b"{}", "id", 9 * HALF)
    outbox.finished.extend((large, small))
    assert take_all(outbox) == [["1:a"], ["2:a"]]


def test_what_no_executor_had_leaves_no_room_for_results_when_it_is_large(outbox):
    outbox.entries.extend(Entry("a", f"{n}:a", Unreadable(), HALF) for n in (7, 8, 9))
    outbox.finished.extend(finished(1))
    assert take_all(outbox) == [["7:a", "8:a"], ["9:a", "1:a"]]


def test_outcomes_that_were_stuck_are_bounded_by_their_bytes_too(outbox):
    for attempt in finished(5):
        outbox.stick(attempt.settlement)
    entries, _ = outbox.take(0.0)
    assert [entry.token for entry in entries] == ["1:a", "2:a"]
    assert outbox.stuck


def test_one_outcome_that_was_stuck_is_tried_again_beside_large_results(outbox):
    outbox.stick(Entry("a", "9:a", Kept(1), b"{}", "id", HALF))
    outbox.finished.extend(finished(5))
    entries, _ = outbox.take(0.0)
    assert [entry.token for entry in entries] == ["1:a", "2:a", "9:a"]


def test_plain_completions_are_grouped_by_name(outbox):
    one, other = new_job_type("a"), new_job_type("b")
    outbox.finished.extend([new_attempt(1, one), new_attempt(2, other), new_attempt(3, one)])
    assert len(outbox) == 3
    assert outbox.take(0.0) == ([], {"a": ["1:a", "3:a"], "b": ["2:b"]})
    assert (len(outbox), outbox.due()) == (0, False)


def test_completed_members_are_grouped_by_batch_beside_other_outcomes(outbox):
    """A name whose attempts did not end as members of a batch is not in the group of the batch."""
    one, other, third = new_job_type("a"), new_job_type("b"), new_job_type("c")
    attempts = [new_attempt(number, one if number < 3 else other) for number in range(1, 6)]
    for attempt in attempts:
        attempt.settlement = PlainMember(b"f0", int(attempt.id[2:]))
    attempts[3].settlement = PlainMember(b"f1", 7, b',"f0",9')
    attempts[4].lost = True
    failed = new_attempt(6, third)
    failed.settlement = Entry("c", "6:c", Retried(1.0), b"{}")
    outbox.finished.extend([*attempts, failed, new_attempt(7, one)])
    entries, done = outbox.take(0.0)
    assert ([entry.token for entry in entries], done) == (["6:c"], {"a": ["7:a"]})
    assert outbox.take_members() == [
        MemberGroup(("f0",), [], [1, 2, 3], {"a": ["1:a", "2:a"], "b": ["3:b"]}),
        MemberGroup(("f1", "f0"), [9], [7], {"b": ["4:b"]}),
    ]
    assert outbox.take_members() == []


def test_one_exchange_carries_a_bounded_number_of_outcomes(outbox):
    job_type = new_job_type()
    outbox.entries.append(Entry("a", "9999:a", GivenBack()))
    outbox.finished.extend(new_attempt(number, job_type) for number in range(consume.MAX_SETTLED))
    entries, done = outbox.take(0.0)
    assert len(entries) + len(done["a"]) == consume.MAX_SETTLED
    assert outbox.take(0.0) == ([], {"a": [f"{consume.MAX_SETTLED - 1}:a"]})


def test_lost_attempts_are_learnt_from_and_not_sent(outbox):
    plain, failed = finished(2)
    plain.settlement = None
    for attempt in (plain, failed):
        attempt.lost, attempt.ran = True, 1.0
    outbox.finished.extend((plain, failed))
    assert outbox.take(0.0) == ([], {})
    assert sum(plain.job_type.runs.values()) == 2
    assert plain.job_type.fails == 0


def test_failed_attempts_are_counted_for_their_job_type(outbox):
    attempts = finished(3)
    attempts[0].settlement = Entry("a", "1:a", Retried(0.005), b"{}")
    attempts[1].settlement = Entry("a", "2:a", Died(counts_failure=True), b"{}", releases="key")
    outbox.finished.extend(attempts)
    outbox.take(0.0)
    assert attempts[0].job_type.fails == 2


def test_an_outcome_that_is_held_waits_for_its_time_or_for_the_pool_to_stop(outbox):
    job_type = new_job_type()
    attempt, behind = new_attempt(1, job_type), new_attempt(2, job_type)
    attempt.hold_until, behind.hold_until = math.inf, 0.0
    outbox.later.extend((attempt, behind))
    assert not outbox.due()
    assert outbox.take(0.0) == ([], {})
    job_type.pool.stopping = True
    assert outbox.due()
    assert outbox.take(0.0) == ([], {"a": ["1:a", "2:a"]})


def test_finished_attempts_may_wait_for_more_of_them_and_nothing_else_may(outbox):
    outbox.finished.extend(finished(2))
    assert not outbox.due(2)
    assert outbox.due(1)
    outbox.entries.append(Entry("a", "9:a", Unreadable(), b"{}"))
    assert outbox.due(2)


def test_an_outcome_is_sent_when_its_time_has_come(outbox):
    attempt = new_attempt(1)
    attempt.hold_until = time.monotonic()
    outbox.later.append(attempt)
    assert outbox.due()
    assert outbox.take(0.0) == ([], {"a": ["1:a"]})


def test_stuck_outcomes_are_tried_again_no_more_than_once_in_a_while(outbox):
    entry = Entry("a", "1:a", Retried(0.005), b"{}")
    outbox.stick(entry)
    assert outbox.due()
    assert len(outbox) == 0, "what is stuck does not keep a pool from stopping"
    assert outbox.take(0.0) == ([entry], {})
    outbox.stick(entry)
    outbox._stuck_at += 100
    assert outbox.stuck
    assert not outbox.due()
    assert outbox.take(0.0) == ([], {})


def test_one_exchange_tries_a_bounded_number_of_stuck_outcomes(outbox):
    for number in range(MAX_STUCK + 1):
        outbox.stick(Entry("a", f"{number}:a", GivenBack()))
    entries, _ = outbox.take(0.0)
    assert [entry.token for entry in entries] == [f"{number}:a" for number in range(MAX_STUCK)]


def test_a_pool_that_lost_its_id_sends_none_of_its_old_entries(outbox):
    outbox.entries.append(Entry("a", "1:a", GivenBack()))
    outbox.stick(Entry("a", "2:a", GivenBack()))
    outbox.clear()
    assert (len(outbox), outbox.due(), outbox.stuck) == (0, False, False)


def test_the_end_of_a_suspect_lets_the_next_one_be_named():
    gate = StartGate(Keys("t"), AwakeClock())
    state = PoolState()
    outbox = OutcomeOutbox(gate, HistoryRecorder(state), state.emits)
    attempt = new_attempt(1, deaths=SUSPECT)
    gate.stops(attempt)
    gate.ask(0)
    outbox.finished.append(new_attempt(2))
    outbox.take(0.0)
    assert gate.suspecting
    outbox.finished.append(attempt)
    outbox.take(0.0)
    assert not gate.suspecting

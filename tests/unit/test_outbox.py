"""The outbox: what one exchange carries of what waits to be settled."""

from __future__ import annotations

import pytest

from dayjob import WorkerPool
from dayjob.store.codec import Wire
from dayjob.store.keys import Keys
from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry
from dayjob.worker.fetching.outbox import Outbox
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.pool_job_type import PoolFlags, PoolJobType
from dayjob.worker.running.attempt import Attempt

HALF = b"x" * (consume.MAX_BYTES // 2)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(StartGate(Keys("t")))


def finished(count: int) -> list[Attempt]:
    """Attempts with a result of half a mebibyte each."""
    job_type = PoolJobType(WorkerPool().register("a", lambda: None), lambda *_: None, PoolFlags(), None)
    attempts = [Attempt(f"{n}:a", "a", b"{}", Wire("a"), job_type) for n in range(1, count + 1)]
    for attempt in attempts:
        attempt.settlement = [Entry("keep", "a", attempt.token, b"{}", 1000, "key", HALF)]
    return attempts


def take_all(outbox: Outbox) -> list[list[str]]:
    """The tokens of each exchange, until nothing waits."""
    taken = []
    while outbox.due:
        entries, _ = outbox.take(0.0)
        taken.append([entry.token for entry in entries])
    return taken


def test_large_results_are_spread_over_several_exchanges(outbox):
    outbox.finished.extend(finished(5))
    assert take_all(outbox) == [["1:a", "2:a"], ["3:a", "4:a"], ["5:a"]]


def test_a_result_larger_than_an_exchange_goes_alone(outbox):
    large, small = finished(2)
    large.settlement = [Entry("keep", "a", "1:a", b"{}", 1000, "key", 9 * HALF)]
    outbox.finished.extend((large, small))
    assert take_all(outbox) == [["1:a"], ["2:a"]]


def test_what_no_executor_had_leaves_no_room_for_results_when_it_is_large(outbox):
    outbox.entries.extend(Entry("broken", "a", f"{n}:a", HALF) for n in (7, 8, 9))
    outbox.finished.extend(finished(1))
    assert take_all(outbox) == [["7:a", "8:a"], ["9:a", "1:a"]]


def test_outcomes_that_were_stuck_are_bounded_by_their_bytes_too(outbox):
    for attempt in finished(5):
        outbox.stick(attempt.settlement[0])
    entries, _ = outbox.take(0.0)
    assert [entry.token for entry in entries] == ["1:a", "2:a"]
    assert outbox.stuck


def test_one_outcome_that_was_stuck_is_tried_again_beside_large_results(outbox):
    outbox.stick(Entry("keep", "a", "9:a", b"{}", 1000, "key", HALF))
    outbox.finished.extend(finished(5))
    entries, _ = outbox.take(0.0)
    assert [entry.token for entry in entries] == ["1:a", "2:a", "9:a"]

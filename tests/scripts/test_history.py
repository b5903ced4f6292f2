"""The records of ended attempts: written once, in the step that ends the attempt, and capped."""

from __future__ import annotations

import pytest

from dayjob.outcome import Cancelled, Died, Reaped, Retried
from dayjob.store.ops import history, maintain, operate
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.history import UNKNOWN_CAPS, AttemptLines, HistoryCaps, StoredRecord, new_records
from records import all_records

CAPS = HistoryCaps(1000, 60.0)


def records(*ids, caps=CAPS, completed=True, name="a"):
    found = [StoredRecord(job_id, "completed" if completed else "retried", 1000) for job_id in ids]
    return new_records(name, found, caps, completed=completed)


def failed(number, outcome=None):
    token = f"{number}:a"
    outcome = outcome or Retried(60)
    return Entry("a", token, outcome, b"new%d" % number, records=records(str(number), completed=False))


@pytest.fixture
def held(pool, put):
    """The pool holds jobs 1, 2 and 3 of `a`."""
    put("a", "1", "2", "3")
    pool.fetch("a")
    return pool


@pytest.fixture
def recorded(keys, link):
    """The ids in the history of `a`, oldest first: those that completed, or the others."""

    def found(*, completed=True, name="a"):
        kept = all_records(link, history.stream(keys, name, completed=completed))
        return [one.record.id for one in reversed(kept)]

    return found


def test_records_of_completed_attempts_are_added_in_their_order(held, recorded):
    held.exchange(done={"a": ["1:a", "2:a"]}, records=[records("1", "2")])
    held.exchange(done={"a": ["3:a"]}, records=[records("3"), records("x", name="b")])
    assert recorded() == ["1", "2", "3"]
    assert recorded(name="b") == ["x"]
    assert recorded(completed=False) == []


def test_a_resend_records_nothing_twice(held, recorded):
    held.exchange(done={"a": ["1:a"]}, entries=[failed(2)], records=[records("1")])
    assert held.resend().status == "again"
    assert (recorded(), recorded(completed=False)) == (["1"], ["2"])


def test_a_request_of_a_condemned_pool_records_nothing(held, recorded, keys, link):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert held.exchange(done={"a": ["1:a"]}, entries=[failed(2)], records=[records("1")]).status == "refused"
    assert recorded() + recorded(completed=False) == []


def test_a_late_completion_is_not_recorded_as_completed(held, recorded, call, keys):
    call("HDEL", keys.held("p1"), "1:a")
    assert held.exchange(done={"a": ["1:a"]}, records=[records("1")]).late == 1
    assert recorded() == []


def test_a_late_failure_is_not_recorded_and_its_neighbour_is(held, recorded, call, keys):
    call("HDEL", keys.held("p1"), "1:a")
    assert held.exchange(entries=[failed(1), failed(2)]).late == 1
    assert recorded(completed=False) == ["2"]


def test_an_outcome_that_cannot_be_stored_is_recorded_when_it_is(held, recorded, call, keys):
    call("SET", keys.retry, "wrong")
    assert held.exchange(entries=[failed(1)]).stuck == ["1:a"]
    assert recorded(completed=False) == []
    call("DEL", keys.retry)
    held.exchange(entries=[failed(1)])
    assert recorded(completed=False) == ["1"]


def test_a_cancelled_job_is_recorded_once_however_its_attempt_ended(held, recorded, keys, link):
    link.run(operate.cancel(keys, "p1", "1:a"))
    assert held.exchange(entries=[failed(1)]).cancelled == {"1:a": False}
    assert recorded(completed=False) == []
    held.exchange(entries=[failed(1, Cancelled())])
    assert recorded(completed=False) == ["1"]


def test_the_history_keeps_about_as_many_records_as_its_cap(held, recorded, call, keys):
    for first in range(0, 1500, 500):
        held.exchange(records=[records(*map(str, range(first, first + 500)), caps=HistoryCaps(200, 60))])
    kept = recorded()
    assert 200 <= len(kept) <= 300
    assert kept[-1] == "1499"


def test_old_records_are_dropped_and_the_key_expires(held, recorded, call, keys):
    key = keys.history("a")
    # Trimming drops whole nodes of the stream, of 100 entries by default.
    for n in range(150):
        call("XADD", key, f"{1000 + n}-0", "r", f'["old{n}","completed",1]')
    held.exchange(records=[records("new")])
    assert recorded()[-1] == "new"
    assert "old0" not in recorded()
    assert 0 < call("PTTL", key) <= 60_000


def test_a_history_of_a_wrong_type_hinders_no_outcome(held, look, call, keys):
    call("SET", keys.history("a"), "wrong")
    call("SET", keys.history_other("a"), "wrong")
    reply = held.exchange(done={"a": ["1:a"]}, entries=[failed(2)], records=[records("1")])
    assert (reply.status, reply.late, reply.stuck) == ("ok", 0, [])
    assert look().held == {"p1": {"3:a": b"3"}}


def test_a_record_takes_less_than_150_bytes(held, call, keys):
    many = [
        StoredRecord(
            f"{n:024x}", "completed", 1_763_430_000_000 + n, 1234, 56_789, 1300, 1, "f" * 24, "acme", tag="v1.2.3"
        )
        for n in range(500)
    ]  # fmt: skip
    for _ in range(20):
        held.exchange(records=[new_records("a", many, HistoryCaps(20_000, 60.0), completed=True)])
    key = keys.history("a")
    assert call("XLEN", key) == 10_000
    assert call("MEMORY", "USAGE", key, "SAMPLES", 0) / 10_000 < 150


# Sweep.


@pytest.fixture
def condemned(held, link, keys):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))


def test_a_sweep_records_what_it_moves_and_nothing_twice(condemned, recorded, keys, link):
    entries = [failed(3, Reaped()), failed(2, Died(counts_failure=True))]
    link.run(maintain.sweep(keys, "p1", entries))
    link.run(maintain.sweep(keys, "p1", [*entries, failed(1, Reaped())]))
    assert recorded(completed=False) == ["3", "2", "1"]


def test_a_sweep_that_does_not_know_the_caps_removes_nothing_and_still_expires(
    condemned, recorded, call, keys, link
):
    key = keys.history_other("a")
    for n in range(150):
        call("XADD", key, f"{1000 + n}-0", "r", f'["old{n}","retried",1]')
    entry = Entry(
        "a", "1:a", Reaped(), b"1", records=records("1", caps=UNKNOWN_CAPS, completed=False)
    )  # fmt: skip
    link.run(maintain.sweep(keys, "p1", [entry]))
    assert len(recorded(completed=False)) == 151
    assert call("PTTL", key) > 0
    call("PEXPIRE", key, 1000 * 86400_000)
    second = Entry("a", "2:a", Reaped(), b"2", records=records("2", caps=UNKNOWN_CAPS, completed=False))
    link.run(maintain.sweep(keys, "p1", [second]))
    assert len(recorded(completed=False)) == 152
    assert call("PTTL", key) > 10 * 86400_000


# Log lines.


def logged(number, attempt):
    lines = AttemptLines(str(number), attempt, b"line", 60_000)
    return Entry("a", f"{number}:a", Retried(60), b"new%d" % number, logs=lines)


def test_log_lines_are_kept_with_the_outcome_of_their_attempt_and_expire(held, call, keys):
    call("HDEL", keys.held("p1"), "2:a")
    held.exchange(entries=[logged(1, 1), logged(2, 1)])
    held.resend()
    assert call("HGETALL", keys.logs("1")) == [b"1", b"line"]
    assert call("EXISTS", keys.logs("2")) == 0
    assert 0 < call("PTTL", keys.logs("1")) <= 60_000


def test_the_lines_of_the_last_ten_attempts_are_kept(held, call, keys):
    call("HSET", keys.logs("1"), 3, "old", 4, "kept")
    held.exchange(entries=[logged(1, 13)])
    assert sorted(call("HKEYS", keys.logs("1"))) == [b"13", b"4"]

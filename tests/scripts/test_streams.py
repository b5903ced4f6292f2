"""What attempts emit, in the exchange: written while they are held, once, and dropped when the next attempt begins."""

from __future__ import annotations

import pytest

from dayjob.outcome import Died, Done, Dropped, Emit, GivenBack, Kept, Retried
from dayjob.store.ops import streams
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.streams import ENDED_MS, RUNNING_MS, StreamPart


def part(values=b'"x"', *, attempt=1, begins=False, **more):
    return StreamPart("j1", "a", attempt, values, begins=begins, **more)


def emit(values=b'"x"', of="1:a", **more):
    return Entry("a", of, Emit(), stream=part(values, **more))


@pytest.fixture
def held(pool, put):
    """The pool holds jobs 1, 2 and 3 of `a`."""
    put("a", "1", "2", "3")
    pool.fetch("a")
    return pool


@pytest.fixture
def stream(keys, link):
    """The entries of the stream of job j1."""
    return lambda after="0-0": link.run(streams.read_stream(keys, "j1", after, wait_ms=0))


def values(entries):
    return [value for entry in entries for value in entry.values]


def test_values_are_added_in_order_with_their_attempt(held, stream):
    held.exchange(entries=[emit(b'1\n"two"', begins=True)])
    held.exchange(entries=[emit(b"[3]")])
    first, second = stream()
    assert (first.values, second.values) == ([b"1", b'"two"'], [b"[3]"])
    assert (first.attempt, first.name, first.pool_id, first.token, first.end) == (1, "a", "p1", "1:a", "")
    assert (second.attempt, second.name, second.pool_id) == (1, "", "")


def test_a_resend_adds_nothing(held, stream):
    held.exchange(entries=[emit(b"1", begins=True)])
    held.exchange(entries=[emit(b"2")])
    held.resend()
    assert values(stream()) == [b"1", b"2"]


def test_an_attempt_that_is_not_held_adds_nothing(held, stream, call, keys):
    call("HDEL", keys.held("p1"), "1:a")
    held.exchange(entries=[emit(begins=True)])
    assert stream() == []


def test_what_a_lost_attempt_emits_does_not_come_behind_the_next_attempt(
    held, new_pool, stream, put, call, keys
):
    held.exchange(entries=[emit(b'"old"', begins=True)])
    call("HDEL", keys.held("p1"), "1:a")
    put("a", "again")
    other = new_pool(pool_id="p2")
    other.fetch("a")
    other.exchange(entries=[emit(b'"new"', attempt=2, begins=True)])
    held.exchange(entries=[emit(b'"late"'), Entry("a", "1:a", Done(), stream=part(b'"later"'))])
    assert values(stream()) == [b'"new"']
    assert [entry.end for entry in stream()] == [""]


def test_the_first_values_of_an_attempt_drop_those_before_and_ids_go_on(held, stream):
    held.exchange(entries=[emit(b'"old"', begins=True)])
    (old,) = stream()
    held.exchange(entries=[Entry("a", "1:a", Retried(60), b"new", stream=part(b""))])
    held.exchange(entries=[emit(b'"new"', of="2:a", attempt=2, begins=True)])
    assert values(stream()) == [b'"new"']
    assert values(stream(old.id)) == [b'"new"']


@pytest.mark.parametrize(
    ("outcome", "end", "why"),
    [
        (Done(), "completed", ""), (Kept(60), "completed", ""), (Retried(1), "again", ""), (GivenBack(), "again", ""),
        (Died(counts_failure=True), "failed", ""), (Dropped(counts_failure=False, why="too old"), "failed", "too old"),
    ],
)  # fmt: skip
def test_the_step_that_ends_an_attempt_ends_its_stream(held, stream, call, keys, outcome, end, why):
    held.exchange(entries=[emit(b"1", begins=True)])
    held.exchange(entries=[Entry("a", "1:a", outcome, b"new", "j1", stream=part(b"2\n3"))])
    assert values(stream()) == [b"1", b"2", b"3"]
    last = stream()[-1]
    assert (last.end, last.why, last.attempt) == (end, why, 1)
    life = RUNNING_MS if end == "again" else ENDED_MS
    assert life - 60_000 < call("PTTL", keys.stream("j1")) <= life


def test_a_stream_lives_as_long_as_the_result_if_that_is_longer(held, call, keys):
    done = Entry(
        "a", "1:a", Kept(2 * ENDED_MS / 1000), b"new", "j1", stream=part(begins=True, keep_ms=2 * ENDED_MS)
    )
    held.exchange(entries=[done])
    assert call("PTTL", keys.stream("j1")) > ENDED_MS


def test_a_late_outcome_ends_no_stream(held, stream, call, keys):
    held.exchange(entries=[emit(begins=True)])
    call("HDEL", keys.held("p1"), "1:a")
    held.exchange(entries=[Entry("a", "1:a", Done(), stream=part(b""))])
    assert [entry.end for entry in stream()] == [""]


def test_a_stream_of_a_wrong_type_fails_no_exchange(held, call, keys, look):
    call("SET", keys.stream("j1"), "text")
    held.exchange(entries=[emit(begins=True), Entry("a", "1:a", Done(), stream=part(b"1"))])
    assert call("GET", keys.stream("j1")) == b"text"
    assert "1:a" not in call("HKEYS", keys.held("p1"))


def test_values_without_secrets_are_kept_beside_those_with(held, stream):
    held.exchange(entries=[emit(b'"abc"', begins=True, shown=b'"[redacted]"')])
    (entry,) = stream()
    assert (entry.values, entry.shown) == ([b'"abc"'], [b'"[redacted]"'])

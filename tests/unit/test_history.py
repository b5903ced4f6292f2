"""The history recorder: which completed attempts it keeps, and what a record has."""

from __future__ import annotations

import msgspec
import pytest

from attempts import new_attempt, new_job_type
from dayjob.outcome import Done, GivenBack, NameSuspect, Retried, Rewound
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.history import ENDINGS, FAILED, HistoryCaps, Records, StoredRecord, encode
from dayjob.worker.fetching.history import MAX_SAMPLED, HistoryRecorder
from dayjob.worker.state import PoolState


@pytest.fixture
def recorder() -> HistoryRecorder:
    state = PoolState()
    state.pool_id, state.tag = "p1", "v2"
    return HistoryRecorder(state)


def ran(count, job_type, first=1):
    attempts = [new_attempt(first + n, job_type, t=1000) for n in range(count)]
    for attempt in attempts:
        attempt.started_at, attempt.ran = 5.0, 0.25
    return attempts


def decoded(records: Records) -> list[StoredRecord]:
    return [msgspec.json.decode(line, type=StoredRecord) for line in records.lines.split(b"\n")]


def test_each_completed_attempt_is_recorded_while_there_are_few(recorder):
    job_type = new_job_type()
    recorder.completed(job_type, ran(3, job_type))
    recorder.completed(job_type, ran(2, job_type, first=4))
    (records,) = recorder.take()
    found = decoded(records)
    assert [one.id for one in found] == ["id1", "id2", "id3", "id4", "id5"]
    assert {(one.ending, one.weight, one.ran, one.pool, one.tag) for one in found} == {
        ("completed", 1, 250_000, "p1", "v2")
    }
    assert recorder.take() == []


@pytest.mark.parametrize("batch", [1, 7, 400])
def test_under_load_an_even_sample_is_kept_that_stands_for_all(recorder, batch):
    job_type = new_job_type()
    for first in range(0, 2800, batch):
        recorder.completed(job_type, ran(batch, job_type, first))
    (records,) = recorder.take()
    found = decoded(records)
    places = [int(one.id.removeprefix("id")) for one in found]
    steps = {after - before for before, after in zip(places, places[1:], strict=False)}
    assert places[0] == 0
    assert len(steps) == 1
    assert MAX_SAMPLED / 3 < len(found) <= MAX_SAMPLED
    assert sum(one.weight for one in found) == pytest.approx(2800, rel=0.01)


def test_a_busy_name_does_not_push_out_a_rare_one(recorder):
    busy, rare = new_job_type("busy"), new_job_type("rare")
    recorder.completed(rare, ran(1, rare))
    for _ in range(30):
        recorder.completed(busy, ran(400, busy))
    taken = {records.name: decoded(records) for records in recorder.take()}
    assert [one.weight for one in taken["rare"]] == [1]
    assert len(taken["busy"]) <= MAX_SAMPLED


def test_many_names_share_the_sample_and_each_keeps_one(recorder):
    types = [new_job_type(f"n{n}") for n in range(2 * MAX_SAMPLED)]
    for _ in range(3):
        for job_type in types:
            recorder.completed(job_type, ran(3, job_type))
    taken = recorder.take()
    assert len(taken) == len(types)
    assert sum(len(decoded(records)) for records in taken) <= 3 * len(types)
    assert {sum(one.weight for one in decoded(records)) for records in taken} == {9}


def test_what_redis_did_not_apply_is_not_recorded(recorder):
    job_type = new_job_type()
    recorder.completed(job_type, ran(2, job_type))
    recorder.answered(applied=False)
    recorder.completed(job_type, ran(1, job_type, first=7))
    recorder.answered(applied=True)
    assert [one.id for one in decoded(recorder.take()[0])] == ["id7"]


def test_a_job_type_without_history_records_nothing(recorder):
    job_type = new_job_type()
    job_type.history = HistoryCaps(0)
    attempt = ran(1, job_type)[0]
    recorder.completed(job_type, [attempt])
    entry = Entry("a", attempt.token, Retried(1))
    assert recorder.take() == []
    assert recorder.with_record(attempt, entry) is entry


def test_a_failure_is_recorded_with_the_class_of_its_error_and_nothing_of_its_text(recorder):
    attempt = new_attempt(3, t=1000, fails=2, source="acme")
    entry = Entry("a", attempt.token, Retried(1), b'{"err":"Boom: secret"}', error="Boom")
    records = recorder.with_record(attempt, entry).records
    assert records is not None
    assert not records.completed
    (record,) = decoded(records)
    assert (record.id, record.ending, record.attempt, record.source, record.error, record.ran) == (
        "id3", "retried", 3, "acme", "Boom", -1,
    )  # fmt: skip
    assert b"secret" not in records.lines


@pytest.mark.parametrize("outcome", [Done(), Rewound(), NameSuspect()])
def test_what_ended_no_attempt_or_completed_it_gets_no_record_of_its_own(recorder, outcome):
    attempt = new_attempt()
    assert recorder.with_record(attempt, Entry("a", attempt.token, outcome)).records is None


def test_a_record_is_one_line_of_bounded_size_whatever_the_job_has():
    record = StoredRecord(
        "i\n" * 5000, "completed", 1, source="s\x00\n" * 5000, error="E" * 5000, tag="t" * 500
    )
    line = encode(record)
    assert b"\n" not in line
    assert len(line) < 2000
    assert msgspec.json.decode(line, type=StoredRecord).source == ("s\x00\n" * 20)


def test_a_given_back_attempt_is_recorded_and_defaults_are_left_out(recorder):
    records = recorder.with_record(new_attempt(), Entry("a", "1:a", GivenBack())).records
    assert records is not None
    assert decoded(records)[0].ending == "given_back"
    assert encode(StoredRecord("1", "completed", 7)) == b'["1","completed",7]'
    assert set(FAILED) < set(ENDINGS)

"""Outcomes: how each is encoded for the scripts, counted, and written into the payload that Redis stores."""

from __future__ import annotations

import json
import random
import re
import typing

import pytest

from attempts import new_attempt, new_job_type
from dayjob.errors import Dead, Discard, GiveBack, Retry, Snooze
from dayjob.options import JobOptions
from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    Emit,
    GivenBack,
    HeldBack,
    Kept,
    NameSuspect,
    Outcome,
    Reaped,
    Recharge,
    Release,
    Retried,
    Rewound,
    Snoozed,
    Stage,
    StartRequest,
    Unreadable,
    counts_failure,
)
from dayjob.retry import decide
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import Entry, Request, Want, encode, exchange
from dayjob.store.ops.maintain import sweep
from dayjob.store.scripts import load
from dayjob.worker.running.failure import explain
from dayjob.worker.running.settler import Settler

KEYS = Keys("t")
KEY = KEYS.unique("a", "k")
RESULT = b'{"result":7}'

#: Each outcome and request as an entry, and what the scripts get of it beside the payload: kind, number, key, value.
ENCODED = [
    (Entry("a", "1:a", Done()), ("done", 0, "", b"")),
    (Entry("a", "1:a", Emit()), ("emit", 0, "", b"")),
    (Entry("a", "1:a", Kept(2.5), b"p", "id1", RESULT), ("kept", 2500, KEYS.result("id1"), RESULT)),
    (Entry("a", "1:a", Kept(2.5), b"p", "id1"), ("kept", 2500, "", b"")),
    (Entry("a", "1:a", Retried(1.2346), b"p"), ("retried", 1235, "", b"")),
    (Entry("a", "1:a", Retried(-1.0), b"p"), ("retried", 0, "", b"")),
    (Entry("a", "1:a", Snoozed(60), b"p"), ("snoozed", 60_000, "", b"")),
    (Entry("a", "1:a", Died(counts_failure=True), b"p", "id1"), ("died", 1, "", b"")),
    (Entry("a", "1:a", Died(counts_failure=False), b"p", "id1", RESULT), ("died", 0, KEYS.result("id1"), RESULT)),
    (Entry("a", "1:a", Dropped(counts_failure=True)), ("dropped", 1, "", b"")),
    (Entry("a", "1:a", Dropped(counts_failure=False)), ("dropped", 0, "", b"")),
    (Entry("a", "1:a", Cancelled()), ("cancelled", 0, "", b"")),
    (Entry("a", "1:a", GivenBack()), ("given_back", 0, "", "")),
    (Entry("a", "1:a", GivenBack(KEY), job_id="id1"), ("given_back", 0, KEY, "id1")),
    (Entry("a", "1:a", HeldBack(("r",), 1.5)), ("held_back", 1500, "", b"")),
    (Entry("a", "1:a", Recharge()), ("recharge", 0, "", b"")),
    (Entry("a", "1:a", Rewound()), ("rewound", 0, "", b"")),
    (Entry("a", "1:a", Reaped(), b"p"), ("reaped", 0, "", b"")),
    (Entry("a", "1:a", Unreadable(), b"p"), ("unreadable", 0, "", b"")),
    (Entry("a", "1:a", Release(KEY, first_run=True), job_id="id1"), ("release", 1, KEY, "id1")),
    (Entry("a", "1:a", Release(KEY, first_run=False), job_id="id1"), ("release", 0, KEY, "id1")),
    (Entry("a", "1:a", NameSuspect()), ("name_suspect", 0, "", b"")),
    (Entry("a", "1:a", Stage(0, 0, (b"p",))), ("stage", 0, "", b"")),
]  # fmt: skip
ALL = {*typing.get_args(Outcome), *typing.get_args(StartRequest)}


@pytest.mark.parametrize(("entry", "expected"), ENCODED)
def test_an_outcome_is_encoded_as_the_scripts_document_it(entry, expected):
    assert encode(KEYS, entry) == expected


def test_each_outcome_and_request_has_a_kind_of_its_own_that_the_scripts_document():
    kinds = {type(entry.outcome): expected[0] for entry, expected in ENCODED}
    assert kinds.keys() == ALL
    assert len(set(kinds.values())) == len(ALL)
    documented = {
        script: set(re.findall(r"^  ([a-z_]+)  +\S", load(script).header, re.MULTILINE))
        for script in ("exchange", "sweep")
    }
    # These are no outcome: they stand behind or ahead of one, or end several attempts.
    beside = {
        "records",
        "logs",
        "spent",
        "worked",
        "children",
        "admitted",
        "staged",
        "member",
        "node",
        "stream_end",
        "members",
    }
    assert documented["exchange"] == (set(kinds.values()) - {"reaped"}) | beside
    assert documented["sweep"] == {"reaped", "retried", "died", "dropped", "cancelled", "unreadable"}


def test_a_kind_is_called_like_its_outcome():
    for entry, (kind, *_) in ENCODED:
        assert kind == re.sub(r"(?<=[a-z])([A-Z])", r"_\1", type(entry.outcome).__name__).lower()


def test_retried_jobs_and_counted_ends_are_failures_and_nothing_else():
    counted = {type(entry.outcome) for entry, _ in ENCODED if counts_failure(entry.outcome)}
    assert counted == {Retried, Died, Dropped}
    assert not counts_failure(Died(counts_failure=False))
    assert not counts_failure(Dropped(counts_failure=False))


def test_the_release_of_a_unique_key_goes_ahead_of_the_outcome_that_ends_the_job():
    entries = [
        Entry("a", "1:a", Died(counts_failure=True), b"p", "id1", RESULT, releases=KEY),
        Entry("a", "2:a", Retried(1)),
    ]
    request = Request("pool", 1, 1, [Want("a", 1, fetch=False)], entries=entries, done={"a": ["3:a"]})
    op = exchange(KEYS, request, lease=15.0, u=0.5)
    unique_at, result_at = op.keys.index(KEY) + 1, op.keys.index(KEYS.result("id1")) + 1
    assert op.args[9:11] == [3, 1], "three entries and one group of plain completions"
    assert op.args[17:] == [
        "release", 1, "1:a", b"", 0, unique_at, "id1",
        "died", 1, "1:a", b"p", 1, result_at, RESULT,
        "retried", 1, "2:a", b"", 1000, 0, b"",
        1, 1, "3:a",
    ]  # fmt: skip


def test_a_sweep_releases_the_unique_key_with_the_outcome():
    ended = Entry("a", "1:a", Died(counts_failure=True), b"p", "id1", releases=KEY)
    op = sweep(KEYS, "pool", [ended, Entry("a", "2:a", Reaped(), b"q")])
    place = op.keys.index(KEY) + 1
    assert op.args[3:] == [
        *("died", 1, "1:a", b"p", 1, place, "id1", 0, b"", 0, b"", 0, 0, 0, "", ""),
        *("reaped", 1, "2:a", b"q", 0, 0, "", 0, b"", 0, b"", 0, 0, 0, "", ""),
    ]


# The payloads.


def settle(outcome, error=None, *, payload=None, options=None, **wire):
    """The entry for an attempt of a job that has failed once and was snoozed twice, and its new payload."""
    attempt = new_attempt(7, new_job_type(**(options or {})), fails=1, snoozes=2, **wire)
    attempt.payload = payload or b'{"name":"a","id":"id7","t":1,"args":{},"fails":1,"snoozes":2}'
    failure = None if error is None else explain(error, attempt.open())
    entry = Settler(KEYS, lambda: "pool", lambda: 1000.5).settle(attempt, outcome, failure)
    return entry, json.loads(entry.payload) if entry.payload else None


@pytest.mark.parametrize("outcome", [Retried(5), Died(counts_failure=True)])
def test_a_failed_job_is_stored_with_its_error_and_one_failure_more(outcome):
    entry, stored = settle(outcome, ValueError("x"))
    assert (entry.name, entry.token, entry.outcome, entry.job_id) == ("a", "7:a", outcome, "id7")
    assert (stored["fails"], stored["snoozes"]) == (2, 2)
    assert (stored["err"], stored["failed_at"]) == ("ValueError: x", 1000)
    assert stored["trace"].endswith("ValueError: x\n")
    assert [fault[3] for fault in stored["past"]] == ["ValueError: x"]
    assert (stored["attempt"], stored["at"]) == ("pool/7:a", 1_000_500)


def test_a_death_that_does_not_count_adds_no_failure():
    _, stored = settle(Died(counts_failure=False), ValueError("x"))
    assert (stored["fails"], stored["err"]) == (1, "ValueError: x")


def test_a_snoozed_job_is_stored_with_one_snooze_more_and_without_an_error():
    _, stored = settle(Snoozed(5), Snooze(after=5))
    assert (stored["fails"], stored["snoozes"], stored["attempt"]) == (1, 3, "pool/7:a")
    assert "err" not in stored


def test_a_kept_job_is_stored_with_the_time_of_its_end():
    _, stored = settle(Kept(60))
    assert (stored["done_at"], stored["attempt"]) == (1_000_500, "pool/7:a")
    assert stored["ran"] > 0


@pytest.mark.parametrize(
    "outcome", [Done(), Dropped(counts_failure=True), Dropped(counts_failure=False), GivenBack()]
)
def test_an_outcome_that_stores_nothing_has_no_payload(outcome):
    assert settle(outcome, ValueError("x"))[0].payload == b""


@pytest.mark.parametrize(
    ("outcome", "releases"),
    [
        (Done(), KEY),
        (Kept(60), KEY),
        (Died(counts_failure=True), KEY),
        (Dropped(counts_failure=False), KEY),
        (Retried(5), ""),
        (Snoozed(5), ""),
        (GivenBack(), ""),
    ],
)
def test_the_unique_key_is_released_when_the_job_ends(outcome, releases):
    assert settle(outcome, ValueError("x"), unique_key=KEY)[0].releases == releases
    assert settle(outcome, ValueError("x"), unique_key=KEYS.leader)[0].releases == ""


def test_the_error_of_a_dead_job_is_its_result_where_results_are_kept():
    assert settle(Died(counts_failure=True), ValueError("x"))[0].result == b""
    kept, _ = settle(Died(counts_failure=True), ValueError("x"), options={"keep": 60})
    assert kept.result == b'{"error":"ValueError: x"}'
    assert settle(Retried(5), ValueError("x"), options={"keep": 60})[0].result == b""


def test_a_payload_that_cannot_be_rewritten_is_an_error():
    with pytest.raises(codec.Broken):
        settle(Retried(5), ValueError("x"), payload=b"{")


def test_a_signal_leads_to_the_outcome_of_its_name():
    """tests/unit/test_retry.py has the details."""
    signals = (Retry(after=1), Snooze(after=1), Dead(), Discard(), GiveBack())
    raised = [decide(JobOptions(), signal, 0, random.Random(0)) for signal in signals]
    assert list(map(type, raised)) == [Retried, Snoozed, Died, Dropped, GivenBack]

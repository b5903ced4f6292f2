"""Streams, in any order of emits, ends, crashes, resends and late requests, against a plain list.

After each step a reader finds what the last attempt emitted that Redis held, in order and once, and the end of that attempt.
"""

from __future__ import annotations

import os
import secrets

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dayjob.outcome import Died, Done, Emit, GivenBack, Retried
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import streams
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.streams import StreamPart, end_of
from pools import Pool, fill
from server import running

FULL = os.environ.get("DAYJOB_PROOF") == "full"
OUTCOMES = (Done(), Retried(1), Died(counts_failure=True), GivenBack())


class StreamMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self):
        super().__init__()
        self.keys = Keys(f"stream{secrets.token_hex(6)}")
        self.link = Link(addresses.parse_url(self.url), tag=self.keys.known_jobs)
        self.pool = Pool(self.keys, self.link, names=["a"])
        self.attempt = 0
        self.token = ""
        self.lost: list[tuple[str, int]] = []
        self.begun = False
        self.number = 0
        self.expected: list[bytes] = []
        self.end = ""

    def teardown(self):
        self.link.close()

    def part(self, count, *, begins, attempt=None):
        values = [b"%d" % (self.number + n) for n in range(count)]
        self.number += count
        return StreamPart("j", "a", attempt or self.attempt, b"\n".join(values), begins=begins), values

    def emitted(self, values):
        if values and not self.begun:
            self.expected, self.begun, self.end = [], True, ""
        self.expected += values

    @rule(count=st.integers(1, 3))
    def emit(self, count):
        """The attempt that is held emits; if there is none, one begins."""
        if not self.token:
            fill(self.keys, self.link, "a", "job")
            self.token = f"{self.pool.token}:a"
            self.pool.fetch("a")
            self.attempt, self.begun = self.attempt + 1, False
        part, values = self.part(count, begins=not self.begun)
        self.pool.exchange(entries=[Entry("a", self.token, Emit(), stream=part)])
        self.emitted(values)

    @rule(outcome=st.sampled_from(OUTCOMES), count=st.integers(0, 2))
    def finish(self, outcome, count):
        if not self.token:
            return
        part, values = self.part(count, begins=count > 0 and not self.begun)
        self.pool.exchange(entries=[Entry("a", self.token, outcome, b"new", stream=part)])
        self.emitted(values)
        self.end = end_of(outcome)[0]
        self.lost.append((self.token, self.attempt))
        self.token = ""
        self.link.run(plain("DEL", self.keys.queue("a")))

    @rule()
    def crash(self):
        """Another pool sweeps the attempt."""
        if self.token:
            self.link.run(plain("HDEL", self.keys.held(self.pool.id), self.token))
            self.lost.append((self.token, self.attempt))
            self.token = ""

    @rule(data=st.data(), outcome=st.sampled_from((Emit(), *OUTCOMES)), begins=st.booleans())
    def late(self, data, outcome, begins):
        """An attempt that Redis does not hold any more emits or ends."""
        if self.lost:
            token, attempt = data.draw(st.sampled_from(self.lost))
            part, _ = self.part(2, begins=begins, attempt=attempt)
            self.pool.exchange(entries=[Entry("a", token, outcome, b"new", stream=part)])

    @rule()
    def resend(self):
        if self.pool.last is not None:
            self.pool.resend()

    @invariant()
    def a_reader_finds_what_the_last_attempt_emitted(self):
        entries = self.link.run(streams.read_stream(self.keys, "j", streams.START, wait_ms=0, most=10_000))
        assert [value for entry in entries for value in entry.values] == self.expected
        assert ([entry.end for entry in entries] or [""])[-1] == self.end
        assert [entry.end for entry in entries[:-1] if entry.end] == []


@pytest.mark.timeout(600)
def test_any_history_leaves_what_the_last_attempt_emitted_once_and_in_order(tmp_path):
    with running(tmp_path) as server:
        StreamMachine.url = server.url
        run_state_machine_as_test(
            StreamMachine,
            settings=settings(
                max_examples=500 if FULL else 40, stateful_step_count=60 if FULL else 25, deadline=None,
                derandomize=not FULL, database=None, suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip

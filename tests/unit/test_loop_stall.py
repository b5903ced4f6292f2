"""LoopStallDetector: which attempt blocks the event loop, whatever pauses the process."""

from __future__ import annotations

import threading

import pytest

from attempts import new_attempt
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.loop_stall import LoopStallDetector


class SilentLoop:
    """A loop that never answers, and runs what the test says."""

    busy = True
    thread_id = threading.get_ident()

    def __init__(self) -> None:
        self.runs: Attempt | None = None

    def current(self) -> Attempt | None:
        return self.runs

    def call(self, work: object) -> None: ...


@pytest.fixture
def loop() -> SilentLoop:
    return SilentLoop()


def test_the_attempt_that_blocks_is_known_although_it_had_not_begun_when_the_process_was_paused(loop):
    detector = LoopStallDetector(loop)
    detector.look(10.0)
    # The process was paused for two seconds: this comes before the loop begins the attempt.
    detector.look(12.0)
    assert detector.blocked(12.0) is None
    loop.runs = new_attempt()
    detector.look(12.25)
    assert detector.blocked(12.25) == (2.25, loop.runs)


def test_a_callback_that_blocks_is_known_when_it_is_seen_twice(loop):
    detector = LoopStallDetector(loop)
    for now in (10.0, 11.5, 11.75):
        detector.look(now)
    assert detector.blocked(11.75) == (1.75, None)


def test_a_loop_that_runs_several_attempts_is_busy_and_not_blocked(loop):
    detector = LoopStallDetector(loop)
    detector.look(10.0)
    for number, now in enumerate((11.5, 11.75)):
        loop.runs = new_attempt(number)
        detector.look(now)
    assert detector.blocked(11.75) is None

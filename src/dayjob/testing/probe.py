"""Attempts of a testing block: they record check-ins, can be stopped at one, and can be broken off."""

from __future__ import annotations

import msgspec

from dayjob.job import StopReason, running
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.runner import Abandon

#: How many places of one job a block with `twice` breaks off at.
MAX_BREAKS = 100

#: A check-in: text, done and total.
Checkin = tuple[str, float | None, float | None]


class BrokenOff(Abandon):
    """Raised inside a handler that a block with `twice` breaks off, as if its process had crashed there."""


class ProbedAttempt(Attempt, eq=False):
    """An attempt in a testing block."""

    checkins: list[Checkin] = msgspec.field(default_factory=list)
    #: What `stop_reason` is from check-in number `stop_after` on.
    stop: StopReason | None = None
    stop_after: int = 1
    #: The enqueue or check-in after which it is broken off, counted from 1; 0 for none.
    break_at: int = 0
    #: How many of them it has passed.
    passed: int = 0
    shutdown: bool = False

    def checkin(self, text: str, done: float | None, total: float | None) -> None:
        """Record a check-in, and stop there if the test asked for it."""
        super().checkin(text, done, total)
        self.checkins.append((self.checkin_text, self.progress, self.total))
        if self.stop is not None and len(self.checkins) >= self.stop_after:
            self.cancelled = self.stop == "cancelled"
            self.timed_out = self.stop == "timeout"
            self.lost = self.stop == "lost"
            self.shutdown = self.stop == "shutdown"
        self.pass_point()

    def pass_point(self) -> None:
        """Count an enqueue or a check-in. Raises BrokenOff where the attempt is to be broken off."""
        self.passed += 1
        if self.passed == self.break_at:
            # As for a pool that lost its lease: how the attempt ends does not count.
            self.lost = True
            raise BrokenOff

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler should stop, or None."""
        return "shutdown" if self.shutdown else super().stop_reason

    def copy(self, break_at: int) -> ProbedAttempt:
        """The same attempt once more, to be broken off."""
        return ProbedAttempt(
            self.token, self.name, self.payload, self.wire, self.job_type,
            started_at=self.started_at, charge=self.charge, break_at=break_at,
        )  # fmt: skip


def passed_enqueue() -> None:
    """Count an enqueue of the attempt that runs here, if one does. Raises BrokenOff."""
    attempt = running.get()
    if isinstance(attempt, ProbedAttempt):
        attempt.pass_point()

"""Batches as consoles show them: one, a page of them, one with what it waits for, and what an audit found. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BatchState = Literal["open", "running", "cancelled", "failed", "succeeded"]
#: Members that are nowhere; are dead and the batch does not know it; have not ended though the batch has recorded that; a batch that
#: should have ended; and one that has been open for long.
AuditKind = Literal["lost", "died", "alive", "not_ended", "open"]


@dataclass(frozen=True, slots=True)
class BatchCallback:
    """A callback of a batch."""

    event: str
    #: The job name, and the id that its job has or will have.
    name: str
    id: str
    #: When it was enqueued; None if it was not.
    sent_at: float | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch."""

    id: str
    description: str
    #: `open` until its block has ended, then `running`; `failed` if members are dead and all have ended.
    state: BatchState
    created_at: float
    #: When the last of its members ended, and when an operator or a program cancelled it; None if that has not happened.
    ended_at: float | None
    cancelled_at: float | None
    total: int
    #: How many members completed or were discarded; failed and run again; are dead; and have not ended.
    completed: int
    failed: int
    dead: int
    left: int
    #: Seconds until it ends, if its members go on to end as fast as so far; None if that is not known.
    eta: float | None
    callbacks: tuple[BatchCallback, ...]
    #: The batch of which it is a member, and those above that.
    above: tuple[str, ...]

    @property
    def done(self) -> float:
        """The share of its members that have ended."""
        return (self.total - self.left) / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class BatchesView:
    """Some batches, in order."""

    now: float
    #: How many were created in the last 187 days. Those that succeeded are gone after a week.
    total: int
    batches: tuple[BatchView, ...]
    #: Pass it as `offset` for the next page; 0 on the last page.
    next: int = 0
    #: How many were compared for a sort; 0 where it is the order of all.
    sorted_among: int = 0


@dataclass(frozen=True, slots=True)
class BatchDetail:
    """One batch, with what it waits for."""

    now: float
    batch: BatchView
    #: What it waits for, or how it ended, in one sentence.
    sentence: str
    #: Members that pools hold, that wait for another attempt, and that have not started.
    running: int
    retry: int
    waiting: int
    #: Batches that are members of it, at most 100.
    nested: tuple[BatchView, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One kind of difference between a batch and its members."""

    kind: AuditKind
    #: How many members it concerns, and the numbers of the first ten.
    members: int
    numbers: tuple[int, ...]
    #: What it is, in words.
    text: str


@dataclass(frozen=True, slots=True)
class BatchAudit:
    """Where the members of a batch are, compared with the records of the batch."""

    batch: BatchView
    #: How many jobs of the namespace were searched.
    searched: int
    findings: tuple[AuditFinding, ...]
    #: How many differences were repaired. `findings` has those that were found first.
    repaired: int = 0
    #: Whether the batch and its members agree now.
    sound: bool = True

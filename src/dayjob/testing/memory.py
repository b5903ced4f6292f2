"""Memory: what Redis holds of one namespace, and in Python what the scripts do with it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TypeVar, assert_never

from dayjob.enqueue.builder import existing_job
from dayjob.job import Job
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
    Reaped,
    Recharge,
    Release,
    Retried,
    Rewound,
    Snoozed,
    Stage,
    Unreadable,
)
from dayjob.store import codec
from dayjob.store.ops.consume import KEEP_ERROR_MS, Entry
from dayjob.store.ops.find import State
from dayjob.store.ops.produce import FirstJob, NewJob, When, digest_to_keep
from dayjob.testing.batches import FakeBatches
from dayjob.testing.limits import FakeLimits, Partition
from dayjob.testing.workflows import FakeWorkflows
from dayjob.worker.running.attempt import Attempt, Settlement

T = TypeVar("T")

#: Half of the grain of times on the wire, which are milliseconds.
HALF_GRAIN_SECONDS = 0.0005
#: Seconds that a unique key outlives the wait of its job, and a chosen id its enqueue.
UNIQUE_KEPT_SECONDS = 30 * 86_400.0
ID_KEPT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A payload in memory, and when it is due if it is scheduled or in retry."""

    payload: bytes
    wire: codec.Wire
    due: float | None = None

    @classmethod
    def of(cls, payload: bytes, due: float | None = None) -> MemoryEntry:
        """The payload, read."""
        return cls(payload, codec.read(payload), due)

    def job(self) -> Job:
        """The job as a handler would get it."""
        job = codec.job_of(self.wire)
        job.scheduled_at = self.due
        return job

    def requeued(self) -> MemoryEntry:
        """The same once it is in its queue, as the requeuer would write it."""
        if self.due is None:
            return self
        return MemoryEntry.of(codec.requeued(self.payload, self.wire, self.due))


def by_time(kept: MemoryEntry) -> float:
    """What `scheduled` and `retry` are sorted by."""
    return kept.due or 0.0


class Memory:
    """Where every job of a block is. Safe to share between threads."""

    def __init__(
        self,
        now: Callable[[], float],
        limits: FakeLimits | None,
        partition: Callable[[codec.Wire], Partition],
    ) -> None:
        self._now = now
        self._limits = limits
        self._partition = partition
        # Reentrant: to look for a job type may import the modules of `include`, which may do anything.
        self.lock = threading.RLock()
        #: All that was ever stored, in order.
        self.enqueued: list[MemoryEntry] = []
        self.queued: list[MemoryEntry] = []
        self.scheduled: list[MemoryEntry] = []
        self.retry: list[MemoryEntry] = []
        self.dead: list[MemoryEntry] = []
        self.done: list[MemoryEntry] = []
        self.discarded: list[MemoryEntry] = []
        # Keys that expire: value and end.
        self._unique: dict[str, tuple[str, float]] = {}
        self._ids: dict[str, tuple[FirstJob, float]] = {}
        self._results: dict[str, tuple[bytes, float]] = {}
        self.batches = FakeBatches(now, self._call_back)
        self.workflows = FakeWorkflows(now, self, self.batches.cancelled)
        #: The ids of jobs that run.
        self.running: Container[str] = ()
        #: The ids of callbacks of batches, and nodes of workflows, that were enqueued and that an inline block has not run.
        self.called: deque[str] = deque()

    def _call_back(self, payload: bytes) -> None:
        kept = MemoryEntry.of(payload)
        self.enqueued.append(kept)
        self.queued.append(kept)
        self.called.append(kept.wire.id)

    def release_node(self, payload: bytes, /) -> None:
        """Store the job of a node of a workflow."""
        self._call_back(payload)

    def has_ended(self, job_id: str, /) -> bool:
        """Whether a job neither waits nor runs."""
        places = (self.queued, self.scheduled, self.retry)
        return job_id not in self.running and not any(
            one.wire.id == job_id for place in places for one in place
        )

    def drop_dead(self, job_ids: set[str], /) -> None:
        """Remove dead jobs."""
        self.dead[:] = [one for one in self.dead if one.wire.id not in job_ids]

    def admit(self, new_job: NewJob) -> Job | None:
        """Store a new job, unless its chosen id was stored before or its unique key is taken.

        Returns the stored job, which has `existed` set if it is an earlier one; None if the unique key is taken.
        """
        job, now = new_job.job, self._now()
        due = _due(new_job.when, now)
        with self.lock:
            first = self._live(self._ids, job.id) if new_job.chosen else None
            if first is not None:
                return existing_job(new_job, first)
            if job.unique_key is not None:
                if self._live(self._unique, job.unique_key) is not None:
                    return None
                life = new_job.unique_for or max(0.0, (due or now) - now) + UNIQUE_KEPT_SECONDS
                self._unique[job.unique_key] = (job.id, now + life)
            if new_job.chosen:
                first = FirstJob(due, digest_to_keep(new_job) or new_job.payload)
                self._ids[job.id] = (first, now + ID_KEPT_SECONDS)
            kept = MemoryEntry.of(new_job.payload, due)
            self.enqueued.append(kept)
            (self.queued if due is None else self.scheduled).append(kept)
        job.scheduled_at = due
        return job

    def tick(self, payload: bytes) -> Job:
        """Store a job as a tick of its schedule does."""
        kept = MemoryEntry.of(payload)
        with self.lock:
            self.enqueued.append(kept)
            self.queued.append(kept)
        return kept.job()

    def fetch(self, able: Callable[[MemoryEntry], bool]) -> MemoryEntry | None:
        """Take the first job in the queue that can be run, after moving what is due there."""
        with self.lock:
            self._requeue()
            for i, kept in enumerate(self.queued):
                if able(kept):
                    return self.queued.pop(i)
        return None

    def take(self, job_id: str, able: Callable[[str], bool]) -> MemoryEntry | None:
        """Take the job of that id wherever it waits, due or not, if its name can be run."""
        with self.lock:
            for place in (self.queued, self.scheduled, self.retry):
                for i, kept in enumerate(place):
                    if kept.wire.id == job_id and able(kept.wire.name):
                        return place.pop(i).requeued()
        return None

    def next_due(self) -> float | None:
        """When the next job that waits for its time is due."""
        with self.lock:
            return min(map(by_time, (*self.scheduled, *self.retry)), default=None)

    def settle(self, attempt: Attempt, settlement: Settlement) -> None:
        """Move an attempt to the place of its outcome."""
        entry = settlement if isinstance(settlement, Entry) else Entry(attempt.name, attempt.token, Done())
        with self.lock:
            if self._limits is not None:
                self._limits.end(attempt.token, entry.spent)
            self._apply(entry, attempt)

    def release(self, key: str, job_id: str) -> None:
        """Free a unique key if that job holds it."""
        with self.lock:
            if self._unique.get(key, ("", 0.0))[0] == job_id:
                del self._unique[key]

    def result(self, job_id: str) -> bytes | None:
        """What is kept of a job that ended."""
        with self.lock:
            return self._live(self._results, job_id)

    def state(self, job_id: str) -> State | None:
        """Where a job is that does not run; None if it has ended and its result is not kept."""
        places: tuple[tuple[State, list[MemoryEntry]], ...] = (
            ("waiting", self.queued), ("scheduled", self.scheduled), ("retry", self.retry), ("dead", self.dead),
        )  # fmt: skip
        with self.lock:
            for state, place in places:
                if any(one.wire.id == job_id for one in place):
                    return state
            completed = any(one.wire.id == job_id for one in self.done)
            return "done" if completed and self.result(job_id) is not None else None

    def _requeue(self) -> None:
        latest = self._now() + HALF_GRAIN_SECONDS
        due = [kept for kept in (*self.scheduled, *self.retry) if by_time(kept) <= latest]
        for place in (self.scheduled, self.retry):
            place[:] = [kept for kept in place if by_time(kept) > latest]
        self.queued += [kept.requeued() for kept in sorted(due, key=by_time)]

    def _apply(self, entry: Entry, attempt: Attempt) -> None:
        now = self._now()
        if entry.releases:
            self.release(entry.releases, entry.job_id)
        match entry.outcome:
            case Done():
                self.done.append(MemoryEntry.of(attempt.payload))
            case Kept(seconds=seconds):
                self.done.append(MemoryEntry.of(entry.payload))
                self._keep(entry, now + seconds)
            case Retried(after=after):
                self.retry.append(MemoryEntry.of(entry.payload, now + after))
            case Snoozed(after=after):
                self.scheduled.append(MemoryEntry.of(entry.payload, now + after))
            case Died():
                self.dead.append(MemoryEntry.of(entry.payload))
                self._keep(entry, now + KEEP_ERROR_MS / 1000)
            case Dropped() | Cancelled():
                self.discarded.append(MemoryEntry.of(attempt.payload))
                self._keep(entry, now + KEEP_ERROR_MS / 1000)
            case HeldBack(limits=limits, after=after):
                if self._limits is None:
                    self.scheduled.append(MemoryEntry.of(attempt.payload, now + after))
                else:
                    self.queued.insert(0, MemoryEntry.of(attempt.payload))
                    self._limits.hold(self._partition(attempt.wire), limits, after)
            case GivenBack():
                self.queued.insert(0, MemoryEntry.of(attempt.payload))
            case (
                Rewound()
                | Reaped()
                | Unreadable()
                | Release()
                | NameSuspect()
                | Recharge()
                | Stage()
                | Emit()
            ):
                raise AssertionError(f"a runner does not settle a readable job with {entry.outcome!r}")
            case _ as unknown:
                assert_never(unknown)
        member = attempt.ended_member(codec.membership(attempt.wire), entry)
        if member is not None and member.is_node:
            self.workflows.note(member)
        elif member is not None:
            self.batches.note(member)

    def _keep(self, entry: Entry, end: float) -> None:
        if entry.result:
            self._results[entry.job_id] = (entry.result, end)

    def _live(self, keys: Mapping[str, tuple[T, float]], key: str) -> T | None:
        value, end = keys.get(key, (None, 0.0))
        return value if end > self._now() else None


def _due(when: When, now: float) -> float | None:
    if when.mode == "now":
        return None
    return when.milliseconds / 1000 + (now if when.mode == "in" else 0.0)

"""HistoryRecorder: records the attempts of a pool that ended. The fetcher sends the records with its exchanges.

Attempts that did not complete are recorded one by one, in the exchange that settles them. Completed ones are sent once a
second; if there are many, an even sample of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from dayjob.outcome import StartRequest, Unreadable
from dayjob.store import codec
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.history import AttemptLines, Records, StoredRecord, ending_of, new_records
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.state import PoolState

#: How many completed attempts a pool records in a second, of all names. With more names than this, one of each.
MAX_SAMPLED = 500

#: Id, monotonic start, seconds that it ran, when it was enqueued or due, when it was first enqueued, number, source, parent,
#: schedule.
Facts = tuple[str, float, float | None, float, float, int, str | int | None, str, str]


class CompletionSample:
    """Every `stride`th of the completed attempts of one name since the last flush, the first one included."""

    __slots__ = ("kept", "seen", "stride")

    def __init__(self) -> None:
        self.seen = 0
        self.stride = 1
        self.kept: list[Facts] = []

    def add(self, attempts: Sequence[Attempt], share: int) -> None:
        """Take every `stride`th of these attempts. The stride grows until no more than about `share` are kept."""
        while len(self.kept) + len(attempts) / self.stride > share and self.stride < self.seen + len(
            attempts
        ):
            self.halve()
        self.kept += [_facts(attempt) for attempt in attempts[-self.seen % self.stride :: self.stride]]
        self.seen += len(attempts)

    def halve(self) -> None:
        """Drop every second one."""
        self.kept = self.kept[::2]
        self.stride *= 2


class HistoryRecorder:
    """Collects the records of one pool. Used by the thread that makes the exchange."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        #: Completed attempts whose outcomes are in the current request.
        self._unanswered: list[tuple[PoolJobType, Sequence[Attempt]]] = []
        self._samples: dict[PoolJobType, CompletionSample] = {}
        self._count = 0

    def completed(self, job_type: PoolJobType, attempts: Sequence[Attempt]) -> None:
        """Add attempts of the current request that completed."""
        if job_type.history.count and attempts:
            self._unanswered.append((job_type, attempts))

    def answered(self, *, applied: bool) -> None:
        """Note the reply to the current request: whether all its outcomes were applied. A late one is not recorded."""
        if applied:
            self._sample_unanswered()
        self._unanswered.clear()

    def _sample_unanswered(self) -> None:
        for job_type, attempts in self._unanswered:
            self._sample(job_type, attempts)
        self._unanswered.clear()

    def _sample(self, job_type: PoolJobType, attempts: Sequence[Attempt]) -> None:
        sample = self._samples.get(job_type)
        if sample is None:
            sample = self._samples[job_type] = CompletionSample()
        before = len(sample.kept)
        sample.add(attempts, MAX_SAMPLED)
        self._count += len(sample.kept) - before
        if self._count > MAX_SAMPLED:
            self._thin_out()

    def _thin_out(self) -> None:
        """Halve the samples of the names that have more than their share."""
        share = max(1, MAX_SAMPLED // (2 * len(self._samples)))
        for sample in self._samples.values():
            while len(sample.kept) > share:
                sample.halve()
        self._count = sum(len(sample.kept) for sample in self._samples.values())

    def with_record(self, attempt: Attempt, entry: Entry) -> Entry:
        """`entry` with what goes with it: the record of its attempt, unless that completed or its name has no history, its log
        lines, what it emitted, and what becomes of a member of a batch.
        """
        if attempt.wire.membership is not codec.NULL or isinstance(entry.outcome, Unreadable):
            self._state.has_batches = True
            found = codec.membership(attempt.wire) or codec.membership_in(attempt.payload)
            entry = msgspec.structs.replace(entry, member=attempt.ended_member(found, entry))
        if attempt.log is not None:
            kept_ms = attempt.job_type.history.milliseconds
            lines = AttemptLines(attempt.id, attempt.attempt, attempt.log.redacted(attempt), kept_ms)
            entry = msgspec.structs.replace(entry, logs=lines)
        outcome = entry.outcome
        if isinstance(outcome, StartRequest):
            return entry
        if attempt.stream is not None and attempt.stream.begun:
            entry = msgspec.structs.replace(entry, stream=attempt.stream.take())
        ending, job_type = ending_of(outcome), attempt.job_type
        if ending in (None, "completed") or not job_type.history.count:
            return entry
        record = self._record(_facts(attempt), str(ending), entry.error)
        records = new_records(attempt.name, [record], job_type.history, completed=False)
        return msgspec.structs.replace(entry, records=records)

    def take(self) -> list[Records]:
        """The records of the completed attempts since the last call, for the current request.

        Those whose outcomes are in this request are among them: Redis writes none if an outcome is late.
        """
        self._sample_unanswered()
        if not self._samples:
            return []
        samples, self._samples, self._count = self._samples, {}, 0
        return [
            new_records(
                job_type.name,
                [self._record(facts, "completed", "", sample.seen / len(sample.kept)) for facts in sample.kept],
                job_type.history,
                completed=True,
            )
            for job_type, sample in samples.items()
        ]  # fmt: skip

    def _record(self, facts: Facts, ending: str, error: str, weight: float = 1) -> StoredRecord:
        job_id, started_at, ran, due, first, number, source, parent, schedule = facts
        epoch = self._state.clock.now() - time.monotonic()
        ended = epoch + (started_at + ran if ran is not None else time.monotonic())
        waited = _micros(epoch + started_at - due) if due and started_at else -1
        return StoredRecord(
            job_id, ending, int(ended * 1000), waited, -1 if ran is None else _micros(ran),
            max(0, int((ended - first) * 1000)) if first else -1,
            number, self._state.pool_id, source, error, round(weight, 2), self._state.tag, parent,
            schedule,
        )  # fmt: skip


def _facts(attempt: Attempt) -> Facts:
    """What a record needs. Not the attempt itself, which would keep its payload in memory until the flush."""
    wire, ran = attempt.wire, attempt.ran
    if ran is None and attempt.started_at:
        ran = time.monotonic() - attempt.started_at
    due = codec.enqueued_at(wire)
    first = codec.first_enqueued(wire)
    return (
        wire.id,
        attempt.started_at,
        ran,
        due,
        first,
        attempt.attempt,
        wire.source,
        codec.origin_text(wire.parent),
        wire.periodic,
    )


def _micros(seconds: float) -> int:
    return max(0, int(seconds * 1e6))

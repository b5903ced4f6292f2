"""FakeBatches: the batches of a testing block. They end as the scripts end them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from dayjob.enqueue.batches import Progress
from dayjob.errors import BadOption, NotReady
from dayjob.store import codec
from dayjob.store.ops.batches import Fate, Member, MemberChunk, NewBatch
from dayjob.store.ops.produce import NewJob


@dataclass(slots=True)
class FakeBatch:
    """One batch."""

    new: NewBatch
    created_at: float
    #: The ids of the batches above it, and its numbers in them.
    above: tuple[tuple[str, ...], tuple[int, ...]] = ((), ())
    total: int = 0
    ended: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    closed: bool = False
    cancelled: bool = False
    over: bool = False
    sent: set[str] = field(default_factory=set)


class FakeBatches:
    """The batches by id. `call` stores the payload of a callback."""

    def __init__(self, now: Callable[[], float], call: Callable[[bytes], None]) -> None:
        self._now = now
        self._call = call
        self._batches: dict[str, FakeBatch] = {}
        #: The ids of batches that were cancelled.
        self.cancelled: set[str] = set()

    def begin(self, chunk: MemberChunk) -> None:
        """Create the batch of a request, if it is new. Raises BadOption if nothing can join it any more."""
        batch_id, *above = chunk.ids
        if chunk.new is None:
            if batch_id not in self._batches or self._batches[batch_id].over:
                raise BadOption("the batch has ended, so no job can join it: start another one")
            return
        path: tuple[tuple[str, ...], tuple[int, ...]] = ((), ())
        if above and above[0] in self._batches:
            upper = self._batches[above[0]]
            path = ((above[0], *upper.above[0]), (upper.total, *upper.above[1]))
            upper.total += 1
        self._batches[batch_id] = FakeBatch(chunk.new, self._now(), path)

    def numbered(self, new_job: NewJob) -> NewJob:
        """The job as the next member of its batch."""
        batch = self._batches.get(new_job.batch)
        if batch is None:
            return new_job
        place: list[str | int] = [new_job.batch, batch.total]
        for upper, number in zip(*batch.above, strict=True):
            place += (upper, number)
        return msgspec.structs.replace(new_job, payload=codec.rewrite(new_job.payload, {"membership": place}))

    def joined(self, new_job: NewJob) -> None:
        """Count a member that was stored."""
        if new_job.batch in self._batches:
            self._batches[new_job.batch].total += 1

    def close(self, batch_id: str) -> None:
        """Let the batch end when its members have."""
        batch = self._batches[batch_id]
        batch.closed = True
        self._go_up(batch, self._judge(batch))

    def cancel(self, batch_id: str) -> bool:
        """End the members when their turn comes."""
        batch = self._batch(batch_id)
        if batch.cancelled:
            return False
        batch.cancelled = batch.closed = True
        self.cancelled.add(batch_id)
        self._go_up(batch, self._judge(batch))
        return True

    def note(self, member: Member) -> None:
        """Note what became of a member, in its batch and in those above."""
        fate: Fate | None = member.fate
        for batch_id, number in zip(member.ids, member.numbers, strict=True):
            batch = self._batches.get(batch_id)
            if batch is None or fate is None:
                return
            fate = self._note(batch, number, fate)

    def progress(self, batch_id: str) -> Progress:
        """What became of the members. Raises NotReady if there is no such batch."""
        batch = self._batch(batch_id)
        left = batch.total - len(batch.ended)
        passed = self._now() - batch.created_at
        eta = 0.0 if not left else left * passed / len(batch.ended) if batch.ended and passed > 0 else None
        return Progress(
            batch.total, len(batch.ended - batch.dead), len(batch.failed), len(batch.dead), left, eta
        )

    def _batch(self, batch_id: str) -> FakeBatch:
        if batch_id not in self._batches:
            raise NotReady(f"there is no batch {batch_id!r} in this testing block")
        return self._batches[batch_id]

    def _go_up(self, batch: FakeBatch, fate: Fate | None) -> None:
        if fate is not None and batch.above[0]:
            self.note(Member(*batch.above, fate))

    def _note(self, batch: FakeBatch, number: int, fate: Fate) -> Fate | None:
        if fate == "failed":
            batch.failed.add(number)
            return None
        batch.failed.discard(number)
        batch.dead.discard(number)
        if fate == "reopened":
            batch.ended.discard(number)
            was, batch.over = batch.over, False
            return "reopened" if was else None
        batch.ended.add(number)
        if fate == "dead":
            batch.dead.add(number)
            self._call_back(batch, "dead")
        return self._judge(batch)

    def _judge(self, batch: FakeBatch) -> Fate | None:
        if not batch.closed or len(batch.ended) < batch.total:
            return None
        batch.over = True
        self._call_back(batch, "complete")
        if batch.cancelled or batch.dead:
            return "dead"
        self._call_back(batch, "success")
        return "completed"

    def _call_back(self, batch: FakeBatch, event: str) -> None:
        if event in batch.new.callbacks and event not in batch.sent:
            batch.sent.add(event)
            self._call(batch.new.callbacks[event])

"""One enqueue request on its way to Redis: send the jobs, resend them after a lost reply, confirm them.

An enqueue has three outcomes: stored (the call returns), not stored (it raises an error), or unknown (it raises
`Unknown`, and repeating it is safe). Every request has a slot and a number. Redis recognises a resend by them, so that
its jobs are not stored twice.

`EnqueueRequest.steps` yields what to send; `Sender` and `AsyncSender` send it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.enqueue.builder import Builder, existing_job
from dayjob.errors import BadOption, StoreError, Unavailable, Unknown
from dayjob.job import Job, new_id
from dayjob.option_checks import Durability
from dayjob.store.async_link import AsyncLink
from dayjob.store.link import Link
from dayjob.store.op import Op
from dayjob.store.ops import confirm, produce
from dayjob.store.ops.batches import MemberChunk, add_members
from dayjob.store.ops.produce import Keyed, NewJob, Slot, Stored, digest_to_keep
from dayjob.store.ops.workflows import WorkflowChunk, start_workflow
from dayjob.store.steps import Steps

L = TypeVar("L")
A = TypeVar("A")

#: Seconds to wait after each failed try of a request; None for the last try.
RETRY_SECONDS = (0.05, 0.25, 0.7, None)
#: An enqueuer adds a name to known_jobs again after this many seconds, in case Redis was emptied.
KNOWN_JOBS_REFRESH_SECONDS = 300.0
#: Seconds between two requests on a slot that ask for Redis time and extend the slot's expiry.
TIME_REFRESH_SECONDS = 10.0

_payload_of = attrgetter("payload")
_job_of = attrgetter("job")


class NumberedLink(Generic[L]):
    """A link with its own slot, which numbers its requests."""

    def __init__(self, link: L) -> None:
        self.link = link
        self.renew()

    def renew(self) -> None:
        """Take a new slot, because the old one has an unanswered request that the caller may still repeat."""
        self.slot_id = new_id()
        self.number = 0
        self._fresh_at = -TIME_REFRESH_SECONDS

    def next(self) -> Slot:
        """The slot with the next number."""
        self.number += 1
        now = time.monotonic()
        fresh = now - self._fresh_at >= TIME_REFRESH_SECONDS
        if fresh:
            self._fresh_at = now
        return Slot(self.slot_id, self.number, fresh)


class Confirmed(msgspec.Struct, frozen=True):
    """A step that sends an op, and waits on the same connection until what it wrote is safe."""

    op: Op[Stored]
    proof: Op[int]
    patience: float

    def run(self, link: Link) -> tuple[Stored, int | StoreError]:
        """Run it over a link."""
        return link.run_confirmed(self.op, self.proof, self.patience)

    async def arun(self, link: AsyncLink) -> tuple[Stored, int | StoreError]:
        """Run it over an async link."""
        return await link.run_confirmed(self.op, self.proof, self.patience)


class Pause(msgspec.Struct, frozen=True):
    """A wait between two requests."""

    seconds: float

    def run(self, _: object) -> None:
        """Block this thread."""
        threading.Event().wait(self.seconds)

    async def arun(self, _: object) -> None:
        """Let the event loop go on."""
        await asyncio.sleep(self.seconds)


class EnqueueRequest(msgspec.Struct, Generic[A]):
    """The jobs of one enqueue call on their way to Redis.

    After `Unknown`, the steps can be run again: they continue where they stopped, and return the result of the whole
    call.
    """

    builder: Builder
    #: The jobs of each request to Redis.
    batches: Sequence[Sequence[NewJob]]
    #: Turns the stored jobs, with None for each duplicate, into the return value of the call.
    read: Callable[[list[Job | None]], A]
    #: The durability that each request must reach, if any, within `timeout` seconds.
    wanted: Durability | None
    timeout: float
    #: Whether it is sent at once inside an atomic job.
    now: bool = False
    #: Sent ahead of each try, in the same round trip: notes that this process waits for the results.
    notes: Sequence[Op[Any]] = ()
    #: The jobs of the requests that were answered, and how many requests that are.
    jobs: list[Job | None] = msgspec.field(default_factory=list)
    answered: int = 0
    #: The request that was sent last, until it is answered. A resend must be the same byte for byte.
    op: Op[Stored] | None = None
    #: Whether the server may have executed it.
    doubtful: bool = False

    def planned(self) -> A:
        """The return value of a call that will be sent at a commit."""
        return self.read([new_job.job for batch in self.batches for new_job in batch])

    def steps(
        self,
        numbered_link: NumberedLink[Any],
        able: set[Durability],
        again: Callable[[EnqueueRequest[A]], Any],
    ) -> Steps[A]:
        """Send the requests in order, each until it is answered. Raises StoreError.

        `able` are the durabilities that the server is known to be able to confirm; `again` repeats this after Unknown.
        """
        try:
            while self.answered < len(self.batches):
                batch = self.batches[self.answered]
                if self.op is None:
                    self.op = self._op(batch, numbered_link.next())
                deadline = time.monotonic() + self.timeout if self.wanted else math.inf
                for pause in RETRY_SECONDS:
                    try:
                        if self.notes:
                            stored = (yield [*self.notes, self.op])[-1]
                        elif not self.wanted:
                            stored = yield self.op
                        else:
                            stored = yield from self._confirm(self.op, self.wanted, able, deadline)
                        break
                    except StoreError as error:
                        raised = self._judge(error, last=pause is None or time.monotonic() > deadline)
                        if raised is not None:
                            raise raised from error
                    yield Pause(pause or 0.0)
                self.jobs += self._accept(batch, stored)
                self.answered += 1
                self.op = None
                self.doubtful = False
        except BaseException as error:
            # The unanswered request may be stored, also if this call is cancelled or interrupted, which closes the
            # generator. Another request on its slot would make repeat() unsafe.
            numbered_link.renew()
            if isinstance(error, Unknown):
                error.again = partial(again, self)
            raise
        return self.read(self.jobs)

    def _op(self, new_jobs: Sequence[NewJob], slot: Slot) -> Op[Stored]:
        """The request that stores jobs of one name and one time. A job with a unique key or a chosen id must be alone.

        Jobs that join a batch may be of any name and time.
        """
        keys = self.builder.keys
        if isinstance(new_jobs, MemberChunk):
            return add_members(keys, slot, new_jobs)
        if isinstance(new_jobs, WorkflowChunk):
            return start_workflow(keys, slot, new_jobs)
        first = new_jobs[0]
        if first.batch:
            # Its block has ended: a commit sends it now.
            return add_members(keys, slot, MemberChunk(new_jobs, (first.batch,)))
        job, when, expires = first.job, first.when, first.expires
        known_at = self.builder.introduced.get(job.name)
        introduce = known_at is None or time.monotonic() - known_at >= KNOWN_JOBS_REFRESH_SECONDS
        keyed = None if first.key is None else self._keyed(new_jobs)
        if first.chosen or job.unique_key is not None:
            return produce.admit(
                keys, slot, job.name, first.payload, when,
                job_id=job.id, chosen=first.chosen, unique_key=job.unique_key, unique_for=first.unique_for,
                introduce=introduce, expires=expires, digest=digest_to_keep(first), keyed=keyed,
            )  # fmt: skip
        payloads = list(map(_payload_of, new_jobs))
        if when.mode == "now":
            return produce.enqueue(
                keys, slot, job.name, payloads,
                introduce=introduce, expires=expires, keyed=keyed,
            )  # fmt: skip
        return produce.schedule(keys, slot, job.name, payloads, when, introduce=introduce, expires=expires)

    def _keyed(self, new_jobs: Sequence[NewJob]) -> Keyed | None:
        rule = self.builder.types[new_jobs[0].job.name].options.fair_by
        return Keyed(rule.by, tuple(one.key or "" for one in new_jobs)) if rule else None

    def _accept(self, new_jobs: Sequence[NewJob], stored: Stored) -> list[Job | None]:
        """The jobs to return to the caller, with the times of the answer; None for a duplicate. Raises BadOption."""
        if isinstance(new_jobs, MemberChunk | WorkflowChunk) or new_jobs[0].batch:
            if not stored.stored:
                raise BadOption("the batch has ended, so no job can join it: start another one")
            return list(map(_job_of, new_jobs))
        first = new_jobs[0]
        self.builder.introduced[first.job.name] = time.monotonic()
        if stored.now:
            self.builder.offset = stored.now - time.time()
        if not stored.stored:
            return [None]
        if stored.existed:
            return [existing_job(first, stored.first)]
        if stored.due is not None and first.when.mode != "now":
            for new_job in new_jobs:
                new_job.job.scheduled_at = stored.due
        if stored.now:
            for new_job in new_jobs:
                if new_job.expires is not None:
                    new_job.job.expires_at = stored.now + new_job.expires
        return list(map(_job_of, new_jobs))

    def _confirm(
        self, op: Op[Stored], wanted: Durability, able: set[Durability], deadline: float
    ) -> Steps[Stored]:
        """Send one request and wait until it has the wanted durability.

        Raises Unknown if that was not confirmed, and Unavailable if a resend may confirm it.
        """
        if wanted not in able:
            yield from confirm.able(wanted)
            able.add(wanted)
        left = max(deadline - time.monotonic(), 0.001)
        stored: Stored
        stored, answer = yield Confirmed(op, confirm.confirm(wanted, left), left)
        if isinstance(answer, StoreError):
            able.discard(wanted)
        if not stored.stored:
            return stored  # a duplicate: this call wrote no job that could be lost
        if isinstance(answer, Unavailable):
            raise Unavailable(str(answer), sent=True)
        if isinstance(answer, StoreError):
            raise Unknown(f"stored, but not confirmed: {answer} (repeat() is safe)")
        if not confirm.enough(wanted, answer):
            raise Unknown(
                f"{confirm.shortfall(wanted, answer, self.timeout)} (repeat() waits again and is safe)"
            )
        return stored

    def _judge(self, error: StoreError, *, last: bool) -> StoreError | None:
        """The error to raise to the caller, or None to try again."""
        if isinstance(error, Unknown):
            self.doubtful = True
            return error
        if isinstance(error, Unavailable):
            self.doubtful = self.doubtful or error.sent
            if not last:
                return None
        if not self.doubtful and not self.jobs:
            self.op = None
            return error
        unknown = Unknown(self._progress(error))
        unknown.stored = sum(job is not None for job in self.jobs)
        return unknown

    def _progress(self, error: StoreError) -> str:
        """How much of the call is stored, and what stopped it."""
        total = sum(map(len, self.batches))
        unanswered = len(self.batches[self.answered])
        if not self.jobs and total == unanswered:
            return f"{error}; it may be stored, in part or whole (repeat() is safe)"
        stored = sum(job is not None for job in self.jobs)
        others = f", {stored:,} of them new" if stored < len(self.jobs) else ""
        doubt = f"the next {unanswered:,} may be" if self.doubtful else "the others are not"
        # "nothing was stored" is true of the request that failed, but not of the whole call.
        cause = str(error).replace("; nothing was stored", "")
        return (
            f"the first {len(self.jobs):,} of {total:,} jobs are stored{others}, {doubt} "
            f"(repeat() is safe and stores the rest). The cause: {cause}"
        )

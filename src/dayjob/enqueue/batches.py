"""Batch: jobs that belong together, with callbacks when all have ended. Enqueues inside its block join it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dayjob.errors import BadOption, NotReady
from dayjob.handlers.registry import check_handle
from dayjob.job import new_id, running
from dayjob.names import check_text
from dayjob.options import EnqueueOptions
from dayjob.store.async_link import awalk
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import batches, inspect
from dayjob.store.ops.batches import MemberChunk, NewBatch, StoredBatch
from dayjob.store.ops.produce import MAX_BYTES, MAX_JOBS, NewJob
from dayjob.store.steps import Steps, ask

if TYPE_CHECKING:
    from dayjob.enqueue.async_sender import AsyncSender
    from dayjob.enqueue.sender import EnqueueRequest, Sender
    from dayjob.handlers.registry import JobType

#: The block whose batch the jobs join that this thread or task enqueues.
joining: ContextVar[Batch | None] = ContextVar("dayjob_joining", default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """What became of the members of a batch."""

    #: How many members it has.
    total: int
    #: How many completed or were discarded; failed and run again; are dead; and have not ended.
    completed: int
    failed: int
    dead: int
    left: int
    #: Seconds until it ends, if its members go on to end as fast as so far; None if that is not known.
    eta: float | None


class Senders(NamedTuple):
    """How a batch reaches Redis, from sync and from async code."""

    sync: Sender
    asynchronous: Callable[[], AsyncSender]


class Batch:
    """Jobs that belong together. `pool.batch(...)` makes one, `enqueuer.batch(id)` finds one.

    As a context manager, sync or async, it takes up the jobs that are enqueued in its block. They are stored a few hundred at
    a time, the last ones at the end of the block. If the block raises, the rest is not stored, and a new batch is cancelled.
    """

    def __init__(self, senders: Senders, ids: tuple[str, ...], new: NewBatch | None = None) -> None:
        #: Identifies the batch, in Redis and in consoles.
        self.id = ids[0]
        self._senders = senders
        self._ids = ids
        #: What to create with the first request; None if the batch exists.
        self._new = new
        self._closes = new is not None
        self._buffer: list[NewJob] = []
        self._size = 0
        self._tokens: list[Token[Batch | None]] = []

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"

    # Blocks.

    def __enter__(self) -> Self:
        for chunk in self._begin():
            self._senders.sync.send_chunk(chunk)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for chunk in self._end(failed=kind is not None):
            self._senders.sync.send_chunk(chunk)
        if kind is not None and self._closes and self._new is None:
            self.cancel()

    async def __aenter__(self) -> Self:
        sender = self._senders.asynchronous()
        for chunk in self._begin():
            await sender.send_chunk(chunk)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sender = self._senders.asynchronous()
        for chunk in self._end(failed=kind is not None):
            await sender.send_chunk(chunk)
        if kind is not None and self._closes and self._new is None:
            await self.acancel()

    def _begin(self) -> Iterator[MemberChunk]:
        """Begin the block. The batch around a new one must be created before it."""
        outer = joining.get()
        if self._new is not None:
            attempt = running.get()
            if attempt is not None and attempt.atomic:
                raise NotReady(
                    "an atomic job cannot start a batch: the batch would exist even if the job fails. Start it in a job "
                    "that is not atomic"
                )
            if outer is not None and len(self._ids) == 1:
                # A batch inside the block of another one is a member of that.
                self._ids = (self.id, *outer._ids)
                if outer._new is not None:
                    yield outer._take()
            if len(self._ids) > MAX_NESTED:
                raise BadOption(f"batches can be nested {MAX_NESTED} deep")
        self._tokens.append(joining.set(self))

    def _end(self, *, failed: bool) -> Iterator[MemberChunk]:
        joining.reset(self._tokens.pop())
        if failed:
            self._buffer = []
            return
        last = self._take()
        last.closes = self._closes and not self._tokens
        if last or last.closes:
            yield last

    # What senders ask of the innermost block.

    def joined_from(self, place: tuple[str, str], options: EnqueueOptions) -> str:
        """The id of this batch if what is enqueued now at this place joins it, else "". Raises BadOption."""
        if options.now or place != self._senders.sync.place:
            return ""
        if options.durability is not None:
            raise BadOption(
                "using(durability=...): members of a batch are stored together, as durably as the pool of the batch asks. "
                "Set the durability of that pool, or leave this job out of the batch with using(now=True)"
            )
        return self.id

    def add(self, request: EnqueueRequest[Any]) -> bool:
        """Keep jobs that join this batch until there are enough for a request. False if they do not join it."""
        new_jobs = [new_job for some in request.batches for new_job in some]
        if not new_jobs or new_jobs[0].batch != self.id:
            return False
        self._buffer += new_jobs
        self._size += sum(len(new_job.payload) for new_job in new_jobs)
        return True

    def full(self) -> Iterator[MemberChunk]:
        """What must be sent before more is kept."""
        while len(self._buffer) >= MAX_JOBS or self._size >= MAX_BYTES:
            yield self._take()

    def _take(self) -> MemberChunk:
        size, count = 0, 0
        while count < min(len(self._buffer), MAX_JOBS) and size < MAX_BYTES:
            size += len(self._buffer[count].payload)
            count += 1
        some, self._buffer = self._buffer[:count], self._buffer[count:]
        self._size -= size
        chunk = MemberChunk(some, self._ids, self._new)
        self._new = None
        return chunk

    # Reading and ending it.

    def progress(self) -> Progress:
        """What became of its members. Raises NotReady if there is no such batch, and StoreError."""
        return walk(self._senders.sync, self._progress())

    async def aprogress(self) -> Progress:
        """`progress`, awaited."""
        return await awalk(self._senders.asynchronous(), self._progress())

    def cancel(self) -> bool:
        """End its members: those that wait when their turn comes, those that run are asked to stop within seconds.

        Its success callback is never enqueued. False if it had been cancelled before. Raises NotReady, StoreError.
        """
        return walk(self._senders.sync, self._change("cancel"))

    async def acancel(self) -> bool:
        """`cancel`, awaited."""
        return await awalk(self._senders.asynchronous(), self._change("cancel"))

    def _progress(self) -> Steps[Progress]:
        sink = self._senders.sync.builder.sink
        if sink is not None:
            known: Progress = sink.progress(self.id)
            return known
        found = yield from self._read()
        now = yield from ask(inspect.now())
        return progress_of(found, now)

    def _change(self, what: batches.BatchChange) -> Steps[bool]:
        sink = self._senders.sync.builder.sink
        if sink is not None:
            return sink.cancel_batch(self.id)
        found = yield from self._read()
        return (yield from ask(batches.change_batch(self._keys, found, what)))

    def _read(self) -> Steps[StoredBatch]:
        found = yield from batches.read(self._keys, self.id)
        if found is None:
            raise NotReady(
                f"there is no batch {self.id!r}: it was not stored yet, or ended more than a week ago"
            )
        return found

    @property
    def _keys(self) -> Keys:
        return self._senders.sync.builder.keys


#: How deep batches may be nested.
MAX_NESTED = 8
#: Longest description of a batch, in characters.
MAX_DESCRIPTION = 500


def progress_of(found: StoredBatch, now: float) -> Progress:
    """The progress of a stored batch."""
    return Progress(
        found.total, found.ended - found.dead, found.failed, found.dead, found.left, found.eta(now)
    )


def new_batch(
    senders: Senders,
    callbacks: Mapping[str, JobType[..., ..., Any] | None],
    args: Mapping[str, Any] | None,
    description: str,
    above: Sequence[str] = (),
) -> Batch:
    """A batch that is created when its block ends. Raises BadArguments if the callbacks do not take `args`, and BadOption."""
    check_text(description, "batch(): description")
    if len(description) > MAX_DESCRIPTION:
        raise BadOption(
            f"batch(): description has {len(description)} characters, at most {MAX_DESCRIPTION} are kept"
        )
    if not isinstance(args, Mapping | None):
        raise BadOption(f"batch(args=...): {args!r} is no dict: give the arguments of the callbacks by name")
    batch_id = new_id()
    new = NewBatch(description)
    builder = senders.sync.builder
    for event, job_type in callbacks.items():
        if job_type is not None:
            check_handle(job_type, f"batch(on_{event}=...)")
            options = EnqueueOptions(id=f"{batch_id}-{event}", inherit=True)
            raw = job_type.encode((), args or {})
            new.callbacks[event] = builder.new_job(job_type.name, raw, options, batch_id, -1).payload
    return Batch(senders, (batch_id, *above), new)

"""Enqueuer and AsyncEnqueuer, the public classes that store jobs in Redis. They choose options; `sender.py` sends."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar, Unpack

from dayjob import option_checks
from dayjob.enqueue import calls, results, streams
from dayjob.enqueue.async_sender import AsyncSender
from dayjob.enqueue.batches import Batch, Senders, new_batch
from dayjob.enqueue.builder import Builder, Find
from dayjob.enqueue.progress import JobProgress, progress_of
from dayjob.enqueue.sender import Sender
from dayjob.enqueue.workflows import RunningWorkflow, Workflow, new_workflow, read_results
from dayjob.errors import BadOption
from dayjob.handlers.calls import EncodedItem, Item, MapOptions
from dayjob.handlers.registry import JobType, epoch, wait_of
from dayjob.job import Job, require_stored
from dayjob.middleware import EnqueueHook
from dayjob.names import check_redis, check_text
from dayjob.option_checks import Seconds, durability_of
from dayjob.options import Commit, EnqueueOptions, Provenance, Using, read_using
from dayjob.store import addresses
from dayjob.store.async_link import awalk
from dayjob.store.link import walk
from dayjob.store.op import Op
from dayjob.store.ops.find import State
from dayjob.store.ops.workflows import AddedNodes
from dayjob.store.stream_reader import Emitted
from dayjob.transactions import TransactionOutbox

S = TypeVar("S", Sender, AsyncSender)


class _EnqueuerBase(Generic[S]):
    """What both enqueuers share: all but the sending."""

    _sender_type: type[S]

    @property
    def senders(self) -> Senders:
        """The senders of its batches and workflows, for sync and async code."""
        raise NotImplementedError

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        timeout: float = 5.0,
        durability: str = "memory",
        provenance: Provenance = "parent",
        find: Find | None = None,
        hooks: Sequence[EnqueueHook] = (),
        outbox: TransactionOutbox | None = None,
    ) -> None:
        if not 0.1 <= timeout <= 3600:
            raise BadOption(f"timeout={timeout!r}: give seconds from 0.1 to 3600")
        self.namespace = addresses.resolve_namespace(namespace)
        wanted = durability_of(durability, f"{type(self).__name__}: durability")
        self._options = EnqueueOptions(on_commit=on_commit, durability=wanted or None)
        option_checks.provenance(provenance, f"{type(self).__name__}: provenance")
        self._builder = Builder(self.namespace, max_payload, find, hooks, provenance)
        self._connects: dict[str, Any] = {"redis": check_redis(redis), "timeout": timeout, "outbox": outbox}
        self.sender: S = self._sender_type(self._builder, self._options, **self._connects)

    def using(self, **options: Unpack[Using]) -> Self:
        """A copy of this enqueuer whose jobs get these options. It shares the connections. Raises BadOption."""
        chosen = copy.copy(self)
        chosen._options = read_using(options, self._options)
        return chosen

    def batch(self, batch_id: str, /, *above: str) -> Batch:
        """The batch with this id, to read its progress, cancel it, or add members to it from anywhere."""
        return Batch(self.senders, (check_text(batch_id, "the id of a batch"), *above))

    def workflow(self, workflow_id: str, /) -> Workflow:
        """The workflow with this id, to read its progress or cancel it from anywhere."""
        return Workflow(self.senders, check_text(workflow_id, "the id of a workflow"), None)

    def sourced(self, source: str | int | None) -> Self:
        """A copy of this enqueuer whose jobs have this `source`."""
        return self.using(source=source)

    def _one(self, name: str, args: Mapping[str, Any], **changes: Any) -> tuple[str, bytes, EnqueueOptions]:
        options = replace(self._options, **changes) if changes else self._options
        raw, options = self._builder.encode(name, args, options)
        return name, raw, options

    def _many(
        self, name: str, items: Iterable[Mapping[str, Any]]
    ) -> tuple[str, list[tuple[bytes, EnqueueOptions]], EnqueueOptions]:
        if self._options.id is not None:
            raise BadOption("enqueue_many: jobs cannot share one id; remove using(id=...)")
        return name, [self._builder.encode(name, item, self._options) for item in items], self._options


class Enqueuer(_EnqueuerBase[Sender]):
    """Stores jobs in Redis. Several threads may share an enqueuer. It connects at first use."""

    _sender_type = Sender

    @property
    def senders(self) -> Senders:
        """The senders of its batches and workflows, for sync and async code."""
        return Senders(self.sender, lambda: AsyncSender(self._builder, self._options, **self._connects))

    def new_batch(
        self,
        callbacks: Mapping[str, JobType[..., ..., Any] | None],
        args: Mapping[str, Any] | None,
        description: str,
        asynchronous: Callable[[], AsyncSender],
    ) -> Batch:
        """A batch that is created when its block ends; see `WorkerPool.batch`."""
        return new_batch(Senders(self.sender, asynchronous), callbacks, args, description)

    def new_workflow(
        self, name: str, source: str | int | None, asynchronous: Callable[[], AsyncSender] | None = None
    ) -> Workflow:
        """A workflow that is stored when it starts; see `WorkerPool.workflow`."""
        senders = self.senders if asynchronous is None else Senders(self.sender, asynchronous)
        return new_workflow(senders, name, source)

    def running_workflow(self, workflow_id: str, added: AddedNodes) -> RunningWorkflow:
        """The workflow of a running node, which adds nodes to `added`."""
        return RunningWorkflow(self._builder, workflow_id, None, added)

    def node_results(self, workflow_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The results of nodes, as JSON. Raises StoreError."""
        return walk(self.sender, read_results(self._builder, workflow_id, numbers))

    def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        raw, options = self._builder.encode(name, args, self._options)
        return require_stored(self.sender.submit(name, raw, options))

    def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(self.sender.submit(*self._one(name, args, delay=wait_of(delay))))

    def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(self.sender.submit(*self._one(name, args, at=epoch(when))))

    def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return self.sender.submit(*self._one(name, args, unique=True))

    def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return self.sender.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return self.sender.submit(*self._one(name, args, unique=True, at=epoch(when)))

    def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        return self.sender.submit_many(*self._many(name, items))

    def result(self, job: Job | str, timeout: float | None = None) -> Any:
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError.

        Only job types with `keep=` keep results.
        """
        job_id, _ = results.id_and_name(job)
        if self._builder.sink is not None:
            return self._builder.sink.result(job_id)
        with self.sender.mailbox().inbox([job_id]) as inbox:
            return walk(self.sender, results.wait_for(self._builder, self.sender.place, inbox, job, timeout))

    def submit_call(self, name: str, args: bytes, options: EnqueueOptions, timeout: float | None, /) -> Any:
        """Enqueue a job whose arguments are encoded, wait for it and return its result."""
        deadline = calls.deadline_of(timeout)
        results.refuse_inside(self.sender.place, name)
        sink = self._builder.sink
        if sink is not None:
            job = require_stored(self.sender.submit(name, args, calls.awaited(options, timeout)))
            return results.read_result(sink.call(job.id), job.id)
        with self.sender.mailbox().inbox() as inbox:
            options = calls.awaited(options, timeout, inbox)
            job = require_stored(self.sender.submit(name, args, options))
            if job.existed:
                inbox.look_again()
            steps = results.finish(self._builder.keys, inbox, job, timeout, deadline)
            return walk(self.sender, steps)

    def submit_map(
        self, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions, /
    ) -> Iterator[tuple[Item, Any]]:
        """Enqueue a job for each item, and iterate over the items with their results."""
        return calls.map_jobs(self.sender, name, items, options, how)

    def state(self, job: Job | str) -> State | Literal["pending"] | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError.

        Inside an atomic job, the jobs that it has enqueued are pending until it completes. A completed job is found until its job type's `keep` has passed. Given an id, the first 10,000 waiting jobs of
        each queue are searched; given a Job, those of its own queue only. Job types with `deep_lookup` are searched as a whole.
        """
        return walk(self.sender, results.state_of(self._builder, job))

    def progress(self, job: Job | str) -> JobProgress | None:
        """The last check-in of a running job; None if it does not run or has not checked in. Raises StoreError.

        Pools publish check-ins once a second, of attempts that run for more than half a second.
        """
        return walk(self.sender, progress_of(self._builder, job))

    def stream(self, job: Job | str, *, after: str = "", timeout: float | None = None) -> Iterator[Emitted]:
        """Yield the values that a job emits with `job.emit(value)`, until it has ended.

        A value arrives within about a tenth of a second. `after` is the `id` of a value to continue after. When a job
        is retried, the first value of the new attempt has `restarted` set. Raises JobFailed if the job is dead, was
        discarded or cancelled, or is not found, ResultTimeout if it has not ended within `timeout` seconds, and
        StoreError. Uses a connection of its own.
        """
        return streams.stream(self.sender, job, after, timeout)

    def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        return self.sender.run(op)

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        self.sender.close()


class AsyncEnqueuer(_EnqueuerBase[AsyncSender]):
    """Stores jobs in Redis from async code: the methods of Enqueuer as coroutines. Connects at first use."""

    _sender_type = AsyncSender

    @property
    def senders(self) -> Senders:
        """The senders of its batches and workflows, for sync and async code."""
        return Senders(self.sender.at_commit, lambda: self.sender)

    async def node_results(self, workflow_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The results of nodes, as JSON. Raises StoreError."""
        return await awalk(self.sender, read_results(self._builder, workflow_id, numbers))

    async def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        raw, options = self._builder.encode(name, args, self._options)
        return require_stored(await self.sender.submit(name, raw, options))

    async def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(await self.sender.submit(*self._one(name, args, delay=wait_of(delay))))

    async def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(await self.sender.submit(*self._one(name, args, at=epoch(when))))

    async def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return await self.sender.submit(*self._one(name, args, unique=True))

    async def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return await self.sender.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    async def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return await self.sender.submit(*self._one(name, args, unique=True, at=epoch(when)))

    async def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        return await self.sender.submit_many(*self._many(name, items))

    async def result(self, job: Job | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - a limit on the job
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError."""
        job_id, _ = results.id_and_name(job)
        if self._builder.sink is not None:
            return self._builder.sink.result(job_id)
        with self.sender.mailbox().inbox([job_id]) as inbox:
            return await awalk(
                self.sender, results.wait_for(self._builder, self.sender.place, inbox, job, timeout)
            )

    async def submit_call(
        self,
        name: str,
        args: bytes,
        options: EnqueueOptions,
        timeout: float | None,  # noqa: ASYNC109 - a limit on the job
        /,
    ) -> Any:
        """Enqueue a job whose arguments are encoded, wait for it and return its result."""
        deadline = calls.deadline_of(timeout)
        results.refuse_inside(self.sender.place, name)
        sink = self._builder.sink
        if sink is not None:
            job = require_stored(await self.sender.submit(name, args, calls.awaited(options, timeout)))
            return results.read_result(await sink.acall(job.id), job.id)
        with self.sender.mailbox().inbox() as inbox:
            options = calls.awaited(options, timeout, inbox)
            job = require_stored(await self.sender.submit(name, args, options))
            if job.existed:
                inbox.look_again()
            steps = results.finish(self._builder.keys, inbox, job, timeout, deadline)
            return await awalk(self.sender, steps)

    def submit_map(
        self, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions, /
    ) -> AsyncIterator[tuple[Item, Any]]:
        """Enqueue a job for each item, and iterate over the items with their results."""
        return calls.amap_jobs(self.sender, name, items, options, how)

    async def state(self, job: Job | str) -> State | Literal["pending"] | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError."""
        return await awalk(self.sender, results.state_of(self._builder, job))

    async def progress(self, job: Job | str) -> JobProgress | None:
        """The last check-in of a running job; None if it does not run or has not checked in. Raises StoreError."""
        return await awalk(self.sender, progress_of(self._builder, job))

    def stream(
        self,
        job: Job | str,
        *,
        after: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[Emitted]:
        """Yield the values that a job emits with `job.emit(value)`, until it has ended.

        A value arrives within about a tenth of a second. `after` is the `id` of a value to continue after. When a job
        is retried, the first value of the new attempt has `restarted` set. Raises JobFailed if the job is dead, was
        discarded or cancelled, or is not found, ResultTimeout if it has not ended within `timeout` seconds, and
        StoreError. Uses a connection of its own.
        """
        return streams.astream(self.sender, job, after, timeout)

    async def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        return await self.sender.run(op)

    async def close(self) -> None:
        """Close the idle connections of this event loop. The next call opens new ones."""
        await self.sender.close()

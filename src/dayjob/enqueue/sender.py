"""Sending: takes a connection for each request and waits for the answer, in sync code (`Sender`) and async (`AsyncSender`).

Nothing else of an enqueue waits. What to send and when to send it again is decided by `EnqueueRequest.steps`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Generic, TypeVar

from msgspec.structs import replace as replace_struct

from dayjob.enqueue.batches import joining
from dayjob.enqueue.builder import Builder, Sink
from dayjob.enqueue.connections import AsyncLinks, Links, LoopLinks
from dayjob.enqueue.hooks import hooked, with_headers
from dayjob.enqueue.mailbox import Mailbox, mailbox_of
from dayjob.enqueue.request import RETRY_SECONDS, EnqueueRequest, NumberedLink
from dayjob.errors import BadOption
from dayjob.instruments import INSTRUMENTS
from dayjob.job import Job, running
from dayjob.middleware import FindServer, Outgoing, ServerAddress
from dayjob.options import Commit, EnqueueOptions
from dayjob.store import addresses
from dayjob.store.async_link import AsyncLink, awalk
from dayjob.store.link import Link, server_finder, walk
from dayjob.store.op import Op
from dayjob.store.ops.batches import MemberChunk
from dayjob.store.ops.produce import NewJob, When
from dayjob.store.ops.workflows import WorkflowChunk
from dayjob.store.stream_reader import BLOCK_SECONDS
from dayjob.store.subscription import Subscription
from dayjob.store.urls import Address, parse_url
from dayjob.transactions import TransactionOutbox

A = TypeVar("A")
K = TypeVar("K", Links, AsyncLinks)

_first: Callable[[list[Job | None]], Job | None] = itemgetter(0)


class _SenderBase(Generic[K]):
    """What both senders share: they make requests of jobs, and know the default options and where to connect."""

    _links_type: type[K]

    def __init__(
        self,
        builder: Builder,
        defaults: EnqueueOptions,
        *,
        redis: str | None,
        timeout: float,
        outbox: TransactionOutbox | None = None,
    ) -> None:
        self.builder = builder
        self.links: K = self._links_type()
        #: Keeps jobs that are enqueued in a database transaction.
        self._outbox = outbox
        self._redis = redis
        #: The server that `redis` and the environment name, once it is known.
        self._server: str | None = None
        #: Returns its address, for those who record it.
        self._find_server: FindServer | None = None
        #: Seconds to wait for answers, divided among the tries. The waits between the tries are not included.
        self._timeout = timeout
        self._answer_seconds = timeout / len(RETRY_SECONDS)
        #: The enqueuer's own `on_commit` and `durability`, for calls that choose neither; None if it has neither.
        self._defaults = defaults if defaults.on_commit or defaults.durability else None

    def _request(
        self, name: str, args: bytes, options: EnqueueOptions
    ) -> tuple[EnqueueRequest[Job | None], Commit | None]:
        """The request for one job, and the commit that it waits for."""
        if self._defaults is not None:
            options = _with_defaults(options, self._defaults)
        block = joining.get()
        batch = "" if block is None else block.joined_from(self.place, options)
        new_jobs = [self.builder.new_job(name, args, options, batch)]
        on_commit = options.on_commit
        if self._outbox is not None or options.session is not None:
            new_jobs, on_commit = self._in_transaction(new_jobs, options)
        request = EnqueueRequest(
            self.builder, [new_jobs], _first, options.durability, self._timeout, options.now
        )
        if options.reply is not None:
            request.notes = options.reply.expect([new_jobs[0].job.id], noted=not options.durability)
        return request, on_commit

    def _request_many(
        self,
        name: str,
        items: Sequence[tuple[bytes, EnqueueOptions]],
        options: EnqueueOptions,
        outgoing: Outgoing,
    ) -> tuple[EnqueueRequest[list[Job]], Commit | None]:
        """The request for many jobs of one name, and the commit that it waits for."""
        if self.builder.hooks:
            items = [(args, with_headers(own, outgoing)) for args, own in items]
        block = joining.get()
        batch = "" if block is None else block.joined_from(self.place, options)
        new_jobs = [self.builder.new_job(name, args, own, batch) for args, own in items]
        on_commit = options.on_commit
        if self._outbox is not None or options.session is not None:
            new_jobs, on_commit = self._in_transaction(new_jobs, options)
        batches = self.builder.batches(new_jobs)
        request = EnqueueRequest(
            self.builder, batches, _stored, options.durability, self._timeout, options.now
        )
        if options.reply is not None:
            ids = [new_job.job.id for new_job in new_jobs]
            request.notes = options.reply.expect(ids, noted=not options.durability)
        return request, on_commit

    def _in_transaction(
        self, new_jobs: list[NewJob], options: EnqueueOptions
    ) -> tuple[list[NewJob], Commit | None]:
        """The jobs, and what keeps them in the transaction of the session; without one, as they are. Raises BadOption."""
        if self._outbox is None:
            raise BadOption("using(session=...) needs an outbox: WorkerPool(outbox=Outbox(engine))")
        if options.commit_given:
            return new_jobs, options.on_commit
        testing = self.builder.sink is not None
        named = [replace_struct(one, chosen=True, when=_fixed(one)) for one in new_jobs]
        namespace = self.builder.keys.namespace
        commit = self._outbox.commit_of(options.session, namespace, named, testing=testing)
        if commit is None:
            return new_jobs, options.on_commit
        if new_jobs and new_jobs[0].batch:
            raise BadOption(
                "a job that an outbox keeps cannot join a batch: start the batch after the commit"
            )
        return named, commit

    @property
    def place(self) -> tuple[str, str]:
        """The namespace and the server to which this sends."""
        prefix = self.builder.keys.prefix
        if self.builder.sink is not None:
            return prefix, f"testing {id(self.builder.sink)}"
        if self._server is None:
            self._server = addresses.resolve(self._redis).url
        return prefix, self._server

    def find_server(self) -> ServerAddress | None:
        """Where the server is; None in a testing block, and as long as it is not known."""
        if self.builder.sink is not None:
            return None
        if self._find_server is None:
            self._find_server = server_finder(self.place[1], self.builder.keys.known_jobs)
        return self._find_server()

    def commit_for_workflow(self, new_jobs: Sequence[NewJob]) -> Commit | None:
        """The commit that the start of a workflow waits for, if any. Raises BadOption."""
        commit = None if self._defaults is None else self._defaults.on_commit
        if self._outbox is not None:
            namespace = self.builder.keys.namespace
            if self._outbox.commit_of(None, namespace, list(new_jobs), testing=True) is not None:
                raise BadOption("an outbox cannot keep a workflow: start the workflow after the commit")
        return commit

    def _chunk_request(self, chunk: MemberChunk | WorkflowChunk) -> EnqueueRequest[list[Job]]:
        durability = None
        if self._defaults is not None and isinstance(chunk, WorkflowChunk):
            durability = self._defaults.durability
        return EnqueueRequest(self.builder, [chunk], _stored, durability, self._timeout)

    def mailbox(self) -> Mailbox:
        """Where the results arrive that this process waits for."""
        return mailbox_of(self.place, self.builder.keys, self._subscription)

    def _subscription(self) -> Subscription:
        return Subscription(self._resolve(), tag=self.builder.keys.known_jobs, name="dayjob:mailbox")

    def _collected(self, request: EnqueueRequest[Any]) -> bool:
        """Whether the atomic job that is running keeps the jobs until it completes."""
        outer = running.get()
        if outer is None or not outer.atomic or request.now:
            return False
        return outer.collect(self.place, itertools.chain.from_iterable(request.batches))

    def _resolve(self) -> Address:
        return parse_url(addresses.connect_target(addresses.resolve(self._redis)))

    def _link_options(self) -> dict[str, Any]:
        return {
            "tag": self.builder.keys.known_jobs,
            "name": "dayjob:enqueuer",
            "timeout": self._answer_seconds,
        }

    def _reading_options(self) -> dict[str, Any]:
        return {
            **self._link_options(),
            "name": "dayjob:stream",
            "timeout": BLOCK_SECONDS + self._answer_seconds,
        }


def _with_defaults(options: EnqueueOptions, defaults: EnqueueOptions) -> EnqueueOptions:
    return replace(
        options,
        on_commit=options.on_commit if options.commit_given else defaults.on_commit,
        durability=defaults.durability if options.durability is None else options.durability,
    )


def _fixed(new_job: NewJob) -> When:
    """When a job of an outbox runs. A delay counts from the enqueue, not from when its row is sent."""
    due = new_job.job.scheduled_at
    return new_job.when if due is None else When("at", round(due * 1000))


def _stored(jobs: list[Job | None]) -> list[Job]:
    return [job for job in jobs if job is not None]


class Sender(_SenderBase[Links]):
    """Sends requests from sync code. An enqueuer, its using() copies and the job types of a pool share one."""

    _links_type = Links

    def submit(self, name: str, args: bytes, options: EnqueueOptions) -> Job | None:
        """Enqueue one job whose name is checked and whose arguments are encoded; None for a duplicate."""
        # Without a call, because this is asked for every job.
        if not (INSTRUMENTS.installed or self.builder.pool_hooks):
            return self.send(*self._request(name, args, options))
        with hooked(self.builder.hooks, name, 1, options, self.find_server) as outgoing:
            job = self.send(*self._request(name, args, with_headers(options, outgoing)))
            outgoing.jobs = () if job is None else (job,)
        return job

    def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions
    ) -> list[Job]:
        """Enqueue many jobs of one name, each with encoded arguments and its options. Duplicates are left out of the answer."""
        with hooked(self.builder.hooks, name, len(items), options, self.find_server) as outgoing:
            jobs = self.send(*self._request_many(name, items, options, outgoing))
            outgoing.jobs = jobs
        return jobs

    def send(
        self, request: EnqueueRequest[A], on_commit: Commit | None = None, sink: Sink | None = None
    ) -> A:
        """Send a request now, or have `on_commit` send it."""
        # A job built inside a testing block must not reach Redis, even if the commit comes after the block.
        sink = sink or self.builder.sink
        if on_commit is not None:
            if sink is not None:
                sink.defer(request.batches)
            on_commit(lambda: self.send(request, sink=sink))
            return request.planned()
        if running.get() is not None and self._collected(request):
            return request.planned()
        block = joining.get()
        if block is not None and block.add(request):
            for chunk in block.full():
                self.send_chunk(chunk)
            return request.planned()
        if sink is not None:
            return request.read(sink.store(request.batches))
        return self.drive(request)

    def send_chunk(self, chunk: MemberChunk | WorkflowChunk) -> None:
        """Store jobs that join a batch, and create or close it; or a workflow."""
        if self.builder.sink is not None:
            self.builder.sink.store([chunk])
        else:
            self.drive(self._chunk_request(chunk))

    def drive(self, request: EnqueueRequest[A]) -> A:
        """Send a request to Redis on one link."""
        # Links.take and Links.give, written out: they are two calls of every enqueue.
        links = self.links
        try:
            numbered_link = links.idle.pop()
        except IndexError:
            numbered_link = links.wait(self._connect)
        steps = request.steps(numbered_link, links.able, self.drive)
        try:
            return walk(numbered_link.link, steps)
        finally:
            steps.close()
            links.idle.append(numbered_link)
            if links.waiting:
                links.notify()

    def run(self, op: Op[A]) -> A:
        """Run one op, other than an enqueue, on one of the links."""
        with self._link() as link:
            return link.run(op)

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip, on one of the links."""
        with self._link() as link:
            return link.run_many(ops)

    @contextmanager
    def reading(self) -> Iterator[Link]:
        """A connection for one reader of a stream, who blocks on it."""
        with self.links.lock:
            if self.links.address is None:
                self.links.address = self._resolve()
        link = Link(self.links.address, **self._reading_options())
        try:
            yield link
        finally:
            link.close()

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        self.links.close()

    @contextmanager
    def _link(self) -> Iterator[Link]:
        """A link whose connection is fresh, because unlike an enqueue what it runs is not sent again."""
        numbered_link = self.links.take(self._connect)
        try:
            numbered_link.link.freshen()
            yield numbered_link.link
        finally:
            self.links.give(numbered_link)

    def _connect(self) -> NumberedLink[Link]:
        with self.links.lock:
            if self.links.address is None:
                self.links.address = self._resolve()
        return NumberedLink(Link(self.links.address, **self._link_options()))


class AsyncSender(_SenderBase[AsyncLinks]):
    """Sends requests from async code. The counterpart of Sender."""

    _links_type = AsyncLinks

    @cached_property
    def at_commit(self) -> Sender:
        """Sends jobs at commit, because a commit hook is a plain function and may run in any thread."""
        return Sender(
            self.builder, self._defaults or EnqueueOptions(), redis=self._redis, timeout=self._timeout
        )

    async def submit(self, name: str, args: bytes, options: EnqueueOptions) -> Job | None:
        """Enqueue one job whose name is checked and whose arguments are encoded; None for a duplicate."""
        # Without a call, because this is asked for every job.
        if not (INSTRUMENTS.installed or self.builder.pool_hooks):
            return await self.send(*self._request(name, args, options))
        with hooked(self.builder.hooks, name, 1, options, self.find_server) as outgoing:
            job = await self.send(*self._request(name, args, with_headers(options, outgoing)))
            outgoing.jobs = () if job is None else (job,)
        return job

    async def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions
    ) -> list[Job]:
        """Enqueue many jobs of one name, each with encoded arguments and its options. Duplicates are left out of the answer."""
        with hooked(self.builder.hooks, name, len(items), options, self.find_server) as outgoing:
            jobs = await self.send(*self._request_many(name, items, options, outgoing))
            outgoing.jobs = jobs
        return jobs

    async def send(self, request: EnqueueRequest[A], on_commit: Commit | None = None) -> A:
        """Send a request now, or have `on_commit` send it."""
        sink = self.builder.sink
        if on_commit is not None:
            if sink is not None:
                sink.defer(request.batches)
            await self.register(on_commit, lambda: self.at_commit.send(request, sink=sink))
            return request.planned()
        if running.get() is not None and self._collected(request):
            return request.planned()
        block = joining.get()
        if block is not None and block.add(request):
            for chunk in block.full():
                await self.send_chunk(chunk)
            return request.planned()
        if sink is not None:
            return request.read(await sink.astore(request.batches))
        return await self.drive(request)

    async def send_chunk(self, chunk: MemberChunk | WorkflowChunk) -> None:
        """Store jobs that join a batch, and create or close it; or a workflow."""
        if self.builder.sink is not None:
            await self.builder.sink.astore([chunk])
        else:
            await self.drive(self._chunk_request(chunk))

    async def register(self, on_commit: Commit, send: Callable[[], Any]) -> None:
        """Have `on_commit` call `send` after the commit."""
        answer = _register(on_commit, send)
        if inspect.isawaitable(answer):
            await answer

    async def drive(self, request: EnqueueRequest[A]) -> A:
        """Send a request to Redis on one link."""
        here = self.links.here()
        async with here.places:
            numbered_link = await self._take(here)
            steps = request.steps(numbered_link, self.links.able, self.drive)
            try:
                return await awalk(numbered_link.link, steps)
            finally:
                steps.close()
                here.idle.append(numbered_link)

    async def run(self, op: Op[A]) -> A:
        """Run one op, other than an enqueue, on one of the links."""
        async with self._link() as link:
            return await link.run(op)

    async def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip, on one of the links."""
        async with self._link() as link:
            return await link.run_many(ops)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncLink]:
        """A connection for one reader of a stream, who blocks on it."""
        if self.links.address is None:
            self.links.address = await asyncio.to_thread(self._resolve)
        link = AsyncLink(self.links.address, **self._reading_options())
        try:
            yield link
        finally:
            await link.close()

    async def close(self) -> None:
        """Close the idle connections of this event loop. The next call opens new ones."""
        self.at_commit.close()
        idle = self.links.here().idle
        while idle:
            await idle.pop().link.close()

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[AsyncLink]:
        """A link whose connection is fresh, because unlike an enqueue what it runs is not sent again."""
        here = self.links.here()
        async with here.places:
            numbered_link = await self._take(here)
            try:
                await numbered_link.link.freshen()
                yield numbered_link.link
            finally:
                here.idle.append(numbered_link)

    async def _take(self, here: LoopLinks[AsyncLink]) -> NumberedLink[AsyncLink]:
        if here.idle:
            return here.idle.pop()
        if self.links.address is None:
            # In a thread, because it may start the embedded server, which would block the event loop.
            self.links.address = await asyncio.to_thread(self._resolve)
        return NumberedLink(AsyncLink(self.links.address, **self._link_options()))


def _register(on_commit: Commit, send: Callable[[], Any]) -> Any:
    """Pass `send` to `on_commit` from async code. Returns what `on_commit` returns, which may be awaitable."""
    try:
        return on_commit(send)
    except Exception as error:
        asgiref = sys.modules.get("asgiref.sync")
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if asgiref is None or "SynchronousOnlyOperation" not in kinds:
            raise
        # Django's transactions belong to the thread that runs its sync code; asgiref runs a function in that thread.
        return asgiref.sync_to_async(on_commit, thread_sensitive=True)(send)

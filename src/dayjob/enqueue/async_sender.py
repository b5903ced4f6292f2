"""Sending from async code: the counterpart of `Sender`, which runs the same steps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, TypeVar

from dayjob.enqueue.batches import joining
from dayjob.enqueue.connections import AsyncLinks, LoopLinks
from dayjob.enqueue.hooks import hooked, with_headers
from dayjob.enqueue.sender import EnqueueRequest, NumberedLink, Sender, SenderBase, first_of, stored_of
from dayjob.instruments import INSTRUMENTS
from dayjob.job import Job, running
from dayjob.options import Commit, EnqueueOptions
from dayjob.store.async_link import AsyncLink, awalk
from dayjob.store.op import Op
from dayjob.store.ops.batches import MemberChunk
from dayjob.store.ops.workflows import WorkflowChunk

A = TypeVar("A")


class AsyncSender(SenderBase[AsyncLinks]):
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
            return await self.send(*self._request(name, ((args, options),), options, first_of))
        with hooked(self.builder.hooks, name, 1, options, self.find_server) as outgoing:
            options = with_headers(options, outgoing)
            job = await self.send(*self._request(name, ((args, options),), options, first_of))
            outgoing.jobs = () if job is None else (job,)
        return job

    async def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions
    ) -> list[Job]:
        """Enqueue many jobs of one name, each with encoded arguments and its options. Duplicates are left out of the answer."""
        with hooked(self.builder.hooks, name, len(items), options, self.find_server) as outgoing:
            if self.builder.hooks:
                items = [(args, with_headers(own, outgoing)) for args, own in items]
            jobs = await self.send(*self._request(name, items, options, stored_of))
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
        return NumberedLink(await self.links.connect())


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

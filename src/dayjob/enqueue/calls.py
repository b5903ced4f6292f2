"""Enqueue and wait: one job, or many with a bounded number in flight."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dayjob.enqueue import results
from dayjob.enqueue.async_sender import AsyncSender
from dayjob.enqueue.mailbox import Inbox
from dayjob.enqueue.sender import Sender
from dayjob.errors import BadOption, ResultTimeout
from dayjob.handlers.calls import EncodedItem, Item, MapOptions
from dayjob.job import Job, require_stored
from dayjob.options import EnqueueOptions
from dayjob.store.async_link import awalk
from dayjob.store.link import walk
from dayjob.store.op import Op
from dayjob.store.ops.results import note_waiting

#: Seconds that a result is kept for a caller that waits, beyond the time for which it waits at most.
SPARE_SECONDS = 60
#: Seconds that it is kept if the caller waits without a limit.
UNLIMITED_SECONDS = 3600


class Awaited(NamedTuple):
    """How the caller of a job waits for its result. In a testing block it has no inbox."""

    seconds: int
    inbox: Inbox | None

    def expect(self, job_ids: Sequence[str], *, noted: bool) -> list[Op[Any]]:
        """Let the results arrive in the inbox. Returns the notes that have them sent there."""
        inbox = self.inbox
        if inbox is None:
            return []
        inbox.add(job_ids)
        if not (noted and inbox.mailbox.connected):
            return []
        inbox.noted()
        return [note_waiting(inbox.mailbox.keys, job_id, inbox.mailbox.channel) for job_id in job_ids]


def deadline_of(timeout: float | None) -> float | None:
    """The monotonic time until which a caller waits; None without a limit. Raises BadOption."""
    if timeout is None:
        return None
    if not (isinstance(timeout, int | float) and timeout >= 0):
        raise BadOption(f"timeout={timeout!r}: give seconds, or None to wait without a limit")
    return time.monotonic() + timeout


def awaited(options: EnqueueOptions, timeout: float | None, inbox: Inbox | None = None) -> EnqueueOptions:
    """The options of a job whose caller waits: it is sent at once, and its result is kept."""
    bounded = timeout is not None and timeout < UNLIMITED_SECONDS
    seconds = math.ceil(timeout) + SPARE_SECONDS if timeout is not None and bounded else UNLIMITED_SECONDS
    # A caller that waits inside a transaction for a job that is sent at its commit would wait for ever.
    return replace(
        options, reply=Awaited(seconds, inbox), now=True, on_commit=None, commit_given=True, session=None
    )


class MapWindow:
    """The items of one map that are in flight: enqueued, and not handed out with their result."""

    def __init__(self, items: Iterable[EncodedItem], how: MapOptions) -> None:
        self._items = iter(items)
        self._how = how
        self._exhausted = False
        #: The items of each job, in the order of the items.
        self._sent: dict[str, Item] = {}
        self._arrived: dict[str, bytes] = {}

    @property
    def done(self) -> bool:
        """Whether every item has been handed out."""
        return self._exhausted and not self._sent

    def why_late(self, name: str, timeout: float | None) -> str:
        """The message of a ResultTimeout."""
        return f"{len(self._sent)} jobs {name!r} of a map have no result within {timeout or 0:g} s. They may still run"

    def take(self) -> list[EncodedItem]:
        """The items to enqueue now: none while the window is more than half full, so that requests are few."""
        spare = self._how.in_flight - len(self._sent)
        if self._exhausted or 2 * spare < self._how.in_flight:
            return []
        taken = list(itertools.islice(self._items, spare))
        self._exhausted = len(taken) < spare
        return taken

    def send(self, items: Sequence[EncodedItem], jobs: Sequence[Job]) -> None:
        """Take note of the jobs of these items."""
        for (item, _), job in zip(items, jobs, strict=True):
            self._sent[job.id] = item

    def arrive(self, results: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Item, bytes]]:
        """Take results, and hand out what can be: job id, item and result."""
        self._arrived.update(results)
        ready = list(self._arrived)
        if self._how.ordered:
            ready = list(itertools.takewhile(self._arrived.__contains__, self._sent))
        for job_id in ready:
            yield job_id, self._sent.pop(job_id), self._arrived.pop(job_id)


def map_jobs(
    sender: Sender, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions
) -> Iterator[tuple[Item, Any]]:
    """Enqueue a job for each item, and iterate over the items with their results."""
    deadline, plain = deadline_of(how.timeout), awaited(options, how.timeout)
    results.refuse_inside(sender.place, name)
    sink, keys = sender.builder.sink, sender.builder.keys
    if sink is not None:
        for item, args in items:
            job = require_stored(sender.submit(name, args, plain))
            yield item, results.read_result(sink.call(job.id), job.id)
        return
    window = MapWindow(items, how)
    with sender.mailbox().inbox() as inbox:
        options = awaited(options, how.timeout, inbox)
        while True:
            some = window.take()
            if some:
                jobs = sender.submit_many(name, [(args, options) for _, args in some], options)
                window.send(some, jobs)
            if window.done:
                return
            arrived = walk(sender, results.receive(keys, inbox, deadline))
            if not arrived:
                raise ResultTimeout(window.why_late(name, how.timeout))
            for job_id, item, raw in window.arrive(arrived):
                yield item, results.read_result(raw, job_id)


async def amap_jobs(
    sender: AsyncSender, name: str, items: Iterable[EncodedItem], options: EnqueueOptions, how: MapOptions
) -> AsyncIterator[tuple[Item, Any]]:
    """`map_jobs`, for async code."""
    deadline, plain = deadline_of(how.timeout), awaited(options, how.timeout)
    results.refuse_inside(sender.place, name)
    sink, keys = sender.builder.sink, sender.builder.keys
    if sink is not None:
        for item, args in items:
            job = require_stored(await sender.submit(name, args, plain))
            yield item, results.read_result(await sink.acall(job.id), job.id)
        return
    window = MapWindow(items, how)
    with sender.mailbox().inbox() as inbox:
        options = awaited(options, how.timeout, inbox)
        while True:
            some = window.take()
            if some:
                jobs = await sender.submit_many(name, [(args, options) for _, args in some], options)
                window.send(some, jobs)
            if window.done:
                return
            arrived = await awalk(sender, results.receive(keys, inbox, deadline))
            if not arrived:
                raise ResultTimeout(window.why_late(name, how.timeout))
            for job_id, item, raw in window.arrive(arrived):
                yield item, results.read_result(raw, job_id)

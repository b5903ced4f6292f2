"""Sending: the requests of one enqueue call, and the connections they go over. No I/O of its own.

Every request has a slot and a number, under which Redis knows it again: a resend never stores twice.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from dayjob.enqueue.builder import Builder, NewJob
from dayjob.errors import StoreError, Unavailable, Unknown
from dayjob.job import Job, new_id
from dayjob.options import Durability
from dayjob.store.addresses import Address
from dayjob.store.op import Op
from dayjob.store.ops import confirm
from dayjob.store.ops.produce import Slot, Stored

L = TypeVar("L")
A = TypeVar("A")

#: How many connections an enqueuer opens at most, one for each call under way.
MAX_LINKS = 16
#: Seconds between two requests of a slot that ask for Redis time and let it live on.
TIME_REFRESH_SECONDS = 10.0


class NumberedLink(Generic[L]):
    """A link with a slot of its own, on which requests are numbered."""

    def __init__(self, link: L) -> None:
        self.link = link
        self.renew()

    def renew(self) -> None:
        """Take a new slot: on the old one a request is open whose repeat must stay possible."""
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


class EnqueueRequest(Generic[A]):
    """What one call has to store. A repeat goes on from where it is, and answers for the whole call."""

    def __init__(
        self,
        builder: Builder,
        batches: Sequence[Sequence[NewJob]],
        read: Callable[[list[Job | None]], A],
        wanted: Durability | None = None,
    ) -> None:
        self._builder = builder
        self.batches = batches
        #: What has to confirm each request, if anything.
        self.wanted = wanted
        #: What the caller gets for the jobs that were stored, None for each duplicate.
        self.read = read
        self._index = 0
        self._op: Op[Stored] | None = None
        self._doubtful = False
        self.jobs: list[Job | None] = []

    def open(self, numbered_link: NumberedLink[Any]) -> Op[Stored] | None:
        """The request to send now: the one in doubt again, byte for byte, or the next; None when all is stored."""
        if self._op is None and self._index < len(self.batches):
            self._op = self._builder.op(self.batches[self._index], numbered_link.next())
        return self._op

    def settle(self, stored: Stored) -> None:
        """The open request was answered."""
        self.jobs += self._builder.accept(self.batches[self._index], stored)
        self._index += 1
        self._op = None
        self._doubtful = False

    def judge(self, error: StoreError, *, last: bool) -> StoreError | None:
        """What to raise for this error, or None to try again."""
        if isinstance(error, Unknown):
            self._doubtful = True
            return error
        if isinstance(error, Unavailable):
            self._doubtful = self._doubtful or error.sent
            if not last:
                return None
        if not self._doubtful and not self.jobs:
            self._op = None
            return error
        unknown = Unknown(self._progress(error))
        unknown.stored = sum(job is not None for job in self.jobs)
        return unknown

    def _progress(self, error: StoreError) -> str:
        """How much of the call is stored, and what stopped it."""
        total = sum(map(len, self.batches))
        open_ = len(self.batches[self._index])
        if not self.jobs and total == open_:
            return f"{error}; it may be stored, in part or whole (repeat() is safe)"
        stored = sum(job is not None for job in self.jobs)
        others = f", {stored:,} of them new" if stored < len(self.jobs) else ""
        doubt = f"the next {open_:,} may be" if self._doubtful else "the others are not"
        # What stopped it says of its own request that nothing was stored, which is not true of the call.
        cause = str(error).replace("; nothing was stored", "")
        return (
            f"the first {len(self.jobs):,} of {total:,} jobs are stored{others}, {doubt} "
            f"(repeat() is safe and stores the rest). The cause: {cause}"
        )


def confirmed(wanted: Durability, stored: Stored, answer: int | StoreError, seconds: float) -> Stored:
    """`stored`, when it is as safe as wanted. Raises Unknown when that is not known, Unavailable when a resend may tell."""
    if not stored.stored:
        return stored  # a duplicate: nothing of ours has to be safe
    if isinstance(answer, Unavailable):
        raise Unavailable(str(answer), sent=True)
    if isinstance(answer, StoreError):
        raise Unknown(f"stored, but not confirmed: {answer} (repeat() is safe)")
    if not confirm.enough(wanted, answer):
        raise Unknown(f"{confirm.shortfall(wanted, answer, seconds)} (repeat() waits again and is safe)")
    return stored


class Links:
    """The connections of an enqueuer, shared by its using() copies. A forked child starts with none."""

    def __init__(self) -> None:
        self.reset()
        _all_links.add(self)

    def reset(self) -> None:
        """Forget everything: after a fork sockets and slots are the parent's, and its locks may be held."""
        self._numbered_links: deque[NumberedLink[Any]] = deque()
        #: Every lane there is. One whose call was interrupted before it could give it back vanishes by itself.
        self._made: weakref.WeakSet[NumberedLink[Any]] = weakref.WeakSet()
        self._back = threading.Condition()
        self._waiting = 0
        self.lock = threading.Lock()
        self.address: Address | None = None
        #: What the server has shown that it can confirm.
        self.able: set[Durability] = set()
        self._loops: dict[asyncio.AbstractEventLoop, AsyncPlaces] = {}

    def take(self, make: Callable[[], NumberedLink[Any]]) -> NumberedLink[Any]:
        """A lane for one call: an idle one, a new one, or when there are enough the next that comes back."""
        try:
            # The usual case needs no lock: each operation on a deque is atomic.
            return self._numbered_links.pop()
        except IndexError:
            pass
        with self._back:
            self._waiting += 1
            try:
                while not self._numbered_links:
                    if len(self._made) < MAX_LINKS:
                        # Making one opens no connection yet.
                        numbered_link = make()
                        self._made.add(numbered_link)
                        return numbered_link
                    self._back.wait()
                return self._numbered_links.pop()
            finally:
                self._waiting -= 1

    def give(self, numbered_link: NumberedLink[Any]) -> None:
        """Give a lane back."""
        self._numbered_links.append(numbered_link)
        if self._waiting:
            with self._back:
                self._back.notify()

    def idle(self) -> list[NumberedLink[Any]]:
        """The lanes that nobody uses, taken out for good."""
        found: list[NumberedLink[Any]] = []
        while self._numbered_links:
            try:
                found.append(self._numbered_links.pop())
            except IndexError:
                break
        for numbered_link in found:
            self._made.discard(numbered_link)
        return found

    def here(self) -> AsyncPlaces:
        """The connections that belong to the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._drop_closed_loops()
            found = self._loops[loop] = AsyncPlaces()
        return found

    def _drop_closed_loops(self) -> None:
        # Several threads may run loops: each step here is atomic, and only one of them gets the places of a loop.
        for loop in list(self._loops):
            if loop.is_closed() and (places := self._loops.pop(loop, None)) is not None:
                for numbered_link in places.numbered_links:
                    numbered_link.link.drop()


class AsyncPlaces:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.numbered_links: deque[NumberedLink[Any]] = deque()
        self.places = asyncio.Semaphore(MAX_LINKS)


_all_links: weakref.WeakSet[Links] = weakref.WeakSet()


def _after_fork() -> None:
    for links in list(_all_links):
        links.reset()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

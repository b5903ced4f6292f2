"""The requests of one enqueue call and the connections of an enqueuer. No I/O of its own.

Every request has a slot and a number. Redis recognises a resend by them, so that its jobs are not stored twice.
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

#: How many connections an enqueuer opens at most. Each call in progress uses one.
MAX_LINKS = 16
#: Seconds between two requests on a slot that ask for Redis time and extend the slot's expiry.
TIME_REFRESH_SECONDS = 10.0


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


class EnqueueRequest(Generic[A]):
    """The requests of one enqueue call. A repeat continues where it stopped, and returns the result of the whole call."""

    def __init__(
        self,
        builder: Builder,
        batches: Sequence[Sequence[NewJob]],
        read: Callable[[list[Job | None]], A],
        wanted: Durability | None = None,
    ) -> None:
        self._builder = builder
        self.batches = batches
        #: The durability that each request must reach, if any.
        self.wanted = wanted
        #: Turns the stored jobs, with None for each duplicate, into the return value of the call.
        self.read = read
        self._index = 0
        self._op: Op[Stored] | None = None
        self._doubtful = False
        self.jobs: list[Job | None] = []

    def open(self, numbered_link: NumberedLink[Any]) -> Op[Stored] | None:
        """The request to send now: the unanswered one again, byte for byte, or else the next; None when all is stored."""
        if self._op is None and self._index < len(self.batches):
            self._op = self._builder.op(self.batches[self._index], numbered_link.next())
        return self._op

    def settle(self, stored: Stored) -> None:
        """Record the answer to the open request."""
        self.jobs += self._builder.accept(self.batches[self._index], stored)
        self._index += 1
        self._op = None
        self._doubtful = False

    def judge(self, error: StoreError, *, last: bool) -> StoreError | None:
        """The error to raise to the caller, or None to try again."""
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
        # "nothing was stored" is true of the request that failed, but not of the whole call.
        cause = str(error).replace("; nothing was stored", "")
        return (
            f"the first {len(self.jobs):,} of {total:,} jobs are stored{others}, {doubt} "
            f"(repeat() is safe and stores the rest). The cause: {cause}"
        )


def confirmed(wanted: Durability, stored: Stored, answer: int | StoreError, seconds: float) -> Stored:
    """Return `stored` if it has the wanted durability.

    Raises Unknown if that was not confirmed, and Unavailable if a resend may confirm it.
    """
    if not stored.stored:
        return stored  # a duplicate: this call wrote no job that could be lost
    if isinstance(answer, Unavailable):
        raise Unavailable(str(answer), sent=True)
    if isinstance(answer, StoreError):
        raise Unknown(f"stored, but not confirmed: {answer} (repeat() is safe)")
    if not confirm.enough(wanted, answer):
        raise Unknown(f"{confirm.shortfall(wanted, answer, seconds)} (repeat() waits again and is safe)")
    return stored


class Links:
    """The connections of an enqueuer, which its using() copies share. A forked child starts with none."""

    def __init__(self) -> None:
        self.reset()
        _all_links.add(self)

    def reset(self) -> None:
        """Drop all state. After a fork the sockets and slots belong to the parent, and its locks may be held."""
        self._numbered_links: deque[NumberedLink[Any]] = deque()
        #: All links. A weak set, so that a link whose call was interrupted before it could be returned is not counted.
        self._made: weakref.WeakSet[NumberedLink[Any]] = weakref.WeakSet()
        self._back = threading.Condition()
        self._waiting = 0
        self.lock = threading.Lock()
        self.address: Address | None = None
        #: The durabilities that the server is known to be able to confirm.
        self.able: set[Durability] = set()
        self._loops: dict[asyncio.AbstractEventLoop, AsyncPlaces] = {}

    def take(self, make: Callable[[], NumberedLink[Any]]) -> NumberedLink[Any]:
        """A link for one call: an idle one, a new one, or at MAX_LINKS the next one that another call returns."""
        try:
            # The usual case needs no lock, because each operation on a deque is atomic.
            return self._numbered_links.pop()
        except IndexError:
            pass
        with self._back:
            self._waiting += 1
            try:
                while not self._numbered_links:
                    if len(self._made) < MAX_LINKS:
                        # Fast enough to do under the lock: a new link connects at its first use.
                        numbered_link = make()
                        self._made.add(numbered_link)
                        return numbered_link
                    self._back.wait()
                return self._numbered_links.pop()
            finally:
                self._waiting -= 1

    def give(self, numbered_link: NumberedLink[Any]) -> None:
        """Return a link after a call."""
        self._numbered_links.append(numbered_link)
        if self._waiting:
            with self._back:
                self._back.notify()

    def idle(self) -> list[NumberedLink[Any]]:
        """Remove and return all idle links."""
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
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._drop_closed_loops()
            found = self._loops[loop] = AsyncPlaces()
        return found

    def _drop_closed_loops(self) -> None:
        # Several threads may run event loops at once. Each step here is atomic, so only one thread closes a loop's links.
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

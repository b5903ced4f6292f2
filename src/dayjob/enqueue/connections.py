"""The connections of an enqueuer, which its using() copies share: one set for threads, one for each event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dayjob.option_checks import Durability
from dayjob.store import addresses
from dayjob.store.async_link import AsyncLink
from dayjob.store.link import Link
from dayjob.store.stream_reader import BLOCK_SECONDS
from dayjob.store.subscription import Subscription
from dayjob.store.urls import Address, parse_url

if TYPE_CHECKING:
    from dayjob.enqueue.sender import NumberedLink

L = TypeVar("L")

#: How many connections an enqueuer opens at most, in threads or in one event loop. Each call in progress uses one.
MAX_LINKS = 16


class LinksBase:
    """What both sets of connections share: they know where to connect, and a forked child starts them afresh."""

    def __init__(self, redis: str | None, tag: str, answer_seconds: float) -> None:
        self._redis = redis
        #: Any key of the namespace: in a cluster it determines the node.
        self._tag = tag
        self._answer_seconds = answer_seconds
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Drop all state. After a fork the sockets and slots belong to the parent, and its locks may be held."""
        self._lock = threading.Lock()
        self._address: Address | None = None
        #: The durabilities that the server is known to be able to confirm.
        self.able: set[Durability] = set()

    def resolve(self) -> Address:
        """Where to connect. Starts the embedded server if that is the one and it does not run."""
        return parse_url(addresses.connect_target(addresses.resolve(self._redis)))

    def _locate(self) -> Address:
        """The address of all its connections, resolved once."""
        with self._lock:
            address = self._address = self._address or self.resolve()
        return address

    def subscription(self) -> Subscription:
        """A new connection that receives results for callers that wait."""
        return Subscription(self.resolve(), tag=self._tag, name="dayjob:mailbox")

    def _options(self) -> dict[str, Any]:
        return {"tag": self._tag, "name": "dayjob:enqueuer", "timeout": self._answer_seconds}

    def _reading_options(self) -> dict[str, Any]:
        return {"tag": self._tag, "name": "dayjob:stream", "timeout": BLOCK_SECONDS + self._answer_seconds}


class Links(LinksBase):
    """The connections for sync code, which all threads share."""

    def reset(self) -> None:
        """Also drop all connections."""
        super().reset()
        #: Links that no call uses. Each operation on a deque is atomic, so the usual case needs no lock.
        self.idle: deque[NumberedLink[Link]] = deque()
        #: How many calls wait for a link.
        self.waiting = 0
        self._returned = threading.Condition()
        #: All links. A weak set, so that a link whose call was interrupted before it could be returned is not counted.
        self._made: weakref.WeakSet[NumberedLink[Link]] = weakref.WeakSet()

    def connect(self) -> Link:
        """A new connection, for enqueues."""
        return Link(self._locate(), **self._options())

    @contextmanager
    def reading(self) -> Iterator[Link]:
        """A connection for one reader of a stream, who blocks on it."""
        link = Link(self._locate(), **self._reading_options())
        try:
            yield link
        finally:
            link.close()

    def take(self, make: Callable[[], NumberedLink[Link]]) -> NumberedLink[Link]:
        """A link for one call."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.wait(make)

    def give(self, numbered_link: NumberedLink[Link]) -> None:
        """Return a link after a call."""
        self.idle.append(numbered_link)
        if self.waiting:
            self.notify()

    def wait(self, make: Callable[[], NumberedLink[Link]]) -> NumberedLink[Link]:
        """A link while none was idle: a new one, or at MAX_LINKS the next one that another call returns."""
        with self._returned:
            self.waiting += 1
            try:
                while not self.idle:
                    if len(self._made) < MAX_LINKS:
                        # Fast enough to do under the lock: a new link connects at its first use.
                        numbered_link = make()
                        self._made.add(numbered_link)
                        return numbered_link
                    self._returned.wait()
                return self.idle.pop()
            finally:
                self.waiting -= 1

    def notify(self) -> None:
        """Wake one of the calls that wait for a link."""
        with self._returned:
            self._returned.notify()

    def close(self) -> None:
        """Close the idle links."""
        while self.idle:
            try:
                numbered_link = self.idle.pop()
            except IndexError:
                break
            self._made.discard(numbered_link)
            numbered_link.link.close()


class LoopLinks(Generic[L]):
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.idle: deque[NumberedLink[L]] = deque()
        #: Bounds the number of calls in progress.
        self.places = asyncio.Semaphore(MAX_LINKS)


class AsyncLinks(LinksBase):
    """The connections for async code. A connection belongs to the event loop that opened it."""

    def reset(self) -> None:
        """Also drop all connections."""
        super().reset()
        self._loops: dict[asyncio.AbstractEventLoop, LoopLinks[AsyncLink]] = {}

    def here(self) -> LoopLinks[AsyncLink]:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._drop_closed_loops()
            found = self._loops[loop] = LoopLinks()
        return found

    async def connect(self) -> AsyncLink:
        """A new connection, for enqueues."""
        return AsyncLink(await self._alocate(), **self._options())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncLink]:
        """A connection for one reader of a stream, who blocks on it."""
        link = AsyncLink(await self._alocate(), **self._reading_options())
        try:
            yield link
        finally:
            await link.close()

    async def _alocate(self) -> Address:
        # In a thread, because starting the embedded server would block the event loop.
        return await asyncio.to_thread(self._locate) if self._address is None else self._address

    def _drop_closed_loops(self) -> None:
        # Several threads may run event loops at once. Each step here is atomic, so only one thread closes a loop's links.
        for loop in list(self._loops):
            if loop.is_closed() and (closed := self._loops.pop(loop, None)) is not None:
                for numbered_link in closed.idle:
                    numbered_link.link.drop()


_all: weakref.WeakSet[LinksBase] = weakref.WeakSet()


def _after_fork() -> None:
    for links in list(_all):
        links.reset()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

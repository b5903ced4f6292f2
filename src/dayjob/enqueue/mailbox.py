"""Mailbox: receives the results that a process waits for, over one connection for all who wait.

A caller first looks for its result and leaves the channel of this process beside it, in one step, so that a result that is
stored later is published on that channel. When a connection was lost, messages may be missing, so all callers look again
as soon as the mailbox is subscribed again. While it is not, they look at short intervals.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from dayjob.errors import DayjobError, Rejected, StoreError
from dayjob.job import new_id
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.subscription import Subscription

logger = SafeLogger("dayjob.enqueue")

#: Seconds between two looks at a result while messages arrive, in case one was lost with its server.
LOOK_SECONDS = 5.0
#: The same while no messages arrive: the first time, and at most.
POLL_SECONDS = (0.0075, 0.25)
#: Seconds without a message after which the connection is tested, and to wait for the answer.
QUIET_SECONDS, TEST_SECONDS = 10.0, 5.0
#: Seconds between two tries to subscribe.
RETRY_SECONDS = 0.25
#: Seconds after which a mailbox that nothing waits for closes its connection.
IDLE_SECONDS = 30.0


class Inbox:
    """The results that one caller waits for: those that are missing, and those that have arrived."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        #: Result keys to job ids, of the jobs whose result has not been taken.
        self.missing: dict[str, str] = {}
        #: Those of them that no look was made for yet.
        self._unlooked: dict[str, str] = {}
        #: Set if the last look failed.
        self.problem: StoreError | None = None
        self._arrived: deque[tuple[str, bytes]] = deque()
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._poll_seconds = POLL_SECONDS[0]
        self._bell = threading.Event()
        #: Wakes the task that waits; None if a thread does.
        self._async_bell: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, job_ids: Iterable[str]) -> None:
        """Wait for the results of these jobs, too."""
        for job_id in job_ids:
            key = self.mailbox.keys.result(job_id)
            if key not in self.missing:
                self.missing[key] = self._unlooked[key] = job_id
                self.mailbox.add(key, self)

    def take(self) -> list[tuple[str, bytes]]:
        """The ids of jobs whose result has arrived, and the results."""
        found: list[tuple[str, bytes]] = []
        while self._arrived:
            key, raw = self._arrived.popleft()
            job_id = self.missing.pop(key, None)
            if job_id is not None:
                self.mailbox.remove(key, self)
                found.append((job_id, raw))
        return found

    def to_look(self) -> list[tuple[str, str]]:
        """The keys and job ids to look for now."""
        return list((self.missing if self._look_at <= time.monotonic() else self._unlooked).items())

    def looked(self, found: Iterable[tuple[str, bytes | None]], problem: StoreError | None = None) -> None:
        """Take note of a look: the keys with their results, or why it failed."""
        self.problem = problem
        for key, raw in found:
            self._unlooked.pop(key, None)
            if raw is not None:
                self._arrived.append((key, raw))
        if self.mailbox.connected:
            self._poll_seconds, wait = POLL_SECONDS[0], LOOK_SECONDS
        else:
            wait = self._poll_seconds
            self._poll_seconds = min(wait * 1.5, POLL_SECONDS[1])
        self._look_at = time.monotonic() + (POLL_SECONDS[1] if problem else wait)

    def noted(self) -> None:
        """Take note that no look is needed now, because the jobs are enqueued together with their notes."""
        self._unlooked.clear()

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        return 0.0 if self._unlooked and self.problem is None else max(0.0, self._look_at - time.monotonic())

    def arrive(self, key: str, raw: bytes) -> None:
        """Take a result from the mailbox, in its thread. Without a value, look again: the result was too long to send."""
        if raw:
            self._arrived.append((key, raw))
            self._ring()
        else:
            self.look_again()

    def look_again(self) -> None:
        """Look at once: messages may have been lost."""
        self._look_at = 0.0
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
        if self._loop is not None and self._async_bell is not None:
            # The loop may have been closed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._async_bell.set)

    def wait(self, seconds: float) -> None:
        """Block this thread until something arrives, or for some seconds."""
        self.mailbox.start()
        self._bell.wait(min(seconds, self.patience))
        self._bell.clear()

    async def await_(self, seconds: float) -> None:
        """Like `wait`, in a task."""
        self.mailbox.start()
        if self._async_bell is None:
            self._async_bell, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if not self._bell.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, self.patience)):
                    await self._async_bell.wait()
        self._async_bell.clear()
        self._bell.clear()


class Mailbox:
    """Receives the results that this process waits for in one namespace. Threads and event loops share it."""

    def __init__(self, keys: Keys, connect: Callable[[], Subscription]) -> None:
        self.keys = keys
        self.channel = keys.mailbox(new_id())
        #: Whether messages arrive.
        self.connected = False
        self._connect = connect
        self._lock = threading.Lock()
        self._inboxes: dict[str, list[Inbox]] = {}
        self._thread: threading.Thread | None = None
        self._idle_since = 0.0
        self._warned = False

    @contextmanager
    def inbox(self, job_ids: Iterable[str] = ()) -> Iterator[Inbox]:
        """An inbox for one caller, as long as it waits."""
        inbox = Inbox(self)
        try:
            inbox.add(job_ids)
            yield inbox
        finally:
            for key in inbox.missing:
                self.remove(key, inbox)

    def add(self, key: str, inbox: Inbox) -> None:
        """Pass on what arrives for a key."""
        with self._lock:
            self._inboxes.setdefault(key, []).append(inbox)

    def remove(self, key: str, inbox: Inbox) -> None:
        """End that."""
        with self._lock:
            waiting = self._inboxes[key]
            waiting.remove(inbox)
            if not waiting:
                del self._inboxes[key]
            if not self._inboxes:
                self._idle_since = time.monotonic()

    def start(self) -> None:
        """Start to receive, if that is not done yet."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._idle_since = time.monotonic()
                    self._thread = threading.Thread(
                        target=self._run, name=f"dayjob-mailbox-{self.keys.namespace}", daemon=True
                    )
                    self._thread.start()

    def _run(self) -> None:
        link: Subscription | None = None
        try:
            while not self._ended():
                try:
                    link = link or self._connect()
                    self._receive(link)
                except (DayjobError, OSError) as error:
                    self.connected = False
                    self._warn(error)
                    threading.Event().wait(RETRY_SECONDS)
        finally:
            self.connected = False
            if link is not None:
                link.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None
            self._look_again()

    def _receive(self, link: Subscription) -> None:
        """Subscribe, and pass on messages until nothing waits any more. Raises StoreError when the connection is lost."""
        link.subscribe(self.channel)
        self.connected = True
        # What was published before is lost.
        self._look_again()
        tested = False
        while True:
            message = link.receive(TEST_SECONDS if tested else QUIET_SECONDS)
            if message is None:
                if self._idle():
                    return
                if tested:
                    link.close()
                    raise StoreError("the server does not answer")
                link.test()
            elif message:
                self._pass_on(message)
            tested = message is None

    def _pass_on(self, message: bytes) -> None:
        name, _, raw = message.partition(b"\n")
        key = name.decode("utf-8", "replace")
        with self._lock:
            waiting = list(self._inboxes.get(key, ()))
        for inbox in waiting:
            inbox.arrive(key, raw)

    def _look_again(self) -> None:
        with self._lock:
            waiting = {inbox for some in self._inboxes.values() for inbox in some}
        for inbox in waiting:
            inbox.look_again()

    def _idle(self) -> bool:
        return not self._inboxes and time.monotonic() - self._idle_since > IDLE_SECONDS

    def _ended(self) -> bool:
        """Whether the thread ends, because nothing waits."""
        with self._lock:
            if self._idle():
                self._thread = None
                return True
        return False

    def _warn(self, error: Exception) -> None:
        """Log once that the server does not let this user subscribe. An outage is reported by the calls that meet it."""
        if isinstance(error, Rejected) and not self._warned:
            self._warned = True
            pattern = f"&{self.keys.prefix}*"
            logger.warning(
                "the server refuses SUBSCRIBE, so results are polled: %s. Allow it: ACL SETUSER <user> %s +@pubsub",
                error,
                pattern,
            )


_mailboxes: dict[tuple[str, str], Mailbox] = {}
_making = threading.Lock()


def mailbox_of(place: tuple[str, str], keys: Keys, connect: Callable[[], Subscription]) -> Mailbox:
    """The mailbox of this process for a namespace on a server."""
    found = _mailboxes.get(place)
    if found is None:
        with _making:
            found = _mailboxes.setdefault(place, Mailbox(keys, connect))
    return found


def _after_fork() -> None:
    """A forked child has neither the thread nor the connection of its parent."""
    global _making
    _making = threading.Lock()
    _mailboxes.clear()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

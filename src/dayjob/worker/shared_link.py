"""SharedLink: the pool's third connection. Heartbeat and chores share it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from dayjob.store.link import Link
from dayjob.store.op import Op

T = TypeVar("T")


class FairLock:
    """A lock that threads get in the order of their requests, so that no thread starves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Hold the lock while the block runs."""
        with self._lock:
            turn = None
            if self._taken:
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            self._taken = True
        if turn is not None:
            turn.acquire()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().release()
                else:
                    self._taken = False


class SharedLink:
    """A link that several loops use in turn."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._turns = FairLock()
        #: The longest wait for the connection since the last call of longest_wait(), in seconds.
        self._longest = 0.0

    def run(self, op: Op[T]) -> T:
        """Run one op when the connection is free."""
        asked = time.monotonic()
        with self._turns.mine():
            self._longest = max(self._longest, time.monotonic() - asked)
            return self._link.run(op)

    def longest_wait(self) -> float:
        """The longest wait for the connection in seconds since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip."""
        with self._turns.mine():
            return self._link.run_many(ops)

    def interrupt(self) -> None:
        """Interrupt a blocking op of another thread."""
        self._link.interrupt()

    def retire(self) -> None:
        """Interrupt the current op, and never open a connection again."""
        self._link.retire()

    def close(self) -> None:
        """Close the connection. No thread may use it any more."""
        self._link.close()

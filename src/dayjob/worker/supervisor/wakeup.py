"""Wakeup: lets the parent wait for signals, messages of its children and requests of its other threads at once."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from dayjob.worker.supervisor.channel import ParentChannel

_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGTSTP", "SIGUSR1", "SIGCHLD")


class Wakeup:
    """Waits on the main thread. Signal handlers only note the signal; the main loop acts on it."""

    def __init__(self) -> None:
        #: The signals that were received and not handled yet, oldest first.
        self.received: deque[int] = deque()
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Receive signals while the block runs, and restore the previous handlers afterwards."""
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        before = {
            number: signal.signal(number, self._record)
            for number in (signal.Signals[name] for name in _SIGNALS)
        }
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, former in before.items():
                signal.signal(number, former)

    def _record(self, number: int, _frame: Any) -> None:
        self.received.append(number)

    def wake(self) -> None:
        """End the wait. Any thread may call this."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal, a message or `wake`; at most `seconds`, or without end if None."""
        self._selector.select(seconds)
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def watch(self, line: ParentChannel) -> None:
        """Also wait for messages on `line`."""
        self._selector.register(line, selectors.EVENT_READ)

    def unwatch(self, line: ParentChannel) -> None:
        """Wait for messages on `line` no longer."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(line)

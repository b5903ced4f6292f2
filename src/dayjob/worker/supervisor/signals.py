"""One signal story: TERM and INT stop, a second one gives back now, TSTP and USR1 go quiet."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from dayjob.safe_logging import SafeLogger
from dayjob.store import fork

logger = SafeLogger("dayjob.worker")

#: Seconds a pool may take to stop after a signal.
STOP_TIMEOUT_SECONDS = 25.0


class Stoppable(Protocol):
    """What signals act on."""

    def stop(self, timeout: float = ...) -> None: ...
    def quiet(self) -> None: ...
    def hurry(self) -> None: ...


@contextlib.contextmanager
def handle(
    pool: Stoppable, *, timeout: float = STOP_TIMEOUT_SECONDS, supervised: bool = False
) -> Iterator[None]:
    """Let signals stop the pool while the block runs; the handlers before are put back after it.

    In a supervised process INT is ignored and a second TERM changes nothing: a service manager sends both to every
    process of its group, and the parent alone decides.
    """
    asked = threading.Event()
    began = fork.number

    def stop(number: int, _frame: Any) -> None:
        if fork.number != began:
            _act_by_default(number)
            return
        if asked.is_set():
            if not supervised:
                pool.hurry()
            return
        asked.set()
        once_more = "" if supervised else "; once more to give back now"
        logger.info("%s: stopping within %.0f s%s", signal.Signals(number).name, timeout, once_more)
        threading.Thread(target=pool.stop, args=(timeout,), name="dayjob-stop", daemon=True).start()

    def quiet(number: int, _frame: Any) -> None:
        if fork.number != began:
            _act_by_default(number)
            return
        logger.info("%s: fetching nothing more", signal.Signals(number).name)
        pool.quiet()

    actions = {
        "SIGTERM": stop, "SIGINT": signal.SIG_IGN if supervised else stop, "SIGHUP": stop, "SIGTSTP": quiet, "SIGUSR1": quiet,
    }  # fmt: skip
    before = {}
    for name, action in actions.items():
        if hasattr(signal, name):
            number = signal.Signals[name]
            before[number] = signal.signal(number, action)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _act_by_default(number: int) -> None:
    """In a process that a job forked: the pool is its parent's, so the signal does what it does without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

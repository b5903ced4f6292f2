"""Signal handlers of a pool: TERM and INT stop it, a second one hurries the stop, TSTP and USR1 stop fetching."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from dayjob.safe_logging import SafeLogger

logger = SafeLogger("dayjob.worker")

#: Seconds a pool may take to stop after a signal.
STOP_TIMEOUT_SECONDS = 25.0

#: The signals that a pool of this process handles now.
_handled: set[int] = set()


def _after_fork() -> None:
    """Give signals their default actions in a process that a job forked, which has no pool of its own.

    A handler would not do: Python calls it only between two of its instructions, so a signal that arrives just before the
    process sleeps, or while it runs code in C, would end nothing.
    """
    for number in _handled:
        signal.signal(number, signal.SIG_DFL)
    _handled.clear()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Stoppable(Protocol):
    """What the signal handlers call."""

    def stop(self, timeout: float = ...) -> None: ...
    def quiet(self) -> None: ...
    def hurry(self) -> None: ...


@contextlib.contextmanager
def handle(
    pool: Stoppable, *, timeout: float = STOP_TIMEOUT_SECONDS, supervised: bool = False
) -> Iterator[None]:
    """Install the signal handlers while the block runs, and restore the previous ones afterwards.

    A supervised process ignores INT and a second TERM: a service manager sends signals to every process of the group,
    and only the parent decides what to do.
    """
    asked = threading.Event()
    process = os.getpid()

    def stop(number: int, _frame: Any) -> None:
        if os.getpid() != process:
            _act_by_default(number)
            return
        if asked.is_set():
            if not supervised:
                pool.hurry()
            return
        asked.set()
        once_more = "" if supervised else ". Send it again to return running jobs to their queues now."
        logger.info("%s: stopping within %.0f s%s", signal.Signals(number).name, timeout, once_more)
        threading.Thread(target=pool.stop, args=(timeout,), name="dayjob-stop", daemon=True).start()

    def quiet(number: int, _frame: Any) -> None:
        if os.getpid() != process:
            _act_by_default(number)
            return
        logger.info("%s: fetching no more jobs", signal.Signals(number).name)
        pool.quiet()

    actions = {
        "SIGTERM": stop, "SIGINT": signal.SIG_IGN if supervised else stop, "SIGHUP": stop, "SIGTSTP": quiet, "SIGUSR1": quiet,
    }  # fmt: skip
    before = {}
    for name, action in actions.items():
        if hasattr(signal, name):
            number = signal.Signals[name]
            before[number] = signal.signal(number, action)
            if action is not signal.SIG_IGN:
                _handled.add(number)
    try:
        yield
    finally:
        _handled.clear()
        for number, former in before.items():
            signal.signal(number, former)


def _act_by_default(number: int) -> None:
    """Apply the default action of a signal that arrived in a forked process before `_after_fork` ran."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

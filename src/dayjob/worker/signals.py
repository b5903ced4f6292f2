"""One signal story: TERM and INT stop, a second one gives back now, TSTP and USR1 go quiet."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any, Protocol

logger = logging.getLogger("dayjob.worker")

#: Seconds a pool may take to stop after a signal.
PATIENCE = 25.0


class Stoppable(Protocol):
    """What signals act on."""

    def stop(self, timeout: float = ...) -> None: ...
    def quiet(self) -> None: ...
    def hurry(self) -> None: ...


@contextlib.contextmanager
def handle(pool: Stoppable, *, timeout: float = PATIENCE) -> Iterator[None]:
    """Let signals stop the pool while the block runs; the handlers before are put back after it."""
    asked = threading.Event()

    def stop(number: int, _frame: Any) -> None:
        if asked.is_set():
            pool.hurry()
            return
        asked.set()
        logger.info(
            "%s: stopping within %.0f s; once more to give back now", signal.Signals(number).name, timeout
        )
        threading.Thread(target=pool.stop, args=(timeout,), name="dayjob-stop", daemon=True).start()

    def quiet(number: int, _frame: Any) -> None:
        logger.info("%s: fetching nothing more", signal.Signals(number).name)
        pool.quiet()

    before = {}
    for number, action in (
        (signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, stop), (signal.SIGTSTP, quiet), (signal.SIGUSR1, quiet),
    ):  # fmt: skip
        before[number] = signal.signal(number, action)
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)

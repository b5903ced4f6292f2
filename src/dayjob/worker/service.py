"""Service: one loop on one thread, that can be woken and stopped, and outlives every fault of Redis.

A step does one round and returns the seconds until the next. An error that is not Redis's ends the pool, loudly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dayjob.errors import StoreError, Unavailable
from dayjob.safe_logging import SafeLogger

logger = SafeLogger("dayjob.worker")

#: Waits after the first, second, ... failure in a row.
BACKOFF_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)
#: Seconds that Redis must be away before it is worth a line.
OUTAGE_AFTER_SECONDS = 0.3


class Outage:
    """Tells people once when Redis goes away, at most once a minute while it is away, and once when it is back.

    A cut connection that is open again at once is no outage; a server that answers reads and refuses writes is one,
    so only answers to writes end it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told: float | None = None
        #: Connections opened before this may be cut without knowing it.
        self.failed_at = 0.0

    def failed(self, error: StoreError) -> None:
        """A request could not be done."""
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                self._since = now
            if isinstance(error, Unavailable) and error.sent:
                self.failed_at = now
            self._tell_away(error, now)

    def succeeded(self) -> None:
        """A write was answered."""
        if self._since is None:
            return
        with self._lock:
            if self._since is not None:
                self._tell_back(time.monotonic())
                self._since = None

    def _tell_away(self, error: StoreError, now: float) -> None:
        if self._told is None:
            if now - self._began >= OUTAGE_AFTER_SECONDS:
                self._told = now
                logger.warning("Redis is away: %s. Waiting for it; jobs that run go on.", error)
        elif now - self._told >= 60:
            self._told = now
            logger.warning("Redis is still away after %.0f s: %s", now - self._began, error)

    def _tell_back(self, now: float) -> None:
        if self._told is not None:
            logger.warning("Redis is back after %.1f s", now - self._began)
        self._told = None

    @property
    def _began(self) -> float:
        return time.monotonic() if self._since is None else self._since

    @property
    def away(self) -> float:
        """Seconds since Redis went away; 0 while it is there."""
        since = self._since
        return 0.0 if since is None else max(1e-9, time.monotonic() - since)


class Service:
    """A named loop on a daemon thread."""

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        *,
        died: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self._step = step
        self._died = died
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: When the last round ended, monotonic; for people and the watchdog.
        self.beaten_at = time.monotonic()
        self._told_at = -60.0

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._loop, name=f"dayjob-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the loop to end after this round."""
        self._stop.set()
        self._wake.set()

    def join(self, deadline: float) -> bool:
        """Wait for the thread until a monotonic deadline; true when it ended."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, deadline - time.monotonic()))
        return not thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        return self._stop.is_set()

    def _tell(self, error: StoreError) -> None:
        """Say what Redis refuses, at most once a minute; that it is away, the link has told the outage."""
        now = time.monotonic()
        if not isinstance(error, Unavailable) and now - self._told_at >= 60:
            self._told_at = now
            logger.error("the %s cannot do its work: %s", self.name, error)

    def _loop(self) -> None:
        try:
            self._go_round()
        except BaseException as error:  # whatever ends a loop must end the pool
            self._died(self.name, error)

    def _go_round(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                wait = self._step()
            except StoreError as error:
                if self._stop.is_set():
                    return
                self._tell(error)
                wait = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                failures += 1
            else:
                failures = 0
            self.beaten_at = time.monotonic()
            if wait is None or wait > 0:
                self._wake.wait(wait)

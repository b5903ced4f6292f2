"""Service: one loop on one thread. It can be stopped, and it continues after every error of Redis.

A step does one round and returns the seconds until the next. Any error other than a StoreError ends the pool.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dayjob.errors import StoreError, Unavailable
from dayjob.safe_logging import SafeLogger

logger = SafeLogger("dayjob.worker")

#: Seconds to wait after the first, second, ... consecutive failure.
BACKOFF_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)
#: Seconds that Redis must be unreachable before it is logged.
OUTAGE_AFTER_SECONDS = 0.3


def backoff(failures: int) -> float:
    """Seconds to wait after so many earlier consecutive failures."""
    return BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]


class Outage:
    """Logs when Redis becomes unreachable, at most once a minute while it is, and when it is reachable again.

    A connection that is cut and opened again at once is not an outage. A server that answers reads but refuses writes
    is one, so only answers to writes end an outage.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._reported_at: float | None = None
        #: Connections that were opened before this time may be broken without having noticed it.
        self.failed_at = 0.0

    def failed(self, error: StoreError) -> None:
        """Note that a request failed."""
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                self._since = now
            if isinstance(error, Unavailable) and error.sent:
                self.failed_at = now
            self._report_unreachable(error, now)

    def succeeded(self) -> None:
        """Note that Redis answered a write."""
        if self._since is None:
            return
        with self._lock:
            if self._since is not None:
                self._report_reachable(time.monotonic())
                self._since = None

    def _report_unreachable(self, error: StoreError, now: float) -> None:
        if self._reported_at is None:
            if now - self._began >= OUTAGE_AFTER_SECONDS:
                self._reported_at = now
                logger.warning(
                    "Redis is unreachable: %s. Running jobs continue; retrying.", str(error).rstrip(".")
                )
        elif now - self._reported_at >= 60:
            self._reported_at = now
            logger.warning("Redis is still unreachable after %.0f s: %s", now - self._began, error)

    def _report_reachable(self, now: float) -> None:
        if self._reported_at is not None:
            logger.warning("Redis is reachable again after %.1f s", now - self._began)
        self._reported_at = None

    @property
    def _began(self) -> float:
        return time.monotonic() if self._since is None else self._since

    @property
    def away(self) -> float:
        """Seconds since Redis became unreachable; 0 while it is reachable."""
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
        #: Monotonic time when the last round ended; shown in the pool's status.
        self.beaten_at = time.monotonic()
        self._logged_at = -60.0

    def start(self) -> None:
        """Start the thread."""
        thread = threading.Thread(target=self._loop, name=f"dayjob-{self.name}", daemon=True)
        thread.start()
        # Not before, because a thread that has not started cannot be joined: a pool stops while it starts if one of its
        # first loops dies.
        self._thread = thread

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

    def _log_refusal(self, error: StoreError) -> None:
        """Log an error that Redis answered, at most once a minute. The link reports Unavailable to the Outage."""
        now = time.monotonic()
        if not isinstance(error, Unavailable) and now - self._logged_at >= 60:
            self._logged_at = now
            logger.error("the %s loop failed and will retry: %s", self.name, error)

    def _loop(self) -> None:
        try:
            self._run_loop()
        except BaseException as error:  # any other error of a loop must end the pool
            self._died(self.name, error)

    def _run_loop(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                wait = self._step()
            except StoreError as error:
                if self._stop.is_set():
                    return
                self._log_refusal(error)
                wait = backoff(failures)
                failures += 1
            else:
                failures = 0
            self.beaten_at = time.monotonic()
            if wait is None or wait > 0:
                self._wake.wait(wait)

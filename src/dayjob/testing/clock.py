"""FakeClock: a clock that tests move by hand."""

from __future__ import annotations

import threading
import time
from datetime import datetime

from dayjob.errors import BadOption
from dayjob.option_checks import Seconds, seconds


class FakeClock:
    """A clock that can be moved. Safe to share between threads.

    Without a time it follows the machine's clock and can be moved ahead of it. With one, an aware datetime or
    seconds since the epoch, it stands still there until it is moved. Raises BadOption.
    """

    def __init__(self, at: datetime | float | None = None) -> None:
        if isinstance(at, datetime):
            if at.utcoffset() is None:
                raise BadOption(f"FakeClock({at!r}): give a datetime with a time zone, such as tzinfo=UTC")
            at = at.timestamp()
        self._at = None if at is None else float(at)
        self._moved = 0.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds since the epoch."""
        return (time.time() if self._at is None else self._at) + self._moved

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return (time.monotonic() if self._at is None else 0.0) + self._moved

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Move the clock forward by `seconds` without waiting, unless `event` is set. Returns whether it is set."""
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, by: Seconds) -> None:
        """Move the clock forward. Raises BadOption when it would go back."""
        step = seconds(by, "advance: seconds")
        if step < 0:
            raise BadOption(f"advance({by!r}): time goes forward only")
        with self._lock:
            self._moved += step

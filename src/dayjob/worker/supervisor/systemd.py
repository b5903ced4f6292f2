"""SystemdNotifier: reports the parent of `dayjob worker` to systemd, for units with Type=notify and WatchdogSec."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from dayjob.safe_logging import SafeLogger
from dayjob.worker.supervisor.condition import ParentCondition

logger = SafeLogger("dayjob.worker.supervisor.systemd")


class SystemdNotifier:
    """Sends what changed, and keeps the watchdog quiet as long as the parent's loop runs."""

    def __init__(self, path: str, watchdog: float | None, condition: Callable[[], ParentCondition]) -> None:
        # A name in the abstract namespace begins with a zero byte, which systemd writes as @.
        self._path = "\0" + path[1:] if path.startswith("@") else path
        self._every = math.inf if watchdog is None else watchdog / 2
        self._condition = condition
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._state = self._status = ""
        self._next_at = 0.0

    @classmethod
    def from_environ(
        cls, condition: Callable[[], ParentCondition], environ: MutableMapping[str, str] | None = None
    ) -> SystemdNotifier | None:
        """The notifier that systemd asked for; None if it did not. The children do not inherit the request."""
        environ = os.environ if environ is None else environ
        path, microseconds = environ.pop("NOTIFY_SOCKET", ""), environ.pop("WATCHDOG_USEC", "")
        meant = environ.pop("WATCHDOG_PID", "")
        if not path:
            return None
        own = microseconds.isdigit() and meant in ("", str(os.getpid()))
        return cls(path, int(microseconds) / 1e6 if own else None, condition)

    def turn(self) -> float:
        """Send what there is to send. Returns the monotonic time of the next turn."""
        now = self._condition()
        lines = []
        state = self._state_of(now)
        if state not in ("", self._state):
            self._state = state
            lines.append(f"{state}=1")
            if state == "RELOADING":
                lines.append(f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        if str(now) != self._status:
            self._status = str(now)
            lines.append(f"STATUS={self._status}")
        if self._next_at <= time.monotonic() and self._every != math.inf:
            lines.append("WATCHDOG=1")
            self._next_at = time.monotonic() + self._every
        if lines:
            self._send("\n".join(lines))
        return self._next_at if self._every != math.inf else math.inf

    def _state_of(self, now: ParentCondition) -> str:
        if now.stopping:
            return "STOPPING"
        if self._state == "":
            return "READY" if now.started >= now.wanted else ""
        return "RELOADING" if now.rolling else "READY"

    def _send(self, text: str) -> None:
        try:
            self._socket.sendto(text.encode(), self._path)
        except OSError as error:
            logger.warning("systemd could not be notified: %s", error)

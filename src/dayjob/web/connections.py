"""Bounds on connections: how long a client may take to send a request, and how many may be open at once.

Without them, clients that connect and send half a request use up the process's descriptors, and no probe is answered.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger("dayjob.web")

#: Seconds within which the head of a request must be complete.
HEAD_SECONDS = 10.0
#: Seconds within which the whole request must be complete.
REQUEST_SECONDS = 30.0
#: Connections that are accepted in one step of the event loop. They are counted in the next steps.
ACCEPTED_AT_ONCE = 32
#: Connections that may wait in the kernel to be accepted.
BACKLOG = 1024
#: Descriptors that are reserved for Redis, files, and connections that are not counted yet.
RESERVED = 256
MAX_CONNECTIONS = 10_000
#: Seconds between two log lines about connections that were closed to make room.
LOG_INTERVAL_SECONDS = 60.0


def max_connections() -> int:
    """How many connections the process can hold, minus the reserved descriptors."""
    if sys.platform == "win32":
        return 500 - RESERVED
    import resource  # noqa: PLC0415 - POSIX only

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, limit - min(RESERVED, limit // 2))


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its client is too slow, or if there are too many connections."""

    _timer: asyncio.TimerHandle | None = None
    #: The monotonic time at which it began to wait for a request. The clock of uvloop counts milliseconds, and stands still within one step: connections of one step would have no order.
    _since = 0.0

    #: The monotonic time at which the last line about a lack of room was logged.
    _logged_at = -LOG_INTERVAL_SECONDS

    @property
    def awaits_head(self) -> bool:
        """Whether no request is being answered: at most part of a request's head has arrived."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def awaits_client(self) -> bool:
        """Whether a part of a request's head or body has not come."""
        return self.awaits_head or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, and close another one if there are too many."""
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > max_connections():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Read data. The time for a request runs from its first byte to its last."""
        super().data_received(data)
        if self.awaits_client:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Let the answer in progress end; a request that is not complete gets none."""
        super().shutdown()
        if self.awaits_client:
            self.transport.close()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._since = time.monotonic()
            self._timer = self.loop.call_later(HEAD_SECONDS, self._close_overdue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_overdue(self) -> None:
        self._timer = None
        if self.transport.is_closing() or not self.awaits_client:
            return
        left = self._since + REQUEST_SECONDS - time.monotonic()
        if self.awaits_head or left <= 0:
            self.transport.close()
        else:
            self._timer = self.loop.call_later(left, self._close_overdue)

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its request, or this one if all others are being answered."""
        still_open = [
            one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and not one.transport.is_closing()
        ]
        if len(still_open) <= max_connections():
            # The others are about to be forgotten.
            return
        waiting = [one for one in still_open if one.awaits_client]
        oldest = min(waiting, key=lambda one: one._since, default=self)
        now = time.monotonic()
        if now - BoundedProtocol._logged_at >= LOG_INTERVAL_SECONDS:
            BoundedProtocol._logged_at = now
            logger.warning(
                "%d connections are open: closing those that have been idle longest",
                len(self.connections),
            )
        oldest.transport.abort()

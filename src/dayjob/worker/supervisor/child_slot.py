"""Child slot: one of the `--processes` positions of the parent, and when its next child is started."""

from __future__ import annotations

import math
import time

from dayjob.worker.supervisor.process import Process

#: Seconds before a crashed child is restarted. The pause doubles with each crash, from the first to the last value.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.1, 30.0
#: The pause is reset once a child has run for RESET_SECONDS seconds, or RESET_PAUSES times as long as the pause before it.
RESET_SECONDS, RESET_PAUSES = 60.0, 10.0


class ChildSlot:
    """One of the `--processes` positions: its current child and the state of its restarts."""

    def __init__(self) -> None:
        self.process: Process | None = None
        #: The child that replaces `process` once it has started.
        self.successor: Process | None = None
        self.crashes = 0
        self.restart_at = math.inf
        #: Monotonic time before which it is not recycled, because its last successor could not start.
        self.spared_until = 0.0
        #: An operator asked its child to stop: it is not restarted.
        self.retired = False

    @property
    def pause(self) -> float:
        """Seconds to wait before the next child is started."""
        return min(LAST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**self.crashes)

    def restart_later(self) -> float:
        """Start another child after a crash. Returns the seconds until then."""
        pause = self.pause
        self.crashes += 1
        self.restart_at = time.monotonic() + pause
        return pause

    def reset_pause(self, started_at: float) -> None:
        """Forget earlier crashes if a child that started then has run long enough."""
        # `pause` is the next pause. The one before this child was half as long.
        if time.monotonic() - started_at > min(RESET_SECONDS, RESET_PAUSES * self.pause / 2):
            self.crashes = 0

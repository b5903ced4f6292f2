"""Stall: notices when an async handler blocks the event loop, and says which one, where and for how long.

Asked on the watchdog's thread; the loop answers when it comes to it.
"""

from __future__ import annotations

import math
import sys
import time
import traceback

from dayjob.safe_logging import SafeLogger
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor
from dayjob.worker.status.stacks import is_own

logger = SafeLogger("dayjob.worker")

#: Seconds that the loop may take to answer, after which a block is told of before its end, and between two lines.
MAX_ANSWER_SECONDS = 1.0
LOG_AFTER_SECONDS = 10.0
LOG_INTERVAL_SECONDS = 60.0


class LoopStallDetector:
    """Watches one event loop."""

    def __init__(self, loop: LoopExecutor) -> None:
        self._loop = loop
        #: When the loop was asked; None when it has answered.
        self._asked: float | None = None
        self._answered = 0.0
        #: Who runs while it does not answer, and where; several mean that it is busy, not blocked.
        self._seen: dict[Attempt | None, str] = {}
        self._told = -math.inf

    def look(self, now: float) -> None:
        """Ask the loop, or see how long it has not answered."""
        if self._asked is None:
            if self._loop.busy:
                # Before it is asked: it may answer before the call returns.
                self._asked, self._answered, self._seen = now, 0.0, {}
                self._loop.call(self._answer)
            return
        if self._answered:
            self._tell(self._answered - self._asked, now, over=True)
            self._asked = None
            return
        if now - self._asked > MAX_ANSWER_SECONDS / 2:
            self._seen.setdefault(self._loop.current(), self._place())
        if now - self._asked > LOG_AFTER_SECONDS:
            self._tell(now - self._asked, now, over=False)

    def blocked(self, now: float) -> tuple[float, Attempt | None] | None:
        """For how long the loop has not answered, and which attempt blocks it; None while it answers."""
        asked, seen = self._asked, tuple(self._seen)
        if asked is None or self._answered or now - asked <= MAX_ANSWER_SECONDS or len(seen) != 1:
            return None
        return now - asked, seen[0]

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _tell(self, seconds: float, now: float, *, over: bool) -> None:
        if seconds <= MAX_ANSWER_SECONDS or now - self._told < LOG_INTERVAL_SECONDS or len(self._seen) != 1:
            return
        self._told = now
        ((attempt, place),) = self._seen.items()
        who = f"job={attempt.name} id={attempt.wire.id}" if attempt else "something that a handler started"
        logger.warning(
            "%s blocked the event loop for %.1f s%s at %s: no other async job could go on. Await what takes long, or make it a plain `def`",
            who, seconds, "" if over else " and still does", place,
        )  # fmt: skip

    def _place(self) -> str:
        """Where the loop's thread is: the innermost line of the program's own code."""
        frame = sys._current_frames().get(self._loop.thread_id)
        stack = traceback.extract_stack(frame) if frame is not None else []
        own = [one for one in stack if is_own(one.filename)] or stack
        return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown place"

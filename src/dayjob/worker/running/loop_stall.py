"""LoopStallDetector: notices when an async handler blocks the event loop, and logs which one, where and how long.

The watchdog's thread schedules a callback on the loop, and measures how long the loop takes to call it.
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

#: Seconds that the loop may take to answer before it counts as blocked.
MAX_ANSWER_SECONDS = 1.0
#: Seconds after which a block is logged although it has not ended.
LOG_AFTER_SECONDS = 10.0
#: Seconds between two log lines.
LOG_INTERVAL_SECONDS = 60.0


class LoopStallDetector:
    """Watches one event loop."""

    def __init__(self, loop: LoopExecutor) -> None:
        self._loop = loop
        #: When the callback was scheduled; None if none is pending.
        self._asked: float | None = None
        self._answered = 0.0
        #: The attempts that ran while the loop did not answer, and where. Several mean that it is busy, not blocked.
        self._seen: dict[Attempt | None, str] = {}
        #: No attempt ran when this last looked at a loop that had not answered.
        self._found_none = False
        self._logged_at = -math.inf

    def look(self, now: float) -> None:
        """Schedule a callback, or check how long the pending one has waited."""
        if self._asked is None:
            if self._loop.busy:
                # Set before the call, because the loop may answer before the call returns.
                self._asked, self._answered, self._seen, self._found_none = now, 0.0, {}, False
                self._loop.call(self._answer)
            return
        if self._answered:
            self._log_stall(self._answered - self._asked, now, over=True)
            self._asked = None
            return
        if now - self._asked > MAX_ANSWER_SECONDS / 2:
            attempt = self._loop.current()
            # After a pause of the whole process the loop may not have begun its next attempt: that is looked at again.
            if attempt is not None or self._found_none:
                self._seen.setdefault(attempt, self._place())
            self._found_none = attempt is None
        if now - self._asked > LOG_AFTER_SECONDS:
            self._log_stall(now - self._asked, now, over=False)

    def blocked(self, now: float) -> tuple[float, Attempt | None] | None:
        """How long the loop has not answered, and which attempt blocks it; None if it is not blocked."""
        asked, seen = self._asked, tuple(self._seen)
        if asked is None or self._answered or now - asked <= MAX_ANSWER_SECONDS or len(seen) != 1:
            return None
        return now - asked, seen[0]

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _log_stall(self, seconds: float, now: float, *, over: bool) -> None:
        if (
            seconds <= MAX_ANSWER_SECONDS
            or now - self._logged_at < LOG_INTERVAL_SECONDS
            or len(self._seen) != 1
        ):
            return
        self._logged_at = now
        ((attempt, place),) = self._seen.items()
        who = (
            f"job={attempt.name} id={attempt.wire.id}"
            if attempt
            else "a task or callback that a handler started"
        )
        logger.warning(
            "%s blocked the event loop for %.1f s%s at %s: no other async job could run. "
            "Await slow calls, or make the job a plain `def`.",
            who, seconds, "" if over else " and still does", place,
        )  # fmt: skip

    def _place(self) -> str:
        """Where the loop's thread is: the innermost line of the program's own code."""
        frame = sys._current_frames().get(self._loop.thread_id)
        stack = traceback.extract_stack(frame) if frame is not None else []
        own = [one for one in stack if is_own(one.filename)] or stack
        return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown place"

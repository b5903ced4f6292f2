"""Requeuer: moves due scheduled and retry jobs to their queues, never early."""

from __future__ import annotations

import time

from dayjob.errors import Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import maintain
from dayjob.store.ops.maintain import Move
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.requeuer")

#: Seconds that one call works on one set, so that the other chores are not delayed.
TURN_SECONDS = 0.2


class Requeuer:
    """Reads due jobs, and lets a script move those that are still there."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link

    def step(self) -> float | None:
        """Move all due jobs. Returns the seconds until the next one is due, or None."""
        waits = [self._drain_if_sound(source) for source in (self._keys.scheduled, self._keys.retry)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _drain_if_sound(self, source: str) -> float | None:
        try:
            return self._drain(source)
        except Rejected as error:
            # A key has a wrong type. The other set must still be processed.
            logger.error("%s cannot be read: %s", source, error)  # noqa: TRY400
            return 5.0

    def _drain(self, source: str) -> float | None:
        #: Due jobs that cannot be moved because their queue has a wrong type. They are skipped.
        stuck = 0
        deadline = time.monotonic() + TURN_SECONDS
        while time.monotonic() < deadline:
            due = self._link.run(maintain.read_due(source, skip=stuck))
            if not due.members:
                return 1.0 if stuck else due.wait
            moves = [self._move(source, member, score, due.now) for member, score in due.members]
            stuck += len(moves) - self._link.run(maintain.requeue(self._keys, source, moves))
        # More jobs are due than one turn can move: let the other chores run in between.
        return 0.0

    def _move(self, source: str, member: bytes, score: float, now: float) -> Move:
        try:
            wire = codec.read(member)
            # Other programs may have set any score, even minus infinity.
            due_at = min(max(score, 0.0), now)
            payload = codec.requeued(member, wire, due_at)
        except (codec.Broken, *codec.UNREADABLE) as why:
            logger.error("an entry of %s cannot be read and was moved to broken: %s", source, why)  # noqa: TRY400
            return Move(None, member, codec.broken_entry(member, at=now, where=source, why=str(why)))
        return Move(wire.name, member, payload)

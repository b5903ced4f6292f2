"""Requeuer: moves due scheduled and retry jobs to their queues. Never early, milliseconds late."""

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

#: Seconds that one set may be worked on before the other chores have their turn.
TURN_SECONDS = 0.2


class Requeuer:
    """Reads what is due, groups it by name, and has a script move what is still there."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link

    def step(self) -> float | None:
        """Move everything that is due; the answer is the seconds until the next is, or None."""
        waits = [self._drain_if_sound(source) for source in (self._keys.scheduled, self._keys.retry)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _drain_if_sound(self, source: str) -> float | None:
        try:
            return self._drain(source)
        except Rejected as error:
            # A key of a wrong type: the other set goes on.
            logger.error("%s cannot be read: %s", source, error)  # noqa: TRY400
            return 5.0

    def _drain(self, source: str) -> float | None:
        #: Due ones that cannot be moved, because their queue has a wrong type; those behind them go on.
        stuck = 0
        deadline = time.monotonic() + TURN_SECONDS
        while time.monotonic() < deadline:
            due = self._link.run(maintain.read_due(source, skip=stuck))
            if not due.members:
                return 1.0 if stuck else due.wait
            moves = [self._move(source, member, score, due.now) for member, score in due.members]
            stuck += len(moves) - self._link.run(maintain.requeue(self._keys, source, moves))
        # More is due than fits into one turn: the other chores come first.
        return 0.0

    def _move(self, source: str, member: bytes, score: float, now: float) -> Move:
        try:
            wire = codec.read(member)
            # Others may have scored it with anything, minus infinity included.
            due_at = min(max(score, 0.0), now)
            payload = codec.requeued(member, wire, due_at)
        except (codec.Broken, *codec.UNREADABLE) as why:
            logger.error("an entry of %s cannot be read and is kept in broken: %s", source, why)  # noqa: TRY400
            return Move(None, member, codec.broken_entry(member, at=now, where=source, why=str(why)))
        return Move(wire.name, member, payload)

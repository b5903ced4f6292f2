"""Releaser: moves jobs that completed atomic jobs staged to their queues, in order."""

from __future__ import annotations

import time

import msgspec

from dayjob.errors import Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops import children
from dayjob.store.steps import Runs

logger = SafeLogger("dayjob.worker.chores.releaser")

#: Seconds that one call works, so that the other chores are not delayed.
TURN_SECONDS = 0.2


class Releaser:
    """Reads which staged lists were released, and lets a script move their jobs, a few hundred at a time."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link

    def step(self) -> bool:
        """Move the jobs of released lists. Returns whether more are left to move at once."""
        deadline = time.monotonic() + TURN_SECONDS
        for record in self._link.run(children.released(self._keys)):
            try:
                while self._link.run(children.release(self._keys, record)):
                    if time.monotonic() >= deadline:
                        return True
            except (Rejected, msgspec.MsgspecError) as error:
                # A key has a wrong type, or another program wrote the record. The other lists must still be moved.
                logger.error("staged jobs cannot be moved to their queue: %s", error)  # noqa: TRY400
        return False

"""ReadyQueue: attempts that were handed to an executor and have not started. Threads share it without a lock."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from dayjob.worker.running.attempt import Attempt

#: Seconds of the AwakeClock after which an attempt that no worker has started is given back.
GIVE_BACK_AFTER_SECONDS = 0.05


class ReadyQueue:
    """A queue of attempts, oldest first. Executors pop from `attempts` directly: each operation on it is atomic."""

    def __init__(self) -> None:
        self.attempts: deque[Attempt] = deque()

    def put(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts, in order."""
        self.attempts.extend(attempts)

    def take_back(self, before: float) -> list[Attempt]:
        """Take back all attempts if the oldest was handed over before a time of the AwakeClock, oldest first; else none.

        Later ones are taken back with it: if they stayed, they would be ahead of it in the order of their queue.
        """
        oldest = self.oldest
        if oldest is None or oldest > before:
            return []
        taken: list[Attempt] = []
        # An executor may take the last one at the same time.
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self.attempts.popleft())
        return taken

    @property
    def oldest(self) -> float | None:
        """When the oldest attempt was handed over, by the AwakeClock."""
        try:
            return self.attempts[0].given_at
        except IndexError:
            return None

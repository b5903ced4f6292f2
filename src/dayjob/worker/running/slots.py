"""Slots: limits how many attempts, sync and async together, run at once. Works without a lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Slots:
    """A set of permits. Each operation on the deque is atomic."""

    def __init__(self, count: int) -> None:
        self._permits = deque(range(count))
        self._waiting: list[Callable[[], None]] = []

    def on_free(self, poke: Callable[[], None]) -> None:
        """Call `poke` whenever a slot becomes free."""
        self._waiting.append(poke)

    def take(self) -> int | None:
        """A slot, or None when all are taken."""
        try:
            return self._permits.popleft()
        except IndexError:
            return None

    def give(self, slot: int) -> None:
        """Give a slot back, and call the executors that may use it."""
        self._permits.append(slot)
        for poke in self._waiting:
            poke()

    @property
    def free(self) -> int:
        """How many are free."""
        return len(self._permits)

"""Throttle: after many wrong passwords an address has to wait before the next is checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Wrong passwords or tokens that one address may send within a period, in seconds.
MAX_WRONG = 10
SPAN = 60.0
#: The most addresses to remember; the oldest is forgotten first.
MAX_ADDRESSES = 1000


class Throttle:
    """Counts wrong passwords by the address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Address to the end of its period and the number of wrong passwords in it, oldest first.
        self._wrong: dict[str, tuple[float, int]] = {}

    def wait(self, address: str) -> int:
        """Seconds until a password from this address is checked again; 0 for at once."""
        until, count = self._wrong.get(address, (0.0, 0))
        left = until - self._clock()
        return math.ceil(left) if count >= MAX_WRONG and left > 0 else 0

    def wrong(self, address: str) -> None:
        """Count a wrong password from this address."""
        now = self._clock()
        until, count = self._wrong.get(address, (0.0, 0))
        if until <= now:
            self._wrong.pop(address, None)
            until, count = now + SPAN, 0
        self._wrong[address] = (until, count + 1)
        if len(self._wrong) > MAX_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]

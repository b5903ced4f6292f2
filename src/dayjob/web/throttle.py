"""Throttle: whoever gives many wrong passwords waits before the next is looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Wrong passwords or tokens that one address may give within a span of seconds.
MAX_WRONG = 10
SPAN = 60.0
#: Addresses that are remembered at most; the oldest is forgotten first.
MAX_ADDRESSES = 1000


class Throttle:
    """Counts wrong passwords by the address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Address to when its span ends and how many were wrong in it, the oldest span first.
        self._wrong: dict[str, tuple[float, int]] = {}

    def wait(self, address: str) -> int:
        """Seconds until a password from there is looked at again; 0 for at once."""
        until, count = self._wrong.get(address, (0.0, 0))
        left = until - self._clock()
        return math.ceil(left) if count >= MAX_WRONG and left > 0 else 0

    def wrong(self, address: str) -> None:
        """A wrong password came from there."""
        now = self._clock()
        until, count = self._wrong.get(address, (0.0, 0))
        if until <= now:
            self._wrong.pop(address, None)
            until, count = now + SPAN, 0
        self._wrong[address] = (until, count + 1)
        if len(self._wrong) > MAX_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]

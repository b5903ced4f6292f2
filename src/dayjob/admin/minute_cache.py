"""MinuteCache: keeps the figures of past minutes in memory, since the verdict, the queues and the charts all read them.

So do the settings of the server, which hardly ever change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dayjob.store.keys import Keys
from dayjob.store.ops import figures, health
from dayjob.store.ops.figures import Minute
from dayjob.store.ops.health import Health
from dayjob.store.steps import Steps

#: Seconds of Redis time before a past minute is read again, because pools may report late.
MAX_AGE_SECONDS = 20.0
#: How many minutes are kept, the newest.
MAX_MINUTES = 60
#: Seconds for which the settings of the server are not read again.
SETTINGS_FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class MinuteCache:
    """The minutes and server settings that were read last."""

    keys: Keys
    #: For each minute: when it was read, and its figures.
    _kept: dict[int, tuple[float, Minute]] = field(default_factory=dict)
    #: When the settings of the server were read, and the settings; at most one.
    _server: list[tuple[float, Health]] = field(default_factory=list)

    def server(self, now: float) -> Steps[Health]:
        """The INFO and the settings of the server, at most a minute old."""
        for at, found in tuple(self._server):
            if 0 <= now - at < SETTINGS_FRESH_SECONDS:
                return found
        found = yield from health.settings()
        self._server[:] = [(now, found)]
        return found

    def minutes(self, numbers: Sequence[int], now: float) -> Steps[list[Minute]]:
        """The figures of some minutes. A minute that is not over is always read."""
        fresh = {
            number: one for number, (at, one) in tuple(self._kept.items()) if 0 <= now - at < MAX_AGE_SECONDS
        }
        wanted = [number for number in numbers if number not in fresh]
        for minute in (yield from figures.minutes(self.keys, wanted)):
            fresh[minute.number] = minute
            if MAX_MINUTES * 60 >= now - (minute.number + 1) * 60 >= 0:
                self._kept[minute.number] = now, minute
        for number, (at, _) in tuple(self._kept.items()):
            if not 0 <= now - at < MAX_AGE_SECONDS:
                self._kept.pop(number, None)
        return [fresh[number] for number in numbers]

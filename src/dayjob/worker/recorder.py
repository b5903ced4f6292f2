"""Recorder: notes the sizes of queues as each minute begins, and rolls minutes up: each by itself, quarters, hours.

A chore of the leader. Harmless when two do it: sizes are noted once, and a roll-up is the same whoever writes it.
"""

from __future__ import annotations

import logging

from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.ops import figures, job_types, maintain
from dayjob.store.steps import walk
from dayjob.worker.shared import SharedLink

logger = logging.getLogger("dayjob.worker.recorder")

#: How many queues one request counts.
AT_ONCE = 200
#: Minutes that figures may come late, from a pool that Redis was away from, and still be in the roll-up.
LATE = 5
#: How many spans back a new leader looks for those that nobody rolled up, by minutes in the span.
BACK = {1: 1, 15: 8, 60: 3}
#: How many job types one request looks at.
AT_ONCE_FORGOTTEN = 500


class Recorder:
    """Keeps what people want to see of yesterday."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link
        self._sampled = 0
        #: Span in minutes to the first minute of the last one that was rolled up.
        self._rolled: dict[int, int] = {}

    def record(self, now: float, names: list[str]) -> None:
        """Once a minute: note how many jobs wait under each name, and roll up what is over."""
        minute = int(now // 60)
        if minute == self._sampled:
            return
        self._sampled = minute
        for first in range(0, len(names), AT_ONCE) or (0,):
            last = first + AT_ONCE >= len(names)
            self._link.run(maintain.sample(self._keys, minute, names[first : first + AT_ONCE], last=last))
        for span in figures.SPANS:
            self._roll_up(span, minute)

    def _roll_up(self, span: int, minute: int) -> None:
        last = (minute - LATE) // span * span - span
        first = max(last - (BACK[span] - 1) * span, self._rolled.get(span, 0) + span)
        for over in range(first, last + 1, span):
            try:
                known = self._link.run(figures.rolled_up(self._keys, span, over)) is not None
                if not known and self._link.run(figures.any_minute(self._keys, over, span)):
                    parts = walk(self._link, figures.minutes(self._keys, over, over + span - 1))
                    self._link.run(figures.roll_up(self._keys, span, figures.merged(parts, over)))
                    if span == 60:
                        # Not before: where pools stop for a night, its last minutes are all there is.
                        walk(self._link, figures.let_go(self._keys, over))
            except Rejected as error:
                # A minute of a wrong type: readers go by the others.
                logger.error("the figures of %d minutes cannot be rolled up: %s", span, error)  # noqa: TRY400
            self._rolled[span] = over

    def forget_types(self) -> int:
        """Drop job types that no pool has announced for long; the answer is how many."""
        dropped = 0
        try:
            names = self._link.run(job_types.names(self._keys))
            for first in range(0, len(names), AT_ONCE_FORGOTTEN):
                batch = names[first : first + AT_ONCE_FORGOTTEN]
                dropped += self._link.run(job_types.forget(self._keys, batch))
        except Rejected as error:
            logger.error("job types cannot be looked at: %s", error)  # noqa: TRY400
        return dropped

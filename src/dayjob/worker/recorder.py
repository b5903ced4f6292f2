"""Recorder: notes the sizes of queues as each minute begins, and rolls minutes up: each by itself, then into longer and longer spans.

A chore of the leader. Harmless when two do it: sizes are noted once, and a roll-up is the same whoever writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.ops import figures, job_types, maintain, rollups
from dayjob.store.ops.figures import Minute
from dayjob.store.steps import Steps, walk
from dayjob.worker.shared import SharedLink

logger = logging.getLogger("dayjob.worker.recorder")

#: How many queues one request counts.
AT_ONCE = 200
#: Minutes that figures may come late, from a pool that Redis was away from, and still be in the roll-up.
LATE = 2
#: How many spans back a new leader looks for those that nobody rolled up, by minutes in the span: the shortest first,
#: since the others are summed of them.
BACK = {1: 60, 5: 12, 15: 4, 60: 72, 360: 12, 1440: 3}
#: How many roll-ups of each span are made within a minute: a new leader may find hours of them.
MOST_ROLLED_UP = 4
#: How many job types one request looks at.
AT_ONCE_FORGOTTEN = 500


class Recorder:
    """Keeps what people want to see of yesterday."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link
        self._sampled = 0
        #: Span in minutes to the first minute of the last one that was looked at, and to those that are to be rolled up.
        self._looked: dict[int, int] = {}
        self._open: dict[int, list[int]] = {span: [] for span in BACK}

    def record(self, now: float, names: list[str]) -> None:
        """Once a minute: note how many jobs wait under each name, and roll up what is over."""
        minute = int(now // 60)
        if minute == self._sampled:
            return
        self._sampled = minute
        for first in range(0, len(names), AT_ONCE) or (0,):
            last = first + AT_ONCE >= len(names)
            self._link.run(maintain.sample(self._keys, minute, names[first : first + AT_ONCE], last=last))
        for span in BACK:
            self._roll_up(span, minute)

    def _roll_up(self, span: int, minute: int) -> None:
        last = (minute - LATE) // span * span - span
        first = max(last - (BACK[span] - 1) * span, self._looked.get(span, 0) + span)
        over = range(first, last + 1, span)
        self._open[span] += walk(self._link, rollups.missing(self._keys, span, over))
        self._looked[span] = last
        for _ in range(min(MOST_ROLLED_UP, len(self._open[span]))):
            # The newest first: they are looked at most.
            newest = self._open[span][-1]
            try:
                walk(self._link, self._kept(span, newest))
            except Rejected as error:
                # A minute of a wrong type: readers go by the others.
                logger.error("the figures of %d minutes cannot be rolled up: %s", span, error)  # noqa: TRY400
            self._open[span].pop()

    def _kept(self, span: int, first: int) -> Steps[None]:
        if span == 60:
            quarters = yield from rollups.missing(self._keys, 15, range(first, first + 60, 15))
            for quarter in quarters:
                yield from rollups.roll_up(self._keys, 15, quarter, self._minutes)
        yield from rollups.roll_up(self._keys, span, first, self._minutes)
        if span == 60:
            # Not before: where pools stop for a night, its last minutes are all there is.
            yield from figures.let_go(self._keys, first, span)

    def _minutes(self, numbers: Sequence[int]) -> Steps[list[Minute]]:
        return figures.minutes(self._keys, numbers)

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

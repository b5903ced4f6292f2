"""Recorder: notes the sizes of queues as each minute begins, and rolls minutes up: each by itself, then into longer and longer spans.

A chore of the leader. Harmless when two do it: sizes are noted once, and a roll-up is the same whoever writes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.errors import Full, Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops import figures, job_types, maintain, rollups
from dayjob.store.ops.figures import Minute
from dayjob.store.steps import Steps, walk
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.recorder")

#: How many queues one request counts.
MAX_QUEUES_COUNTED = 200
#: Minutes that figures may come late and still be in the roll-up.
LATE_MINUTES = 2
#: How many spans back a new leader looks for those that nobody rolled up, by minutes in the span: the shortest first,
#: since the others are summed of them.
SPANS_BACK = {1: 60, 5: 12, 15: 4, 60: 72, 360: 12, 1440: 3}
#: How many of them are rolled up within a minute: some tens of minutes may have to be read for one, by a thread that
#: has more to do.
MAX_ROLLED_UP = {1: 8, 5: 4, 15: 2, 60: 1, 360: 1, 1440: 1}
#: By how many minutes a clock may be behind that of the server before.
MAX_REPEATED = 60
#: How many job types one request looks at.
MAX_TYPES_CHECKED = 500


class Recorder:
    """Keeps what people want to see of yesterday."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link
        self._sampled = 0
        #: Span in minutes to the first minute of the last one that is rolled up, or of which there is nothing.
        self._looked: dict[int, int] = {}

    def record(self, now: float, names: list[str]) -> None:
        """Once a minute: note how many jobs wait under each name, and roll up what is over."""
        minute = int(now // 60)
        if minute == self._sampled:
            return
        before, self._sampled = self._sampled, minute
        if minute < before:
            # A failover to a server whose clock is behind: these minutes are to come again.
            self._link.run(rollups.forget(self._keys, minute, min(before, minute + MAX_REPEATED)))
        for first in range(0, len(names), MAX_QUEUES_COUNTED) or (0,):
            last = first + MAX_QUEUES_COUNTED >= len(names)
            self._link.run(
                maintain.sample(self._keys, minute, names[first : first + MAX_QUEUES_COUNTED], last=last)
            )
        if minute == before + 1:
            self._roll_up(minute)
        else:
            # Nobody led, another did, or Redis was away, and then pools are still sending what they had: a minute later.
            self._looked.clear()

    def _roll_up(self, minute: int) -> None:
        try:
            for span in SPANS_BACK:
                if not self._roll_up_some(span, minute):
                    # The longer ones would have to be summed of what is not there yet.
                    return
        except Full as error:
            logger.warning("figures are not rolled up: %s", error)

    def _roll_up_some(self, span: int, minute: int) -> bool:
        """Whether none is left."""
        last = (minute - LATE_MINUTES) // span * span - span
        if last <= self._looked.get(span, 0):
            return True
        first = max(last - (SPANS_BACK[span] - 1) * span, self._looked.get(span, 0) + span)
        open_ = walk(self._link, rollups.missing(self._keys, span, range(first, last + 1, span)))
        for start in open_[: MAX_ROLLED_UP[span]]:
            try:
                walk(self._link, self._kept(span, start))
            except Rejected as error:
                # As where we may not write there: readers go by what is not rolled up.
                logger.error("the figures of %d minutes cannot be rolled up: %s", span, error)  # noqa: TRY400
            self._looked[span] = start
        if len(open_) <= MAX_ROLLED_UP[span]:
            self._looked[span] = last
        return len(open_) <= MAX_ROLLED_UP[span]

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

    def forget_types(self, dead_age: float = 0.0) -> int:
        """Drop job types that no pool has announced for long; the answer is how many.

        A dead job, which is kept for `dead_age` seconds, is shown as its job type's `redact` option asks.
        """
        # A job may die a day after its job type was last announced, as announcements are renewed once a day.
        age = max(job_types.KEPT_SECONDS, dead_age + 2 * job_types.DAY_SECONDS)
        dropped = 0
        try:
            names = self._link.run(job_types.names(self._keys))
            for first in range(0, len(names), MAX_TYPES_CHECKED):
                batch = names[first : first + MAX_TYPES_CHECKED]
                dropped += self._link.run(job_types.forget(self._keys, batch, age=age))
        except Rejected as error:
            logger.error("job types cannot be looked at: %s", error)  # noqa: TRY400
        return dropped

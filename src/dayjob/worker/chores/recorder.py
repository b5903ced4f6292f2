"""Recorder: stores the sizes of all queues and other measures once a minute, and rolls the figures of minutes up into longer spans.

A chore of the leader. Harmless if two pools do it: sizes are stored once, and every pool writes the same roll-up.
"""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.errors import Full, Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import figures, job_types, maintain, partitions, rollups
from dayjob.store.ops.figures import Minute
from dayjob.store.steps import Steps, ask
from dayjob.worker.chores.sampler import Sampler
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.recorder")

#: Queues that one request counts.
MAX_QUEUES_COUNTED = 200
#: Minutes by which figures may arrive late and still be part of the roll-up.
LATE_MINUTES = 2
#: Length of a span in minutes to how many spans back a new leader checks for missing roll-ups. Shortest first, because
#: longer spans are sums of shorter ones.
SPANS_BACK = {1: 60, 15: 4, 60: 72, 360: 12}
#: Roll-ups of each span per minute. Limited because one of them may read tens of minutes, and the other chores wait.
MAX_ROLLED_UP = {1: 8, 15: 2, 60: 1, 360: 1}
#: Minutes by which the clock of a new server may be behind that of the old one.
MAX_REPEATED_MINUTES = 60
#: Job types that one request checks.
MAX_TYPES_CHECKED = 500


class Recorder:
    """Stores the history of queue sizes and figures."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link
        self._sampler = Sampler(keys, link)
        self._sampled = 0
        #: Span in minutes to the first minute of the last span that is rolled up or has no figures.
        self._looked: dict[int, int] = {}

    def record(self, now: float, names: list[str]) -> None:
        """Once a minute, store how many jobs wait in each queue, and roll up finished spans."""
        minute = int(now // 60)
        if minute == self._sampled:
            return
        before, self._sampled = self._sampled, minute
        if minute < before:
            # After a failover to a server whose clock is behind, these minutes come again.
            self._link.run(rollups.forget(self._keys, minute, min(before, minute + MAX_REPEATED_MINUTES)))
        by_key = {
            name: walk(self._link, partitions.waiting_by_key(self._keys, name))[0]
            for name in self._link.run(partitions.keyed_names(self._keys))
        }
        for first in range(0, len(names), MAX_QUEUES_COUNTED) or (0,):
            last = first + MAX_QUEUES_COUNTED >= len(names)
            self._link.run(
                maintain.sample(
                    self._keys, minute, names[first : first + MAX_QUEUES_COUNTED], last=last, by_key=by_key
                )
            )
        self._sampler.sample(minute)
        if minute == before + 1:
            self._roll_up(minute)
        else:
            # This pool has not recorded the minute before: it did not lead, or Redis was unreachable. Other pools may
            # still send their figures of that time, so the roll-up waits one more minute.
            self._looked.clear()

    def _roll_up(self, minute: int) -> None:
        try:
            for span in SPANS_BACK:
                if not self._roll_up_some(span, minute):
                    # Longer spans need the roll-ups of this one, which are not complete yet.
                    return
        except Full as error:
            logger.warning("figures are not rolled up: %s", error)

    def _roll_up_some(self, span: int, minute: int) -> bool:
        """Roll up some missing spans of this length. Returns whether none is left."""
        last = (minute - LATE_MINUTES) // span * span - span
        if last <= self._looked.get(span, 0):
            return True
        first = max(last - (SPANS_BACK[span] - 1) * span, self._looked.get(span, 0) + span)
        open_ = self._link.run(rollups.missing_rollups(self._keys, span, range(first, last + 1, span)))
        for start in open_[: MAX_ROLLED_UP[span]]:
            try:
                walk(self._link, self._kept(span, start))
            except Rejected as error:
                # For example, this Redis user may not write there. Readers then use the figures of single minutes.
                logger.error("the figures of %d minutes cannot be rolled up: %s", span, error)  # noqa: TRY400
            self._looked[span] = start
        if len(open_) <= MAX_ROLLED_UP[span]:
            self._looked[span] = last
        return len(open_) <= MAX_ROLLED_UP[span]

    def _kept(self, span: int, first: int) -> Steps[None]:
        if span == 60:
            quarters = yield from ask(rollups.missing_rollups(self._keys, 15, range(first, first + 60, 15)))
            for quarter in quarters:
                yield from rollups.roll_up(self._keys, 15, quarter, self._minutes)
        yield from rollups.roll_up(self._keys, span, first, self._minutes)
        if span == 60:
            # Deleted only now, because until the hour is rolled up its minutes are the only copy of the figures.
            yield from figures.let_go(self._keys, first, span)

    def _minutes(self, numbers: Sequence[int]) -> Steps[list[Minute]]:
        return figures.minutes(self._keys, numbers)

    def forget_types(self, dead_age: float = 0.0) -> int:
        """Remove job types that no pool has announced for a long time. Returns how many.

        Dead jobs are kept for `dead_age` seconds, and showing them needs the `redact` option of their job type.
        """
        # Announcements are renewed once a day, so a job may die up to a day after the last one.
        age = max(job_types.KEPT_SECONDS, dead_age + 2 * job_types.DAY_SECONDS)
        dropped = 0
        try:
            names = self._link.run(job_types.names(self._keys))
            for first in range(0, len(names), MAX_TYPES_CHECKED):
                batch = names[first : first + MAX_TYPES_CHECKED]
                dropped += self._link.run(job_types.forget(self._keys, batch, age=age))
        except Rejected as error:
            logger.error("old job types cannot be removed: %s", error)  # noqa: TRY400
        return dropped

"""Announcer: writes a pool's limits, job types and schedules to Redis.

Redis may lose them (a restart without persistence, a flush, a key deleted by hand). So a pool restores what is missing
once a minute, and each time it joins with a new id, before it fetches jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dayjob.errors import Rejected
from dayjob.handlers.describe import Described, fingerprint
from dayjob.options import JobOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.ops import inspect, job_types, operate
from dayjob.store.ops.inspect import StoredSchedule
from dayjob.store.steps import Runs
from dayjob.worker.chores import limits

logger = SafeLogger("dayjob.worker")


class Announcer:
    """Writes the announcements of one pool."""

    def __init__(
        self,
        keys: Keys,
        described: Sequence[Described],
        schedules: Sequence[StoredSchedule],
        wanted: Mapping[str, int | None],
        rated: Mapping[str, JobOptions],
        tag: str = "",
    ) -> None:
        self._keys = keys
        self._described = described
        self._schedules = schedules
        #: Job name to the limit that its code declares.
        self._wanted = wanted
        #: Job name to its options, among them its rate limits.
        self._rated = rated
        #: The version of the program, as its operator named it.
        self._tag = tag
        #: Names whose keys wait until pools of older versions have stopped.
        self._waiting: set[str] = set()
        #: Called when Redis has lost schedules together with their last ticks.
        self.on_lost_schedules: Callable[[], None] | None = None

    def signatures(self) -> list[str]:
        """A fingerprint of the arguments of each job type, by name."""
        return [fingerprint(one) for one in sorted(self._described, key=lambda one: one.name)]

    def announce(self, link: Runs, pool_id: str) -> None:
        """Write all announcements. Called when the pool starts, which may be a deploy. Raises StoreError."""
        limits.declare(self._keys, link, self._wanted)
        self._waiting = limits.declare_rates(self._keys, link, self._rated)
        if self._schedules:
            link.run(operate.announce_schedules(self._keys, self._schedules))
        self._announce_types(link, self._described, pool_id)

    def restore(self, link: Runs, now: float) -> None:
        """Write announcements that Redis does not have, or that are a day old. Raises StoreError, except Rejected.

        Existing values of other pools stay: pools of two versions would otherwise overwrite each other all the time.
        """
        for part in (self._restore_limits, self._restore_schedules):
            try:
                part(link)
            except Rejected as error:
                # A key of a wrong type must not stop jobs that do not need it: the pool fetches nothing before this
                # method ends.
                logger.error("a limit or a schedule cannot be announced: %s", error)  # noqa: TRY400
        try:
            self._restore_types(link, now)
        except Rejected as error:
            logger.error("job types cannot be announced: %s", error)  # noqa: TRY400

    def _restore_limits(self, link: Runs) -> None:
        if any(limit is not None for limit in self._wanted.values()):
            limits.restore(self._keys, link, self._wanted)
        if any(options.limits or options.fair_by for options in self._rated.values()):
            self._waiting = limits.restore_rates(self._keys, link, self._rated, self._waiting)

    def _restore_schedules(self, link: Runs) -> None:
        if not self._schedules:
            return
        names = [one.name for one in self._schedules]
        known = link.run(inspect.announced(self._keys, names))
        missing = [one for one, there in zip(self._schedules, known, strict=True) if not there]
        if missing:
            link.run(operate.announce_schedules(self._keys, missing))
            if self.on_lost_schedules is not None:
                self.on_lost_schedules()

    def _restore_types(self, link: Runs, now: float) -> None:
        for first in range(0, len(self._described), job_types.AT_ONCE):
            batch = self._described[first : first + job_types.AT_ONCE]
            moments = link.run(job_types.announced_at(self._keys, [one.name for one in batch]))
            due = [
                one
                for one, at in zip(batch, moments, strict=True)
                if at is None or now - at >= job_types.DAY_SECONDS
            ]
            if due:
                self._announce_types(link, due)

    def _announce_types(self, link: Runs, described: Sequence[Described], pool_id: str = "") -> None:
        for first in range(0, len(described), job_types.AT_ONCE):
            batch = described[first : first + job_types.AT_ONCE]
            if link.run(job_types.announce(self._keys, batch, pool_id=pool_id, tag=self._tag)) < 0:
                logger.error(
                    "the Redis key %s has a wrong type: consoles cannot show the job types of this pool",
                    self._keys.job_types,
                )
                return

"""Trimmer: removes dead and done jobs over their caps, unused job names, and stale holders of concurrency limits."""

from __future__ import annotations

import time
from collections.abc import Collection

from dayjob.errors import Rejected
from dayjob.options import PoolOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import concurrency, maintain
from dayjob.store.ops.maintain import BATCH
from dayjob.store.ops.membership import LeaderRound
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.trimmer")

#: Known names that one pass checks, and names that one request checks.
MAX_NAMES = 5000
NAMES_AT_ONCE = 200
#: Seconds that a name must be unused before it is removed. Enqueuers (also gocraft's) write a name only once in five
#: minutes: a name that is removed sooner would be missing in lists although it has waiting jobs.
UNUSED_SECONDS = 600.0


class Trimmer:
    """Does the clean-up work of the leader."""

    def __init__(self, keys: Keys, link: SharedLink, options: PoolOptions) -> None:
        self._keys = keys
        self._link = link
        self._options = options
        #: Unused name to the monotonic time when it was first seen unused; and the name that the last pass ended with.
        self._unused: dict[str, float] = {}
        self._upto = ""
        #: Name to the mark of a count for a new limit that was already under way in the last pass.
        self._counting: dict[str, str] = {}

    def over_caps(self, found: LeaderRound, now: float) -> bool:
        """Whether dead or done has jobs over its caps."""
        options = self._options
        caps = (
            (found.dead, options.dead_count, now - options.dead_age),
            (found.done, options.done_count, now),
        )
        return any(
            size > count or (lowest is not None and lowest < oldest) for (size, lowest), count, oldest in caps
        )

    def trim(self, now: float) -> int:
        """Remove a bounded number of dead and done jobs over their caps (count or age). Returns how many."""
        options = self._options
        dropped = self._trim(self._keys.dead, "trimmed:dead", options.dead_count, now - options.dead_age)
        return dropped + self._trim(self._keys.done, "trimmed:done", options.done_count, now)

    def _trim(self, source: str, label: str, count: int, oldest: float) -> int:
        dropped = 0
        for _ in range(50):
            over = self._link.run(maintain.size(source)) - count
            members = self._link.run(maintain.oldest(source, BATCH))
            doomed = [member for i, (member, score) in enumerate(members) if i < over or score < oldest]
            if not doomed:
                break
            dropped += self._link.run(
                maintain.trim(self._keys, source, label, [self._with_key(m) for m in doomed])
            )
        return dropped

    def _with_key(self, member: bytes) -> tuple[bytes, str, str]:
        try:
            wire = codec.read(member)
        except codec.Broken:
            return member, "", ""
        if not wire.unique_key.startswith(self._keys.unique_prefix):
            return member, "", ""
        return member, wire.unique_key, wire.id

    def forget_names(self, used: Collection[str], *, now: float | None = None) -> int:
        """Remove known names that have long been unused, at most MAX_NAMES checked in a pass. Returns how many.

        `used` are the names of live pools. A removed name is added again when a job is enqueued under it.
        """
        now = time.monotonic() if now is None else now
        known = [name for name in self._link.run(maintain.known_jobs(self._keys)) if name not in used]
        part = [name for name in known if name > self._upto][:MAX_NAMES]
        self._upto = part[-1] if len(part) == MAX_NAMES else ""
        old = {name for name, since in self._unused.items() if now - since >= UNUSED_SECONDS}
        removed = 0
        for first in range(0, len(part), NAMES_AT_ONCE):
            batch = part[first : first + NAMES_AT_ONCE]
            found = self._link.run(maintain.forget_names(self._keys, batch, remove=False))
            unused = set(found)
            for name in batch:
                if name in unused:
                    self._unused.setdefault(name, now)
                else:
                    self._unused.pop(name, None)
            gone = [name for name in batch if name in unused and name in old]
            if gone:
                removed += len(self._link.run(maintain.forget_names(self._keys, gone, remove=True)))
                for name in gone:
                    del self._unused[name]
        if removed:
            logger.info("removed %d unused job names from the list of known names", removed)
        return removed

    def repair_limits(self) -> int:
        """Remove holders of concurrency limits whose attempts no longer run. Returns how many."""
        freed = 0
        table = self._link.run(concurrency.limit_table(self._keys))
        for name, mark in table.counting.items():
            if self._counting.get(name) == mark:
                # Counting takes less than a second, so the process that began it was interrupted.
                self._link.run(concurrency.abandon_limit(self._keys, name, mark))
        self._counting = table.counting
        for name in table.in_force:
            try:
                members = self._link.run(maintain.held_members(self._keys, name))
                if members:
                    freed += self._link.run(maintain.recount(self._keys, name, members))
            except Rejected as error:
                # A key of a wrong type must not keep the other limits from being repaired.
                logger.error("job=%s: its concurrency limit cannot be checked: %s", name, error)  # noqa: TRY400
        return freed

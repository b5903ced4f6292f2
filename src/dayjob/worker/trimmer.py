"""Trimmer: keeps dead and done within their caps, and limits' held sets true. Bounded steps, counted."""

from __future__ import annotations

from dayjob.errors import Rejected
from dayjob.options import PoolOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, maintain
from dayjob.store.ops.maintain import BATCH
from dayjob.worker.shared import SharedLink

logger = SafeLogger("dayjob.worker.trimmer")


class Trimmer:
    """Drops what is over the caps."""

    def __init__(self, keys: Keys, link: SharedLink, options: PoolOptions) -> None:
        self._keys = keys
        self._link = link
        self._options = options
        #: Name to the mark of a count for a new limit that was under way a minute ago.
        self._counting: dict[str, str] = {}

    def trim(self, now: float) -> int:
        """Drop a bounded number of dead and done jobs over their cap of count or age; the answer is how many."""
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

    def mend_limits(self) -> int:
        """Free places of limits whose attempts are no longer held; the answer is how many."""
        freed = 0
        table = self._link.run(consume.limit_table(self._keys))
        for name, mark in table.counting.items():
            if self._counting.get(name) == mark:
                # Counting takes less than a second: whoever began it was interrupted.
                self._link.run(consume.abandon_limit(self._keys, name, mark))
        self._counting = table.counting
        for name in table.in_force:
            try:
                members = self._link.run(maintain.held_members(self._keys, name))
                if members:
                    freed += self._link.run(maintain.unhold(self._keys, name, members))
            except Rejected as error:
                # One key of a wrong type must not keep the other limits from being mended.
                logger.error("job=%s: its limit cannot be mended: %s", name, error)  # noqa: TRY400
        return freed

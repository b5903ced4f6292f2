"""Watcher: notices what no script makes true: queues that starve, keys of a wrong type, and how the Redis server does.

A chore of the leader. Harmless if two pools do it: the scripts log each change once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import health, inspect, maintain, partitions
from dayjob.store.steps import Runs

#: Seconds between two looks at the queues.
QUEUE_INTERVAL_SECONDS = 60.0
#: Seconds that the oldest job of a queue may wait before the queue starves. The verdict has the same number.
STARVED_SECONDS = 60
#: Queues that one request watches.
MAX_QUEUES_WATCHED = 200


class Watcher:
    """Logs queues that starve and restarts of the server, and records since when the verdict reports other states."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link
        #: Identifies the server, so that a restart is noticed even if the server lost its data.
        self._run_id = ""

    def watch_queues(self, names: Sequence[str]) -> None:
        """Log queues whose oldest job has begun to wait too long, and those that are served in time again.

        Record since when keys have a wrong type, and since when settings of the server can lose jobs.
        """
        by_key = self._waiting_by_key()
        wrong: list[str] = []
        for first in range(0, len(names), MAX_QUEUES_WATCHED):
            batch = names[first : first + MAX_QUEUES_WATCHED]
            watched = self._link.run(
                maintain.watch_queues(self._keys, batch, most=STARVED_SECONDS, by_key=by_key)
            )
            wrong += watched.wrong
        states = ["memory_only"] if walk(self._link, health.memory_only()) else []
        self._link.run(maintain.record_first_seen(self._keys, (states + wrong)[:MAX_QUEUES_WATCHED]))

    def _waiting_by_key(self) -> dict[str, tuple[int, float]]:
        """How many jobs wait under the keys of names, and since when the oldest does."""
        found: dict[str, tuple[int, float]] = {}
        for name in self._link.run(partitions.keyed_names(self._keys)):
            size, oldest = walk(self._link, partitions.waiting_by_key(self._keys, name))
            moments = [at for at in map(inspect.enqueued_at, oldest) if at is not None]
            if moments:
                found[name] = size, min(moments)
        return found

    def check_server(self) -> None:
        """Log that the server was restarted, or that another one has taken over."""
        self._run_id = self._link.run(maintain.check_server(self._keys, self._run_id)) or self._run_id

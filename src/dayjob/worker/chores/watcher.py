"""Watcher: notices what no script makes true: queues that starve, and a Redis server that was restarted.

A chore of the leader. Harmless if two pools do it: the scripts log each change once.
"""

from __future__ import annotations

from dayjob.store.keys import Keys
from dayjob.store.ops import maintain
from dayjob.store.steps import Runs

#: Seconds between two looks at the queues.
QUEUE_INTERVAL_SECONDS = 60.0
#: Seconds that the oldest job of a queue may wait before the queue starves. The verdict has the same number.
STARVED_SECONDS = 60
#: Queues that one request watches.
MAX_QUEUES_WATCHED = 200


class Watcher:
    """Logs queues that starve, and restarts of the server."""

    def __init__(self, keys: Keys, link: Runs) -> None:
        self._keys = keys
        self._link = link
        #: Identifies the server, so that a restart is noticed even if the server lost its data.
        self._run_id = ""

    def watch_queues(self) -> None:
        """Log queues whose oldest job has begun to wait too long, and those that are served in time again."""
        names = self._link.run(maintain.known_jobs(self._keys))
        for first in range(0, len(names), MAX_QUEUES_WATCHED):
            batch = names[first : first + MAX_QUEUES_WATCHED]
            self._link.run(maintain.watch_queues(self._keys, batch, most=STARVED_SECONDS))

    def check_server(self) -> None:
        """Log that the server was restarted, or that another one has taken over."""
        self._run_id = self._link.run(maintain.check_server(self._keys, self._run_id)) or self._run_id

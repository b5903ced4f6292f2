"""PoolLinks: the three connections of a pool."""

from __future__ import annotations

from functools import partial

from dayjob.store.keys import Keys
from dayjob.store.link import SLOWEST_BYTES_PER_SECOND, Link
from dayjob.store.urls import Address
from dayjob.worker.fetching.listener import WAIT_SECONDS
from dayjob.worker.service import Outage
from dayjob.worker.shared_link import SharedLink

#: Seconds to wait for an answer from Redis. Every request of a pool is safe to send again on a new connection.
POOL_ANSWER_SECONDS = 3.0


class PoolLinks:
    """One connection for exchanges, one that waits for bells, and one that heartbeat and chores share."""

    def __init__(self, address: Address, keys: Keys, outage: Outage) -> None:
        link = partial(
            Link,
            address,
            tag=keys.known_jobs,
            watch=outage,
            timeout=POOL_ANSWER_SECONDS,
            slowest=SLOWEST_BYTES_PER_SECOND,
        )
        self.exchange = link(name="dayjob:exchange")
        self.bell = link(name="dayjob:bell", timeout=WAIT_SECONDS + 1.0)
        chores = link(name="dayjob:chores")
        self.shared = SharedLink(chores)
        self._all = (self.exchange, self.bell, chores)

    @property
    def connected(self) -> int:
        """How many connections are open."""
        return sum(link.connected for link in self._all)

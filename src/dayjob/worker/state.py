"""PoolState: what the roles of one running pool share. Everything else belongs to one role."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dayjob.worker.running.attempt_stream import EmitQueue

if TYPE_CHECKING:
    from dayjob.worker.running.attempt import Attempt


class RedisClock:
    """Redis time, computed from its last answer and the local clock."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> float:
        """The time on the Redis server, in seconds since the epoch."""
        return time.time() + self._offset

    def note(self, redis_now: float) -> None:
        """Set the clock from a time that Redis has just answered."""
        self._offset = redis_now - time.time()


class PoolState:
    """The state of one running pool. Every write is a single assignment, so no lock is needed."""

    __slots__ = (
        "cancelled_batches",
        "clock",
        "emits",
        "exchanges",
        "fetched",
        "has_batches",
        "held",
        "leads",
        "pool_id",
        "quiet",
        "stopping",
        "tag",
    )

    def __init__(self) -> None:
        #: The id under which the pool is registered. A pool that was condemned continues under a new id.
        self.pool_id = ""
        #: Whether this pool does the chores for all pools.
        self.leads = False
        #: The pool fetches no more jobs. Running jobs continue.
        self.quiet = False
        #: The pool is stopping, and running jobs should end. A stopping pool is also quiet.
        self.stopping = False
        #: The tag of its program, such as a version; "" if it has none.
        self.tag = ""
        self.clock = RedisClock()
        #: The attempts that this pool holds in Redis, by token.
        self.held: dict[str, Attempt] = {}
        #: The attempts whose emitted values wait for an exchange.
        self.emits = EmitQueue()
        #: Whether members of batches have ended here, and the ids of the batches that operators cancelled.
        self.has_batches = False
        self.cancelled_batches: set[str] = set()
        #: Shown in the pool's status: exchanges made, jobs fetched.
        self.exchanges = 0
        self.fetched = 0

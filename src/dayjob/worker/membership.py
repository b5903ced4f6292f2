"""Membership: registers the pool in Redis, under a new id if the old one was condemned, and removes it at the end."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence

import msgspec

from dayjob.errors import StoreError, Unavailable
from dayjob.job import new_id
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import maintain, membership
from dayjob.version import __version__
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker")

#: Seconds of leadership that a pool takes if no other pool leads.
LEADER_TERM_SECONDS = 3.0


class Membership:
    """The registration of one pool."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        state: PoolState,
        names: Sequence[str],
        *,
        tag: str,
        lease: float,
        publish: Callable[[str], None],
        restore: Callable[[Link, float], None],
    ) -> None:
        self._keys = keys
        self._link = link
        self._state = state
        self._names = names
        #: The version of the program, as its operator named it.
        self._tag = tag
        self._lease = lease
        #: Sends the pool's id to the parent process before the pool registers in Redis.
        self._publish = publish
        #: Writes the pool's limits and announcements again if Redis lost them.
        self._restore = restore

    def join(self) -> None:
        """Register under a new id. Raises StoreError."""
        state = self._state
        state.pool_id = new_id()
        self._publish(state.pool_id)
        answer = self._link.run(
            membership.join(
                self._keys,
                state.pool_id,
                self._names,
                lease=self._lease,
                term=LEADER_TERM_SECONDS,
                about=self._about(),
            )
        )
        if not answer.registered:
            # The answer to a first try was lost. An id can be registered only once.
            raise Unavailable(
                "join: this pool id is already registered; the pool tries again with another id"
            )
        state.clock.note(answer.now)
        state.leads = answer.leads

    def _about(self) -> bytes:
        """What the timeline shows of this pool, also after its death."""
        about = {
            "host": socket.gethostname(), "pid": os.getpid(), "tag": self._tag, "dayjob": __version__,
            "python": platform.python_version(), "protocol": membership.PROTOCOL,
        }  # fmt: skip
        return msgspec.json.encode(about)

    def condemn(self) -> None:
        """Condemn the pool's own id, so that another pool sweeps it. Raises StoreError.

        Needed if Redis lost the id without condemning it (a restore, a flush).
        """
        self._link.run(
            maintain.condemn(self._keys, lease=self._lease, proven=[self._state.pool_id], judge=False)
        )

    def rejoin(self) -> None:
        """Register under a new id after a condemnation. Raises StoreError."""
        self.join()
        # If Redis lost the old id, it may have lost the limits too. The pool must not fetch before they are restored.
        self._restore(self._link, self._state.clock.now())

    def leave(self) -> None:
        """Remove the pool from Redis."""
        pool_id = self._state.pool_id
        try:
            left = self._link.run(membership.leave(self._keys, pool_id))
        except StoreError as error:
            logger.warning(
                "pool=%s could not deregister (%s). Another pool removes it when its lease ends.",
                pool_id,
                error,
            )
        else:
            if left:
                logger.warning(
                    "pool=%s stopped with %d unsettled attempts. Another pool puts them back into their queues.",
                    pool_id,
                    left,
                )

"""Heartbeat: renews the pool's lease and publishes its status. It has its own thread, so handlers cannot delay it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dayjob.options import PoolOptions
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import batches, membership
from dayjob.worker.membership import LEADER_TERM_SECONDS
from dayjob.worker.shared_link import SharedLink
from dayjob.worker.state import PoolState
from dayjob.worker.status.observer import Observer

#: Seconds between two statuses while a job runs that the status shows.
STATUS_INTERVAL_SECONDS = 1.0


class Heartbeat:
    """Renews the lease, publishes the status, and carries out the requests of operators."""

    def __init__(
        self,
        keys: Keys,
        link: SharedLink,
        state: PoolState,
        observer: Observer,
        options: PoolOptions,
        *,
        on_refusal: Callable[[], None],
        operator_requests: Mapping[str, Callable[[], None]],
    ) -> None:
        #: Called when Redis refuses a beat, because the pool was condemned.
        self._on_refusal = on_refusal
        #: Request of an operator to the function that carries it out.
        self._operator_requests = operator_requests
        self._keys = keys
        self._link = link
        self._state = state
        self._observer = observer
        self._options = options
        self._beat_at = 0.0
        #: The last status showed running jobs, so another must follow when they have ended.
        self._shown = False

    def step(self) -> float:
        """Renew the lease if it is time. Publish the status with each beat, and each second while long jobs run."""
        now = time.monotonic()
        busy = self._observer.busy()
        stale = busy or self._shown
        if now >= self._beat_at:
            # The beat publishes the status too. After a request of an operator, that status is already out of date.
            stale = self._beat()
            self._beat_at = now + self._options.beat
        if stale:
            self._link.run(membership.status(self._keys, self._state.pool_id, self._observer.status()))
        self._shown = busy
        return max(0.01, min(self._beat_at - time.monotonic(), STATUS_INTERVAL_SECONDS))

    def _beat(self) -> bool:
        """Renew the lease and publish the status. Returns whether the answer changed what the status shows."""
        pool_id, lease = self._state.pool_id, self._options.lease
        term = 0.0 if self._state.quiet else LEADER_TERM_SECONDS
        status = self._observer.status()
        answer = self._link.run(membership.beat(self._keys, pool_id, lease=lease, term=term, status=status))
        self._state.clock.note(answer.now)
        if pool_id != self._state.pool_id:
            return False
        if not answer.alive:
            self._on_refusal()
            return False
        stale = answer.leads != self._state.leads or bool(answer.cancel or answer.requests)
        self._state.leads = answer.leads
        for token in answer.cancel:
            attempt = self._state.held.get(token)
            if attempt is not None:
                attempt.killed = token in answer.kill
                attempt.cancelled = True
        if self._state.has_batches or any(
            attempt.wire.membership is not codec.NULL for attempt in list(self._state.held.values())
        ):
            self._cancel_members()
        for request in answer.requests:
            # A request of a newer version of dayjob is ignored.
            if request in self._operator_requests:
                self._operator_requests[request]()
        return stale

    def _cancel_members(self) -> None:
        """Ask the running members of cancelled batches to stop. Those that wait are ended when their turn comes."""
        self._state.cancelled_batches = self._link.run(batches.cancelled(self._keys))
        if self._state.cancelled_batches:
            for attempt in list(self._state.held.values()):
                if attempt.of_cancelled_batch:
                    attempt.cancelled = True

"""Shutdown: the end of a running pool, step by step and within a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from dayjob.safe_logging import SafeLogger
from dayjob.store.ops import consume
from dayjob.worker.fetching.fetcher import Fetcher
from dayjob.worker.lifespans import Lifespans
from dayjob.worker.membership import Membership
from dayjob.worker.pool_links import PoolLinks
from dayjob.worker.running.executors import Executors
from dayjob.worker.running.runner import Abandon, Runner
from dayjob.worker.service import Outage, Service
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker")

#: Seconds that `leave`, the pool's last request, may take while Redis seems unreachable.
LEAVE_SECONDS = 0.3
#: Seconds for giving back and settling attempts once the timeout of a stop has passed.
SETTLE_SECONDS = 0.65
#: Seconds that closing may take after SETTLE_SECONDS. A stop must end at most one second after its timeout.
CLOSE_SECONDS = 0.2
#: Seconds that handlers have to end once they were interrupted.
INTERRUPT_SECONDS = 0.25
#: Seconds between two checks of a condition that a stop waits for.
POLL_SECONDS = 0.01


class Shutdown:
    """Stops one pool. Also closes what was opened if the start of a pool failed."""

    def __init__(
        self,
        state: PoolState,
        *,
        links: PoolLinks,
        outage: Outage,
        membership: Membership,
        fetcher: Fetcher,
        runner: Runner,
        executors: Executors,
        lifespans: Lifespans,
        services: Sequence[Service],
        interrupt_loops: Callable[[], None],
        close_enqueuer: Callable[[], None],
    ) -> None:
        self._state = state
        self._links = links
        self._outage = outage
        self._membership = membership
        self._fetcher = fetcher
        self._runner = runner
        self._executors = executors
        self._lifespans = lifespans
        #: The loops of the pool, the fetcher's first.
        self._services = services
        #: Ends the waits of the loops.
        self._interrupt_loops = interrupt_loops
        self._close_enqueuer = close_enqueuer
        self._hurry = threading.Event()

    def hurry(self) -> None:
        """Give back the running jobs now, instead of waiting for them until the deadline."""
        self._hurry.set()

    def run(self, deadline: float) -> None:
        """Wait for running jobs until a monotonic deadline, give back the others, and close everything."""
        self._state.stopping = True
        self._state.quiet = True
        self._fetcher.wake()
        self._log_running()
        self._wait_for(lambda: not self._state.held and not self._fetcher.unsettled, deadline)
        # Computed before _give_back, which itself takes part of this time.
        now = time.monotonic()
        last = (now if self._hurry.is_set() else max(deadline, now)) + SETTLE_SECONDS
        self._give_back()
        self._fetcher.flush()
        self._wait_for(lambda: self._fetcher.all_reported, last, hurry=False)
        # Read first: closing the loops interrupts their links, which then count as failed.
        away = self._outage.away > 0
        self._close_loops(last)
        self._leave(last + CLOSE_SECONDS, away=away)
        self.close(last + CLOSE_SECONDS)

    def close(self, deadline: float) -> None:
        """Leave the lifespans, and close the executors and the links."""
        self._lifespans.close()
        # On its own thread: a handler that blocks the event loop or ignores its cancellation must not delay the stop.
        closing = threading.Thread(target=self._close_executors, name="dayjob-closing", daemon=True)
        closing.start()
        closing.join(max(0.02, deadline - time.monotonic()))
        for link in (self._links.exchange, self._links.bell, self._links.shared):
            link.retire()
            # A loop that did not end in time may still use the link. That loop closes it later.
            if all(service.join(0.0) for service in self._services):
                link.close()

    def _close_executors(self) -> None:
        self._close_enqueuer()
        self._executors.close()

    def _log_running(self) -> None:
        """Log which jobs a stop waits for."""
        now = time.monotonic()
        running = self._executors.running()
        if running:
            some = ", ".join(f"{one.name} ({now - one.started_at:.0f} s)" for one in running[:10])
            logger.info("pool=%s: waiting for %d running jobs: %s", self._state.pool_id, len(running), some)

    def _give_back(self) -> None:
        """Return all attempts that have not ended to their queues, and interrupt their handlers.

        The newest is returned first, so that the oldest ends up at the head of its queue. Outcomes that the
        handlers still produce are ignored.
        """
        running = self._executors.running()
        for attempt in sorted(
            self._state.held.values(), key=lambda one: consume.number_in(one.token), reverse=True
        ):
            # A cancelled job must not run again, so it is not given back.
            over = self._runner.cancellation(attempt) if attempt.cancelled else attempt.back()
            self._fetcher.finish(attempt, over)
        for attempt in running:
            self._executors.interrupt(attempt, Abandon)
        if running:
            deadline = time.monotonic() + INTERRUPT_SECONDS
            self._wait_for(lambda: not self._executors.running(), deadline, hurry=False)

    def _close_loops(self, deadline: float) -> None:
        for service in self._services:
            service.stop()
        self._interrupt_loops()
        for service in self._services:
            # Repeated, because a loop may enter a blocking call just after the first interrupt.
            while not service.join(min(deadline, time.monotonic() + 0.02)) and time.monotonic() < deadline:
                self._interrupt_loops()
        if not self._services[0].join(time.monotonic()):
            self._links.exchange.retire()
            self._services[0].join(time.monotonic() + CLOSE_SECONDS / 2)

    def _leave(self, deadline: float, *, away: bool) -> None:
        """Deregister the pool. `away` is whether Redis seemed unreachable before the loops were closed."""
        # Tried even if Redis seems unreachable: if `leave` succeeds, other pools need not wait for the lease to end.
        left = max(0.05, deadline - 0.05 - time.monotonic())
        left = min(LEAVE_SECONDS, left) if away else left
        self._links.exchange.hasten(left)
        # On its own thread: opening a connection is several waits, each of which may take `left` seconds.
        leaving = threading.Thread(target=self._membership.leave, name="dayjob-leaving", daemon=True)
        leaving.start()
        leaving.join(left)
        if leaving.is_alive():
            self._links.exchange.retire()
            leaving.join(0.02)

    def _wait_for(self, done: Callable[[], bool], deadline: float, *, hurry: bool = True) -> bool:
        pause = threading.Event()
        while not done():
            if time.monotonic() >= deadline or (hurry and self._hurry.is_set()):
                return False
            pause.wait(POLL_SECONDS)
        return True

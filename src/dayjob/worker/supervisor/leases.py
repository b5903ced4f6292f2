"""ChildLeases: what the parent does in Redis for its children.

It renews their leases while they live, and condemns and sweeps their pools when they have died. It runs on its own
thread, so that an outage of Redis never delays signals or restarts. Failed requests are repeated.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dayjob.errors import Rejected, StoreError
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import SLOWEST_BYTES_PER_SECOND, Link
from dayjob.store.ops import membership
from dayjob.store.urls import parse_url
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.service import backoff

logger = SafeLogger("dayjob.worker.supervisor.leases")

#: Seconds after which an outage is logged. A cut connection is usually open again sooner.
OUTAGE_AFTER_SECONDS = 0.3
#: Seconds between two log lines about an outage.
LOG_AGAIN_SECONDS = 60.0


class PoolAddress(NamedTuple):
    """Where a child's pool is registered."""

    url: str
    namespace: str
    lease: float
    beat: float


class Cause(NamedTuple):
    """Why the parent killed a pool: the token of the attempt that caused it, or "" for none, and a text."""

    culprit: str
    why: str


@dataclass(frozen=True, slots=True)
class _Task:
    place: PoolAddress
    causes: Mapping[str, Cause]
    #: Ids to condemn and sweep.
    dead: tuple[str, ...]
    done: Callable[[], None] | None


class ChildLeases:
    """Renews leases and buries pools for the parent, with one connection to each server."""

    def __init__(
        self,
        leased_pools: Callable[[], Iterable[tuple[PoolAddress, str]]],
        died: Callable[[BaseException], None],
        kill: Callable[[str, str], None],
    ) -> None:
        #: Returns the pools whose leases must be renewed.
        self._leased_pools = leased_pools
        self._died = died
        #: Called at each beat with the pool id and token of every attempt that an operator killed and that still runs.
        self._kill = kill
        self._tasks: deque[_Task] = deque()
        self._links: dict[tuple[str, str], Link] = {}
        self._wake = threading.Event()
        self._idle = threading.Condition()
        self._closing = False
        self._beat_at = 0.0
        self._outage_lock = threading.Lock()
        #: When the outage began, and when it was last logged.
        self._since: float | None = None
        self._logged_at: float | None = None
        #: Processes that cannot reach Redis (the pid of a child, 0 for the parent), and their last error.
        self._away: dict[int, StoreError] = {}
        self._rng = random.Random()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._loop, name="dayjob-leases", daemon=True).start()

    def set_causes(self, place: PoolAddress, causes: Mapping[str, Cause], done: Callable[[], None]) -> None:
        """Store in Redis why pools are about to be killed, then call `done`."""
        self._add(_Task(place, causes, (), done))

    def reap(self, place: PoolAddress, ids: Iterable[str], causes: Mapping[str, Cause]) -> None:
        """Condemn and sweep pools whose process has exited."""
        self._add(_Task(place, causes, tuple(ids), None))

    def finish(self, deadline: float) -> bool:
        """Wait until all tasks are done, or until a monotonic deadline. Returns whether all are done."""
        with self._idle:
            done = self._idle.wait_for(lambda: not self._tasks, max(0.0, deadline - time.monotonic()))
        self._closing = True
        self._wake.set()
        return done

    @property
    def is_away(self) -> bool:
        """Whether the parent or a child cannot reach Redis."""
        return self._since is not None

    def away(self, who: int, error: StoreError) -> None:
        """Note that a process cannot reach Redis. An outage that lasts is logged once, then once a minute."""
        with self._outage_lock:
            self._away[who] = error
            if self._since is None:
                self._since = time.monotonic()
                self._wake.set()

    def back(self, who: int) -> None:
        """Note that a process has reached Redis again, or has exited."""
        with self._outage_lock:
            self._away.pop(who, None)
            if self._away or self._since is None:
                return
            if self._logged_at is not None:
                logger.warning("Redis is reachable again after %.1f s", time.monotonic() - self._since)
            self._since = self._logged_at = None

    def _log_outage(self) -> float:
        """Log an outage if a line is due. Returns the seconds until the next line is due."""
        with self._outage_lock:
            if self._since is None:
                return math.inf
            now = time.monotonic()
            due = (
                self._since + OUTAGE_AFTER_SECONDS
                if self._logged_at is None
                else self._logged_at + LOG_AGAIN_SECONDS
            )
            if now < due:
                return due - now
            error = next(iter(self._away.values()))
            if self._logged_at is None:
                logger.warning(
                    "Redis is unreachable: %s. Running jobs continue; retrying.", str(error).rstrip(".")
                )
            else:
                logger.warning("Redis is still unreachable after %.0f s: %s", now - self._since, error)
            self._logged_at = now
            return LOG_AGAIN_SECONDS

    def _add(self, task: _Task) -> None:
        self._tasks.append(task)
        self._wake.set()

    def _loop(self) -> None:
        try:
            self._run_loop()
        except BaseException as problem:  # any error of this loop must end the parent
            self._died(problem)

    def _run_loop(self) -> None:
        failures = 0
        while not self._closing:
            self._wake.clear()
            error = self._round()
            if error is None:
                failures = 0
                self.back(0)
                wait = max(0.0, self._beat_at - time.monotonic())
            else:
                self.away(0, error)
                wait = backoff(failures)
                failures += 1
            self._wake.wait(min(wait, self._log_outage()))

    def _round(self) -> StoreError | None:
        """Do all tasks, and renew the leases if that is due. Returns the error of Redis, if any."""
        failure: StoreError | None = None
        for task in list(self._tasks):
            try:
                self._do(task)
            except Rejected as error:
                logger.warning(
                    "pools %s could not be swept: %s. Other pools sweep them when their leases end.",
                    ", ".join(task.dead),
                    error,
                )
            except StoreError as error:
                failure = error
                continue
            with self._idle:
                self._tasks.remove(task)
                self._idle.notify_all()
            if task.done is not None:
                task.done()
        now = time.monotonic()
        if now < self._beat_at and failure is None:
            return None
        leased_pools = list(self._leased_pools())
        try:
            for place, pool_id in leased_pools:
                op = membership.beat(Keys(place.namespace), pool_id, lease=place.lease)
                for token in self._link(place).run(op).kill:
                    self._kill(pool_id, token)
        except StoreError as error:
            return error
        self._beat_at = now + min((place.beat for place, _ in leased_pools), default=1.0)
        return failure

    def _do(self, task: _Task) -> None:
        place, keys, link = task.place, Keys(task.place.namespace), self._link(task.place)
        for pool_id, cause in task.causes.items():
            if cause.culprit and link.run(membership.set_cause(keys, pool_id, cause.culprit, cause.why)):
                continue
            # No attempt caused this, or that attempt was settled in the meantime. The other attempts must not count it.
            link.run(membership.set_cause(keys, pool_id, "", cause.why))
        if task.dead:
            # The parent runs no hooks. A job that would go to dead is left to a pool that can run its hook.
            reaper = Reaper(
                keys, link, lease=place.lease, options=lambda _: None, on_dead=None, rng=self._rng
            )
            reaper.reap(task.dead)

    def _link(self, place: PoolAddress) -> Link:
        keys = Keys(place.namespace)
        name = (place.url, place.namespace)
        if name not in self._links:
            self._links[name] = Link(
                parse_url(place.url),
                tag=keys.known_jobs,
                name="dayjob:parent",
                slowest=SLOWEST_BYTES_PER_SECOND,
            )
        return self._links[name]

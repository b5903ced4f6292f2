"""Keeper: what the parent does in Redis for its children: beats while they live, condemns and sweeps when they die.

On a thread of its own, so that an outage never holds up signals or restarts; what could not be done is tried again.
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
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import SLOWEST_BYTES_PER_SECOND, Link
from dayjob.store.ops import consume
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.service import BACKOFF_SECONDS

logger = SafeLogger("dayjob.worker.supervisor.leases")

#: Seconds after which an outage is one: a connection that was cut is opened again sooner.
OUTAGE_AFTER_SECONDS = 0.3
#: Seconds until people are told again.
LOG_AGAIN_SECONDS = 60.0


class PoolAddress(NamedTuple):
    """Where a child's pool is registered."""

    url: str
    namespace: str
    lease: float
    beat: float


class Cause(NamedTuple):
    """Why the parent ends a pool: the token to blame, or "" when nobody is, and the words for it."""

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
    """The parent's one connection to each server."""

    def __init__(
        self,
        leased_pools: Callable[[], Iterable[tuple[PoolAddress, str]]],
        died: Callable[[BaseException], None],
        kill: Callable[[str, str], None],
    ) -> None:
        #: The ids to beat for.
        self._wards = leased_pools
        self._died = died
        #: Called with each beat for every pool id and token that an operator killed and that is still held.
        self._kill = kill
        self._tasks: deque[_Task] = deque()
        self._links: dict[tuple[str, str], Link] = {}
        self._wake = threading.Event()
        self._idle = threading.Condition()
        self._closing = False
        self._beat_at = 0.0
        self._telling = threading.Lock()
        #: Since when somebody is away, and when people were last told of it.
        self._since: float | None = None
        self._told: float | None = None
        #: Who cannot reach Redis (a child's pid, or 0 for ourselves), and what they said.
        self._away: dict[int, StoreError] = {}
        self._rng = random.Random()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._loop, name="dayjob-keeper", daemon=True).start()

    def blame(self, place: PoolAddress, causes: Mapping[str, Cause], done: Callable[[], None]) -> None:
        """Note why pools are about to be killed, then call `done`."""
        self._add(_Task(place, causes, (), done))

    def bury(self, place: PoolAddress, ids: Iterable[str], causes: Mapping[str, Cause]) -> None:
        """Condemn and sweep pools whose death is proven."""
        self._add(_Task(place, causes, tuple(ids), None))

    def finish(self, deadline: float) -> bool:
        """Wait until nothing is left to do, or a monotonic deadline; true when all is done."""
        with self._idle:
            done = self._idle.wait_for(lambda: not self._tasks, max(0.0, deadline - time.monotonic()))
        self._closing = True
        self._wake.set()
        return done

    def away(self, who: int, error: StoreError) -> None:
        """Somebody cannot reach Redis. People are told once, if it lasts, and then at most once a minute."""
        with self._telling:
            self._away[who] = error
            if self._since is None:
                self._since = time.monotonic()
                self._wake.set()

    def back(self, who: int) -> None:
        """Somebody reached Redis again, or is no more."""
        with self._telling:
            self._away.pop(who, None)
            if self._away or self._since is None:
                return
            if self._told is not None:
                logger.warning("Redis is back after %.1f s", time.monotonic() - self._since)
            self._since = self._told = None

    def _tell(self) -> float:
        """Tell people of an outage; the answer is the seconds until it is to be told again."""
        with self._telling:
            if self._since is None:
                return math.inf
            now = time.monotonic()
            due = self._since + OUTAGE_AFTER_SECONDS if self._told is None else self._told + LOG_AGAIN_SECONDS
            if now < due:
                return due - now
            error = next(iter(self._away.values()))
            if self._told is None:
                logger.warning("Redis is away: %s. Waiting for it; jobs that run go on.", error)
            else:
                logger.warning("Redis is still away after %.0f s: %s", now - self._since, error)
            self._told = now
            return LOG_AGAIN_SECONDS

    def _add(self, task: _Task) -> None:
        self._tasks.append(task)
        self._wake.set()

    def _loop(self) -> None:
        try:
            self._go_round()
        except BaseException as problem:  # a loop that dies must end the parent, whatever killed it
            self._died(problem)

    def _go_round(self) -> None:
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
                wait = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                failures += 1
            self._wake.wait(min(wait, self._tell()))

    def _round(self) -> StoreError | None:
        """Do all there is to do; the answer is what went wrong, if anything."""
        trouble: StoreError | None = None
        for task in list(self._tasks):
            try:
                self._do(task)
            except Rejected as error:
                logger.warning("pools %s are left to their lease: %s", ", ".join(task.dead), error)
            except StoreError as error:
                trouble = error
                continue
            with self._idle:
                self._tasks.remove(task)
                self._idle.notify_all()
            if task.done is not None:
                task.done()
        now = time.monotonic()
        if now < self._beat_at and trouble is None:
            return None
        leased_pools = list(self._wards())
        try:
            for place, pool_id in leased_pools:
                op = consume.beat(Keys(place.namespace), pool_id, lease=place.lease)
                for token in self._link(place).run(op).kill:
                    self._kill(pool_id, token)
        except StoreError as error:
            return error
        self._beat_at = now + min((place.beat for place, _ in leased_pools), default=1.0)
        return trouble

    def _do(self, task: _Task) -> None:
        place, keys, link = task.place, Keys(task.place.namespace), self._link(task.place)
        for pool_id, cause in task.causes.items():
            if cause.culprit and link.run(consume.set_cause(keys, pool_id, cause.culprit, cause.why)):
                continue
            # Nobody is to blame, or it was settled in the meantime: whatever else is held must not suffer for it.
            link.run(consume.set_cause(keys, pool_id, "", cause.why))
        if task.dead:
            # Without hooks: a job that would be dead is left to a pool that may run its hook.
            reaper = Reaper(
                keys, link, lease=place.lease, options=lambda _: None, on_dead=None, rng=self._rng
            )
            reaper.bury(task.dead)

    def _link(self, place: PoolAddress) -> Link:
        keys = Keys(place.namespace)
        name = (place.url, place.namespace)
        if name not in self._links:
            self._links[name] = Link(
                addresses.parse_url(place.url),
                tag=keys.known_jobs,
                name="dayjob:parent",
                slowest=SLOWEST_BYTES_PER_SECOND,
            )
        return self._links[name]

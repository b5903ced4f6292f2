"""Can this queue be fetched from? The only place in Python that decides it. Pure: the answer is a value, or None for yes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dayjob.store.ops.inspect import Queue
from dayjob.store.ops.pools import Pool, Status

ObstacleKind = Literal[
    "wrong_type",
    "paused",
    "no_pool",
    "no_worker",
    "quiet",
    "at_limit",
    "rate_limited",
    "key_full",
    "key_paused",
    "busy",
]

#: Obstacles that stay until a pool is started.
UNATTENDED: tuple[ObstacleKind, ...] = ("no_pool", "no_worker", "quiet")


@dataclass(frozen=True, slots=True)
class WrongType:
    """The key of the queue is not a list."""

    kind: ClassVar[ObstacleKind] = "wrong_type"


@dataclass(frozen=True, slots=True)
class QueuePaused:
    """An operator paused the queue: who and when, where that was recorded."""

    kind: ClassVar[ObstacleKind] = "paused"
    by: str
    at: float | None


@dataclass(frozen=True, slots=True)
class NoPool:
    """No pool is running."""

    kind: ClassVar[ObstacleKind] = "no_pool"


@dataclass(frozen=True, slots=True)
class NoWorker:
    """No live pool has a job of this name."""

    kind: ClassVar[ObstacleKind] = "no_worker"
    pools: int
    #: Live pools that have not published a status yet: they may have the job.
    unreported: int


@dataclass(frozen=True, slots=True)
class AllQuiet:
    """Every pool that has the job was asked to fetch nothing more."""

    kind: ClassVar[ObstacleKind] = "quiet"
    pools: int


@dataclass(frozen=True, slots=True)
class AtLimit:
    """As many jobs of this name run as its limit allows."""

    kind: ClassVar[ObstacleKind] = "at_limit"
    held: int
    limit: int


@dataclass(frozen=True, slots=True)
class RateLimited:
    """A rate limit of this name lets no job start now."""

    kind: ClassVar[ObstacleKind] = "rate_limited"
    limit: str
    #: What it allows, in words.
    allows: str
    #: Seconds until the next job may start, and whether the limit is held until then.
    wait: float
    held: bool
    #: The key of the job, with what it is a value of: "account acme"; "" if the limit does not count by key.
    key: str = ""


@dataclass(frozen=True, slots=True)
class KeyFull:
    """As many jobs with the key of this one run as may run at once."""

    kind: ClassVar[ObstacleKind] = "key_full"
    key: str
    held: int
    limit: int


@dataclass(frozen=True, slots=True)
class KeyPaused:
    """An operator paused the key of this job."""

    kind: ClassVar[ObstacleKind] = "key_paused"
    key: str


@dataclass(frozen=True, slots=True)
class AllBusy:
    """Every pool that has the job is occupied, by one of three causes."""

    kind: ClassVar[ObstacleKind] = "busy"
    #: Pools whose event loop a handler blocks.
    blocked: tuple[Status, ...]
    #: Pools whose workers are all occupied.
    full: tuple[Status, ...]
    #: Pools whose threads for plain functions are all occupied.
    threadless: tuple[Status, ...]


Obstacle = (
    WrongType
    | QueuePaused
    | NoPool
    | NoWorker
    | AllQuiet
    | AtLimit
    | RateLimited
    | KeyFull
    | KeyPaused
    | AllBusy
)


class Fleet:
    """The live pools, and which job names they have."""

    def __init__(self, registered: Iterable[Pool]) -> None:
        live = [pool for pool in registered if pool.lease > 0]
        self.pools = len(live)
        self.statuses = [pool.status for pool in live if pool.status is not None]
        self.unreported = self.pools - len(self.statuses)
        #: Those that fetch jobs.
        self.fetching = [status for status in self.statuses if not status.quiet]
        # Most pools of a fleet run the same program, which has the same names.
        programs: dict[tuple[str, ...], list[Status]] = {}
        for status in self.statuses:
            programs.setdefault(status.names, []).append(status)
        self._programs = [(frozenset(names), pools) for names, pools in programs.items()]

    def having(self, name: str) -> Sequence[Status]:
        """The pools that have a job of this name."""
        return [pool for names, pools in self._programs if name in names for pool in pools]


def obstacle(queue: Queue, fleet: Fleet) -> Obstacle | None:
    """What keeps pools from fetching from a queue, as far as it is known; None if nothing does."""
    if queue.wrong:
        return WrongType()
    if queue.paused:
        return QueuePaused(queue.paused_by, queue.paused_at)
    if not fleet.pools:
        return NoPool()
    having = fleet.having(queue.name)
    if not having:
        return NoWorker(fleet.pools, fleet.unreported)
    if all(status.quiet for status in having):
        return AllQuiet(len(having))
    if queue.limit is not None and queue.held >= queue.limit:
        return AtLimit(queue.held, queue.limit)
    # An empty queue waits for no worker.
    return None if not queue.size else occupied([status for status in having if not status.quiet], queue.name)


def occupied(pools: Sequence[Status], name: str) -> AllBusy | None:
    """Why none of these pools can start a job of this name; None if one can."""
    blocked: list[Status] = []
    full: list[Status] = []
    threadless: list[Status] = []
    for status in pools:
        if status.loop_blocked is not None and name in status.async_names:
            blocked.append(status)
        elif status.in_use >= status.concurrency:
            full.append(status)
        elif status.threads_busy >= status.workers_for(name):
            threadless.append(status)
        else:
            return None
    return AllBusy(tuple(blocked), tuple(full), tuple(threadless))

"""Reads the registered pools with their statuses, the condemned pools and the leader. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops.inspect import now
from dayjob.store.steps import Steps, ask, ask_all

#: How many pools are shown.
MAX_POOLS = 1000


# msgspec Structs, because a fleet has thousands of workers and a page decodes their statuses several times.


class WorkerStatus(msgspec.Struct, frozen=True):
    """What one worker has been doing for more than 0.5 s."""

    token: str = ""
    name: str = ""
    id: str = ""
    worker_id: str = ""
    source: str | int | None = None
    args: Any = None
    attempt: int = 1
    started_at: float = 0.0
    timeout: float | None = None
    stuck: bool = False
    lost: bool = False
    #: Whether an operator cancelled the job and the pool has passed that on to it.
    cancelled: bool = False
    checkin: str | None = None
    checkin_at: float | None = None
    done: float | None = None
    total: float | None = None


class LoopBlock(msgspec.Struct, frozen=True):
    """A handler that blocks the event loop of its pool, so that no other async job makes progress."""

    #: Redis time.
    since: float = 0.0
    #: The job that blocks the loop; "" if a task that a handler started does.
    name: str = ""
    id: str = ""


class Status(msgspec.Struct, frozen=True):
    """The last status that a pool published."""

    id: str = ""
    host: str = ""
    pid: int = 0
    tag: str = ""
    version: str = ""
    python: str = ""
    started_at: float = 0.0
    beat_at: float = 0.0
    concurrency: int = 0
    names: tuple[str, ...] = ()
    quiet: bool = False
    stopping: bool = False
    #: Whether a parent process restarts it.
    supervised: bool = False
    leads: bool = False
    held: int = 0
    running: dict[str, int] = {}
    workers: tuple[WorkerStatus, ...] = ()
    worker_ids: tuple[str, ...] = ()
    rss: int = 0
    exchanges: int = 0
    fetched: int = 0
    loops: dict[str, float] = {}
    #: Seconds between two heartbeats.
    beat: float = 5.0
    #: Open connections, and the longest wait for the shared one since the last status, in seconds.
    connections: int = 0
    connection_wait: float = 0.0
    #: How many threads may run sync jobs, and how many do; 0 if the pool has no sync jobs.
    threads: int = 0
    threads_busy: int = 0
    #: Workers whose job does not end after its timeout. They cannot run another job.
    stuck: int = 0
    loop_blocked: LoopBlock | None = None
    #: Those of `names` that are coroutine functions.
    async_names: tuple[str, ...] = ()
    #: Names of its schedules; None if the pool runs an older release that does not list them.
    schedules: tuple[str, ...] | None = None
    #: For each of `names`, in the same order: a fingerprint of its arguments.
    signatures: tuple[str, ...] = ()

    @property
    def in_use(self) -> int:
        """How many workers are occupied: by held attempts, and by timed-out ones that do not end."""
        return max(sum(self.running.values()), self.held + self.stuck)

    @property
    def few_threads(self) -> bool:
        """Whether the pool has fewer threads for sync jobs than workers."""
        return 0 < self.threads < self.concurrency

    @property
    def troubles(self) -> list[str]:
        """Short descriptions of what keeps some of its workers from working."""
        words = []
        if self.few_threads:
            words.append(f"{self.threads_busy}/{self.threads} threads busy")
        if self.stuck:
            words.append(f"{self.stuck} stuck past {'its' if self.stuck == 1 else 'their'} timeout")
        if self.loop_blocked is not None:
            by = f' by "{self.loop_blocked.name}"' if self.loop_blocked.name else ""
            words.append(f"event loop blocked{by}")
        return words

    def workers_for(self, name: str) -> int:
        """How many jobs of this name the pool can run at once, including workers that are stuck."""
        return self.threads if self.few_threads and name not in self.async_names else self.concurrency


@dataclass(frozen=True, slots=True)
class Pool:
    """A registered pool."""

    id: str
    #: Seconds until its lease expires. Below 0 if it has expired, so that the leader will condemn the pool.
    lease: float
    #: None if it has not published a status yet, or the status cannot be parsed.
    status: Status | None


class Contradiction(NamedTuple):
    """How many pools disagree about the arguments of a job, and since when."""

    pools: int
    since: float


def contradictions(registered: Sequence[Pool]) -> dict[str, Contradiction]:
    """Job names for which registered pools announce different arguments."""
    # Group pools that run the same program, because most pools of a fleet do.
    programs: dict[tuple[tuple[str, ...], tuple[str, ...]], list[float]] = {}
    for pool in registered:
        if pool.lease > 0 and pool.status and len(pool.status.names) == len(pool.status.signatures):
            program = pool.status.names, pool.status.signatures
            programs.setdefault(program, []).append(pool.status.started_at)
    if len(programs) < 2:
        return {}
    seen: dict[str, dict[str, float]] = {}
    count: dict[str, int] = {}
    for (names, signatures), starts in programs.items():
        for name, signature in zip(names, signatures, strict=True):
            own = seen.setdefault(name, {})
            own[signature] = min(*starts, own.get(signature, starts[0]))
            count[name] = count.get(name, 0) + len(starts)
    # They disagree since the first pool with other arguments than the oldest started.
    return {
        name: Contradiction(count[name], sorted(seen[name].values())[1])
        for name in sorted(seen)
        if len(seen[name]) > 1
    }


def leases(keys: Keys) -> Op[list[tuple[str, float]]]:
    """The ids of the registered pools and the ends of their leases, in Redis seconds."""
    return Op(
        "ZRANGE", (keys.pools,), (0, MAX_POOLS - 1, "WITHSCORES"), lambda reply: _read_scored(reply, 1000)
    )


def lease(keys: Keys, pool_id: str) -> Op[float | None]:
    """The end of the lease of one pool, in Redis seconds; None if it is not registered."""
    return Op(
        "ZSCORE", (keys.pools,), (pool_id,), lambda reply: None if reply is None else float(reply) / 1000
    )


def condemned_at(keys: Keys, pool_id: str) -> Op[float | None]:
    """When one pool was condemned, in Redis seconds; None if it is not among the dead pools that hold attempts."""
    return Op("ZSCORE", (keys.condemned,), (pool_id,), lambda reply: None if reply is None else float(reply))


def pools(keys: Keys) -> Steps[list[Pool]]:
    """The registered pools with their statuses."""
    moment = yield from ask(now())
    found = yield from ask(leases(keys))
    statuses = yield from ask(_statuses(keys, [pool_id for pool_id, _ in found]))
    return [
        Pool(pool_id, end - moment, status)
        for (pool_id, end), status in zip(found, statuses, strict=True)
    ]  # fmt: skip


def _statuses(keys: Keys, pool_ids: Sequence[str]) -> Op[list[Status | None]]:
    # Add a key that never exists, because MGET needs at least one.
    wanted = [keys.pool(pool_id) for pool_id in pool_ids] or [keys.pool("")]
    return Op("MGET", wanted, (), lambda reply: [read_status(raw) for raw in reply[: len(pool_ids)]])


def status(keys: Keys, pool_id: str) -> Op[Status | None]:
    """The last status that one pool published."""
    return Op("GET", (keys.pool(pool_id),), (), read_status)


def wait_stacks(keys: Keys, pool_id: str, seconds: float) -> Op[bytes | None]:
    """Wait for the requested stack traces. They are not removed, because other clients may wait for them too."""
    key = keys.stacks(pool_id)
    return Op("BLMOVE", (key, key), ("LEFT", "LEFT", f"{seconds:.3f}"), lambda reply: reply)


_decode = msgspec.json.Decoder(Status).decode


def read_status(raw: bytes | None) -> Status | None:
    """Decode a status; None if there is none or it cannot be parsed."""
    try:
        return None if raw is None else _decode(raw)
    except codec.UNREADABLE:
        return None


@dataclass(frozen=True, slots=True)
class Condemned:
    """A dead pool whose attempts the leader is moving."""

    id: str
    #: When it was condemned, in Redis seconds.
    since: float
    #: How many attempts are left.
    held: int


def condemned(keys: Keys) -> Steps[list[Condemned]]:
    """The dead pools that still hold attempts, the longest condemned first; 100 at most."""
    found = yield from ask(
        Op("ZRANGE", (keys.condemned,), (0, 99, "WITHSCORES"), lambda reply: _read_scored(reply, 1))
    )
    held = yield from ask_all([Op("HLEN", (keys.held(pool_id),), (), int) for pool_id, _ in found])
    return [Condemned(pool_id, since, left) for (pool_id, since), left in zip(found, held, strict=True)]


def leader(keys: Keys) -> Op[str | None]:
    """The id of the leader, the pool that does the chores."""
    return Op(
        "GET", (keys.leader,), (), lambda reply: None if reply is None else reply.decode("utf-8", "replace")
    )


def _read_scored(reply: Any, unit: int) -> list[tuple[str, float]]:
    return [
        (raw.decode("utf-8", "replace"), float(score) / unit)
        for raw, score in zip(reply[::2], reply[1::2], strict=True)
    ]

"""Who works: the pools on the register with what each says of itself, the condemned ones, the leader. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops.inspect import now
from dayjob.store.steps import Steps, ask, ask_all

#: How many pools are shown.
MAX_POOLS = 1000


# Structs: a fleet has thousands of workers, and what they do is read several times for one page.


class WorkerStatus(msgspec.Struct, frozen=True):
    """What one worker has been doing for longer than a moment."""

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
    #: Somebody cancelled it, and it was told.
    cancelled: bool = False
    checkin: str | None = None
    checkin_at: float | None = None
    done: float | None = None
    total: float | None = None


class LoopBlock(msgspec.Struct, frozen=True):
    """A handler that blocks the event loop of its pool, so that no other async job goes on."""

    #: Redis time.
    since: float = 0.0
    #: The job that blocks it; "" where something that a handler started does.
    name: str = ""
    id: str = ""


class Status(msgspec.Struct, frozen=True):
    """What a pool last said of itself."""

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
    #: A parent process can replace its process.
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
    #: Seconds between two beats.
    beat: float = 5.0
    #: Open connections, and the longest wait for the shared one since the last status, in seconds.
    connections: int = 0
    connection_wait: float = 0.0
    #: How many threads there may be for plain functions, and how many of them run one; 0 where no job is a plain function.
    threads: int = 0
    threads_busy: int = 0
    #: Workers whose job passed its timeout and does not end. They can run nothing else.
    stuck: int = 0
    loop_blocked: LoopBlock | None = None
    #: Those of `names` that are coroutine functions.
    async_names: tuple[str, ...] = ()
    #: Names of its schedules; None where the pool's release does not list them.
    schedules: tuple[str, ...] | None = None
    #: For each of `names`, in their order: a fingerprint of its arguments.
    signatures: tuple[str, ...] = ()

    @property
    def in_use(self) -> int:
        """How many workers are taken: by attempts that are held, and by those that count as failed but do not end."""
        return max(sum(self.running.values()), self.held + self.stuck)

    @property
    def few_threads(self) -> bool:
        """Whether fewer plain functions than workers can run at once."""
        return 0 < self.threads < self.concurrency

    @property
    def troubles(self) -> list[str]:
        """What keeps some of its workers from working, a few words each."""
        words = []
        if self.few_threads:
            words.append(f"{self.threads_busy}/{self.threads} threads busy")
        if self.stuck:
            words.append(f"{self.stuck} stuck past {'its' if self.stuck == 1 else 'their'} timeout")
        if self.loop_blocked is not None:
            by = f" by {self.loop_blocked.name}" if self.loop_blocked.name else ""
            words.append(f"event loop blocked{by}")
        return words

    def workers_for(self, name: str) -> int:
        """How many jobs of this name the pool can run at once; workers that are stuck count."""
        return self.threads if self.few_threads and name not in self.async_names else self.concurrency


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool on the register."""

    id: str
    #: Seconds until its lease is over; below 0 when it will be condemned at the next pass.
    lease: float
    #: None when it has not said anything yet, or cannot be understood.
    status: Status | None


def contradictions(registered: Sequence[Pool]) -> dict[str, int]:
    """Job names whose arguments live pools disagree about, to how many pools know them."""
    # Most pools of a fleet run the same program.
    programs: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    for pool in registered:
        if pool.lease > 0 and pool.status and len(pool.status.names) == len(pool.status.signatures):
            program = pool.status.names, pool.status.signatures
            programs[program] = programs.get(program, 0) + 1
    if len(programs) < 2:
        return {}
    seen: dict[str, set[str]] = {}
    count: dict[str, int] = {}
    for (names, signatures), number in programs.items():
        for name, signature in zip(names, signatures, strict=True):
            seen.setdefault(name, set()).add(signature)
            count[name] = count.get(name, 0) + number
    return {name: count[name] for name in sorted(seen) if len(seen[name]) > 1}


def leases(keys: Keys) -> Op[list[tuple[str, float]]]:
    """The pools on the register and the ends of their leases, in Redis seconds."""
    return Op(
        "ZRANGE", (keys.pools,), (0, MAX_POOLS - 1, "WITHSCORES"), lambda reply: _read_scored(reply, 1000)
    )


def pools(keys: Keys) -> Steps[list[Pool]]:
    """The pools on the register, with what each says of itself."""
    moment = yield from ask(now())
    found = yield from ask(leases(keys))
    statuses = yield from ask(_statuses(keys, [pool_id for pool_id, _ in found]))
    return [
        Pool(pool_id, end - moment, status)
        for (pool_id, end), status in zip(found, statuses, strict=True)
    ]  # fmt: skip


def _statuses(keys: Keys, pool_ids: Sequence[str]) -> Op[list[Status | None]]:
    # One key that is never there, because MGET wants one.
    wanted = [keys.pool(pool_id) for pool_id in pool_ids] or [keys.pool("")]
    return Op("MGET", wanted, (), lambda reply: [read_status(raw) for raw in reply[: len(pool_ids)]])


def status(keys: Keys, pool_id: str) -> Op[Status | None]:
    """What one pool last said of itself."""
    return Op("GET", (keys.pool(pool_id),), (), read_status)


def wait_stacks(keys: Keys, pool_id: str, seconds: float) -> Op[bytes | None]:
    """Wait for the stacks that were asked for; they stay, for others who wait."""
    key = keys.stacks(pool_id)
    return Op("BLMOVE", (key, key), ("LEFT", "LEFT", f"{seconds:.3f}"), lambda reply: reply)


_decode = msgspec.json.Decoder(Status).decode


def read_status(raw: bytes | None) -> Status | None:
    """The status in these bytes; None when there is none."""
    try:
        return None if raw is None else _decode(raw)
    except codec.UNREADABLE:
        return None


@dataclass(frozen=True, slots=True)
class Condemned:
    """A dead pool whose attempts are being rescued."""

    id: str
    #: Since when, in Redis seconds.
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
    """The pool that does the chores."""
    return Op(
        "GET", (keys.leader,), (), lambda reply: None if reply is None else reply.decode("utf-8", "replace")
    )


def _read_scored(reply: Any, unit: int) -> list[tuple[str, float]]:
    return [
        (raw.decode("utf-8", "replace"), float(score) / unit)
        for raw, score in zip(reply[::2], reply[1::2], strict=True)
    ]

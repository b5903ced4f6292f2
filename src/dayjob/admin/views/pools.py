"""Pools, busy workers and their stacks, as consoles show them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dayjob.store.ops.pools import Condemned, Pool, WorkerStatus


@dataclass(frozen=True, slots=True)
class PoolsView:
    """The registered pools, and the dead ones whose jobs are being requeued."""

    pools: tuple[Pool, ...]
    condemned: tuple[Condemned, ...]
    leader: str | None


@dataclass(frozen=True, slots=True)
class BusyWorker:
    """A worker that has run a job for more than 0.5 s."""

    pool_id: str
    host: str
    pid: int
    worker: WorkerStatus
    running_for: float
    #: Whether the lease of its pool has expired. Then this is what the pool last reported.
    stale: bool = False

    @property
    def started_at(self) -> float:
        """When it started, Redis time."""
        return self.worker.started_at

    @property
    def args(self) -> Any:
        """Its redacted arguments."""
        return self.worker.args

    @property
    def source(self) -> str | int | None:
        """Who the job is for."""
        return self.worker.source

    @property
    def timeout(self) -> float | None:
        """Seconds that it may run."""
        return self.worker.timeout

    @property
    def left(self) -> float | None:
        """Seconds until its timeout, negative after it; None if it has none."""
        return None if self.worker.timeout is None else self.worker.timeout - self.running_for

    @property
    def progress(self) -> float | None:
        """How much of the job is done, from 0 to 1; None unless the job reports both numbers."""
        done, total = self.worker.done, self.worker.total
        return min(1.0, max(0.0, done / total)) if done is not None and total else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One call in a stack."""

    file: str
    line: int
    function: str
    #: The line of source code; "" if it cannot be read.
    source: str = ""
    #: Whether it is code of the program, not of a library.
    own: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStack:
    """The stack of one worker; the handler first."""

    token: str
    name: str
    id: str
    worker_id: str = ""
    colour: Literal["sync", "async"] = "sync"
    running_for: float = 0.0
    frames: tuple[Frame, ...] = ()
    #: Whether frames before the first were left out.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of the busy workers of a pool, the longest running first. Of very many workers, only some."""

    pool_id: str
    at: float
    workers: tuple[WorkerStack, ...]

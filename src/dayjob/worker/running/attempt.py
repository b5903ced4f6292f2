"""Attempt: one delivery of a job to this pool, from the exchange that brought it to the one that settles it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from dayjob.job import Job, StopReason, new_id
from dayjob.store import codec
from dayjob.store.codec import Wire
from dayjob.store.ops.consume import Entry

if TYPE_CHECKING:
    import asyncio

    from dayjob.worker.pool_job_type import PoolJobType

#: The error of a job that an operator killed while it ran.
KILLED = "killed by an operator while it ran"
#: How an attempt ended: None for a plain completion, else what the next exchange does with it.
Settlement = Sequence[Entry] | None


class Attempt(msgspec.Struct, eq=False):
    """What is known of one attempt. Also the line through which its job checks in.

    A struct, because a hundred thousand of them are made in a second; compared by identity.
    """

    token: str
    name: str
    payload: bytes
    wire: Wire
    job_type: PoolJobType
    job: Job | None = None
    #: Monotonic times: handed over, started, to be ended by.
    given_at: float = 0.0
    started_at: float = 0.0
    deadline: float = 0.0
    #: The timeout around an async handler: it expires before the handler is cancelled.
    limit: asyncio.Timeout | None = None
    #: Seconds that it ran; None while it has not ended.
    ran: float | None = None
    worker: int = -1
    thread_id: int = 0
    #: Held while an exception is being sent to its thread; None where nobody does.
    guard: AbstractContextManager[object] | None = None
    #: Its handler has ended: no exception is sent to its thread any more.
    over: bool = False
    #: Redis no longer counts on us: the outcome stays in this process.
    lost: bool = False
    #: An operator asked for its end: the job never runs again. With `killed` it goes to dead.
    cancelled: bool = False
    killed: bool = False
    timed_out: bool = False
    #: The watchdog reports its outcome, since its thread does not end.
    given_up: bool = False
    #: Its unique key was let go.
    released: bool = False
    #: An outcome was reported; a second one is not.
    settled: bool = False
    #: Monotonic time before which its outcome is not sent, unless the pool stops.
    hold_until: float = 0.0
    #: What the next exchange does with it; None for a plain completion.
    settlement: Settlement = None
    checkin_text: str = ""
    checkin_at: float = 0.0
    progress: float | None = None
    total: float | None = None

    def open(self) -> Job:
        """The job as its handler sees it, made at first use: most handlers ask for their arguments only."""
        if self.job is None:
            self.job = codec.job_of(self.wire)
            self.job.line = self
            self.job.redact = self.job_type.options.redact
        return self.job

    def back(self) -> Entry:
        """What gives it back to its queue, with its unique key if it let go of it and never started."""
        if self.released and not self.started_at:
            return Entry("back", self.name, self.token, key=self.wire.unique_key, value=self.wire.id)
        return Entry("back", self.name, self.token)

    def cancellation(self, unique_prefix: str, now: float) -> list[Entry]:
        """What ends a cancelled job: it is dropped, or sent to dead, and its unique key goes with it."""
        wire = self.wire
        entries: list[Entry] = []
        if wire.unique_key.startswith(unique_prefix):
            entries.append(Entry("free", self.name, self.token, key=wire.unique_key, value=wire.id))
        if self.killed:
            entries.append(Entry("dead", self.name, self.token, killed_payload(self.payload, now)))
        else:
            entries.append(Entry("drop", self.name, self.token, b"", 2))
        return entries

    @property
    def id(self) -> str:
        """The job's id."""
        return self.wire.id

    @property
    def attempt(self) -> int:
        """1 for the first delivery of the job."""
        wire = self.wire
        return 1 + wire.fails + wire.deaths + wire.snoozes

    @property
    def source(self) -> str | int | None:
        """Who the job is for."""
        return self.wire.source

    @property
    def stopping(self) -> bool:
        """Whether the job should wind up."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the job should wind up, or None."""
        if self.lost:
            return "lost"
        if self.cancelled:
            return "cancelled"
        if self.timed_out or (self.limit is not None and self.limit.expired()):
            return "timeout"
        return "shutdown" if self.job_type.stopping else None

    def checkin(self, text: str, done: float | None, total: float | None) -> None:
        """Note what the job says; the next status shows it."""
        # Whatever it is given, the status must be able to show it.
        self.checkin_text = codec.cut(text if isinstance(text, str) else repr(text))[:1000]
        self.progress, self.total = _number(done), _number(total)
        self.checkin_at = time.monotonic()


def killed_payload(payload: bytes, now: float) -> bytes:
    """The payload of a running job that an operator killed; as it is where its fields cannot be read."""
    # An attempt that no other has, so that two jobs with the same bytes stay two in the sorted set.
    changes = {"err": KILLED, "failed_at": int(now), "attempt": f"operator/{new_id()}"}
    try:
        return codec.rewrite(payload, changes)
    except codec.Broken:
        return payload


def _number(value: float | None) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None

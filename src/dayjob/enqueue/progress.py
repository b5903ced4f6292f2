"""How far a running job is, from what its pool publishes. As steps, for sync and async enqueuers alike."""

from __future__ import annotations

from typing import NamedTuple

from dayjob.enqueue.builder import Builder
from dayjob.enqueue.results import id_and_name
from dayjob.job import Job
from dayjob.store.ops import pools
from dayjob.store.steps import Steps


class JobProgress(NamedTuple):
    """The last check-in of a job that runs."""

    message: str
    done: float | None
    total: float | None
    #: When it checked in, in seconds since the epoch by the clock of Redis.
    since: float


def progress_of(builder: Builder, job: Job | str) -> Steps[JobProgress | None]:
    """The last check-in that the pool of a running job has published; None if there is none."""
    job_id, _ = id_and_name(job)
    if builder.sink is not None:
        known: JobProgress | None = builder.sink.job_progress(job_id)
        return known
    for pool in (yield from pools.pools(builder.keys)):
        for one in pool.status.workers if pool.status is not None else ():
            if one.id == job_id and one.checkin_at is not None and not one.lost:
                return JobProgress(one.checkin or "", one.done, one.total, one.checkin_at)
    return None

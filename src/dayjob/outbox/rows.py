"""OutboxRow: a job as a row of the table, and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from dayjob.store import codec
from dayjob.store.ops.produce import NewJob, When


class OutboxRow(NamedTuple):
    """A job that waits to be sent. Times are seconds since the epoch."""

    id: str
    namespace: str
    name: str
    payload: bytes
    #: When to run it; None for at once.
    due: float | None
    unique_key: str | None
    unique_for: float | None
    expires: float | None
    created: float

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> Self:
        """The row that a query returned."""
        row = cls(*values)
        return row._replace(payload=bytes(row.payload))

    def values(self) -> dict[str, Any]:
        """By column."""
        return self._asdict()

    def new_job(self) -> NewJob:
        """The job, ready to be sent. Its id makes sure that it is stored once. Raises codec.Broken."""
        job = codec.job_of(codec.read(self.payload, self.name))
        job.unique_key = self.unique_key
        when = When() if self.due is None else When("at", round(self.due * 1000))
        return NewJob(job, self.payload, when, True, self.unique_for, self.expires)


COLUMNS = OutboxRow._fields


def rows_of(namespace: str, new_jobs: Sequence[NewJob]) -> list[OutboxRow]:
    """The rows of jobs."""
    now = time.time()
    return [
        OutboxRow(
            one.job.id, namespace, one.job.name, one.payload,
            one.job.scheduled_at if one.when.mode == "at" else None,
            one.job.unique_key, one.unique_for, one.expires, now,
        )
        for one in new_jobs
    ]  # fmt: skip

"""FakeStreams: the streams of a testing block. A reader gets what was emitted, and does not wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dayjob.errors import JobFailed, ResultTimeout
from dayjob.store import codec
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.find import State
from dayjob.store.ops.streams import end_of
from dayjob.store.stream_reader import Emitted
from dayjob.worker.running.attempt import Attempt, Settlement


class FakeStreams:
    """The streams by the id of their job."""

    def __init__(self) -> None:
        self._values: dict[str, list[Emitted]] = {}
        #: Why jobs that emitted something have no result.
        self._failures: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def collect(self, attempt: Attempt, settlement: Settlement = None) -> None:
        """Take over what an attempt has emitted. With its settlement, also how it ended."""
        if attempt.stream is None:
            return
        part = attempt.stream.take()
        if part.begins:
            self._values[part.job_id] = []
            self._failures.pop(part.job_id, None)
        self._values.setdefault(part.job_id, []).extend(
            Emitted(codec.json_value(raw), part.attempt, f"{next(self._numbers)}-0.0", restarted=False)
            for raw in part.values.splitlines()
        )
        if isinstance(settlement, Entry):
            end, why = end_of(settlement.outcome)
            if end == "failed":
                self._failures[part.job_id] = why

    def read(
        self, job_id: str, after: str, state: State | None, error: str, *, enqueued: bool
    ) -> Iterator[Emitted]:
        """What a job has emitted. Raises JobFailed, and ResultTimeout if it has not ended."""
        values = self._values.get(job_id, [])
        places = [one.id for one in values]
        first = places.index(after) + 1 if after in places else 0
        for one in values[first:]:
            yield one._replace(restarted=bool(after) and after not in places and one.id == places[0])
        if state not in (None, "dead", "done"):
            raise ResultTimeout(
                f"the stream of job {job_id} has not ended: in a testing block, call drain() first"
            )
        if state == "dead" or job_id in self._failures:
            raise JobFailed(
                f"{job_id}: {error or self._failures.get(job_id) or 'the job ended without a reason'}"
            )
        if not enqueued:
            raise JobFailed(
                f"{job_id}: the job was not found: it has ended, its stream has expired, or it never existed"
            )

"""StreamReader: follows the stream of one job, from any place in it to the end of the job.

New entries are pushed: the reader blocks in XREAD. The last entry of an attempt has whether the job has ended. An attempt whose
process crashed has no such entry, so a reader that gets nothing looks now and then where the job is.
"""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple

from dayjob.errors import BadOption, JobFailed
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import inspect, maintain, streams
from dayjob.store.ops.find import MAX_SEARCHED, Found, find_job
from dayjob.store.ops.streams import StreamEntry
from dayjob.store.steps import Steps, ask, ask_all

#: Seconds that one read waits for the next entry at most. The connection of a reader must wait longer for its answer.
BLOCK_SECONDS = 2.0
#: Seconds between two looks where a job is that emits nothing.
LOOK_SECONDS = 4.0
_PLACE = re.compile(r"((\d{1,20})-(\d{1,20}))(?:\.(\d{1,9}))?", re.ASCII)
#: Redis accepts no number above in the id of an entry.
_MAX_NUMBER = 2**64 - 1


class Emitted(NamedTuple):
    """One value of a stream."""

    value: Any
    #: The number of the attempt that emitted it.
    attempt: int
    #: Its place in the stream, to continue after it later: `stream(job, after=id)`.
    id: str
    #: Whether a new attempt begins with it, so that what was read before does not count any more.
    restarted: bool


class StreamReader:
    """The state of one reader. `shown` reads values without what is redacted."""

    def __init__(
        self, keys: Keys, job_id: str, name: str | None = None, after: str = "", *, shown: bool = False
    ) -> None:
        match = _PLACE.fullmatch(after) if after else None
        if after and (match is None or max(int(match[2]), int(match[3])) > _MAX_NUMBER):
            raise BadOption(
                f"after={after!r} is no place in a stream: give the id of a value, or the header Last-Event-ID"
            )
        self._keys = keys
        self._job_id = job_id
        #: The name of the job, once it is known.
        self.name = name
        self._shown = shown
        #: The entry that was read last. Of an entry that was read in part, also how many of its values.
        self._after, self._partly, self._skip = streams.START, "", 0
        if match is not None:
            self._after = match[1]
            if match[4] is not None:
                self._after, self._partly, self._skip = streams.before(match[1]), match[1], int(match[4]) + 1
        #: Whether values may have been read before, here or by the reader that goes on here.
        self._read_before = match is not None
        #: Whether the job has emitted something, and whether it is known to exist: the caller has it, or it was seen anywhere.
        self._begun, self._known = False, name is not None
        #: The pool and token of the attempt that runs.
        self._place: tuple[str, str] | None = None
        self._look_at = 0.0
        #: Whether the server has answered.
        self.reached = False
        self._failure: JobFailed | None = None
        #: The job has ended, and everything was read.
        self.ended = False
        #: Nothing is known of the job: it has ended, its stream has expired, or it never existed.
        self.missing = False

    def read(self, seconds: float = BLOCK_SECONDS) -> Steps[list[Emitted]]:
        """The next values; none if there are none within `seconds`, or the job has `ended`. Raises JobFailed, StoreError.

        After a StoreError it can be read on.
        """
        if self._failure is not None:
            raise self._failure
        wait = min(seconds, BLOCK_SECONDS) if self.reached else 0.0
        found = yield from self._new_entries(max(1, int(wait * 1000)) if wait > 0 else 0)
        if not found and time.monotonic() >= self._look_at:
            found = yield from self._look()
        self.reached = True
        values = self._take(found)
        if found:
            yield from self._judge(found[-1])
        return values

    @property
    def failed(self) -> bool:
        """Whether the next read raises JobFailed."""
        return self._failure is not None

    def _new_entries(self, wait_ms: int) -> Steps[list[StreamEntry]]:
        return (yield from ask(streams.read_stream(self._keys, self._job_id, self._after, wait_ms=wait_ms)))

    def _take(self, entries: list[StreamEntry]) -> list[Emitted]:
        found: list[Emitted] = []
        for entry in entries:
            raws = entry.shown if self._shown else entry.values
            first = self._skip if entry.id == self._partly else 0
            restarted = bool(entry.pool_id) and self._read_before and first == 0
            for i, raw in enumerate(raws[first:], first):
                found.append(Emitted(codec.json_value(raw), entry.attempt, f"{entry.id}.{i}", restarted))
                restarted = False
                self._read_before = True
            if entry.pool_id:
                self._place, self.name = (entry.pool_id, entry.token), entry.name
            self._after, self._begun = entry.id, True
        return found

    def _judge(self, last: StreamEntry) -> Steps[None]:
        """Whether the job has ended with the last entry that was read."""
        self._look_at = time.monotonic() + LOOK_SECONDS
        if last.end:
            self._place = None
        if last.end == "completed":
            self.ended = True
        elif last.end == "failed":
            # An operator may have retried a dead job.
            found = yield from find_job(self._keys, self._job_id, self.name)
            if found is None or found.state in ("dead", "done"):
                self._fail(_error_of(found) or last.why)

    def _look(self) -> Steps[list[StreamEntry]]:
        """Find out whether a job that emits nothing can still emit something. Returns entries that came meanwhile."""
        self._look_at = time.monotonic() + LOOK_SECONDS
        if self._place is None and not self._begun:
            first = yield from ask(streams.first_entry(self._keys, self._job_id))
            if first is not None:
                self._begun, self.name = True, first.name or self.name
                self._place = (first.pool_id, first.token) if first.pool_id else None
        if self._place is not None:
            if (yield from ask(streams.runs(self._keys, *self._place))):
                return []
            self._place = None
        found = yield from find_job(self._keys, self._job_id, self.name)
        if found is not None:
            self._known, self.name = True, found.name or self.name
            if found.state not in ("dead", "done"):
                self._place = (found.pool_id, found.token) if found.state == "running" else None
                return []
        elif (yield from self._may_be_missed()):
            return []
        entries = yield from self._new_entries(0)
        if not entries:
            self._conclude(found)
        return entries

    def _conclude(self, found: Found | None) -> None:
        """The job has ended without a last entry in its stream."""
        if found is not None and found.state == "dead":
            self._fail(_error_of(found))
        elif found is not None or (self._known and not self._begun):
            self.ended = True
        elif self._begun:
            self._fail(
                "it is gone and left no end: an operator deleted it, or its process crashed and it was not retried"
            )
        else:
            self.missing = True
            self._fail("the job was not found: it has ended, its stream has expired, or it never existed")

    def _may_be_missed(self) -> Steps[bool]:
        """Whether the job may be stored further back than a search for its id goes."""
        names = [self.name] if self.name else (yield from ask(maintain.known_jobs(self._keys)))
        sizes = yield from ask_all(
            [
                *(inspect.queue_size(self._keys, name) for name in names),
                *(Op("ZCARD", (key,), (), int) for key in (self._keys.scheduled, self._keys.retry)),
            ]
        )
        return max(sizes) > MAX_SEARCHED

    def _fail(self, why: str) -> None:
        self._failure = JobFailed(f"{self._job_id}: {why or 'the job ended without a reason'}")


def _error_of(found: Found | None) -> str:
    return "" if found is None or found.job is None else found.job.err

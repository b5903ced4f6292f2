"""Reading the stream of a job: what its attempts emit, until it has ended. For sync and async enqueuers alike."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from dayjob.enqueue.pause import Pause
from dayjob.enqueue.results import JOB_WAIT_SECONDS, id_and_name, refuse_inside, with_state
from dayjob.errors import BadOption, ResultTimeout, Unavailable
from dayjob.job import Job, running
from dayjob.store.async_link import awalk
from dayjob.store.link import walk
from dayjob.store.steps import Steps
from dayjob.store.stream_reader import BLOCK_SECONDS, Emitted, StreamReader

if TYPE_CHECKING:
    from dayjob.enqueue.async_sender import AsyncSender
    from dayjob.enqueue.sender import Sender, SenderBase

#: Seconds between two tries to reach the server.
RETRY_SECONDS = 0.5


class _Reading:
    """One iteration over a stream: the reader, and how long it may take."""

    def __init__(self, sender: SenderBase[Any], job: Job | str, after: str, timeout: float | None) -> None:
        if timeout is not None and not timeout > 0:
            raise BadOption(f"stream(timeout={timeout!r}): give a number of seconds above 0, or None")
        self._keys = sender.builder.keys
        self._job_id, self._name = id_and_name(job)
        self._place = sender.place
        self._timeout = timeout
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.reader = StreamReader(self._keys, self._job_id, self._name, after)

    def steps(self) -> Steps[list[Emitted]]:
        """The next values. Raises ResultTimeout, JobFailed, NotReady, StoreError."""
        reader = self.reader
        left = self._deadline - time.monotonic()
        if left <= 0:
            message = f"the stream of job {self._job_id} did not end within {self._timeout or 0:g} s"
            raise ResultTimeout((yield from with_state(self._keys, self._job_id, reader.name, message)))
        try:
            found = yield from reader.read(
                min(left, BLOCK_SECONDS if running.get() is None else JOB_WAIT_SECONDS)
            )
        except Unavailable:
            # An outage is waited for, as callers that wait for results do.
            if not reader.reached:
                raise
            yield Pause(min(left, RETRY_SECONDS))
            return []
        if not (found or reader.ended):
            refuse_inside(self._place, reader.name)
        return found


def stream(sender: Sender, job: Job | str, after: str, timeout: float | None) -> Iterator[Emitted]:
    """The values of a stream, until its job has ended."""
    sink = sender.builder.sink
    if sink is not None:
        yield from sink.stream(id_and_name(job)[0], after)
        return
    reading = _Reading(sender, job, after, timeout)
    with sender.links.reading() as link:
        while not reading.reader.ended:
            yield from walk(link, reading.steps())


async def astream(
    sender: AsyncSender,
    job: Job | str,
    after: str,
    timeout: float | None,  # noqa: ASYNC109 - a limit on the job
) -> AsyncIterator[Emitted]:
    """The values of a stream, until its job has ended."""
    sink = sender.builder.sink
    if sink is not None:
        for one in sink.stream(id_and_name(job)[0], after):
            yield one
        return
    reading = _Reading(sender, job, after, timeout)
    async with sender.links.reading() as link:
        while not reading.reader.ended:
            for one in await awalk(link, reading.steps()):
                yield one

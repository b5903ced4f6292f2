"""Waiting for the results of jobs, and their states. All of it as steps, for sync and async enqueuers alike."""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import msgspec

from dayjob.enqueue.builder import Builder
from dayjob.enqueue.mailbox import Inbox
from dayjob.errors import JobFailed, NotReady, ResultTimeout, StoreError, Unavailable
from dayjob.explain.reasons import explain
from dayjob.explain.words import sentence
from dayjob.job import Job, running
from dayjob.names import check_text
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import results
from dayjob.store.ops.find import State, find_job
from dayjob.store.steps import Steps, ask, ask_all

#: How many results are looked for in one round trip.
MAX_LOOKED = 500
#: A job that waits must notice soon that its pool stops, and an exception is not raised in a thread that is blocked.
JOB_WAIT_SECONDS = 0.5


class Arrival(msgspec.Struct, frozen=True):
    """A wait until something arrives in an inbox, or for some seconds."""

    inbox: Inbox
    seconds: float

    def run(self, _: object) -> None:
        """Block this thread."""
        self.inbox.wait(self.seconds)

    async def arun(self, _: object) -> None:
        """Let the event loop go on."""
        await self.inbox.await_(self.seconds)


def wait_for(
    builder: Builder, place: tuple[str, str], inbox: Inbox, job: Job | str, timeout: float | None
) -> Steps[Any]:
    """Wait for the result of a job, whose inbox it is. Raises ResultTimeout, JobFailed, NotReady."""
    job_id, name = id_and_name(job)
    deadline = None if timeout is None else time.monotonic() + timeout
    if timeout is not None and timeout <= 0:
        raw = yield from ask(results.read_result(builder.keys, job_id))
        arrived = [] if raw is None else [(job_id, raw)]
    else:
        arrived = yield from _look(builder.keys, inbox)
    if arrived:
        return read_result(arrived[0][1], job_id)
    refuse_inside(place, name)
    return (yield from finish(builder.keys, inbox, job, timeout, deadline))


def finish(
    keys: Keys, inbox: Inbox, job: Job | str, timeout: float | None, deadline: float | None
) -> Steps[Any]:
    """Wait for the result of a job that was looked for, or noted when it was enqueued. Raises ResultTimeout, JobFailed."""
    job_id, name = id_and_name(job)
    arrived = yield from receive(keys, inbox, deadline)
    if not arrived:
        raise ResultTimeout((yield from why_no_result(keys, job_id, name, timeout)))
    return read_result(arrived[0][1], job_id)


def receive(keys: Keys, inbox: Inbox, deadline: float | None) -> Steps[list[tuple[str, bytes]]]:
    """The jobs whose results have arrived, and these: at least one, or none if the deadline has passed.

    Raises Unavailable if the server could not be reached at that time.
    """
    while True:
        arrived = inbox.take()
        if arrived:
            return arrived
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left <= 0:
            if inbox.problem is not None:
                raise inbox.problem
            return []
        if inbox.patience <= 0:
            arrived = yield from _look(keys, inbox, again=True)
            if arrived:
                return arrived
        else:
            yield Arrival(inbox, left if running.get() is None else min(left, JOB_WAIT_SECONDS))


def _look(keys: Keys, inbox: Inbox, *, again: bool = False) -> Steps[list[tuple[str, bytes]]]:
    """Look for all results that are missing. A caller that waits already gets no error during an outage."""
    channel = inbox.mailbox.channel
    wanted = inbox.to_look()
    try:
        for first in range(0, len(wanted), MAX_LOOKED):
            some = wanted[first : first + MAX_LOOKED]
            looks = [results.look_for_result(keys, job_id, channel) for _, job_id in some]
            found = yield from ask_all(looks)
            inbox.looked(zip([key for key, _ in some], found, strict=True))
    except Unavailable as error:
        if not again:
            raise
        inbox.looked((), error)
    return inbox.take()


def refuse_inside(place: tuple[str, str], name: str | None) -> None:
    """Refuse to wait for a job inside a job of a pool that must also run the other one. Raises NotReady."""
    outer = running.get()
    if outer is not None and name is not None and outer.runs(place, name):
        raise NotReady(
            f"the job {outer.name!r} would wait for a job {name!r} of its own pool. If all workers of the pool wait like "
            "this, the pool hangs.\n    Let the second job enqueue a third one with its result, call the function directly, "
            "or run one of them in another pool"
        )


def read_result(raw: bytes, job_id: str) -> Any:
    """Decode a stored result. Raises JobFailed if the job failed."""
    answer = codec.json_value(raw)
    if "error" in answer:
        raise JobFailed(f"{job_id}: {answer['error']}")
    return answer.get("result")


def state_of(builder: Builder, job: Job | str) -> Steps[State | Literal["pending"] | None]:
    """The state of a job; None if it is not found."""
    job_id, name = id_and_name(job)
    outer = running.get()
    if outer is not None and outer.has_pending(job_id):
        return "pending"
    if builder.sink is not None:
        known: State | None = builder.sink.state(job_id)
        return known
    found = yield from find_job(builder.keys, job_id, name)
    return None if found is None else found.state


def why_no_result(keys: Keys, job_id: str, name: str | None, timeout: float | None) -> Steps[str]:
    """The message of a ResultTimeout, with the state of the job."""
    return (yield from with_state(keys, job_id, name, f"no result of job {job_id} within {timeout or 0:g} s"))


def with_state(keys: Keys, job_id: str, name: str | None, message: str) -> Steps[str]:
    """A message about a job that is not there in time, with the state of the job."""
    try:
        why = yield from explain(keys, job_id, name)
    except StoreError:
        return message
    if why.kind == "not_found":
        return f"{message}: the job was not found. Only job types with keep= keep results, for that long"
    first, _, _ = sentence(why).partition("\n")
    return f"{message}. {first.rstrip('.')}"


def id_and_name(job: Job | str) -> tuple[str, str | None]:
    """The id of a job to look up, and its name if it is known. Raises BadOption."""
    return (job.id, job.name) if isinstance(job, Job) else (check_text(job, "the id of a job"), None)

"""Waiting for the result of a job, and its state. All of it as steps, for sync and async enqueuers alike."""

from __future__ import annotations

import time
from typing import Any, Literal

from dayjob.enqueue.builder import Builder
from dayjob.enqueue.request import Pause
from dayjob.errors import JobFailed, ResultTimeout, StoreError
from dayjob.explain.reasons import explain
from dayjob.explain.words import sentence
from dayjob.job import Job, running
from dayjob.names import check_text
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.ops.find import State, find_job
from dayjob.store.steps import Steps

#: Seconds between two reads of a result: the first time, and at most.
RESULT_SECONDS = (0.0075, 0.25)


def wait_for(builder: Builder, job: Job | str, timeout: float | None) -> Steps[Any]:
    """Wait for the result of a job. Raises ResultTimeout, JobFailed."""
    job_id, _ = _id_and_name(job)
    if builder.sink is not None:
        return builder.sink.result(job_id)
    deadline = None if timeout is None else time.monotonic() + timeout
    wait, longest = RESULT_SECONDS
    while True:
        raw = yield plain("GET", builder.keys.result(job_id))
        if raw is not None:
            return read_result(raw, job_id)
        left = longest if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise ResultTimeout((yield from _why_no_result(builder.keys, job, timeout)))
        yield Pause(min(wait, left))
        wait = min(wait * 1.5, longest)


def read_result(raw: bytes, job_id: str) -> Any:
    """Decode a stored result. Raises JobFailed if the job failed."""
    answer = codec.json_value(raw)
    if "error" in answer:
        raise JobFailed(f"{job_id}: {answer['error']}")
    return answer.get("result")


def state_of(builder: Builder, job: Job | str) -> Steps[State | Literal["pending"] | None]:
    """The state of a job; None if it is not found."""
    job_id, name = _id_and_name(job)
    outer = running.get()
    if outer is not None and outer.has_pending(job_id):
        return "pending"
    found = yield from find_job(builder.keys, job_id, name)
    return None if found is None else found.state


def _why_no_result(keys: Keys, job: Job | str, timeout: float | None) -> Steps[str]:
    """The message of a ResultTimeout, with the state of the job."""
    job_id, name = _id_and_name(job)
    message = f"no result of job {job_id} within {timeout or 0:g} s"
    try:
        why = yield from explain(keys, job_id, name)
    except StoreError:
        return message
    if why.kind == "not_found":
        return f"{message}: the job was not found. Only job types with keep= keep results, for that long"
    first, _, _ = sentence(why).partition("\n")
    return f"{message}. {first.rstrip('.')}"


def _id_and_name(job: Job | str) -> tuple[str, str | None]:
    """The id of a job to look up, and its name if it is known. Raises BadOption."""
    return (check_text(job, "the id of a job"), None) if isinstance(job, str) else (job.id, job.name)

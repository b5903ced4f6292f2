"""Records of jobs that are looked up by their id, wherever they are: one string for each. Written by `dayjob.django.tasks`."""

from __future__ import annotations

from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain


def save_record(keys: Keys, job_id: str, record: bytes, seconds: float, *, new: bool = False) -> Op[Any]:
    """Store the record of a job for so many seconds; if it is `new`, unless there is one."""
    words = ("SET", keys.task(job_id), record, "PX", max(1, round(seconds * 1000)))
    return plain(*words, "NX") if new else plain(*words)


def read_record(keys: Keys, job_id: str) -> Op[Any]:
    """The record of a job, or None."""
    return plain("GET", keys.task(job_id))

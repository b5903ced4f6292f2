"""A job that a pool enqueues on a schedule, checked against the pool's job types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from dayjob.errors import BadOption, UnknownJob
from dayjob.handlers.codecs import Codecs
from dayjob.handlers.registry import JobType, Registry, encode_unchecked
from dayjob.names import check_name, check_text
from dayjob.options import Missed


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that is enqueued on a schedule."""

    #: Identifies the schedule in Redis.
    name: str
    spec: str
    job: str
    args: bytes
    timezone: str | None
    missed: Missed

    @classmethod
    def of(
        cls,
        registry: Registry,
        codecs: Codecs,
        spec: str,
        job: JobType[..., ..., Any] | str,
        args: Mapping[str, Any],
        *,
        timezone: str | None,
        missed: Missed,
        name: str | None,
    ) -> PeriodicJob:
        """The job that WorkerPool.periodic describes. Raises BadSchedule, BadArguments and BadOption."""
        from dayjob.cron import parse  # noqa: PLC0415 - a pool without schedules does not need it

        parse(spec, timezone)
        if missed not in get_args(Missed):
            raise BadOption(f"periodic {spec!r}: missed={missed!r}: write 'skip', 'one' or 'all'")
        job_name = _own_name(registry, spec, job)
        raw = _encoded(registry, codecs, job_name, args)
        full = check_text(name or "", f"periodic {spec!r}: name") or " ".join(
            filter(None, (job_name, spec, timezone))
        )
        return cls(full, spec, job_name, raw, timezone, missed)


def _own_name(registry: Registry, spec: str, job: JobType[..., ..., Any] | str) -> str:
    if isinstance(job, str):
        return check_name(job)
    if not isinstance(job, JobType):
        raise BadOption(f"periodic {spec!r}: {job!r} is no job: write @pool.job above it, or give a name")
    if job.name not in registry or registry.get(job.name).fn is not job.fn:
        raise BadOption(f"periodic {spec!r}: {job.name!r} is a job of another pool    {job.location}")
    if job.enqueue_options != registry.get(job.name).enqueue_options:
        raise BadOption(
            f"periodic {spec!r}: options of using() have no effect here; give {job.name!r} itself"
        )
    return job.name


def _encoded(registry: Registry, codecs: Codecs, job_name: str, args: Mapping[str, Any]) -> bytes:
    try:
        job_type = registry.get(job_name)
    except UnknownJob:
        # A module of `include` may define the job; WorkerPool.check() reads the arguments again.
        return encode_unchecked(job_name, args, codecs)
    return job_type.encode((), args) if job_type.resolved else encode_unchecked(job_name, args, codecs)

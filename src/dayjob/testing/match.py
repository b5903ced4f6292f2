"""Which enqueued jobs a test means, and the words for a job and for what was enqueued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dayjob.errors import BadArguments
from dayjob.handlers import redact
from dayjob.handlers.arguments import encode_unchecked
from dayjob.handlers.registry import JobType
from dayjob.job import Job
from dayjob.names import suggest

AnyJobType = JobType[..., ..., Any]

#: How many jobs a failed assertion lists.
MAX_LISTED = 20


def check(job_type: AnyJobType, args: Mapping[str, Any]) -> None:
    """Refuse an argument that this job never has: a test that it was not enqueued with it proves nothing."""
    plan = job_type._arguments.plan
    if plan.rest is not None or plan.anything:
        return
    for key in args:
        if key not in plan.names:
            near = suggest(key, plan.names)
            raise BadArguments(
                f"{job_type.name}: has no argument {key!r}{near}\n    {plan.shown}    {job_type.location}"
            )


def matches(job: Job, wanted: Mapping[str, Any], job_type: AnyJobType | None) -> bool:
    """Whether a job has these arguments; those that were not sent have the handler's defaults."""
    args = dict(job.args)
    if job_type is not None:
        for one in job_type._function.parameters():
            if one.default is not one.empty:
                args.setdefault(one.name, one.default)
    return all(key in args and _same(value, args[key]) for key, value in wanted.items())


def _same(wanted: Any, sent: Any) -> bool:
    """Whether an argument is what a test wants, as itself or as the JSON that it becomes."""
    if wanted == sent:
        return True
    try:
        return bool(msgspec.json.decode(encode_unchecked("", {"wanted": wanted}))["wanted"] == sent)
    except BadArguments:
        return False


def shown(name: str, args: Mapping[str, Any], job_type: AnyJobType | None) -> str:
    """A job as a call: `send_mail(to='a@b.c')`, without what must not be shown."""
    values = redact.shown(dict(args), () if job_type is None else job_type.options.redact)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"


def listing(jobs: Sequence[tuple[Job, AnyJobType | None]], now: float) -> str:
    """What was enqueued, a line for each."""
    if not jobs:
        return "Nothing was enqueued in this block."
    return "\n".join(["Enqueued in this block:", *_lines(jobs, now)])


def deferred(jobs: Sequence[tuple[Job, AnyJobType | None]], now: float) -> str:
    """What is sent at a commit that did not come, a line for each; "" if there is nothing."""
    if not jobs:
        return ""
    return "\n".join(
        ["\nNot sent, because no commit of its transaction came in this block:", *_lines(jobs, now)]
    )


def _lines(jobs: Sequence[tuple[Job, AnyJobType | None]], now: float) -> list[str]:
    lines = [
        f"    {shown(job.name, job.args, job_type)}{_notes(job, now)}" for job, job_type in jobs[:MAX_LISTED]
    ]
    if len(jobs) > MAX_LISTED:
        lines.append(f"    and {len(jobs) - MAX_LISTED} more")
    return lines


def _notes(job: Job, now: float) -> str:
    notes = []
    if job.scheduled_at is not None:
        notes.append(f"scheduled in {job.scheduled_at - now:.0f} s")
    if job.source is not None:
        notes.append(f"source {job.source!r}")
    return "    " + ", ".join(notes) if notes else ""

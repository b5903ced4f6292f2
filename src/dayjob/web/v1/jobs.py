"""Jobs over the API: lists, one job, actions on one, some or all that match a filter; failures; enqueueing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, get_args

import msgspec
from starlette.responses import Response

from dayjob.admin import job_lists, verbs
from dayjob.admin.filters import Filter, filter_of
from dayjob.admin.verbs import Verb
from dayjob.admin.views import (
    Count,
    DeletionView,
    Failures,
    JobDetail,
    JobPage,
    JobTypeView,
    Outcome,
    Seen,
)
from dayjob.explain.reasons import ReasonKind
from dayjob.web.v1.inputs import (
    CountInput,
    DeletedJob,
    EnqueueInput,
    FailedGroup,
    FailureWindow,
    JobsInput,
    JobTypesInput,
    Matched,
    Matching,
    MovedJob,
    MovedJobs,
    OneJob,
    Rescheduled,
    SeenJob,
    SeenJobs,
    Selected,
    UndoInput,
    Waves,
)
from dayjob.web.v1.queues import done
from dayjob.web.v1.streams import StreamLine, previewed, streamed
from dayjob.web.v1.table import Call, Endpoint, Nothing


class Sentence(msgspec.Struct, frozen=True):
    """Why a job is not running."""

    #: The reason as a stable word.
    kind: ReasonKind
    sentence: str


class Outcomes(msgspec.Struct, frozen=True):
    """The results of an action on a selection, one per job."""

    outcomes: list[Outcome]
    #: How many were changed, and how many were not.
    done: int
    failed: int
    #: The id of the deletion that undo takes back; "" where there is nothing to undo.
    undo: str


class StillThere(msgspec.Struct, frozen=True):
    """Whether each job is still in the state in which it was seen."""

    there: list[bool]


class _Meant(TypedDict):
    name: str | None
    where: Filter


def meant(sent: Matched) -> _Meant:
    """Selects jobs. For waiting jobs a name selects the queue, otherwise it is part of the filter. Raises BadOption."""
    where = filter_of(sent.where)
    if sent.name is None or sent.state == "waiting":
        return {"name": sent.name, "where": where}
    return {"name": None, "where": where.named(sent.name)}


async def _jobs(call: Call[JobsInput]) -> JobPage:
    sent = call.sent
    return await call.admin.jobs(
        sent.state,
        after=sent.after,
        size=sent.size,
        newest_first=sent.newest_first,
        sort=sent.sort,
        **meant(sent),
    )


async def _count(call: Call[CountInput]) -> Count:
    sent = call.sent
    return await call.admin.count(sent.state, most=job_lists.MAX_COUNTED, after=sent.after, **meant(sent))


async def _job(call: Call[OneJob]) -> JobDetail | None:
    return await call.admin.job(call.sent.id, name=call.sent.name)


async def _explain(call: Call[OneJob]) -> Any:
    found = await call.admin.job(call.sent.id, name=call.sent.name)
    return None if found is None else {"kind": found.kind, "sentence": found.sentence}


def _seen(job: SeenJob) -> Seen:
    return Seen(job.id, job.state, job.at, job.name or None)


def _act(verb: Verb) -> Callable[[Call[SeenJob]], Awaitable[Outcome]]:
    async def act(call: Call[SeenJob]) -> Outcome:
        outcomes = await call.admin.selection(verb, [_seen(call.sent)])
        return done(outcomes[0])

    return act


def _remove(verb: Verb) -> Callable[[Call[DeletedJob]], Awaitable[Outcome]]:
    async def act(call: Call[DeletedJob]) -> Outcome:
        outcomes = await call.admin.selection(verb, [_seen(call.sent)], undo=call.sent.undo)
        return done(outcomes[0])

    return act


async def _selection(call: Call[Selected]) -> Any:
    sent = call.sent
    outcomes = await call.admin.selection(sent.verb, [_seen(job) for job in sent.jobs], undo=sent.undo)
    changed = sum(outcome.done for outcome in outcomes)
    undo = next((outcome.undo for outcome in outcomes if outcome.undo), "")
    return {"outcomes": outcomes, "done": changed, "failed": len(outcomes) - changed, "undo": undo}


async def _still(call: Call[SeenJobs]) -> Any:
    return {"there": list(await call.admin.still([_seen(job) for job in call.sent.jobs]))}


async def _apply(call: Call[Matching]) -> Response:
    sent = call.sent
    if sent.dry_run:
        return previewed(await call.admin.preview(sent.verb, sent.state, most=sent.most, **meant(sent)))
    return await streamed(
        call.console,
        lambda report: call.admin.apply(
            sent.verb, sent.state, most=sent.most, progress=report, undo=sent.undo, **meant(sent)
        ),
    )


async def _reschedule(call: Call[Rescheduled]) -> Outcome:
    sent = call.sent
    return done(await call.admin.reschedule(_seen(sent), at=sent.due_at, delay=sent.delay))


async def _move(call: Call[MovedJob]) -> Outcome:
    sent = call.sent
    return done(await call.admin.move(_seen(sent), sent.to, check=sent.check))


async def _move_all(call: Call[MovedJobs]) -> Response:
    sent = call.sent
    if sent.dry_run:
        return previewed(await call.admin.preview_move(where=sent.where, name=sent.name, most=sent.most))
    return await streamed(
        call.console,
        lambda report: call.admin.move_all(
            sent.to, where=sent.where, name=sent.name, most=sent.most, check=sent.check, progress=report
        ),
    )


async def _waves(call: Call[Waves]) -> Response:
    sent = call.sent
    return await streamed(
        call.console,
        lambda report: call.admin.retry_in_waves(
            where=sent.where, size=sent.size, stop_above=sent.stop_above, progress=report
        ),
    )


async def _failures(call: Call[FailureWindow]) -> Failures:
    return await call.admin.failures(window=call.sent.window, sort=call.sent.sort)


async def _apply_to_group(call: Call[FailedGroup]) -> Response:
    sent = call.sent
    if sent.dry_run:
        return previewed(
            await call.admin.preview_failures(sent.verb, sent.name, sent.kind, tuple(sent.states))
        )
    return await streamed(
        call.console,
        lambda report: call.admin.apply_to_failures(
            sent.verb, sent.name, sent.kind, sent.states, progress=report, undo=sent.undo
        ),
    )


async def _bin(call: Call[Nothing]) -> tuple[DeletionView, ...]:
    return await call.admin.bin()


async def _undo(call: Call[UndoInput]) -> Response:
    return await streamed(call.console, lambda report: call.admin.undo(call.sent.deletion, progress=report))


async def _job_types(call: Call[JobTypesInput]) -> tuple[JobTypeView, ...]:
    return await call.admin.job_types(sort=call.sent.sort)


async def _enqueue(call: Call[EnqueueInput]) -> Outcome:
    sent = call.sent
    return done(
        await call.admin.enqueue(sent.name, sent.args, delay=sent.delay, source=sent.source, check=sent.check)
    )


def _action(verb: Verb) -> Endpoint:
    row = verbs.row("job", verb)
    act, takes = (_remove(verb), DeletedJob) if row.undoes else (_act(verb), SeenJob)
    return Endpoint("POST", row.path, "jobs", row.effect, act, Outcome, takes, finds=True, moves=True)


ENDPOINTS = (
    Endpoint("GET", "/jobs", "jobs", "Jobs in one state, page by page.", _jobs, JobPage, JobsInput),
    Endpoint("GET", "/jobs/count", "jobs", "How many jobs match a filter: 100,000 are searched, and next leads on.", _count, Count, CountInput),
    Endpoint("GET", "/job", "jobs", "One job in any state, with its timeline.", _job, JobDetail, OneJob, finds=True),
    Endpoint("GET", "/job/explain", "jobs", "Why a job is not running, in one sentence.", _explain, Sentence, OneJob, finds=True),
    *map(_action, get_args(Verb)),
    Endpoint("POST", "/jobs/selection", "jobs", "One action on each job of a selection.", _selection, Outcomes, Selected),
    Endpoint("POST", "/jobs/still", "jobs", "Which jobs of a selection are still in the state in which they were seen. Changes nothing.", _still, StillThere, SeenJobs),
    Endpoint("POST", "/jobs/apply", "jobs", "One action on every job that matches a filter.", _apply, StreamLine, Matching, streams=True),
    Endpoint("POST", "/job/reschedule", "jobs", verbs.row("due_job", "reschedule").effect, _reschedule, Outcome, Rescheduled, finds=True, moves=True),
    Endpoint("POST", "/job/move", "jobs", verbs.row("waiting_job", "move").effect, _move, Outcome, MovedJob, finds=True, moves=True),
    Endpoint("POST", "/jobs/move", "jobs", "Move every waiting job that matches to another name.", _move_all, StreamLine, MovedJobs, streams=True),
    Endpoint("POST", "/jobs/retry_in_waves", "jobs", verbs.row("all_jobs", "retry_in_waves").effect, _waves, StreamLine, Waves, streams=True),
    Endpoint("GET", "/bin", "jobs", "What was deleted in the last ten minutes and can be undone, newest first.", _bin, tuple[DeletionView, ...]),
    Endpoint("POST", "/undo", "jobs", verbs.row("deletion", "undo").effect, _undo, StreamLine, UndoInput, streams=True, finds=True),
    Endpoint("GET", "/failures", "failures", "Failed jobs, grouped by error and job name.", _failures, Failures, FailureWindow),
    Endpoint("POST", "/failures/apply", "failures", "Retry or delete a whole group of failures.", _apply_to_group, StreamLine, FailedGroup, streams=True),
    Endpoint("GET", "/job_types", "jobs", "The job types that pools announced, with their arguments.", _job_types, tuple[JobTypeView, ...], JobTypesInput),
    Endpoint("POST", "/enqueue", "jobs", "Enqueue a job by its name.", _enqueue, Outcome, EnqueueInput),
)  # fmt: skip

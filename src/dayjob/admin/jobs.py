"""Jobs as operators see them: what may be shown of one, and where it is. Reads only."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dayjob.admin import job_story
from dayjob.admin.history import attempts_of
from dayjob.admin.metrics import recent_rate
from dayjob.admin.records import LoggedLines
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import (
    AttemptRecord,
    JobDetail,
    JobView,
    PastAttempt,
    Seen,
    State,
)
from dayjob.errors import BadOption
from dayjob.explain.batches import batch_of_callback, batch_waits
from dayjob.explain.reasons import JobFinished, JobNotFound, JobWaiting, Reason, reason
from dayjob.explain.words import batch_sentence, held_up_sentence, node_sentence, sentence
from dayjob.explain.workflows import held_up_by, waiting_node
from dayjob.handlers.gaps import takes_of
from dayjob.handlers.redact import HIDDEN
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import batches, consume, find, history, inspect
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.steps import Steps, ask

#: How many jobs are searched for an id: of each queue, of each queue in a quick search, and of all queues in a quick search.
SEARCH_DEPTHS = (find.MAX_SEARCHED, find.QUICK, find.QUICK_IN_ALL)
#: States whose jobs are in a sorted set.
IN_SETS = ("scheduled", "retry", "dead", "done")


def source_of(keys: Keys, state: State) -> str:
    """The sorted set of a state. Raises BadOption for the states that have none."""
    sets = {"scheduled": keys.scheduled, "retry": keys.retry, "dead": keys.dead, "done": keys.done}
    if state not in sets:
        raise BadOption(f"{state!r} is none of {', '.join(sets)}")
    return sets[state]


def view(
    redactor: Redactor, state: State, entry: StoredEntry, *, place: int | None = None, **more: Any
) -> JobView:
    """The redacted view of an entry of a queue or sorted set; `more` are the fields of its attempt."""
    if entry.place is not None:
        place = entry.place
    return of_wire(
        redactor,
        state,
        entry.member,
        entry.job,
        at=entry.at,
        place=place,
        key=entry.key,
        problem=entry.problem,
        **more,
    )


def of_wire(
    redactor: Redactor, state: State, payload: bytes, wire: codec.Wire | None, **more: Any
) -> JobView:
    """The redacted view of a job; `more` are the fields that depend on its state."""
    if wire is None:
        return JobView("", "", state, payload=payload, **more)
    secrets = redactor.secrets(wire)
    workflow, node = codec.node_of(wire) or ("", None)
    attempt = 1 + wire.fails + wire.deaths + wire.snoozes
    if state == "done":
        ended = _ended(payload)
        more |= {"done_at": ended.done_at / 1000 if ended.done_at else None, "ran": ended.ran}
    return JobView(
        wire.id, wire.name, state,
        args=_with_results(redactor.args(wire.name, wire.args), wire), source=wire.source, enqueued_at=_enqueued_at(state, wire), due_at=_due_at(state, wire),
        attempt=attempt, attempts=attempt if state in ("running", "done") else attempt - 1, fails=wire.fails, deaths=wire.deaths, snoozes=wire.snoozes,
        error=redactor.text(wire.err, secrets), trace=redactor.text(wire.trace, secrets), failed_at=float(wire.failed_at) or None,
        expires_at=wire.expires / 1000 if wire.expires else None, unique_key=redactor.text(wire.unique_key, secrets),
        headers=redactor.headers(wire), parent=codec.origin_text(wire.parent), producer=codec.origin_text(wire.producer),
        past=tuple(
            PastAttempt(one.attempt, float(one.at), float(one.ran), redactor.text(one.error, secrets), one.died_in)
            for one in codec.past(wire)
        ),
        payload=payload, batch=batch_id_of(wire), workflow=workflow, node=node, **more,
    )  # fmt: skip


#: Stands for an argument that is the result of another node: each attempt reads it anew.
RESULT_OF_NODE = "[result of node "


def _with_results(args: Any, wire: codec.Wire) -> Any:
    """The arguments with words in the places that results of other nodes fill."""
    own = codec.node_of(wire)
    if own is None or not isinstance(args, dict):
        return args
    # Another program may have written something else.
    with contextlib.suppress(TypeError, ValueError, LookupError, msgspec.MsgspecError):
        for before, path in takes_of(wire.takes):
            where: Any = args
            for step in path[:-1]:
                where = where[step]
            if where[path[-1]] is None:
                where[path[-1]] = f"{RESULT_OF_NODE}{own[1] - before}]"
    return args


def batch_id_of(wire: codec.Wire) -> str:
    """The batch of which a job is a member or a callback; "" if of none."""
    found = codec.membership(wire)
    return "" if found is None or found[0][0].startswith(codec.WORKFLOW) else found[0][0]


class _Ended(msgspec.Struct):
    """The fields that only completed jobs have."""

    done_at: float = 0.0
    ran: float | None = None


def _ended(payload: bytes) -> _Ended:
    try:
        return msgspec.json.decode(payload, type=_Ended)
    except codec.UNREADABLE:
        return _Ended()


def _enqueued_at(state: State, wire: codec.Wire) -> float | None:
    return codec.first_enqueued(wire, settled=state in ("scheduled", "retry", "dead")) or None


def _due_at(state: State, wire: codec.Wire) -> float | None:
    # What ended an attempt has stamped `at` anew; `t` is still when the job was enqueued or became due.
    if state not in ("retry", "dead", "done"):
        return codec.enqueued_at(wire) or None
    return float(wire.t) or None


# One job.


def locate(session: Session, job: JobView | Seen | str) -> Steps[JobView | None]:
    """Find a job in its present state. A JobView is returned unchanged."""
    if isinstance(job, JobView):
        return job
    seen = Seen(job) if isinstance(job, str) else job
    if seen.state in IN_SETS and seen.at is not None:
        found = yield from _by_moment(session, seen, seen.state)
        if found is not None:
            return found
    whereabouts = yield from find.find_job(session.keys, seen.id, seen.name)
    return None if whereabouts is None else (yield from _found(session, seen.id, whereabouts))


def still(session: Session, jobs: Sequence[Seen]) -> Steps[tuple[bool, ...]]:
    """For each of these jobs, whether it is still where it was seen."""
    found: list[bool] = []
    for seen in jobs:
        if seen.state in IN_SETS and seen.at is not None:
            found.append((yield from _by_moment(session, seen, seen.state)) is not None)
        else:
            where = yield from find.find_job(session.keys, seen.id, seen.name, quick=True)
            found.append(where is not None and where.state == seen.state)
    return tuple(found)


def _by_moment(session: Session, seen: Seen, state: Any) -> Steps[JobView | None]:
    """Find a job in a sorted set of any size, by its score."""
    source = source_of(session.keys, state)
    found = None if seen.at is None else (yield from find.find_at(source, seen.id, seen.at))
    if found is None:
        return None
    payload, wire = found
    redactor = Redactor(session)
    yield from redactor.learn([wire.name])
    return of_wire(redactor, state, payload, wire, at=seen.at)


def _found(session: Session, job_id: str, found: find.Found) -> Steps[JobView]:
    redactor = Redactor(session)
    yield from redactor.learn([found.name])
    result, error = None, ""
    if found.result is not None:
        secrets = [] if found.job is None else redactor.secrets(found.job)
        try:
            answer = codec.json_value(found.result)
            result = redactor.result(found.name, answer.get("result"), secrets)
            error = redactor.text(str(answer.get("error", "")), secrets)
        except (AttributeError, *codec.UNREADABLE):
            result = None
    if found.job is None:
        return JobView(job_id, found.name, found.state, result=result, error=error)
    place = found.place if found.state == "waiting" else None
    return of_wire(
        redactor, found.state, found.payload, found.job,
        at=found.at, place=place, key=consume.key_in(found.queue), pool_id=found.pool_id, token=found.token, result=result,
    )  # fmt: skip


def detail(
    session: Session, job_id: str, *, name: str | None = None, quick: bool = False
) -> Steps[JobDetail | None]:
    """One job by its id, in any state, with its timeline and why it is not running; None when it is not found.

    A job that finished is found as long as the history has its attempts: with its name always, without among the newest
    20,000 records.

    Of each queue the first 10,000 are searched, and all of a job type with `deep_lookup`; a quick search stops at 1,000 of each and 10,000 of all.
    """
    found = yield from find.find_job(session.keys, job_id, name, quick=quick)
    if found is None:
        return (yield from _finished(session, job_id, name))
    job = yield from _found(session, job_id, found)
    why = yield from _reason(session, found, job.error)
    now = yield from ask(inspect.now())
    attempts = (yield from attempts_of(session, job_id, job.name)) if _may_have_run(job) else ()
    events = yield from job_story.story(session, job, attempts, now, why)
    words = sentence(why) + (yield from _held_up_words(session, job))
    return JobDetail(job, words, events, *copies(job), why.kind, attempts)


def _may_have_run(job: JobView) -> bool:
    """Whether the history may have attempts of a job. One that an operator ended, or whose process died, may count none."""
    return bool(job.name and (job.attempts or job.deaths or job.snoozes or job.state in ("retry", "dead")))


def _finished(session: Session, job_id: str, name: str | None) -> Steps[JobDetail | None]:
    """A job that is stored nowhere, as the history has it."""
    attempts = yield from attempts_of(session, job_id, name)
    if not attempts:
        return None
    now = yield from ask(inspect.now())
    last = attempts[-1]
    job = JobView(
        job_id, last.name, "finished", source=last.source, enqueued_at=last.enqueued_at, attempt=last.attempt,
        attempts=last.attempt, done_at=last.ended_at, ran=last.ran, pool_id=last.pool_id, parent=last.parent,
    )  # fmt: skip
    why = _finish_of(last, now)
    events = yield from job_story.finished_story(session, job, attempts, now)
    return JobDetail(
        job, sentence(why), events, f"enqueuer.enqueue({job.name!r})  # {_ARGUMENTS_GONE}",
        f"dayjob enqueue {shlex.quote(job.name)}  # {_ARGUMENTS_GONE}", why.kind, attempts,
    )  # fmt: skip


#: The history has no arguments.
_ARGUMENTS_GONE = "add its arguments: they are not kept"


def _finish_of(last: AttemptRecord, now: float) -> JobFinished:
    return JobFinished(last.outcome, max(0.0, now - last.ended_at), last.attempt, last.ran, last.error)


def logs(session: Session, job_id: str, *, name: str | None = None) -> Steps[tuple[LoggedLines, ...]]:
    """What the attempts of a job logged, oldest first, without redacted values: for job types with `keep_logs`."""
    found = yield from ask(history.logs(session.keys, job_id))
    if not found:
        return ()
    texts = [(number, raw.decode("utf-8", "replace")) for number, raw in found]
    stored = yield from find.find_job(session.keys, job_id, name, quick=True)
    if stored is not None and stored.job is not None:
        # The attempt redacted what its job type names. This console may hide more.
        redactor = Redactor(session)
        yield from redactor.learn([stored.name])
        secrets = redactor.secrets(stored.job)
        texts = [(number, redactor.text(one, secrets)) for number, one in texts]
    return tuple(LoggedLines(number, one) for number, one in texts)


def explain(session: Session, job_id: str, *, name: str | None = None) -> Steps[str]:
    """Why a job is not running, in one sentence; where something can be done about it, a second line has the next step."""
    found = yield from find.find_job(session.keys, job_id, name)
    if found is None:
        attempts = yield from attempts_of(session, job_id, name)
        if attempts:
            now = yield from ask(inspect.now())
            return sentence(_finish_of(attempts[-1], now))
        node = yield from waiting_node(session.keys, job_id)
        if node is not None:
            return node_sentence(node)
        return (yield from _callback_words(session, job_id)) or sentence(JobNotFound(job_id))
    job = yield from _found(session, job_id, found)
    words = sentence((yield from _reason(session, found, job.error)))
    return words + (yield from _held_up_words(session, job))


def _held_up_words(session: Session, job: JobView) -> Steps[str]:
    """What the death of a node does to its workflow; "" for other jobs."""
    if job.node is None or job.state != "dead":
        return ""
    waiting = yield from held_up_by(session.keys, job.workflow, job.node)
    return held_up_sentence(job.workflow, job.node, waiting) if waiting else ""


def _callback_words(session: Session, job_id: str) -> Steps[str]:
    """What the callback of a batch waits for; "" if it is none, or was enqueued."""
    batch_id, event = batch_of_callback(job_id)
    found = (yield from batches.read(session.keys, batch_id)) if batch_id else None
    if found is None or event not in found.callbacks or event in found.sent:
        return ""
    return batch_sentence((yield from batch_waits(session.keys, found)))


def _reason(session: Session, found: find.Found, error: str) -> Steps[Reason]:
    why = yield from reason(session.keys, found, error)
    if isinstance(why, JobWaiting) and why.moves:
        return replace(why, per_minute=(yield from recent_rate(session, found.name)) or None)
    return why


def copies(job: JobView) -> tuple[str, str]:
    """The code that enqueues a job like this one: in Python, and as a command."""
    args = job.args if isinstance(job.args, dict) else {}
    pairs = ", ".join(f"{key!r}: {value!r}" for key, value in args.items())
    python = f"enqueuer.enqueue({job.name!r}, **{{{pairs}}})"
    text = codec._write(args).decode()
    command = f"dayjob enqueue {shlex.quote(job.name)}" + (f" --json {shlex.quote(text)}" if args else "")
    if HIDDEN in text:
        python, command = f"{python}  # fill in what is {HIDDEN}", f"{command}  # fill in what is {HIDDEN}"
    elif RESULT_OF_NODE in text:
        python, command = (f"{one}  # fill in the results of other nodes" for one in (python, command))
    elif isinstance(job.args, str):
        # All of them are hidden.
        python = f"enqueuer.enqueue({job.name!r})  # add its arguments: {job.args}"
        command += f"  # add its arguments: {job.args}"
    return python, command

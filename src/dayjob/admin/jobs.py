"""Jobs as operators see them: what may be shown of one, where it is, and its timeline. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dayjob import text
from dayjob.admin.history import attempts_of
from dayjob.admin.metrics import recent_rate
from dayjob.admin.records import LoggedLines
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import (
    AttemptRecord,
    Event,
    EventKind,
    JobDetail,
    JobView,
    PastAttempt,
    Seen,
    State,
)
from dayjob.errors import BadOption
from dayjob.explain.reasons import JobFinished, JobNotFound, JobWaiting, Reason, reason
from dayjob.explain.words import sentence
from dayjob.handlers.redact import HIDDEN
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, find, history, inspect
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


def view(redactor: Redactor, state: State, entry: StoredEntry, *, place: int | None = None) -> JobView:
    """The redacted view of an entry of a queue or sorted set."""
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
    )


def of_wire(
    redactor: Redactor, state: State, payload: bytes, wire: codec.Wire | None, **more: Any
) -> JobView:
    """The redacted view of a job; `more` are the fields that depend on its state."""
    if wire is None:
        return JobView("", "", state, payload=payload, **more)
    secrets = redactor.secrets(wire)
    attempt = 1 + wire.fails + wire.deaths + wire.snoozes
    if state == "done":
        ended = _ended(payload)
        more |= {"done_at": ended.done_at / 1000 if ended.done_at else None, "ran": ended.ran}
    return JobView(
        wire.id, wire.name, state,
        args=redactor.args(wire.name, wire.args), source=wire.source, enqueued_at=_enqueued_at(state, wire), due_at=_due_at(state, wire),
        attempt=attempt, attempts=attempt if state in ("running", "done") else attempt - 1, fails=wire.fails, deaths=wire.deaths, snoozes=wire.snoozes,
        error=redactor.text(wire.err, secrets), trace=redactor.text(wire.trace, secrets), failed_at=float(wire.failed_at) or None,
        expires_at=wire.expires / 1000 if wire.expires else None, unique_key=redactor.text(wire.unique_key, secrets),
        headers=redactor.headers(wire), parent=codec.origin_text(wire.parent), producer=codec.origin_text(wire.producer),
        past=tuple(
            PastAttempt(one.attempt, float(one.at), float(one.ran), redactor.text(one.error, secrets), one.died_in)
            for one in codec.past(wire)
        ),
        payload=payload, **more,
    )  # fmt: skip


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
    """Whether each of these jobs is still where it was seen."""
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

    Of each queue the first 10,000 are searched; a quick search stops at 1,000 of each and 10,000 of all.
    """
    found = yield from find.find_job(session.keys, job_id, name, quick=quick)
    if found is None:
        return (yield from _finished(session, job_id, name))
    job = yield from _found(session, job_id, found)
    why = yield from _reason(session, found, job.error)
    now = yield from ask(inspect.now())
    attempts = (yield from attempts_of(session, job_id, job.name)) if job.attempts and job.name else ()
    return JobDetail(job, sentence(why), timeline(job, now), *copies(job), why.kind, attempts)


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
    events = [*_came_in(job, now), *map(_ended_event, attempts)]
    return JobDetail(
        job, sentence(why), tuple(events), f"enqueuer.enqueue({job.name!r}, ...)",
        f"dayjob enqueue {shlex.quote(job.name)} ...", why.kind, attempts,
    )  # fmt: skip


def _finish_of(last: AttemptRecord, now: float) -> JobFinished:
    return JobFinished(last.outcome, max(0.0, now - last.ended_at), last.attempt, last.ran, last.error)


def _ended_event(one: AttemptRecord) -> Event:
    ran = f" after {text.took(one.ran)}" if one.ran is not None else ""
    error = f": {one.error}" if one.error else ""
    kind: EventKind = "crashed" if one.outcome == "crashed" else "failed" if one.failed else "ended"
    return Event(one.ended_at, f"attempt {one.attempt} {one.outcome.replace('_', ' ')}{ran}{error}", kind)


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
        return sentence(JobNotFound(job_id))
    job = yield from _found(session, job_id, found)
    return sentence((yield from _reason(session, found, job.error)))


def _reason(session: Session, found: find.Found, error: str) -> Steps[Reason]:
    why = yield from reason(session.keys, found, error)
    if isinstance(why, JobWaiting) and why.moves:
        return replace(why, per_minute=(yield from recent_rate(session, found.name)) or None)
    return why


def timeline(job: JobView, now: float) -> tuple[Event, ...]:
    """The known events of a job, in order."""
    # Of two events at the same moment the first stays first: the job was due again after the attempt had failed.
    events = [*map(_ended_badly, job.past), *_came_in(job, now)]
    if job.failed_at is not None and not any(int(one.at) == int(job.failed_at) for one in job.past):
        line = job.error.strip().partition("\n")[0][:200]
        made = job.attempt - 1
        # An operator can move a job to dead between two attempts: that error is no attempt's.
        outside = not made or (job.past and job.past[-1].attempt >= made)
        text_of = line if outside else f"attempt {made} failed: {line}"
        events.append(Event(job.failed_at, text_of, "failed"))
    if job.state == "dead" and job.at is not None:
        # Dead keeps the second alone, which may begin before the attempt of that second failed.
        events.append(Event(max([job.at, *(event.at for event in events)]), "moved to dead", "died"))
    elif job.at is not None:
        words = {"scheduled": "due", "retry": "next attempt", "done": "dropped from done"}
        events.append(
            Event(job.at, words.get(job.state, job.state), "dropped" if job.state == "done" else "due")
        )
    if job.expires_at is not None:
        events.append(Event(job.expires_at, "expires", "expires"))
    # Enqueued comes first, whatever the clock of the enqueuer was.
    return tuple(sorted(events, key=lambda event: (event.kind != "enqueued", event.at)))


def _came_in(job: JobView, now: float) -> list[Event]:
    """When it was enqueued, and when it last became due where that is another moment."""
    events: list[Event] = []
    if job.enqueued_at is not None and job.enqueued_at <= now + 1:
        events.append(Event(job.enqueued_at, "enqueued", "enqueued"))
    due = job.due_at
    if due is None or due > now + 1 or (job.enqueued_at is not None and due <= job.enqueued_at):
        return events
    # The attempt that ended last began after the job was due; those before it ended before.
    before = job.past[:-1] if job.state in ("retry", "dead") else job.past
    if job.enqueued_at is None and not before:
        return [Event(due, "queued", "due")]
    # Side sets keep the second alone, which may begin before the attempt of that second failed.
    due = max(due, before[-1].at) if before and due == int(due) else due
    return [*events, Event(due, "due again" if before else "due", "due")]


def _ended_badly(one: PastAttempt) -> Event:
    if one.died_in:
        return Event(one.at, f"attempt {one.attempt}: {one.error} (pool {one.died_in})", "crashed")
    ran = f" after {text.took(one.ran)}" if one.ran else ""
    return Event(one.at, f"attempt {one.attempt} failed{ran}: {one.error}", "failed")


def copies(job: JobView) -> tuple[str, str]:
    """The code that enqueues a job like this one: in Python, and as a command."""
    args = job.args if isinstance(job.args, dict) else {}
    pairs = ", ".join(f"{key!r}: {value!r}" for key, value in args.items())
    python = f"enqueuer.enqueue({job.name!r}, **{{{pairs}}})"
    text = codec._write(args).decode()
    command = f"dayjob enqueue {shlex.quote(job.name)}" + (f" --json {shlex.quote(text)}" if args else "")
    if HIDDEN in text:
        python, command = f"{python}  # fill in what is {HIDDEN}", f"{command}  # fill in what is {HIDDEN}"
    elif isinstance(job.args, str):
        # All of them are hidden.
        python = f"enqueuer.enqueue({job.name!r})  # add its arguments: {job.args}"
        command += f"  # add its arguments: {job.args}"
    return python, command

"""The story of one job: when it was enqueued, where each attempt started and how it ended, what operators did, what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dayjob import text
from dayjob.admin.records import AttemptRecord
from dayjob.admin.session import Session, read_audit
from dayjob.admin.timeline import abouts
from dayjob.admin.views import Event, EventKind, JobView, PastAttempt
from dayjob.explain.reasons import JobRunning, Reason
from dayjob.explain.words import place
from dayjob.store.steps import Steps

#: How many actions of operators are shown.
MAX_ACTIONS = 50


def story(
    session: Session, job: JobView, attempts: Sequence[AttemptRecord], now: float, why: Reason
) -> Steps[tuple[Event, ...]]:
    """The known events of a job that is stored, in order. `attempts` are those that the history has, `why` is why it does not run."""
    ended = {one.attempt: one for one in attempts}
    around = yield from _around(session, job.id, attempts)
    return _in_order([*around, *_stored_events(job, ended, now), *_runs(job, why, now)])


def _runs(job: JobView, why: Reason, now: float) -> list[Event]:
    """The start of the attempt that runs."""
    if not isinstance(why, JobRunning):
        return []
    return [_started(now - why.seconds, job.attempt, place(why.pool), why.pool.tag)]


def _started(at: float, attempt: int, where: str, tag: str) -> Event:
    return Event(at, f"attempt {attempt} started on {where}" + (f" ({tag})" if tag else ""), "started")


def finished_story(
    session: Session, job: JobView, attempts: Sequence[AttemptRecord], now: float
) -> Steps[tuple[Event, ...]]:
    """The same of a job that is stored nowhere any more."""
    around = yield from _around(session, job.id, attempts)
    return _in_order([*around, *_came_in(job, now), *map(_ended_event, attempts)])


def _in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    # Enqueued comes first, whatever the clock of the enqueuer was.
    return tuple(sorted(events, key=lambda event: (event.kind != "enqueued", event.at)))


def _around(session: Session, job_id: str, attempts: Sequence[AttemptRecord]) -> Steps[list[Event]]:
    """Where attempts started, and what operators did to the job."""
    entries = (yield from read_audit(session, about=job_id, size=MAX_ACTIONS)) if job_id else ()
    events = [
        Event(one.at, f"{one.actor}: {one.action}: {one.result}", "action")
        for one in entries
        if one.subject.split(" ")[:2] == ["job", job_id]
    ]
    if any(one.started_at is not None for one in attempts):
        about = yield from abouts(session, ended=True)
        for one in attempts:
            if one.started_at is not None:
                pool = about.get(one.pool_id)
                where = f"{pool.host}/{pool.pid}" if pool else f"pool {one.pool_id}"
                events.append(_started(one.started_at, one.attempt, where, one.tag))
    return events


def _recorded(second: float, record: AttemptRecord | None) -> AttemptRecord | None:
    """The record of an attempt that ended in this second; None if the history has none."""
    return record if record is not None and abs(record.ended_at - second) < 2 else None


def _precise(second: float, record: AttemptRecord | None) -> float:
    """When an attempt ended: a payload keeps the second, a record of the history the millisecond."""
    found = _recorded(second, record)
    return second if found is None else found.ended_at


def _ended_event(one: AttemptRecord) -> Event:
    ran = f" after {text.took(one.ran)}" if one.ran is not None else ""
    error = f": {one.reason}" if one.reason else ""
    kind: EventKind = "crashed" if one.outcome == "crashed" else "failed" if one.failed else "ended"
    return Event(one.ended_at, f"attempt {one.attempt} {one.outcome.replace('_', ' ')}{ran}{error}", kind)


def _stored_events(job: JobView, ended: dict[int, AttemptRecord], now: float) -> list[Event]:
    """What the payload of a job has: when it was enqueued and due, how its attempts ended, and what comes next."""
    # Of two events at the same moment the first stays first: the job was due again after the attempt had failed.
    events = [*(_ended_badly(one, ended) for one in job.past), *_came_in(job, now)]
    if job.failed_at is not None and not any(int(one.at) == int(job.failed_at) for one in job.past):
        line = job.error.strip().partition("\n")[0][:200]
        made = job.attempt - 1
        # An operator can move a job to dead between two attempts: that error is no attempt's.
        outside = not made or (job.past and job.past[-1].attempt >= made)
        text_of = line if outside else f"attempt {made} failed: {line}"
        at = job.failed_at if outside else _precise(job.failed_at, ended.get(made))
        events.append(Event(at, text_of, "failed"))
    if job.state == "done" and job.done_at is not None:
        ran = f" after {text.took(job.ran)}" if job.ran is not None else ""
        events.append(Event(job.done_at, f"attempt {job.attempt} completed{ran}", "ended"))
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
    return events


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


def _ended_badly(one: PastAttempt, ended: dict[int, AttemptRecord]) -> Event:
    at = _precise(one.at, ended.get(one.attempt))
    if one.died_in:
        return Event(at, f"attempt {one.attempt}: {one.error} (pool {one.died_in})", "crashed")
    # The payload has when it was settled, a moment later.
    record = _recorded(one.at, ended.get(one.attempt))
    seconds = one.ran if record is None or record.ran is None else record.ran
    ran = f" after {text.took(seconds)}" if seconds else ""
    return Event(at, f"attempt {one.attempt} failed{ran}: {one.error}", "failed")

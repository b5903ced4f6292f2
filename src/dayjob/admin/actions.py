"""Actions on one job or on a selection. verbs.py lists which are allowed. Each names the job that was seen, and where.

If the job has moved on, nothing is changed. Actions on everything that matches are in bulk.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dayjob.admin import verbs
from dayjob.admin.bin import new_deletion
from dayjob.admin.jobs import locate, source_of
from dayjob.admin.session import Session, outcome
from dayjob.admin.verbs import Verb, VerbRow
from dayjob.admin.views import BrokenEntry, JobView, Outcome, OutcomeKind, Seen, State
from dayjob.errors import BadArguments, BadOption, Rejected
from dayjob.explain.words import quoted
from dayjob.handlers.arguments import encode_unchecked
from dayjob.handlers.describe import misfit
from dayjob.handlers.redact import HIDDEN, still_redacted
from dayjob.job import new_id
from dayjob.names import check_name
from dayjob.store import codec
from dayjob.store.ops import inspect, job_types, operate, pools, produce
from dayjob.store.ops.bin import Deletion, ask_bin
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

Job = JobView | Seen | str

#: How many jobs a selection may have.
MAX_SELECTED = 500

#: The outcome of an action, and the sentence for it.
Tried = tuple[OutcomeKind, str]

_WHERE: dict[State, str] = {
    "waiting": "waits in its queue", "running": "is running", "scheduled": "is scheduled", "retry": "is in retry",
    "dead": "is dead", "done": "is done",
}  # fmt: skip


def retry(session: Session, job: Job, *, state: State | None = None) -> Steps[Outcome]:
    """Put a dead job back into its queue as if it had never failed. A job in retry or scheduled runs now."""
    return (yield from act(session, "retry", job, state))


def delete(session: Session, job: Job, *, state: State | None = None, undo: bool = True) -> Steps[Outcome]:
    """Delete a job that is not running, and release its unique key. The bin keeps it for ten minutes; not with undo=False."""
    return (yield from act(session, "delete", job, state, undo=undo))


def kill(session: Session, job: Job, *, state: State | None = None) -> Steps[Outcome]:
    """Move a waiting, scheduled or retried job to dead. With state="running", end a running one.

    A running job goes to dead and never runs again. If it does not stop within the grace of its pool, the parent of
    `dayjob worker` replaces its process, and the other jobs in it go back to their queues.
    """
    return (yield from act(session, "kill", job, state))


def run_now(session: Session, job: Job, *, state: State | None = None) -> Steps[Outcome]:
    """Move a job of scheduled or retry to its queue before it is due."""
    return (yield from act(session, "run_now", job, state))


def cancel(session: Session, job: Job, *, state: State | None = None, undo: bool = True) -> Steps[Outcome]:
    """End a job: one that waits is deleted, one that runs is stopped at its pool's next heartbeat. Counted as cancelled."""
    return (yield from act(session, "cancel", job, state, undo=undo))


def selection(
    session: Session, verb: Verb, jobs: Sequence[Job], *, undo: bool = True
) -> Steps[list[Outcome]]:
    """The same action on each job of a selection, 500 at most, undone together. Raises BadOption."""
    if len(jobs) > MAX_SELECTED:
        raise BadOption(f"{len(jobs):,} jobs: a selection has {MAX_SELECTED} at most; use a filter for more")
    outcomes: list[Outcome] = []
    deletion = _deletion(session, verb, counted(len(jobs), "selected job"), undo=undo)
    for job in jobs:
        outcomes += [(yield from act(session, verb, job, None, undo=undo, deletion=deletion))]
    return outcomes


def _deletion(session: Session, verb: Verb, subject: str, *, undo: bool) -> Deletion | None:
    return new_deletion(session, verb, subject, undo=undo) if verb in ("delete", "cancel") else None


def act(
    session: Session,
    verb: Verb,
    job: Job,
    state: State | None,
    *,
    undo: bool = True,
    deletion: Deletion | None = None,
) -> Steps[Outcome]:
    """One action on one job. If `state` or the job names a state, the action is done only if the job is still in it.

    `deletion` is that of the selection to which the job belongs.
    """
    found, subject, kind, message = yield from meant(session, verbs.row("job", verb), job, state)
    if found is None:
        return (yield from outcome(session, verb, subject, kind, message))
    if kind == "done":
        deletion = deletion or _deletion(session, verb, subject, undo=undo)
        kind, message = yield from _DO[verb](session, found, deletion)
    if kind == "moved" and not message:
        message = yield from moved_on(session, found)
    # A running job that is cancelled does not go to the bin.
    binned = deletion.id if deletion is not None and found.state != "running" else ""
    return (yield from outcome(session, verb, subject, kind, message, undo=binned))


def meant(
    session: Session, row: VerbRow, job: Job, state: State | None
) -> Steps[tuple[JobView | None, str, OutcomeKind, str]]:
    """The job that is meant and what it is called in the audit; why the verb cannot be done to it, or `done` if it can."""
    expected = state or (job.state if isinstance(job, Seen) else None)
    job_id = job if isinstance(job, str) else job.id
    found = yield from locate(session, job)
    subject = f"job {job_id or '(without an id)'}"
    if found is None:
        message = f"No {subject} was found: it completed, was deleted or never existed."
        return None, subject, "not_found", message
    subject = f"{subject} ({found.name or 'unreadable'}, {found.state})"
    return found, subject, *_refusal(row, found.state, expected)


def _refusal(row: VerbRow, state: State, expected: State | None) -> Tried:
    """Why a verb is not allowed for a job in this state; `done` if it is."""
    if expected is not None and state != expected:
        return "moved", f"It has moved on: it was {expected}, now it {_WHERE[state]}."
    if state not in row.states:
        return "not_allowed", f"It {_WHERE[state]}. {row.label} is for jobs that are {_listed(row.states)}."
    if state in row.named and expected != state:
        return (
            "not_allowed",
            f"It {_WHERE[state]}. To {row.name} it, name its state (--{state}, state={state}).",
        )
    return "done", ""


def _listed(states: Sequence[str]) -> str:
    words = ["in retry" if state == "retry" else state for state in states]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def moved_on(session: Session, job: JobView) -> Steps[str]:
    """Where a job is now, in words."""
    now_at = (yield from locate(session, job.id)) if job.id else None
    where = f"now it {_WHERE[now_at.state]}" if now_at else "now it is not found"
    return f"It has moved on: it was {job.state}, {where}."


# What each verb does, in each state that the table allows. "moved" without a sentence: the job was gone.

_GONE: Tried = ("moved", "")


def _retry(session: Session, job: JobView, _: Deletion | None) -> Steps[Tried]:
    if job.state != "dead":
        return (yield from _run_now(session, job, None))
    now = yield from ask(inspect.now())
    answer = yield from ask(operate.revive(session.keys, job.payload, now=now))
    if answer.fate == "taken":
        return "taken", f"It stays dead: job {answer.holder} has its unique key."
    return ("done", f"Back in the queue {quoted(job.name)}.") if answer.fate == "moved" else _GONE


def _run_now(session: Session, job: JobView, _: Deletion | None) -> Steps[Tried]:
    now = yield from ask(inspect.now())
    source = source_of(session.keys, job.state)
    moved = yield from ask(operate.run_now(session.keys, source, [job.payload], now=now))
    return ("done", f"In the queue {quoted(job.name)} now.") if moved else _GONE


def _delete(session: Session, job: JobView, deletion: Deletion | None) -> Steps[Tried]:
    if not job.payload:
        return "not_allowed", "Only its result is kept, and expires by itself."
    return _DELETED if (yield from _remove(session, job, "deleted", deletion)) else _GONE


def _remove(session: Session, job: JobView, count: operate.Counter, deletion: Deletion | None) -> Steps[bool]:
    """Remove a waiting job; false if it was gone."""
    keys, payload = session.keys, job.payload
    if job.state == "waiting":
        op = operate.unqueue(keys, job.queue, payload, job.place or 0, count=count, deletion=deletion)
    else:
        op = operate.delete(keys, source_of(keys, job.state), payload, count=count, deletion=deletion)
    return bool((yield from ask_bin(op)))


def _kill_running(session: Session, job: JobView) -> Steps[Tried]:
    if not (yield from ask(operate.cancel(session.keys, job.pool_id, job.token, kill=True))):
        return _GONE
    registered = yield from pools.pools(session.keys)
    status = next((one.status for one in registered if one.id == job.pool_id), None)
    message = f"Pool {job.pool_id} stops it at its next heartbeat and moves it to dead."
    if status is not None and status.supervised:
        return "done", f"{message} If it does not stop within the grace, its process is replaced."
    where = "" if status is None else f" {status.pid} on {status.host}"
    return (
        "done",
        f"{message} If it does not stop, end its process{where} by hand: that pool has no parent process.",
    )


def _kill(session: Session, job: JobView, _: Deletion | None) -> Steps[Tried]:
    if job.state == "running":
        return (yield from _kill_running(session, job))
    now = yield from ask(inspect.now())
    keys, keeping = session.keys, (yield from job_types.keeping(session.keys, [job.name]))
    if job.state == "waiting":
        place = job.place or 0
        killed = operate.unqueue(keys, job.queue, job.payload, place, now=now, kill=True, keeping=keeping)
    else:
        why = f"killed by {session.actor}"
        killed = operate.kill(
            keys, source_of(keys, job.state), job.payload, now=now, why=why, keeping=keeping
        )
    dead = yield from ask(killed)
    return ("done", "Dead now.") if dead else _GONE


def _cancel(session: Session, job: JobView, deletion: Deletion | None) -> Steps[Tried]:
    if job.state == "running":
        asked = yield from ask(operate.cancel(session.keys, job.pool_id, job.token))
        return ("done", f"Cancelling: pool {job.pool_id} stops it at its next heartbeat.") if asked else _GONE
    return ("done", "Cancelled.") if (yield from _remove(session, job, "cancelled", deletion)) else _GONE


_DO: dict[Verb, Callable[[Session, JobView, Deletion | None], Steps[Tried]]] = {
    "retry": _retry, "delete": _delete, "kill": _kill, "run_now": _run_now, "cancel": _cancel,
}  # fmt: skip


# Broken entries, new jobs.

_DELETED: Tried = ("done", "Deleted.")
_REPAIRED: Tried = ("done", "In its queue now.")
_ENTRY_GONE: Tried = ("moved", "It is not there any more.")


def delete_broken(session: Session, entry: BrokenEntry, *, undo: bool = True) -> Steps[Outcome]:
    """Delete an entry that could not be read. The bin keeps it for ten minutes; not with undo=False."""
    subject = f"broken entry {entry.index}"
    deletion = new_deletion(session, "delete", subject, undo=undo)
    gone = yield from ask_bin(operate.delete_broken(session.keys, entry, deletion=deletion))
    kind, message = _DELETED if gone else _ENTRY_GONE
    binned = deletion.id if deletion else ""
    return (yield from outcome(session, "delete_broken", subject, kind, message, undo=binned))


def repair(session: Session, entry: BrokenEntry, payload: bytes) -> Steps[Outcome]:
    """Put a broken entry into its queue as `payload`, the whole job that it should have been.

    Raises BadOption if a hidden value is still `[redacted]` in it. The original value is not put back: an operator who
    must not see it could send it elsewhere by changing the rest of the job.
    """
    left = still_redacted(payload, entry.entry)
    if left:
        raise BadOption(
            f"the value of {', '.join(quoted(key) for key in left)} is still {HIDDEN}, and would be stored like that. "
            "Nothing was changed.\n    Write the real value, or leave the entry as it is."
        )
    moved = yield from ask(operate.repair(session.keys, entry, payload))
    kind, message = _REPAIRED if moved else _ENTRY_GONE
    return (yield from outcome(session, "repair", f"broken entry {entry.index}", kind, message))


def enqueue(
    session: Session,
    name: str,
    args: dict[str, Any] | None = None,
    *,
    delay: float = 0.0,
    source: str | int | None = None,
    check: bool = True,
) -> Steps[Outcome]:
    """Enqueue a job by name; the subject of the outcome has its id. Raises BadArguments, BadOption, StoreError.

    Its arguments are checked against the job type, if a pool announced it; `check=False` skips that.
    """
    check_name(name)
    raw = encode_unchecked(name, args or {})
    if check:
        yield from _check(session, name, args or {})
    now = yield from ask(inspect.now())
    job_id = new_id()
    extras = {} if source is None else {"source": source}
    payload = codec.write(codec.quoted(name), job_id, now, raw, extras)
    slot = produce.Slot(new_id(), 1)
    if delay > 0:
        when = produce.When("in", round(delay * 1000))
        yield from ask(produce.schedule(session.keys, slot, name, [payload], when, introduce=True))
    else:
        yield from ask(produce.enqueue(session.keys, slot, name, [payload], introduce=True))
    message = "Scheduled." if delay > 0 else f"In the queue {quoted(name)}."
    return (yield from outcome(session, "enqueue", f"job {job_id} ({name})", "done", message))


def _check(session: Session, name: str, args: dict[str, Any]) -> Steps[None]:
    try:
        known = (yield from ask(job_types.some(session.keys, [name])))[0]
    except Rejected:
        return
    problem = "" if known is None else misfit(known.described, args)
    if known is not None and problem:
        raise BadArguments(f"{name}: {problem}\n    {known.described.signature}")

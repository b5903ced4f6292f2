"""Changes of a job that stays: when it is due, and under which name it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dayjob.admin import verbs
from dayjob.admin.actions import Job, meant, moved_on
from dayjob.admin.bulk import BulkAction, Report, Watched, over_queues
from dayjob.admin.filters import Filter, filter_of
from dayjob.admin.jobs import source_of
from dayjob.admin.matcher import Matcher
from dayjob.admin.session import Session, outcome, write_audit
from dayjob.admin.views import Outcome, State, Tally
from dayjob.errors import BadArguments, BadOption, Rejected
from dayjob.explain.words import quoted
from dayjob.handlers.describe import Described, misfit
from dayjob.names import check_name
from dayjob.store import codec
from dayjob.store.ops import job_types, operate
from dayjob.store.steps import Steps, ask
from dayjob.text import counted


def reschedule(
    session: Session,
    job: Job,
    *,
    at: float | None = None,
    delay: float | None = None,
    state: State | None = None,
) -> Steps[Outcome]:
    """Change when a job of scheduled or retry is due: `at` in seconds since the epoch, or `delay` in seconds from now.

    Redis time decides. Raises BadOption.
    """
    if (at is None) == (delay is None):
        raise BadOption("when? Give a moment or a delay, not both")
    amount = at if at is not None else delay
    if amount is None or not 0 <= amount < 1e12:
        raise BadOption(f"{amount!r} seconds: the time is out of range")
    row = verbs.row("due_job", "reschedule")
    found, subject, kind, message = yield from meant(session, row, job, state)
    if found is not None and kind == "done":
        source = source_of(session.keys, found.state)
        mode: Literal["in", "at"] = "at" if at is not None else "in"
        due = yield from ask(operate.reschedule(session.keys, source, found.payload, mode, amount))
        message = "" if due is None else "Due at another time now."
        if due is None:
            kind, message = "moved", (yield from moved_on(session, found))
    return (yield from outcome(session, row.name, subject, kind, message))


def move(
    session: Session, job: Job, to: str, *, state: State | None = None, check: bool = True
) -> Steps[Outcome]:
    """Move a waiting job to the end of another queue, whose job type will run it. Raises BadArguments, BadOption.

    Its arguments are checked against what pools announced of that name, if any did; not with check=False.
    """
    check_name(to)
    row = verbs.row("waiting_job", "move")
    found, subject, kind, message = yield from meant(session, row, job, state)
    if found is not None and kind == "done":
        if found.name == to:
            raise BadOption(f"the job waits in {quoted(to)} already: give another name")
        described = (yield from _described(session, to)) if check else None
        problem = _problem(described, found.payload)
        if problem:
            raise BadArguments(
                f"{to}: {problem}. Nothing was changed; check=False (--no-check) moves it anyway"
            )
        jobs = [(found.place or 0, found.payload)]
        answer = yield from ask(operate.rename(session.keys, found.queue, jobs, to))
        message = f"In the queue {quoted(to)} now."
        if answer.holder is not None:
            kind, message = "taken", f"It stays: job {answer.holder} has its unique key."
        elif not answer.count:
            kind, message = "moved", (yield from moved_on(session, found))
    return (yield from outcome(session, row.name, subject, kind, message))


def move_all(
    session: Session,
    to: str,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int | None = None,
    check: bool = True,
    progress: Report | None = None,
) -> Steps[Tally]:
    """Move every waiting job that matches to another name, `most` at most, in steps of 100. Raises BadOption.

    They keep their order. Jobs whose arguments do not fit stay. Of a queue the first 10,000 jobs are searched.
    """
    check_name(to)
    wanted = filter_of(where)
    queue = name or wanted.name or ""
    if queue == to:
        raise BadOption(f"the jobs wait in {quoted(to)} already: give another name")
    if not queue and wanted.empty:
        raise BadOption("which jobs? Give the name of a queue, or a condition")
    described = (yield from _described(session, to)) if check else None
    unfit = 0

    def take(source: str, jobs: Sequence[tuple[int, bytes]]) -> Steps[int]:
        nonlocal unfit
        fitting = [one for one in jobs if not _problem(described, one[1])]
        unfit += len(jobs) - len(fitting)
        if not fitting or source.partition("|")[0] == to:
            return 0
        return (yield from ask(operate.rename(session.keys, source, fitting, to))).count

    subject = f"{queue or 'jobs'} in waiting" + ("" if wanted.empty else f" where {wanted}") + f" to {to}"
    matcher = Matcher(session, "waiting", wanted)
    yield from matcher.open()
    audited = yield from write_audit(session, "move all", subject, "begun")
    done = yield from over_queues(
        session, BulkAction("move", take=take), queue, matcher, most, Watched(progress)
    )
    message = f"{counted(done.matched, 'job')} matched, {done.changed:,} moved to {quoted(to)}."
    if unfit:
        message += f" The arguments of {unfit:,} do not fit: they stay."
    audited = (yield from write_audit(session, "move all", subject, message)) and audited
    return Tally(done.searched, done.matched, done.changed, message, audited)


def _described(session: Session, name: str) -> Steps[Described | None]:
    """What pools announced of a name; None where no pool did, or that cannot be read."""
    try:
        known = (yield from ask(job_types.some(session.keys, [name])))[0]
    except Rejected:
        return None
    return None if known is None else known.described


def _problem(described: Described | None, payload: bytes) -> str:
    """Which argument of a job does not fit a job type; "" if all do. Values are left out: they may be secret."""
    try:
        args = codec.json_value(codec.read(payload).args)
    except (codec.Broken, *codec.UNREADABLE):
        return "the entry cannot be read"
    if described is None:
        return ""
    if args is not None and not isinstance(args, dict):
        return "its arguments are no object"
    return misfit(described, args or {}).partition(": ")[0]

"""Deeds: what can be done from the terminal, under which key, and what is asked before. Each names what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from dayjob.admin.actions import Verb
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.filters import Filter
from dayjob.admin.views import (
    BusyWorker,
    FailureGroup,
    JobView,
    Outcome,
    Periodic,
    Pool,
    Progress,
    QueueDetail,
    QueueView,
    Seen,
    State,
    Tally,
)
from dayjob.text import counted

Report = Callable[[Progress], None]
Do = Callable[[AsyncAdmin, Any, Report], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done to what is under the cursor."""

    key: str
    #: What the line of keys says.
    label: str
    #: What is asked before; "" where the deed cannot be done to this subject.
    question: Callable[[Any], str]
    do: Do
    #: What must be typed to confirm; "" when a plain yes will do.
    typed: Callable[[Any], str] = lambda _: ""
    #: The verb, for deeds that can also be done to marked jobs and to all that match.
    verb: Verb | None = None


def said(outcome: Outcome | Tally) -> str:
    """What became of it, in words."""
    return f"{outcome.subject}: {outcome.says}" if isinstance(outcome, Outcome) else outcome.says


# Jobs.

_WORDS: dict[Verb, str] = {
    "retry": "Retry",
    "delete": "Delete",
    "kill": "Kill",
    "run_now": "Run",
    "cancel": "Cancel",
}
#: What each verb comes to, for those who use it the first time.
_EFFECTS: dict[Verb, str] = {
    "retry": "back to its queue, as if it had never failed", "delete": "it is gone for good", "kill": "it moves to dead",
    "run_now": "it moves to its queue now", "cancel": "a running job is stopped, a waiting one is removed",
}  # fmt: skip


def quoted(name: str) -> str:
    """A name, set apart from the sentence around it."""
    return f'"{name}"'


def word(verb: Verb) -> str:
    """A verb as people say it."""
    return _WORDS[verb]


def seen(subject: Any) -> Seen | None:
    """The job that is meant, as it was seen."""
    if isinstance(subject, JobView):
        return subject.seen
    if isinstance(subject, BusyWorker):
        return Seen(subject.worker.id, "running", None, subject.worker.name)
    return None


def _on_job(key: str, label: str, verb: Verb, *states: State) -> Action:
    def question(subject: Any) -> str:
        job = seen(subject)
        if (
            job is None
            or not (job.id or isinstance(subject, JobView))
            or (states and job.state not in states)
        ):
            return ""
        return f"{word(verb)} {quoted(job.name) if job.name else 'the unreadable entry'} {job.id}? ({_EFFECTS[verb]})"

    async def do(admin: AsyncAdmin, subject: Any, _: Report) -> str:
        job = seen(subject)
        if job is None:
            return "There is no job under the cursor."
        # One without an id can only be named by its bytes.
        act = getattr(admin, verb)
        return said(await act(job if job.id else subject, state=job.state))

    return Action(key, label, question, do, verb=verb)


RETRY = (
    _on_job("r", "run now", "run_now"), _on_job("d", "delete", "delete"), _on_job("x", "kill", "kill"),
)  # fmt: skip
SCHEDULED = RETRY
DEAD = (_on_job("r", "retry", "retry"), _on_job("d", "delete", "delete"))
WAITING = (_on_job("d", "delete", "delete"), _on_job("x", "kill", "kill"))
RUNNING = (_on_job("c", "cancel", "cancel"),)
ONE_JOB = (
    _on_job("r", "retry", "retry", "dead"), _on_job("r", "run now", "run_now", "retry", "scheduled"),
    _on_job("d", "delete", "delete", "dead", "retry", "scheduled", "waiting", "done"), _on_job("x", "kill", "kill", "retry", "scheduled", "waiting"),
    _on_job("c", "cancel", "cancel", "running", "waiting", "scheduled", "retry"),
)  # fmt: skip


# Groups of failures.


def _on_group(key: str, label: str, verb: Verb) -> Action:
    def question(subject: Any) -> str:
        if not isinstance(subject, FailureGroup):
            return ""
        return f"{word(verb)} {counted(subject.count, 'job')} of {quoted(subject.name)} that failed with {subject.kind!r}?"

    async def do(admin: AsyncAdmin, subject: FailureGroup, report: Report) -> str:
        where = Filter(name=subject.name, kind=subject.kind)
        tallies = [await admin.apply(verb, state, where=where, progress=report) for state in _states(subject)]
        changed = sum(one.changed for one in tallies)
        return f"{quoted(subject.name)}: {counted(sum(one.matched for one in tallies), 'job')} matched, {changed:,} changed."

    return Action(key, label, question, do)


def _states(group: FailureGroup) -> tuple[State, ...]:
    found: list[State] = []
    if group.dead:
        found.append("dead")
    if group.retry:
        found.append("retry")
    return tuple(found)


GROUP = (_on_group("r", "retry all of this kind", "retry"), _on_group("d", "delete all", "delete"))


# Queues.


def _queue(subject: Any) -> QueueView | None:
    if isinstance(subject, QueueDetail):
        return subject.view
    return subject if isinstance(subject, QueueView) else None


def _ask_pause(subject: Any) -> str:
    view = _queue(subject)
    if view is None:
        return ""
    verb = "Resume" if view.queue.paused else "Pause"
    return f"{verb} the queue {quoted(view.queue.name)}?" + (
        "" if view.queue.paused else " (what runs goes on)"
    )


async def _pause(admin: AsyncAdmin, subject: Any, _: Report) -> str:
    view = _queue(subject)
    if view is None:
        return "There is no queue under the cursor."
    act = admin.resume if view.queue.paused else admin.pause
    return said(await act(view.queue.name))


def _ask_purge(subject: Any) -> str:
    view = _queue(subject)
    if view is None or not view.queue.size:
        return ""
    return f"Delete {counted(view.queue.size, 'job')} waiting in {quoted(view.queue.name)}, for good?"


async def _purge(admin: AsyncAdmin, subject: Any, report: Report) -> str:
    view = _queue(subject)
    if view is None:
        return "There is no queue under the cursor."
    return f"queue {quoted(view.queue.name)}: {said(await admin.purge(view.queue.name, progress=report))}"


def _purge_word(subject: Any) -> str:
    view = _queue(subject)
    return view.queue.name if view else ""


QUEUE = (
    Action("p", "pause/resume", _ask_pause, _pause),
    Action("u", "purge", _ask_purge, _purge, _purge_word),
)
ONE_QUEUE = QUEUE


# Schedules.


def _ask_run(subject: Any) -> str:
    return f"Enqueue {quoted(subject.job)} now, beside its ticks?" if isinstance(subject, Periodic) else ""


async def _run_schedule(admin: AsyncAdmin, subject: Periodic, _: Report) -> str:
    return said(await admin.run_schedule(subject.name))


def _ask_pause_schedule(subject: Any) -> str:
    if not isinstance(subject, Periodic):
        return ""
    return f"{'Resume' if subject.paused else 'Pause'} the schedule {quoted(subject.name)}?"


async def _pause_schedule(admin: AsyncAdmin, subject: Periodic, _: Report) -> str:
    act = admin.resume_schedule if subject.paused else admin.pause_schedule
    return said(await act(subject.name))


SCHEDULE = (
    Action("r", "run now", _ask_run, _run_schedule), Action("p", "pause/resume", _ask_pause_schedule, _pause_schedule),
)  # fmt: skip


# Pools.


def _on_pool(key: str, label: str, verb: Literal["quiet", "stop"], what: str) -> Action:
    def question(subject: Any) -> str:
        if not isinstance(subject, Pool) or subject.status is None:
            return ""
        status = subject.status
        if status.stopping or (verb == "quiet" and status.quiet):
            return ""
        return f"{what} {status.host}, pid {status.pid}?"

    async def do(admin: AsyncAdmin, subject: Pool, _: Report) -> str:
        return said(await (admin.quiet if verb == "quiet" else admin.stop)(subject.id))

    return Action(key, label, question, do)


POOL = (
    _on_pool("z", "quiet", "quiet", "Fetch nothing more, and let what runs go on: the pool of"),
    _on_pool("s", "stop", "stop", "Stop, as by a signal, and start it no more: the pool of"),
)

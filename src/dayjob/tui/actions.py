"""The verbs of admin/verbs.py as keys of the terminal view: what each asks first, and what it does to what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.verbs import Verb
from dayjob.admin.views import (
    BrokenEntry,
    BulkProgress,
    BusyWorker,
    DeletionView,
    FailureGroup,
    JobView,
    Outcome,
    Periodic,
    Pool,
    QueueDetail,
    QueueView,
    Seen,
    State,
    Tally,
)
from dayjob.admin.views.batches import BatchView
from dayjob.admin.views.workflows import NodeView, WorkflowView
from dayjob.errors import BadOption
from dayjob.explain.words import quoted
from dayjob.text import counted, read_span

Report = Callable[[BulkProgress], None]
#: Takes the subject, and the text that was entered where the action asks for one.
Do = Callable[[AsyncAdmin, Any, Report, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done to what is under the cursor."""

    key: str
    #: What the line of keys shows.
    label: str
    #: What is asked first; "" where this cannot be done to the subject.
    question: Callable[[Any], str]
    do: Do
    #: What must be typed to confirm; "" when a plain yes will do.
    typed: Callable[[Any], str] = lambda _: ""
    #: The text to begin with where a text is asked for instead of a yes.
    entry: Callable[[Any], str] | None = None
    #: The verb, for actions that can also be done to marked jobs and to all that match.
    verb: Verb | None = None


#: Follows the result of an action that can be undone.
UNDO_HINT = f"Press {verbs.row('deletion', 'undo').key} to undo it."


def result_of(outcome: Outcome | Tally) -> str:
    """What became of it, in words."""
    words = f"{outcome.subject}: {outcome.message}" if isinstance(outcome, Outcome) else outcome.message
    return f"{words} {UNDO_HINT}" if outcome.undo else words


# Jobs.


def seen(subject: Any) -> Seen | None:
    """The job that is meant, as it was seen."""
    if isinstance(subject, JobView):
        return subject.seen
    if isinstance(subject, BusyWorker):
        return Seen(subject.worker.id, "running", None, subject.worker.name)
    return None


def _on_job(verb: Verb) -> Action:
    row = verbs.row("job", verb)

    def question(subject: Any) -> str:
        job = seen(subject)
        if job is None or not (job.id or isinstance(subject, JobView)) or job.state not in row.offered:
            return ""
        return (
            f"{row.label} {quoted(job.name) if job.name else 'the unreadable entry'} {job.id}?\n{row.effect}"
        )

    async def do(admin: AsyncAdmin, subject: Any, _: Report, __: str) -> str:
        job = seen(subject)
        if job is None:
            return "There is no job under the cursor."
        # One without an id can only be named by its bytes.
        act = getattr(admin, verb)
        return result_of(await act(job if job.id else subject, state=job.state))

    return Action(row.key, row.label.lower(), question, do, verb=verb)


#: For a job in any state.
ONE_JOB = tuple(map(_on_job, get_args(Verb)))


def on_jobs(state: State) -> tuple[Action, ...]:
    """What can be done to jobs in this state."""
    names = [row.name for row in verbs.offered("job", state)]
    return tuple(action for action in ONE_JOB if action.verb in names)


def _with_text(
    target: verbs.VerbTarget, name: str, entry: Callable[[Any], str], act: Callable[..., Any]
) -> Action:
    row = verbs.row(target, name)

    def question(subject: Any) -> str:
        job = seen(subject)
        if job is None or not job.id or job.state not in row.offered:
            return ""
        return f"{row.label} {quoted(job.name or '')} {job.id}?\n{row.effect}"

    async def do(admin: AsyncAdmin, subject: Any, _: Report, given: str) -> str:
        return result_of(await act(admin, seen(subject), given))

    return Action(row.key, row.label.lower(), question, do, entry=entry)


async def _reschedule(admin: AsyncAdmin, job: Seen, given: str) -> Outcome:
    return await admin.reschedule(job, delay=read_span(given, "when"))


async def _move(admin: AsyncAdmin, job: Seen, given: str) -> Outcome:
    return await admin.move(job, given)


#: For one job, with a text: a span from now, another name.
RESCHEDULE = _with_text("due_job", "reschedule", lambda _: "5m", _reschedule)
MOVE = _with_text("waiting_job", "move", lambda subject: (seen(subject) or Seen("")).name or "", _move)


# Deletions.


async def undo_question(admin: AsyncAdmin) -> tuple[str, DeletionView | None]:
    """What is asked before the last deletion of this operator is undone, and that deletion; None where there is none."""
    row, found = verbs.row("deletion", "undo"), await admin.bin()
    last = next((one for one in found if one.actor == admin.actor), None)
    if last is None:
        others = f" Others made {counted(len(found), 'deletion')}: `dayjob bin ls`." if found else ""
        return f"You deleted nothing in the last ten minutes.{others}", None
    return (
        f"{row.label} the {last.action} of {last.subject} ({counted(last.jobs, 'job')})?\n{row.effect}",
        last,
    )


async def undo(admin: AsyncAdmin, subject: DeletionView, report: Report, _: str) -> str:
    """Undo a deletion."""
    return result_of(await admin.undo(subject.id, progress=report))


# All jobs that match.


async def retry_in_waves(admin: AsyncAdmin, where: str, report: Report, _: str) -> str:
    """Retry the dead jobs that match in waves."""
    return result_of(await admin.retry_in_waves(where=where, progress=report))


# Groups of failures.


def _on_group(verb: Verb, label: str) -> Action:
    row = verbs.row("job", verb)

    def question(subject: Any) -> str:
        if not isinstance(subject, FailureGroup):
            return ""
        return f"{row.label} {counted(subject.count, 'job')} of {quoted(subject.name)} that failed with {quoted(subject.kind)}?"

    async def do(admin: AsyncAdmin, subject: FailureGroup, report: Report, _: str) -> str:
        act = admin.apply_to_failures(verb, subject.name, subject.kind, progress=report)
        return f"{quoted(subject.name)}: {result_of(await act)}"

    return Action(row.key, label, question, do)


GROUP = (_on_group("retry", "retry all of this kind"), _on_group("delete", "delete all"))


# Queues.


def _queue(subject: Any) -> QueueView | None:
    if isinstance(subject, QueueDetail):
        return subject.view
    return subject if isinstance(subject, QueueView) else None


def _on_queue(name: str, do: Do) -> Action:
    row = verbs.row("queue", name)

    def question(subject: Any) -> str:
        view = _queue(subject)
        if view is None or verbs.queue_state(view.queue) not in row.offered:
            return ""
        waiting = f" ({counted(view.queue.size, 'job')} waiting)" if name == "purge" else ""
        return f"{row.label} the queue {quoted(view.queue.name)}{waiting}?\n{row.effect}"

    async def act(admin: AsyncAdmin, subject: Any, report: Report, given: str) -> str:
        view = _queue(subject)
        if view is None:
            return "There is no queue under the cursor."
        return await do(admin, view.queue.name, report, given)

    def typed(subject: Any) -> str:
        view = _queue(subject)
        return view.queue.name if view and row.asks else ""

    return Action(row.key, row.label.lower(), question, act, typed, _limit_of if name == "limit" else None)


def _limit_of(subject: Any) -> str:
    view = _queue(subject)
    return "" if view is None or view.queue.limit is None else str(view.queue.limit)


async def _pause(admin: AsyncAdmin, name: str, _: Report, __: str) -> str:
    return result_of(await admin.pause(name))


async def _resume(admin: AsyncAdmin, name: str, _: Report, __: str) -> str:
    return result_of(await admin.resume(name))


async def _limit(admin: AsyncAdmin, name: str, _: Report, given: str) -> str:
    if given and not given.isdecimal():
        raise BadOption(f"{given!r} is not a number: nothing was changed")
    return result_of(await admin.limit(name, int(given) if given else None))


async def _purge(admin: AsyncAdmin, name: str, report: Report, _: str) -> str:
    return f"queue {quoted(name)}: {result_of(await admin.purge(name, progress=report))}"


QUEUE = (
    _on_queue("pause", _pause), _on_queue("resume", _resume), _on_queue("limit", _limit), _on_queue("purge", _purge),
)  # fmt: skip


# Schedules.


def _on_schedule(name: str) -> Action:
    row = verbs.row("schedule", name)

    def question(subject: Any) -> str:
        if not isinstance(subject, Periodic) or verbs.schedule_state(subject) not in row.offered:
            return ""
        verb, end = ("Run", " now?") if name == "run" else (row.label, "?")
        return f"{verb} the schedule {quoted(subject.name)}{end}\n{row.effect}"

    async def do(admin: AsyncAdmin, subject: Periodic, _: Report, __: str) -> str:
        return result_of(await getattr(admin, f"{name}_schedule")(subject.name))

    return Action(row.key, row.label.lower(), question, do)


SCHEDULE = tuple(_on_schedule(row.name) for row in verbs.rows("schedule"))


def _on(
    row: verbs.VerbRow, kind: type[BatchView | WorkflowView | NodeView], what: Callable[[Any], str], do: Do
) -> Action:
    """An action on what has a `state`; `what` names it in the question."""

    def question(subject: Any) -> str:
        offered = isinstance(subject, kind) and subject.state in row.offered
        return f"{row.label}{what(subject)}?\n{row.effect}" if offered else ""

    return Action(row.key, row.label.lower(), question, do)


# Batches.


def _on_batch(name: str) -> Action:
    row = verbs.row("batch", name)

    def what(subject: BatchView) -> str:
        return f": the batch {subject.id}" + (f" ({subject.description})" if subject.description else "")

    async def do(admin: AsyncAdmin, subject: BatchView, report: Report, __: str) -> str:
        if name == "retry":
            return result_of(await admin.retry_batch(subject.id, progress=report))
        if name == "repair":
            found = await admin.audit_batch(subject.id, repair=True)
            return _repaired(f"batch {subject.id}", found.repaired, (one.text for one in found.findings))
        act = admin.cancel_batch if name == "cancel" else admin.close_batch
        return result_of(await act(subject.id))

    return _on(row, BatchView, what, do)


BATCH = tuple(_on_batch(row.name) for row in verbs.rows("batch"))


def _repaired(subject: str, count: int, findings: Iterable[str]) -> str:
    return f"{subject}: {counted(count, 'difference')} repaired. {' '.join(findings)}".strip()


# Workflows.


async def _change_workflow(admin: AsyncAdmin, verb: str, workflow_id: str, node: int | None) -> str:
    if verb == "repair":
        found = await admin.audit_workflow(workflow_id, repair=True)
        return _repaired(f"workflow {workflow_id}", found.repaired, (one.text for one in found.findings))
    if verb == "skip" and node is not None:
        return result_of(await admin.skip_node(workflow_id, node=node))
    act = admin.cancel_workflow if verb == "cancel" else admin.retry_workflow
    return result_of(await act(workflow_id, node=node))


def _on_workflow(name: str) -> Action:
    async def do(admin: AsyncAdmin, subject: WorkflowView, _: Report, __: str) -> str:
        return await _change_workflow(admin, name, subject.id, None)

    row = verbs.row("workflow", name)
    return _on(row, WorkflowView, lambda one: f": the workflow {quoted(one.name)} ({one.id})", do)


WORKFLOW = tuple(_on_workflow(row.name) for row in verbs.rows("workflow"))


def _on_node(name: str, workflow_id: str) -> Action:
    async def do(admin: AsyncAdmin, subject: NodeView, _: Report, __: str) -> str:
        return await _change_workflow(admin, name, workflow_id, subject.number)

    return _on(verbs.row("node", name), NodeView, lambda one: f": node {one.number} ({one.name})", do)


def nodes_of(workflow_id: str) -> tuple[Action, ...]:
    """What can be done to the nodes of a workflow."""
    return tuple(_on_node(row.name, workflow_id) for row in verbs.rows("node"))


# Pools.


def _on_pool(name: str) -> Action:
    row = verbs.row("pool", name)

    def question(subject: Any) -> str:
        status = subject.status if isinstance(subject, Pool) else None
        if status is None or verbs.pool_state(status) not in row.offered:
            return ""
        return f"{row.label} the pool {status.host}/{status.pid}?\n{row.effect}"

    async def do(admin: AsyncAdmin, subject: Pool, _: Report, __: str) -> str:
        # `admin.resume` resumes a queue.
        act = admin.resume_pool if name == "resume" else getattr(admin, name)
        return result_of(await act(subject.id))

    return Action(row.key, row.label.lower(), question, do)


POOL = tuple(_on_pool(row.name) for row in verbs.rows("pool"))


# Broken entries.


def _on_broken(name: str, do: Do, entry: Callable[[Any], str] | None = None) -> Action:
    row = verbs.row("broken", name)

    def question(subject: Any) -> str:
        if not isinstance(subject, BrokenEntry):
            return ""
        return f"{row.label} the broken entry {subject.index:,}?\n{row.effect}"

    return Action(row.key, row.label.lower(), question, do, entry=entry)


async def _repair(admin: AsyncAdmin, subject: BrokenEntry, _: Report, given: str) -> str:
    return result_of(await admin.repair(subject, given.encode()))


async def _drop(admin: AsyncAdmin, subject: BrokenEntry, _: Report, __: str) -> str:
    return result_of(await admin.delete_broken(subject))


def _payload_of(subject: BrokenEntry) -> str:
    return subject.payload.decode("utf-8", "replace")


BROKEN = (_on_broken("repair", _repair, _payload_of), _on_broken("delete", _drop))

"""Workflows: what became of their nodes, what they wait for, and what can be done to one or to a node."""

from __future__ import annotations

from collections.abc import Iterable

from dayjob.admin import sorting, verbs, walks
from dayjob.admin.jobs import of_wire
from dayjob.admin.newest import newest
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session, outcome
from dayjob.admin.views import Outcome, OutcomeKind
from dayjob.admin.views.workflows import NodeView, WorkflowDetail, WorkflowsView, WorkflowView
from dayjob.errors import BadOption
from dayjob.explain.batches import number_in
from dayjob.explain.words import workflow_sentence
from dayjob.explain.workflows import workflow_waits
from dayjob.store import codec
from dayjob.store.ops import find, inspect, workflows
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.ops.workflows import StoredNode, StoredWorkflow, WorkflowChange, WorkflowState
from dayjob.store.steps import Steps, ask
from dayjob.text import counted, escaped

#: How many nodes one read shows, and of how many of them the errors.
MAX_NODES = 500
MAX_ERRORS = 20
#: How often an action is tried again while nodes change.
MAX_TRIES = 5


def view(found: StoredWorkflow) -> WorkflowView:
    """A workflow as consoles show it."""
    return WorkflowView(
        found.id, found.name, found.state, found.created_at, found.ended_at, found.cancelled_at, found.total,
        found.count("completed"), found.count("skipped"), found.count("dead"), found.count("cancelled"),
        found.count("waiting", "released", "failed"),
    )  # fmt: skip


def listing(
    session: Session, *, state: WorkflowState | None = None, offset: int = 0, size: int = 50, sort: str = ""
) -> Steps[WorkflowsView]:
    """Workflows, the newest first; or those of one state, or sorted by a column, among the newest 1,000. Raises BadOption."""
    sorting.WORKFLOWS.read(sort)
    total = yield from ask(workflows.count(session.keys))
    now = yield from ask(inspect.now())

    def read(skip: int, size: int) -> Steps[list[WorkflowView]]:
        return [view(one) for one in (yield from workflows.page(session.keys, skip=skip, size=size))]

    keep = None if state is None else lambda one: one.state == state
    found = yield from newest(total, read, sorting.WORKFLOWS, offset=offset, size=size, sort=sort, keep=keep)
    return WorkflowsView(now, total, found.rows, found.next, found.sorted_among)


def stored(session: Session, workflow_id: str) -> Steps[StoredWorkflow]:
    """A workflow. Raises BadOption if there is none with this id."""
    found = (yield from workflows.read(session.keys, workflow_id)) if workflow_id.isalnum() else None
    if found is None:
        raise BadOption(
            f"no workflow {escaped(workflow_id)[:80]!r}: it never existed, or succeeded more than a week ago. "
            "`dayjob workflows ls` lists all"
        )
    return found


def one(session: Session, workflow_id: str, *, first: int = 0) -> Steps[WorkflowDetail]:
    """One workflow with what it waits for, and its nodes from the number `first` on, at most 500. Raises BadOption."""
    found = yield from stored(session, workflow_id)
    waits = yield from workflow_waits(session.keys, found)
    last = min(found.total, first + MAX_NODES)
    nodes = yield from workflows.read_nodes(session.keys, found, range(first, last))
    errors = yield from _errors(session, nodes)
    now = yield from ask(inspect.now())
    shown = [_node(node, errors.get(node.number, ""), running=node.number in waits.running) for node in nodes]
    return WorkflowDetail(
        now, view(found), workflow_sentence(waits), tuple(shown), last if last < found.total else 0
    )


def _node(node: StoredNode, error: str, *, running: bool) -> NodeView:
    running = running and node.state in ("released", "failed")
    return NodeView(
        node.number, node.name, node.job_id, "running" if running else node.state, node.needs, node.watches, node.policy,
        node.released_at, node.ended_at, error,
    )  # fmt: skip


def _errors(session: Session, nodes: Iterable[StoredNode]) -> Steps[dict[int, str]]:
    """The errors of the first 20 nodes that failed, from the newest 10,000 jobs of retry and of dead."""
    failed = [node for node in nodes if node.state in ("failed", "dead")][:MAX_ERRORS]
    errors: dict[int, str] = {}
    redactor = Redactor(session)
    yield from redactor.learn([node.name for node in failed])
    for state, source in (("failed", session.keys.retry), ("dead", session.keys.dead)):
        wanted = {node.job_id: node.number for node in failed if node.state == state}
        offset = 0
        while wanted and offset < find.MAX_SEARCHED:
            ids = [codec.quoted(job_id) for job_id in wanted]
            seen = yield from ask(find.seek(source, ids, offset=offset, reverse=True))
            for _, payload, _ in seen.candidates:
                try:
                    wire = codec.read(payload)
                except codec.Broken:
                    continue
                if wire.id in wanted:
                    errors[wanted.pop(wire.id)] = of_wire(redactor, "dead", payload, wire).error
            offset = seen.searched
            if offset >= seen.total:
                break
    return errors


# Actions.


def cancel(session: Session, workflow_id: str, *, node: int | None = None) -> Steps[Outcome]:
    """End the nodes of a workflow, or a node and all that need it. Jobs that run are asked to stop. Raises BadOption."""
    return (yield from _change(session, workflow_id, "cancel", node))


def retry(session: Session, workflow_id: str, *, node: int | None = None) -> Steps[Outcome]:
    """Run a node again, and then all that need it; without a node all that are dead or cancelled. Raises BadOption."""
    return (yield from _change(session, workflow_id, "retry", node))


def skip(session: Session, workflow_id: str, *, node: int) -> Steps[Outcome]:
    """Skip a node that waits, is dead or was cancelled. Raises BadOption."""
    return (yield from _change(session, workflow_id, "skip", node))


_WORDS = {
    "cancel": "cancelled; jobs that run end within seconds, those that wait when their turn comes",
    "retry": "run again, one after the other",
    "skip": "skipped",
}


def _change(session: Session, workflow_id: str, verb: WorkflowChange, node: int | None) -> Steps[Outcome]:
    subject = f"workflow {workflow_id}" if node is None else f"workflow {workflow_id} node {node}"
    kind, message = yield from _tried(session, workflow_id, verb, node)
    return (yield from outcome(session, f"{verb} workflow", subject, kind, message))


def _tried(
    session: Session, workflow_id: str, verb: WorkflowChange, number: int | None
) -> Steps[tuple[OutcomeKind, str]]:
    """Do it to what was read, and read again if that changed meanwhile."""
    for _ in range(MAX_TRIES):
        found = yield from stored(session, workflow_id)
        if number is not None and not 0 <= number < found.total:
            raise BadOption(
                f"the workflow {workflow_id} has no node {number}: its nodes are 0 to {found.total - 1}"
            )
        refusal = yield from _refusal(session, found, verb, number)
        if refusal:
            return "not_allowed", refusal
        dead = yield from _dead_entries(session, found)
        place = -1 if number is None else number
        answer = yield from ask(
            workflows.change_workflow(session.keys, found.id, verb, place, seen=found.states, dead=dead)
        )
        if answer.answer == "done":
            if not answer.changed:
                return "already", "None of its nodes is left."
            return "done", f"{counted(answer.changed, 'node')} {_WORDS[verb]}."
        if answer.answer == "busy":
            return (
                "not_allowed",
                "A node that needs it is stored as a job: cancel that first, or wait for it.",
            )
    return "moved", "Its nodes change too fast."


def _refusal(session: Session, found: StoredWorkflow, verb: WorkflowChange, number: int | None) -> Steps[str]:
    """Why something cannot be done to a workflow or a node in its state; "" if it can."""
    if number is None:
        if found.state not in verbs.row("workflow", verb).states:
            return f"It is {found.state}."
    else:
        for node in (yield from workflows.read_nodes(session.keys, found, [number])):
            if node.state not in verbs.row("node", verb).states:
                return f"The node is {node.state}."
    if verb == "cancel":
        return ""
    still = yield from _not_ended(session, found, verb, number)
    if still is None:
        return ""
    return f"The job of node {still}, which was cancelled, has not ended: it runs, or its queue is paused."


def _not_ended(
    session: Session, found: StoredWorkflow, verb: WorkflowChange, number: int | None
) -> Steps[int | None]:
    """A cancelled node whose job is still stored: if the node were released now, it would run twice. Searches every job."""
    cancelled = [
        n for n, letter in enumerate(found.states) if letter == "x" and (verb == "retry" or n == number)
    ]
    nodes = yield from workflows.read_nodes(session.keys, found, cancelled)
    # Those that had not been released have no job.
    wanted = {node.number for node in nodes if node.released_at is not None and node.ended_at is None}
    left: list[int] = []

    def note(payload: bytes) -> None:
        place = number_in(payload, found.id)
        if place in wanted:
            left.append(place)

    if wanted:
        yield from walks.over_live(session.keys, note)
    return min(left, default=None)


def _dead_entries(session: Session, found: StoredWorkflow) -> Steps[list[tuple[int, bytes]]]:
    """The dead jobs of a workflow, with the numbers of their nodes."""
    entries: list[tuple[int, bytes]] = []

    def note(entry: StoredEntry) -> None:
        number = number_in(entry.member, found.id)
        if number is not None:
            entries.append((number, entry.member))

    if found.count("dead"):
        yield from walks.over_set(session.keys.dead, note)
    return entries

"""Audit of a workflow: compares its records with where the jobs of its nodes are, and repairs it on request.

Every job of the namespace is searched, in bounded reads. Jobs move while they are searched, so that a difference counts only if
three searches in a row find it.
"""

from __future__ import annotations

from dayjob.admin import walks
from dayjob.admin.batch_audit import SEARCHES
from dayjob.admin.session import Session, write_audit
from dayjob.admin.views.workflows import NodeFinding, NodeFindingKind, WorkflowAudit
from dayjob.admin.workflows import stored, view
from dayjob.explain.batches import number_in
from dayjob.store.ops import workflows
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.ops.workflows import StoredWorkflow
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

_SHOWN = 10
#: The letters of nodes that are stored as jobs, and of those that are dead.
_STORED, _DEAD = "rf", "dnk"

_TEXTS: dict[NodeFindingKind, str] = {
    "lost": "nowhere: deleted by another program, or lost. A repair counts them as deleted; then retry or skip them.",
    "died": "dead, which the workflow does not know. A repair counts them as dead.",
    "alive": "not ended, though the workflow has recorded that they are dead. A repair lets the workflow wait for them.",
}

_Differences = dict[NodeFindingKind, set[int]]


def audit(session: Session, workflow_id: str, *, repair: bool = False) -> Steps[WorkflowAudit]:
    """Compare a workflow with the jobs of its nodes; with `repair`, correct the records of the workflow. Raises BadOption."""
    about, differ, searched = yield from _look(session, workflow_id)
    findings = _findings(differ)
    if not repair:
        return WorkflowAudit(view(about), searched, findings, sound=not findings)
    repaired = yield from _repair(session, about, differ)
    if repaired:
        text = f"{counted(repaired, 'difference')} repaired."
        yield from write_audit(session, "repair workflow", f"workflow {workflow_id}", text)
    about, differ, again = yield from _look(session, workflow_id)
    return WorkflowAudit(view(about), searched + again, findings, repaired, sound=not _findings(differ))


def _look(session: Session, workflow_id: str) -> Steps[tuple[StoredWorkflow, _Differences, int]]:
    """What differs in three searches in a row, and how many jobs were searched."""
    differ: _Differences = {}
    searched = 0
    for n in range(SEARCHES):
        before = yield from stored(session, workflow_id)
        live, dead, count = yield from _search(session, workflow_id)
        about = yield from stored(session, workflow_id)
        searched += count
        seen = _compare(before.states, about.states, live, dead)
        differ = seen if n == 0 else {kind: differ[kind] & seen[kind] for kind in differ}
        if not any(differ.values()):
            break
    return about, differ, searched


def _search(session: Session, workflow_id: str) -> Steps[tuple[set[int], set[int], int]]:
    """The nodes whose jobs have not ended, those whose jobs are dead, and how many jobs were searched."""
    live: set[int] = set()
    dead: set[int] = set()

    def note(payload: bytes) -> None:
        number = number_in(payload, workflow_id)
        if number is not None:
            live.add(number)

    def note_dead(entry: StoredEntry) -> None:
        number = number_in(entry.member, workflow_id)
        if number is not None:
            dead.add(number)

    searched = yield from walks.over_live(session.keys, note)
    searched += yield from walks.over_set(session.keys.dead, note_dead)
    return live - dead, dead, searched


def _compare(before: str, after: str, live: set[int], dead: set[int]) -> _Differences:
    """What differs after one search. Nodes whose state changed meanwhile agree with their jobs, as far as is known."""
    same = {n: letter for n, letter in enumerate(after) if before[n : n + 1] == letter}
    as_jobs = {n for n, letter in same.items() if letter in _STORED}
    return {
        "lost": as_jobs - live - dead,
        "died": as_jobs & dead,
        "alive": {n for n, letter in same.items() if letter in _DEAD} & live,
    }


def _findings(differ: _Differences) -> tuple[NodeFinding, ...]:
    found = []
    for kind, numbers in differ.items():
        if numbers:
            verb = "The job of 1 node is" if len(numbers) == 1 else f"The jobs of {len(numbers):,} nodes are"
            found.append(
                NodeFinding(kind, len(numbers), tuple(sorted(numbers)[:_SHOWN]), f"{verb} {_TEXTS[kind]}")
            )
    return tuple(found)


def _repair(session: Session, about: StoredWorkflow, differ: _Differences) -> Steps[int]:
    """Correct what differs, and release what should have been released. Returns how many were corrected."""
    repaired = 0
    for kind, numbers in differ.items():
        for number in sorted(numbers):
            # What changed since the search is left alone.
            answer = yield from ask(
                workflows.change_workflow(session.keys, about.id, kind, number, seen=about.states)
            )
            repaired += answer.changed
    checked = yield from ask(workflows.change_workflow(session.keys, about.id, "check"))
    return repaired + checked.released

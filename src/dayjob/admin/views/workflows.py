"""Workflows as consoles show them: one, a page of them, and one with its nodes. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.store.ops.workflows import FailurePolicy, WorkflowState

__all__ = ["NodeView", "NodeViewState", "WorkflowDetail", "WorkflowState", "WorkflowView", "WorkflowsView"]

#: `waiting` for other nodes; `released` as a job that waits in its queue; `running`; `failed` and runs again; and how it ended.
NodeViewState = Literal[
    "waiting", "released", "running", "failed", "completed", "dead", "skipped", "cancelled"
]


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """One workflow."""

    id: str
    name: str
    #: `failed` while a node is dead or cancelled that others may need. It goes on when that node is retried or skipped.
    state: WorkflowState
    created_at: float
    #: When the last of its nodes ended, and when an operator or a program cancelled it; None if that has not happened.
    ended_at: float | None
    cancelled_at: float | None
    total: int
    #: How many nodes completed, were skipped, are dead, were cancelled, and have not ended.
    completed: int
    skipped: int
    dead: int
    cancelled: int
    left: int

    @property
    def done(self) -> float:
        """The share of its nodes that have ended."""
        return (self.total - self.left) / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class WorkflowsView:
    """Some workflows, in order."""

    now: float
    #: How many were started in the last 187 days. Those that succeeded are gone after a week.
    total: int
    workflows: tuple[WorkflowView, ...]
    #: Pass it as `offset` for the next page; 0 on the last page.
    next: int = 0
    #: How many were compared for a sort or a state; 0 where it is the order of all.
    sorted_among: int = 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a workflow."""

    number: int
    #: Its job name, and the id that its job has or will have.
    name: str
    job_id: str
    state: NodeViewState
    #: The nodes that it needs, and those whose failure it waits for.
    needs: tuple[int, ...]
    watches: tuple[int, ...]
    #: What its failure does to the nodes that need it.
    on_failure: FailurePolicy
    #: When it was released as a job, and when it ended; None if that has not happened.
    released_at: float | None
    ended_at: float | None
    #: The error of its last attempt, of the first 20 nodes that failed.
    error: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowDetail:
    """One workflow, with its nodes."""

    now: float
    workflow: WorkflowView
    #: What it waits for, or how it ended, in one sentence; a second line has the next step, if there is one.
    sentence: str
    nodes: tuple[NodeView, ...]
    #: Pass it as `first` for the next nodes; 0 on the last page.
    next: int = 0


#: What differs: the job of a node is nowhere, is dead, or has not ended.
NodeFindingKind = Literal["lost", "died", "alive"]


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """One kind of difference between a workflow and the jobs of its nodes."""

    kind: NodeFindingKind
    #: How many nodes it concerns, and the numbers of the first ten.
    nodes: int
    numbers: tuple[int, ...]
    #: What it is, in words.
    text: str


@dataclass(frozen=True, slots=True)
class WorkflowAudit:
    """Where the jobs of a workflow are, compared with the records of the workflow."""

    workflow: WorkflowView
    #: How many jobs of the namespace were searched.
    searched: int
    findings: tuple[NodeFinding, ...]
    #: How many differences were repaired. `findings` has those that were found first.
    repaired: int = 0
    #: Whether the workflow and the jobs agree now.
    sound: bool = True

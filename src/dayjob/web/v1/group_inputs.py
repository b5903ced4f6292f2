"""The inputs of the API about batches and workflows, with the bounds of each value."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dayjob.admin import sorting
from dayjob.admin.views.workflows import WorkflowState
from dayjob.web.v1.input_parts import Input, Slice, sort_by


class BatchesInput(Slice, kw_only=True):
    """A page of batches: at most 100."""

    sort: Annotated[str, sort_by("batches", sorting.BATCHES)] = ""


class OneBatch(Input):
    """A batch."""

    id: Annotated[str, Meta(min_length=1, max_length=100, description="The id of a batch.")]


class WorkflowsInput(Slice, kw_only=True):
    """A page of workflows: at most 100, all or those in one state."""

    state: WorkflowState | None = None
    sort: Annotated[str, sort_by("workflows", sorting.WORKFLOWS)] = ""


WorkflowId = Annotated[str, Meta(min_length=1, max_length=100, description="The id of a workflow.")]
NodeNumber = Annotated[int, Meta(ge=0, lt=10_000_000, description="The number of a node.")]


class OneWorkflow(Input):
    """A workflow, and the number of the first node to return."""

    id: WorkflowId
    first: NodeNumber = 0


class OnlyWorkflow(Input):
    """A workflow."""

    id: WorkflowId


class WorkflowChange(Input):
    """A workflow, or one of its nodes."""

    id: WorkflowId
    node: NodeNumber | None = None


class OneNode(Input):
    """A node of a workflow."""

    id: WorkflowId
    node: NodeNumber

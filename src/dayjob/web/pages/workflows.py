"""Workflows: all of them, and a page with the graph of each."""

from __future__ import annotations

from typing import get_args

from markupsafe import Markup
from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.views.workflows import NodeView, NodeViewState, WorkflowDetail, WorkflowState
from dayjob.errors import BadOption
from dayjob.text import number_ranges
from dayjob.web.charts.graph import Box, Tone, graph
from dayjob.web.order import FullList, Order
from dayjob.web.pages.shell import Values, failure, page, whole
from dayjob.web.render import address

SIZE = 50
#: The colours of nodes; others have none.
TONES: dict[NodeViewState, Tone] = {
    "completed": "ok", "dead": "err", "cancelled": "warn", "failed": "warn", "running": "run", "released": "run",
}  # fmt: skip


@page("workflows.html", "/workflows", "Workflows")
async def workflows(request: Request, admin: AsyncAdmin) -> Values:
    """The workflows, the newest first, or those of one state."""
    order = Order.of(request, sorting.WORKFLOWS)
    offset = whole(request, "offset", most=999_999)
    states: tuple[WorkflowState, ...] = get_args(WorkflowState)
    state = next((one for one in states if one == request.query_params.get("state")), None)
    found = await admin.workflows(state=state, offset=offset, size=SIZE, sort=order.sort)
    return {
        "found": found, "now": found.now, "order": order, "offset": offset, "state": state or "", "states": states,
    }  # fmt: skip


@page("workflow.html", "/workflows", "Workflow")
async def workflow(request: Request, admin: AsyncAdmin) -> Values:
    """One workflow, by its id in the query."""
    workflow_id = request.query_params.get("id", "")
    first = whole(request, "first", most=9_999_999)
    try:
        found = await admin.workflow(workflow_id, first=first)
    except BadOption:
        words = "There is no such workflow." if workflow_id else "No workflow is named."
        hint = "Choose one from the list of workflows. One that succeeded is kept for a week."
        return {"response": await failure(request, 404, words, hint)}
    actions = await admin.audit(size=20, about=f"workflow {workflow_id}")
    picture = None if first or found.next else _graph(request, found)
    return {
        "detail": found, "workflow": found.workflow, "now": found.now, "entries": actions, "picture": picture,
        "tones": TONES, "ranges": number_ranges, "first": first, "nodes_order": Order.of(request, sorting.NODES, "nodes"),
        "actions_order": FullList.at(request, sorting.AUDIT, "/audit", "actions on this workflow", about=f"workflow {workflow_id}"),
    }  # fmt: skip


def _graph(request: Request, found: WorkflowDetail) -> Markup | None:
    places = {node.number: place for place, node in enumerate(found.nodes)}

    def box(node: NodeView) -> Box:
        # A node that was never released has no job.
        to = address(request, "/job", id=node.job_id, name=node.name) if node.released_at else ""
        note = f"Node {node.number}: {node.name}, {node.state}. {node.error}".strip()
        needs, watches = (
            tuple(places[n] for n in numbers if n in places) for numbers in (node.needs, node.watches)
        )
        state = f"{node.number} · {node.state}"
        return Box(node.name, state, TONES.get(node.state, "idle"), needs, watches, note, to)

    return graph(f"The nodes of the workflow {found.workflow.name}", [box(node) for node in found.nodes])

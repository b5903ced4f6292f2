"""Workflows over the API: the list, one with its nodes, and what can be done to it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from dayjob.admin.views import Outcome
from dayjob.admin.views.workflows import WorkflowAudit, WorkflowDetail, WorkflowsView
from dayjob.errors import BadOption
from dayjob.web.responses import Refusal
from dayjob.web.v1.group_inputs import OneNode, OneWorkflow, OnlyWorkflow, WorkflowChange, WorkflowsInput
from dayjob.web.v1.queues import done
from dayjob.web.v1.table import Call, Endpoint

T = TypeVar("T")


async def _known(acting: Awaitable[T]) -> T:
    """The answer about a workflow. Raises Refusal for one that does not exist, or has no such node."""
    try:
        return await acting
    except BadOption as error:
        raise Refusal(404, str(error), "GET /api/v1/workflows lists all.", code="unknown_workflow") from None


async def _workflows(call: Call[WorkflowsInput]) -> WorkflowsView:
    sent = call.sent
    return await call.admin.workflows(state=sent.state, offset=sent.offset, size=sent.size, sort=sent.sort)


async def _workflow(call: Call[OneWorkflow]) -> WorkflowDetail:
    return await _known(call.admin.workflow(call.sent.id, first=call.sent.first))


async def _cancel(call: Call[WorkflowChange]) -> Outcome:
    return done(await _known(call.admin.cancel_workflow(call.sent.id, node=call.sent.node)))


async def _retry(call: Call[WorkflowChange]) -> Outcome:
    return done(await _known(call.admin.retry_workflow(call.sent.id, node=call.sent.node)))


async def _skip(call: Call[OneNode]) -> Outcome:
    return done(await _known(call.admin.skip_node(call.sent.id, node=call.sent.node)))


async def _audit(call: Call[OnlyWorkflow]) -> WorkflowAudit:
    return await _known(call.admin.audit_workflow(call.sent.id))


async def _repair(call: Call[OnlyWorkflow]) -> WorkflowAudit:
    return await _known(call.admin.audit_workflow(call.sent.id, repair=True))


ENDPOINTS = (
    Endpoint("GET", "/workflows", "workflows", "Workflows, the newest first.", _workflows, WorkflowsView, WorkflowsInput),
    Endpoint("GET", "/workflow", "workflows", "One workflow, with its nodes and what it waits for.", _workflow, WorkflowDetail, OneWorkflow, finds=True),
    Endpoint("GET", "/workflow/audit", "workflows", "Compare the records of a workflow with where its jobs are. Every job is searched.", _audit, WorkflowAudit, OnlyWorkflow, finds=True),
    Endpoint("POST", "/workflow/cancel", "workflows", "End the nodes of a workflow, or a node and all that need it.", _cancel, Outcome, WorkflowChange, finds=True, moves=True),
    Endpoint("POST", "/workflow/retry", "workflows", "Run the dead and cancelled nodes again, or one node, and then the nodes that need them.", _retry, Outcome, WorkflowChange, finds=True, moves=True),
    Endpoint("POST", "/workflow/skip", "workflows", "Skip a node; the nodes that need it no longer wait for it.", _skip, Outcome, OneNode, finds=True, moves=True),
    Endpoint("POST", "/workflow/repair", "workflows", "Audit a workflow and correct its records.", _repair, WorkflowAudit, OnlyWorkflow, finds=True),
)  # fmt: skip

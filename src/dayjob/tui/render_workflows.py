"""Renders workflows as sheets. Pure."""

from __future__ import annotations

from dayjob.admin.views.workflows import NodeView, WorkflowDetail, WorkflowsView, WorkflowView
from dayjob.cli.console import ago, clean, when
from dayjob.cli.workflows import needs_of
from dayjob.text import counted
from dayjob.tui.sheet import Column, Line, Row, Sheet, Tone, bar

_COLUMNS = (
    Column("WORKFLOW", most=40), Column("STATE"), Column("", most=12, rank=2), Column("NODES", right=True), Column("LEFT", right=True),
    Column("DEAD", right=True, rank=1), Column("AGE", right=True, rank=1), Column("ID", rank=3),
)  # fmt: skip
_NODE_COLUMNS = (
    Column("NODE", right=True), Column("NAME", most=40), Column("STATE"), Column("NEEDS", most=30, rank=1), Column("ERROR", most=60, rank=2),
)  # fmt: skip
_TONES: dict[str, Tone] = {
    "failed": "error", "cancelled": "warning", "succeeded": "ok", "completed": "ok", "dead": "error", "waiting": "dim", "skipped": "dim",
}  # fmt: skip


def workflows(found: WorkflowsView) -> Sheet:
    """The workflows, the newest first."""
    line = f"{counted(found.total, 'workflow')} in 187 days"
    rows = tuple(_row(one, found.now) for one in found.workflows)
    return Sheet((((line, "dim"),),), _COLUMNS, rows, "No workflows.", str(found.next or ""))


def _row(one: WorkflowView, now: float) -> Row:
    return Row(
        one.id,
        (
            (clean(one.name), "bold"), (one.state, _TONES.get(one.state, "")), (bar(one.done, 10), "ok" if not one.dead else "warning"),
            f"{one.total:,}", f"{one.left:,}", f"{one.dead:,}", ago(now - one.created_at), (one.id, "dim"),
        ),
        one,
    )  # fmt: skip


def workflow(found: WorkflowDetail) -> Sheet:
    """One workflow, and its nodes."""
    one = found.workflow
    lines: list[Line] = [
        ((clean(one.name), "bold"), (f" {one.state}", _TONES.get(one.state, ""))),
        *(((clean(line), ""),) for line in found.sentence.splitlines()),
        ((f"{bar(one.done, 30)} {one.done:.0%}", "ok" if not one.dead else "warning"),),
        ((f"created {when(one.created_at)}", "dim"),),
    ]
    rows = tuple(_node(node) for node in found.nodes)
    return Sheet(tuple(lines), _NODE_COLUMNS, rows, "", str(found.next or ""))


def _node(node: NodeView) -> Row:
    error = clean(node.error.partition("\n")[0])
    state = (node.state, _TONES.get(node.state, ""))
    return Row(str(node.number), (str(node.number), clean(node.name), state, needs_of(node), error), node)

"""Renders batches and workflows as sheets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.admin.views.batches import BatchDetail, BatchesView, BatchView
from dayjob.admin.views.workflows import NodeView, WorkflowDetail, WorkflowsView, WorkflowView
from dayjob.cli.console import ago, clean, when
from dayjob.cli.workflows import needs_of
from dayjob.text import counted
from dayjob.tui.sheet import Column, Line, Row, Sheet, Tone, bar

_NODE_COLUMNS = (
    Column("NODE", right=True), Column("NAME", most=40), Column("STATE"), Column("NEEDS", most=30, rank=1), Column("ERROR", most=60, rank=2),
)  # fmt: skip
_TONES: dict[str, Tone] = {
    "failed": "error", "cancelled": "warning", "succeeded": "ok", "completed": "ok", "dead": "error",
    "open": "dim", "waiting": "dim", "skipped": "dim",
}  # fmt: skip


def batches(found: BatchesView) -> Sheet:
    """The batches, the newest first."""
    line = f"{counted(found.total, 'batch', 'batches')} created in the last 187 days"
    return Sheet(
        (((line, "dim"),),), _columns("BATCH", "MEMBERS"), _rows(found.batches, found.now), "No batches.", str(found.next or "")
    )  # fmt: skip


def workflows(found: WorkflowsView) -> Sheet:
    """The workflows, the newest first."""
    line = f"{counted(found.total, 'workflow')} started in the last 187 days"
    return Sheet(
        (((line, "dim"),),), _columns("WORKFLOW", "NODES"), _rows(found.workflows, found.now), "No workflows.", str(found.next or "")
    )  # fmt: skip


def _columns(group: str, jobs: str) -> tuple[Column, ...]:
    return (
        Column(group, most=40), Column("STATE"), Column("", most=12, rank=2), Column(jobs, right=True), Column("LEFT", right=True),
        Column("DEAD", right=True, rank=1), Column("AGE", right=True, rank=1), Column("ID", rank=3),
    )  # fmt: skip


def _rows(groups: Sequence[BatchView | WorkflowView], now: float) -> tuple[Row, ...]:
    return tuple(
        Row(
            one.id,
            (
                (_label(one), "bold"), (one.state, _TONES.get(one.state, "")), (bar(one.done, 10), _tone_of(one)),
                f"{one.total:,}", f"{one.left:,}", f"{one.dead:,}", ago(now - one.created_at), (one.id, "dim"),
            ),
            one,
        )
        for one in groups
    )  # fmt: skip


def _label(one: BatchView | WorkflowView) -> str:
    return clean(one.name if isinstance(one, WorkflowView) else one.description or one.id)


def _tone_of(one: BatchView | WorkflowView) -> Tone:
    return "warning" if one.dead else "ok"


def _head(one: BatchView | WorkflowView) -> Line:
    return ((_label(one), "bold"), (f" {one.state}", _TONES.get(one.state, "")))


def _progress(one: BatchView | WorkflowView) -> Line:
    return ((f"{bar(one.done, 30)} {one.done:.0%}", _tone_of(one)),)


def batch(found: BatchDetail) -> Sheet:
    """One batch, its callbacks, and the batches nested in it."""
    one = found.batch
    members = f"{one.completed:,} completed, {found.waiting:,} not started, {found.running:,} running, {found.retry:,} in retry, {one.dead:,} dead"
    lines: list[Line] = [
        _head(one),
        ((clean(found.sentence), ""),),
        _progress(one),
        ((members, ""),),
        ((f"created {when(one.created_at)}", "dim"),),
    ]
    for callback in one.callbacks:
        sent = "not enqueued" if callback.sent_at is None else f"enqueued {when(callback.sent_at)}"
        lines.append(((clean(f"{callback.event}: {callback.name} {sent}"), "dim"),))
    return Sheet(tuple(lines), _columns("BATCH", "MEMBERS"), _rows(found.nested, found.now), "")


def workflow(found: WorkflowDetail) -> Sheet:
    """One workflow, and its nodes."""
    one = found.workflow
    lines: list[Line] = [
        _head(one),
        *(((clean(line), ""),) for line in found.sentence.splitlines()),
        _progress(one),
        ((f"created {when(one.created_at)}", "dim"),),
    ]
    rows = tuple(_node(node) for node in found.nodes)
    return Sheet(tuple(lines), _NODE_COLUMNS, rows, "", str(found.next or ""))


def _node(node: NodeView) -> Row:
    error = clean(node.error.partition("\n")[0])
    state = (node.state, _TONES.get(node.state, ""))
    return Row(str(node.number), (str(node.number), clean(node.name), state, needs_of(node), error), node)

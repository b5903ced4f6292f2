"""Renders batches as sheets. Pure."""

from __future__ import annotations

from dayjob.admin.views.batches import BatchDetail, BatchesView, BatchView
from dayjob.cli.console import ago, clean, when
from dayjob.text import counted
from dayjob.tui.sheet import Column, Line, Row, Sheet, Tone, bar

_COLUMNS = (
    Column("BATCH", most=40), Column("STATE"), Column("", most=12, rank=2), Column("MEMBERS", right=True), Column("LEFT", right=True),
    Column("DEAD", right=True, rank=1), Column("AGE", right=True, rank=1), Column("ID", rank=3),
)  # fmt: skip
_TONES: dict[str, Tone] = {"failed": "error", "cancelled": "warning", "open": "dim", "succeeded": "ok"}


def batches(found: BatchesView) -> Sheet:
    """The batches, the newest first."""
    line = f"{counted(found.total, 'batch', 'batches')} in 187 days"
    rows = tuple(_row(one, found.now) for one in found.batches)
    return Sheet((((line, "dim"),),), _COLUMNS, rows, "No batches.", str(found.next or ""))


def _row(one: BatchView, now: float) -> Row:
    return Row(
        one.id,
        (
            (clean(one.description or one.id), "bold"), (one.state, _TONES.get(one.state, "")), (bar(one.done, 10), "ok" if not one.dead else "warning"),
            f"{one.total:,}", f"{one.left:,}", f"{one.dead:,}", ago(now - one.created_at), (one.id, "dim"),
        ),
        one,
    )  # fmt: skip


def batch(found: BatchDetail) -> Sheet:
    """One batch, its callbacks, and the batches nested in it."""
    one = found.batch
    members = f"{one.completed:,} completed, {found.waiting:,} not started, {found.running:,} running, {found.retry:,} in retry, {one.dead:,} dead"
    lines: list[Line] = [
        ((clean(one.description or one.id), "bold"), (f" {one.state}", _TONES.get(one.state, ""))),
        ((clean(found.sentence), ""),),
        ((f"{bar(one.done, 30)} {one.done:.0%}", "ok" if not one.dead else "warning"),),
        ((members, ""),),
        ((f"created {when(one.created_at)}", "dim"),),
    ]
    for callback in one.callbacks:
        sent = "not enqueued" if callback.sent_at is None else f"enqueued {when(callback.sent_at)}"
        lines.append(((clean(f"{callback.event}: {callback.name} {sent}"), "dim"),))
    return Sheet(tuple(lines), _COLUMNS, tuple(_row(nested, found.now) for nested in found.nested), "")

"""What the commands for batches and for workflows share: the options and the table of `ls`, and what an audit prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from dayjob.admin.views.batches import BatchAudit, BatchView
from dayjob.admin.views.workflows import WorkflowAudit, WorkflowView
from dayjob.cli import console
from dayjob.cli.console import ago
from dayjob.text import counted

F = TypeVar("F", bound=Callable[..., Any])


def page_options(fn: F) -> F:
    """Give a command --offset and --limit."""
    size = click.option("--limit", default=50, type=click.IntRange(1, 100), help="How many to list.")
    skip = click.option("--offset", default=0, type=click.IntRange(0), help="How many to skip.")
    return skip(size(fn))


def print_page(
    groups: Sequence[tuple[BatchView | WorkflowView, str]],
    columns: tuple[str, str, str],
    now: float,
    following: int,
) -> None:
    """Print groups, each with its label. `columns` name the group, its jobs and the label."""
    rows = [
        (one.id, one.state, f"{one.done:.0%}", f"{one.total:,}", f"{one.left:,}", f"{one.dead:,}", ago(now - one.created_at), label)
        for one, label in groups
    ]  # fmt: skip
    group, jobs, label = columns
    head = (group, "STATE", "DONE", jobs, "LEFT", "DEAD", "AGE", label)
    console.table(head, rows, right=f"DONE {jobs} LEFT DEAD AGE")
    if following:
        click.echo(f"More: --offset {following}", err=True)


def conclude_audit(
    found: BatchAudit | WorkflowAudit, what: str, total: str, numbers: str, *, as_json: bool
) -> None:
    """Print what an audit found. Exits with 1 if the records and the jobs disagree."""
    if as_json:
        console.emit(found)
    else:
        for one in found.findings:
            listed = ", ".join(map(str, one.numbers))
            click.echo(f"{one.text}{f' {numbers}: {listed}' if listed else ''}")
        if found.repaired:
            click.echo(f"Repaired: {counted(found.repaired, 'difference')}.")
        state = f"{what} {'agree' if found.sound else 'disagree'}"
        click.echo(f"{state}: {total}, {counted(found.searched, 'job')} searched.")
    if not found.sound:
        sys.exit(console.NOT_DONE)

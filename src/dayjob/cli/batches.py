"""`dayjob batches`: list, show, cancel, close, retry and audit batches."""

from __future__ import annotations

import sys

import click

from dayjob.admin import sorting, verbs
from dayjob.admin.views.batches import BatchView
from dayjob.cli import completions, console, groups
from dayjob.cli.console import ago, clean, when
from dayjob.cli.group import group
from dayjob.text import counted


@group(epilog="Example: dayjob batches ls")
def batches() -> None:
    """List, show, cancel, retry and audit batches."""


@batches.command(epilog="Example: dayjob batches ls --sort -left")
@groups.page_options
@console.sort_option(sorting.BATCHES)
@console.options
def ls(offset: int, limit: int, sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the batches, the newest first."""
    with console.opened(redis, namespace) as admin:
        found = admin.batches(offset=offset, size=limit, sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found.batches:
        click.echo("No batches. A program starts one: with pool.batch(on_success=report):")
        return
    rows = [(one, one.description) for one in found.batches]
    groups.print_page(rows, ("BATCH", "MEMBERS", "DESCRIPTION"), found.now, found.next)


@batches.command(epilog="Example: dayjob batches show 5f1c0a...")
@click.argument("batch_id", metavar="ID", shell_complete=completions.batches)
@console.options
def show(batch_id: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one batch: what it waits for, its members by state, and its callbacks."""
    with console.opened(redis, namespace) as admin:
        found = admin.batch(batch_id)
    if console.emitted(found, as_json=as_json):
        return
    one = found.batch
    click.echo(clean(f"{one.id}: {one.state} {one.description}"))
    click.echo(found.sentence)
    click.echo(f"members    {one.total:,}: {_members(one, found.running, found.retry, found.waiting)}")
    click.echo(f"created    {when(one.created_at)}")
    if one.eta and one.ended_at is None:
        click.echo(f"ends       in about {ago(one.eta)}")
    for callback in one.callbacks:
        sent = "not enqueued" if callback.sent_at is None else f"enqueued {when(callback.sent_at)}"
        click.echo(clean(f"{callback.event:<10} {callback.name} {callback.id}: {sent}"))
    if one.above:
        click.echo(clean(f"member of  {one.above[0]}"))
    for nested in found.nested:
        click.echo(clean(f"nested     {nested.id} {nested.state} {nested.description}"))
    if one.dead:
        click.echo(f"    dayjob jobs ls --state dead --where batch={one.id}", err=True)


def _members(one: BatchView, running: int, retry: int, waiting: int) -> str:
    parts = (
        (one.completed, "completed"), (waiting, "not started"), (running, "running"), (retry, "in retry"), (one.dead, "dead"),
    )  # fmt: skip
    return ", ".join(f"{number:,} {words}" for number, words in parts if number) or "none"


@batches.command(epilog="Example: dayjob batches cancel 5f1c0a... --yes")
@click.argument("batch_id", metavar="ID", shell_complete=completions.batches)
@console.yes_option
@console.options
def cancel(batch_id: str, yes: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """End a batch: waiting members are dropped when their turn comes, running ones are asked to stop."""
    with console.opened(redis, namespace) as admin:
        found = admin.batch(batch_id).batch
        effect = verbs.row("batch", "cancel").effect
        console.confirm(
            f"Cancel the batch {batch_id} ({counted(found.left, 'member')} left)? {effect}", yes=yes
        )
        console.conclude([admin.cancel_batch(batch_id)], as_json=as_json)


@batches.command(epilog="Example: dayjob batches close 5f1c0a...")
@click.argument("batch_id", metavar="ID", shell_complete=completions.batches)
@console.options
def close(batch_id: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Close an open batch whose program is gone: it ends when its members have ended."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.close_batch(batch_id)], as_json=as_json)


@batches.command(epilog="Example: dayjob batches retry 5f1c0a...")
@click.argument("batch_id", metavar="ID", shell_complete=completions.batches)
@console.options
def retry(batch_id: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Retry the dead members of a batch, those of nested batches too."""
    with console.opened(redis, namespace) as admin, console.meter("retried", quiet=as_json) as report:
        tally = admin.retry_batch(batch_id, progress=report)
    console.show_tally(tally, as_json=as_json)
    if not tally.changed:
        sys.exit(console.NOT_DONE)


@batches.command(epilog="Example: dayjob batches audit 5f1c0a... --repair")
@click.argument("batch_id", metavar="ID", shell_complete=completions.batches)
@click.option("--repair", is_flag=True, help="Correct the records of the batch.")
@console.options
def audit(batch_id: str, repair: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """Compare the records of a batch with where its members are.

    Every job of the namespace is searched. Exits with 1 if they disagree and nothing was repaired.
    """
    with console.opened(redis, namespace) as admin:
        found = admin.audit_batch(batch_id, repair=repair)
    total = counted(found.batch.total, "member")
    groups.conclude_audit(found, "The batch and its members", total, "Numbers", as_json=as_json)

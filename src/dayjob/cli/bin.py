"""`dayjob bin` and `dayjob undo`: what was deleted in the last ten minutes, and how to put it back."""

from __future__ import annotations

import sys

import click

from dayjob.cli import console
from dayjob.cli.console import ago
from dayjob.cli.group import group


@group("bin", epilog="Example: dayjob bin ls")
def bin_() -> None:
    """List what was deleted in the last ten minutes."""


@bin_.command(epilog="Example: dayjob bin ls --json")
@console.options
def ls(redis: str | None, namespace: str, as_json: bool) -> None:
    """List the deletions that can be undone, the newest first."""
    with console.opened(redis, namespace) as admin:
        found, now = admin.bin(), admin.verdict().now
    if console.emitted(found, as_json=as_json):
        return
    if not found:
        click.echo("Nothing was deleted in the last ten minutes.")
        return
    rows = [
        (one.id, f"{one.jobs:,}", one.action, f"{ago(now - one.at)} ago", ago(one.expires_at - now), one.actor, one.subject)
        for one in found
    ]  # fmt: skip
    console.table(("ID", "JOBS", "ACTION", "WHEN", "KEPT FOR", "BY", "WHAT"), rows, right="JOBS")


@click.command(epilog="Example: dayjob undo")
@click.argument("deletion", metavar="[ID]", required=False)
@console.options
def undo(deletion: str | None, redis: str | None, namespace: str, as_json: bool) -> None:
    """Put deleted jobs back. Without an ID, those of your last deletion; `dayjob bin ls` shows the IDs.

    Waiting jobs come back at the head of their queue in their old order, others at their old time. A job whose unique key
    another job has by now stays in the bin. Exits with 1 if no job came back.
    """
    with console.opened(redis, namespace) as admin, console.meter("put back", quiet=as_json) as report:
        tally = admin.undo(deletion, progress=report)
    console.show_tally(tally, as_json=as_json)
    if not tally.changed:
        sys.exit(console.NOT_DONE)

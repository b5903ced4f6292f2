"""`dayjob audit`: who did what."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.cli import console
from dayjob.store.ops import inspect


@click.command(epilog="Example: dayjob audit --about send_mail")
@click.option(
    "--size", type=click.IntRange(1, 500), default=50, show_default=True, help="The most entries to show."
)
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many entries.")
@click.option(
    "--about", default="", metavar="TEXT", help="Only entries with this text: a job ID, an actor, a queue."
)
@console.sort_option(sorting.AUDIT)
@console.options
def audit(
    size: int, offset: int, about: str, sort: str, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Show who did what, newest first. The last 1,000 actions are kept."""
    with console.opened(redis, namespace) as admin:
        # One more shows whether there are others.
        found = admin.audit(offset=offset, size=size + 1, about=about, sort=sort)
    lines = found[:size]
    if as_json:
        console.emit(lines)
    elif not lines and offset:
        click.echo("No more entries.")
    elif not lines:
        click.echo(f"The audit has no entry about {about!r}." if about else "The audit is empty.")
    else:
        rows = [(console.when(line.at), line.actor, line.action, line.subject, line.result) for line in lines]
        console.table(("WHEN", "WHO", "ACTION", "TARGET", "RESULT"), rows)
        if len(found) > size or size == inspect.MAX_ENTRIES == len(found):
            click.echo(f"more: the same with --offset {offset + size}", err=True)

"""`dayjob payloads`: how large stored jobs are."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.cli import console


@click.command(epilog="Example: dayjob payloads --sort -largest")
@console.sort_option(sorting.PAYLOADS)
@console.options
def payloads(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show how large the payloads of stored jobs are, by job name, and the largest of them.

    Reads a few hundred jobs of each set and queue.
    """
    with console.opened(redis, namespace) as admin:
        found = admin.payloads(sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found.searched:
        click.echo("No job is stored.")
        return
    rows = [
        (one.name, f"{one.count:,}", f"{one.median:,}", f"{one.largest:,}", f"{one.total:,}")
        for one in found.names
    ]
    head = ("JOB", "READ", "MEDIAN-BYTES", "LARGEST", "IN-ALL")
    console.table(head, rows, right=" ".join(head[1:]))
    click.echo()
    largest = [(f"{one.size:,}", one.name, one.state, one.id) for one in found.largest]
    console.table(("BYTES", "JOB", "STATE", "ID"), largest, right="BYTES")
    click.echo(f"{found.searched:,} of {found.total:,} jobs were read.")

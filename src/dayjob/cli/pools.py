"""`dayjob pools`: the worker pools and what their workers do."""

from __future__ import annotations

import click

from dayjob.admin.views import Pool, PoolsView
from dayjob.cli import console
from dayjob.cli.console import ago
from dayjob.wording import counted


@click.group(epilog="Example: dayjob pools ls")
def pools() -> None:
    """List worker pools and what their workers do."""


@pools.command(epilog="Example: dayjob pools ls --json")
@console.options
def ls(redis: str | None, namespace: str, as_json: bool) -> None:
    """List the pools: where they run, how busy they are, and when they were last heard of."""
    with console.opened(redis, namespace) as admin:
        found = admin.pools()
    if as_json:
        console.emit(found)
    else:
        _print(found)


def _print(found: PoolsView) -> None:
    if not found.pools:
        click.echo("No pool is running. Start one: dayjob worker app.jobs:pool")
    else:
        rows = [_row(pool, leads=pool.id == found.leader) for pool in found.pools]
        head = ("POOL", "HOST", "PID", "BUSY", "MEMORY", "VERSION", "LEASE", "TAG", "", "JOBS")
        console.table(head, rows, right="PID BUSY MEMORY LEASE")
    for one in found.condemned:
        click.echo(f"dead: {console.clean(one.id)}, {counted(one.held, 'attempt')} to be rescued")


def _row(pool: Pool, *, leads: bool) -> tuple[object, ...]:
    status = pool.status
    lease = ago(pool.lease) if pool.lease > 0 else "over"
    if status is None:
        return pool.id, "", "", "", "", "", lease, "", "has not said anything yet", ""
    state = ("quiet " if status.quiet else "") + ("leads" if leads else "")
    busy = f"{sum(status.running.values())}/{status.concurrency}"
    names = ", ".join(status.names[:5]) + (
        f" and {len(status.names) - 5} more" if len(status.names) > 5 else ""
    )
    memory = f"{status.rss / (1 << 20):.0f} MiB" if status.rss else ""
    return pool.id, status.host, status.pid, busy, memory, status.version, lease, status.tag, state, names

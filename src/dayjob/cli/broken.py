"""`dayjob broken`: list, repair and delete entries that could not be read as jobs."""

from __future__ import annotations

import click

from dayjob.admin import sorting, verbs
from dayjob.admin.client import Admin
from dayjob.admin.views import BrokenEntry
from dayjob.cli import console
from dayjob.cli.group import group
from dayjob.errors import BadOption
from dayjob.store.ops.inspect import MAX_ENTRIES
from dayjob.store.ops.operate import MAX_DEEP

_id_argument = click.argument("entry_id", metavar="ID")


@group(epilog="Example: dayjob broken ls")
def broken() -> None:
    """List, repair and delete entries that could not be read as jobs."""


@broken.command(epilog="Example: dayjob broken ls --json")
@click.option("--size", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at most.")
@click.option("--after", default="", metavar="NUMBER", help="Begin with this entry.")
@console.sort_option(sorting.BROKEN)
@console.options
def ls(size: int, after: str, sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List broken entries, the oldest first."""
    with console.opened(redis, namespace) as admin:
        list_broken(admin, size, after, sort, as_json=as_json)


def list_broken(admin: Admin, size: int, after: str, sort: str = "", *, as_json: bool) -> None:
    """Print broken entries. Raises BadOption."""
    if after and not after.isdecimal():
        raise BadOption(f"--after {after!r}: broken entries are numbered; give the number of the first one")
    first = int(after or 0)
    page = admin.broken(offset=first, size=size, sort=sort)
    if as_json:
        entries = [{"id": entry.digest, **console.plain(entry)} for entry in page.entries]
        console.emit({"total": page.total, "entries": entries, "sorted_among": page.sorted_among})
        return
    if not page.entries:
        click.echo("No broken entries.")
        return
    rows = [
        (
            entry.index,
            entry.digest,
            console.when(entry.at),
            entry.where,
            entry.why,
            entry.payload[:200].decode("utf-8", "replace"),
        )
        for entry in page.entries
    ]
    console.table(("NUMBER", "ID", "FOUND", "WHERE", "WHY", "BYTES"), rows, right="NUMBER")
    among = f"; sorted among the first {page.sorted_among:,}" if page.sorted_among else ""
    click.echo(f"{len(page.entries):,} of {page.total:,} broken entries{among}", err=True)
    following = first + len(page.entries)
    if following < (page.sorted_among or page.total):
        click.echo(f"more: the same with --after {following}", err=True)


@broken.command(
    epilog='Example: dayjob broken repair 9f86d0... \'{"name": "mail", "id": "5f1c0a", "t": 1, "args": {}}\''
)
@_id_argument
@click.argument("payload", metavar="JSON")
@console.options
def repair(entry_id: str, payload: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Put a broken entry into its queue as the job that it should have been."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.repair(_entry(admin, entry_id), payload.encode())], as_json=as_json)


@broken.command(epilog="Example: dayjob broken delete 9f86d0... --yes")
@_id_argument
@console.yes_option
@console.no_undo_option
@console.options
def delete(entry_id: str, yes: bool, no_undo: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """Delete a broken entry. `dayjob undo` puts it back within ten minutes."""
    row = verbs.row("broken", "delete")
    with console.opened(redis, namespace) as admin:
        entry = _entry(admin, entry_id)
        if row.asks:
            shown = console.clean(entry.payload[:60].decode("utf-8", "replace"))
            console.confirm(f"{row.label} the broken entry {shown!r}?", yes=yes)
        console.conclude([admin.delete_broken(entry, undo=not no_undo)], as_json=as_json)


def _entry(admin: Admin, entry_id: str) -> BrokenEntry:
    """The entry with this id, among those that can be listed. Raises BadOption."""
    for first in range(0, MAX_DEEP, MAX_ENTRIES):
        found = admin.broken(offset=first, size=MAX_ENTRIES)
        for entry in found.entries:
            if entry.digest == entry_id:
                return entry
        if first + len(found.entries) >= found.total:
            break
    raise BadOption(f"there is no broken entry {entry_id!r}\n    `dayjob broken ls` shows all.")

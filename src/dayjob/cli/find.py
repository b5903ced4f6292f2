"""`dayjob find`: one text over jobs, queues, pools, schedules, sources and errors."""

from __future__ import annotations

import sys

import click

from dayjob.admin.views import SearchHit, SearchView
from dayjob.cli import console
from dayjob.text import counted


@click.command(epilog="Example: dayjob find ada@example.com")
@click.argument("text", metavar="TEXT")
@console.options
def find(text: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Search for a text: the beginning of an ID, a part of a name, a host, a source, an error, an argument.

    All names are searched, and the first 300 jobs of each state. Exits with 1 if nothing was found.
    """
    with console.opened(redis, namespace) as admin:
        found = admin.search(text)
    if as_json:
        console.emit({**console.plain(found), "complete": found.complete})
    else:
        _print(found)
    if not found.hits:
        sys.exit(console.NOT_DONE)


def _what(hit: SearchHit) -> str:
    """What is known of it besides its name: of a source the number of jobs alone, of an error also its text."""
    many = "" if hit.count is None else counted(hit.count, "job")
    return ": ".join(filter(None, (many, hit.text)))


def _print(found: SearchView) -> None:
    rows = [
        (hit.kind, hit.name, hit.id, hit.state or "", _what(hit))
        for hit in found.hits
    ]  # fmt: skip
    if rows:
        console.table(("KIND", "NAME", "ID", "STATE", "WHAT"), rows)
    else:
        click.echo("Nothing was found.", err=True)
    partly = [part for part in found.parts if part.searched < part.total]
    for part in partly:
        click.echo(f"{part.searched:,} of {part.total:,} jobs in {part.state} were searched", err=True)
    if partly:
        click.echo("further: dayjob jobs ls --state STATE --where TEXT", err=True)

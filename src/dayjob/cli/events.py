"""`dayjob events`: what the system did and what its operators did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from dayjob.admin import sorting
from dayjob.admin.client import Admin
from dayjob.admin.timeline_views import KINDS, TimelineEvent
from dayjob.admin.timeline_words import became
from dayjob.cli import completions, console
from dayjob.cli.console import clean, when
from dayjob.cli.group import group
from dayjob.text import escaped_json, read_moment

#: Seconds between two reads of --follow.
FOLLOW_SECONDS = 1.0
#: How many jobs of a dead pool are listed below it.
MAX_LISTED = 20


@group(epilog="Example: dayjob events ls --kind died --since 1h")
def events() -> None:
    """Show what happened: pools, deploys, leaders, ticks, pauses, limits, and the actions of operators."""


@events.command(epilog="Example: dayjob events ls --kind died --since 1h")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@click.option(
    "--pool",
    default="",
    metavar="ID|HOST",
    help="Only this pool, by the beginning of its ID, or this machine.",
)
@click.option("--name", default="", shell_complete=completions.queues, help="Only this job name or schedule.")
@click.option("--actor", default="", metavar="WHO", help="Only what this operator did.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only from here on: a span such as 1h, a time such as 02:00, or a date and time.",
)
@click.option("--until", metavar="TIME", help="Only before this time.")
@click.option(
    "--size", type=click.IntRange(1, 500), default=50, show_default=True, help="The most events to show."
)
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many events.")
@console.sort_option(sorting.TIMELINE)
@click.option("--follow", is_flag=True, help="Keep printing new events, oldest first, until Ctrl-C.")
@console.options
def ls(
    since: str | None,
    until: str | None,
    follow: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Show what happened, newest first. Below a pool that died: its jobs, and what became of each."""
    now = time.time()
    if since is not None:
        wanted["since"] = read_moment(since, "--since", now)
    if until is not None:
        wanted["until"] = read_moment(until, "--until", now)
    with console.opened(redis, namespace) as admin:
        if follow:
            _follow(admin, wanted, as_json=as_json)
        found = admin.events(**wanted)
    if as_json:
        console.emit(found)
    elif not found.events and wanted["offset"]:
        click.echo("No more events.")
    elif not found.events:
        click.echo(
            "No event matches."
            if any(wanted[one] for one in wanted if one not in ("size", "sort"))
            else "No events yet."
        )
    else:
        _print(found.events)
        if found.more:
            click.echo(f"more: the same with --offset {wanted['offset'] + len(found.events)}", err=True)


def _print(found: Sequence[TimelineEvent]) -> None:
    width = max(len(one.kind) for one in found)
    for one in found:
        _print_one(one, width)


def _print_one(one: TimelineEvent, width: int = 7) -> None:
    who = f"{one.actor}: " if one.kind == "action" and one.actor else ""
    span = ""
    if one.first_at is not None and one.count > 1:
        span = f" From {when(one.first_at)} to {when(one.last_at)}."
    click.echo(f"{when(one.at)}  {one.kind.ljust(width)}  {clean(f'{who}{one.text}{span}')}")
    for job in one.jobs[:MAX_LISTED]:
        click.echo(clean(f"{job.name} {job.id}: {became(job.became)}").join(("    ", "")))
    if len(one.jobs) > MAX_LISTED:
        click.echo(f"    and {len(one.jobs) - MAX_LISTED:,} more; --json shows all")


def _follow(admin: Admin, wanted: dict[str, Any], *, as_json: bool) -> None:
    """Print events as they happen. Ends by Ctrl-C."""
    printed: set[TimelineEvent] = set()
    newest = wanted.get("since")
    while True:
        found = admin.events(**{**wanted, "since": newest})
        for one in reversed(found.events):
            if one in printed:
                continue
            if as_json:
                click.echo(escaped_json(msgspec.json.encode(console.plain(one)).decode()))
            else:
                _print_one(one)
        # Events of one millisecond may be written one after the other.
        newest = found.events[0].at if found.events else newest if newest is not None else found.now
        printed = {one for one in found.events if one.at == newest} | {
            one for one in printed if one.at == newest
        }
        time.sleep(FOLLOW_SECONDS)

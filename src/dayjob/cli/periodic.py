"""`dayjob periodic`: list, run, pause and resume schedules."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.admin.detail_views import ScheduleDetail
from dayjob.admin.views import Periodic
from dayjob.cli import completions, console
from dayjob.cli.console import when
from dayjob.cli.group import group
from dayjob.cli.history import print_attempts

#: Shown instead of the next tick of a schedule that no live pool has.
NOT_LIVE = "no live pool has this schedule"


@group(epilog="Example: dayjob periodic ls")
def periodic() -> None:
    """List, run, pause and resume schedules."""


@periodic.command(epilog="Example: dayjob periodic ls --sort next")
@console.sort_option(sorting.PERIODIC)
@console.options
def ls(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the schedules in English, with the last tick that enqueued a job and the next tick."""
    with console.opened(redis, namespace) as admin:
        found = admin.periodic(sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found:
        click.echo("No schedules.")
        return
    rows = [
        (
            one.name, one.job, one.english or "no pool has described it", when(one.last_at) or "never",
            _next(one),
        )
        for one in found
    ]  # fmt: skip
    console.table(("SCHEDULE", "JOB", "WHEN", "LAST", "NEXT"), rows)


def _next(one: Periodic) -> str:
    if not one.live:
        return NOT_LIVE
    if one.paused:
        return "paused" + (f" by {one.paused_by} at {when(one.paused_at)}" if one.paused_by else "")
    return when(one.next[0]) if one.next else ""


@periodic.command(epilog="Example: dayjob periodic show sweep_carts")
@click.argument("name", metavar="SCHEDULE", shell_complete=completions.schedules)
@console.options
def show(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one schedule: its rule in English, its last and next ticks, how its jobs ended, and what operators did to it."""
    with console.opened(redis, namespace) as admin:
        found = admin.schedule(name)
    if as_json:
        console.emit(found)
    else:
        _print_one(found)


def _print_one(found: ScheduleDetail) -> None:
    one = found.schedule
    state = "paused" if one.paused else "on" if one.live else NOT_LIVE
    by = f" by {one.paused_by} at {when(one.paused_at)}" if one.paused and one.paused_by else ""
    for label, value in (
        ("schedule", one.name),
        ("job", one.job),
        ("rule", f"{one.spec} ({one.timezone or 'UTC'}): {one.english}"),
        ("state", state + by),
        ("missed", one.missed),
        ("last", when(one.last_at) or "never"),
        ("pools", ", ".join(found.pools) or "none"),
        *(("next", when(at)) for at in found.next[:5]),
    ):
        click.echo(f"{label:<10}{console.clean(value)}")
    for tick in found.ticks:
        click.echo(console.clean(f"{when(tick.at)} {tick.text}"))
    if found.runs:
        print_attempts(found.runs)
    for entry in found.actions:
        click.echo(console.clean(f"{when(entry.at)} {entry.actor}: {entry.action}: {entry.result}"))


@periodic.command(epilog="Example: dayjob periodic run sweep_carts")
@click.argument("name", metavar="SCHEDULE", shell_complete=completions.schedules)
@console.options
def run(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Enqueue the job of a schedule now, in addition to its ticks."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.run_schedule(name)], as_json=as_json)


@periodic.command(epilog="Example: dayjob periodic pause sweep_carts")
@click.argument("name", metavar="SCHEDULE", shell_complete=completions.schedules)
@console.options
def pause(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Pause a schedule: its ticks enqueue nothing. Exits with 1 if it was paused already."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.pause_schedule(name)], as_json=as_json)


@periodic.command(epilog="Example: dayjob periodic resume sweep_carts")
@click.argument("name", metavar="SCHEDULE", shell_complete=completions.schedules)
@console.options
def resume(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Resume a paused schedule from its next tick on. Exits with 1 if it was not paused."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.resume_schedule(name)], as_json=as_json)

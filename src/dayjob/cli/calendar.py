"""`dayjob calendar`: what will run in the next hours."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.admin.views import Calendar, Coming
from dayjob.cli import console
from dayjob.text import counted


@click.command(epilog="Example: dayjob calendar --hours 24 --steps")
@click.option("--hours", type=click.Choice(["1", "24", "72"]), default="1", show_default=True)
@click.option("--steps", is_flag=True, help="Show how many in each minute or half hour instead.")
@console.sort_option(sorting.CALENDAR)
@console.options
def calendar(hours: str, steps: bool, sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show what will run in the next hours: scheduled jobs, retries, and the jobs that schedules will enqueue."""
    with console.opened(redis, namespace) as admin:
        found = admin.calendar(int(hours), sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    total = sum(map(sum, (found.scheduled, found.retry, found.periodic)))
    if not total:
        click.echo(f"Nothing is due in the next {found.hours} h.")
        return
    if steps:
        _print_steps(found)
    else:
        console.table(("DUE", "JOB", "FROM", "ID"), [_row(one) for one in found.entries])
    listed = "" if steps or len(found.entries) >= total else f"; the first {len(found.entries):,} are listed"
    click.echo(f"{counted(total, 'job')} in the next {found.hours} h{listed}.")


def _row(one: Coming) -> tuple[object, ...]:
    origin = f"schedule {one.schedule}" if one.kind == "periodic" else one.kind
    return console.when(one.at), one.name, origin, one.id


def _print_steps(found: Calendar) -> None:
    rows = [
        (console.when(start), f"{scheduled:,}", f"{retry:,}", f"{periodic:,}")
        for start, scheduled, retry, periodic in zip(
            found.starts, found.scheduled, found.retry, found.periodic, strict=True
        )
        if scheduled or retry or periodic
    ]
    console.table(("FROM", "SCHEDULED", "RETRY", "PERIODIC"), rows, right="SCHEDULED RETRY PERIODIC")

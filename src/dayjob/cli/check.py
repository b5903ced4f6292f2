"""`dayjob check`: imports every job and checks signatures and schedules, without running any."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from dayjob import cron
from dayjob.cli.load import find_pool
from dayjob.errors import UsageError
from dayjob.pool import WorkerPool
from dayjob.text import counted

#: How many next runs of a schedule are shown.
_NEXT = 3


@click.command(epilog="Example: dayjob check app.jobs:pool")
@click.argument("pool", metavar="MODULE:POOL")
def check(pool: str) -> None:
    """Import every job and check signatures and schedules.

    Exits with 1 if there are problems. Needs no server.
    """
    found = find_pool(pool)
    problems = found.check()
    if not len(found.registry):
        problems.append(
            UsageError(f"{pool} has no jobs: write @pool.job above a function, or fill in include=[...]")
        )
    _print_jobs(found)
    _print_schedules(found)
    for problem in problems:
        click.echo(click.style("error", fg="red") + f" {problem}", err=True)
    jobs, schedules = len(found.registry), len(found.periodics)
    if problems:
        click.echo(
            f"{counted(jobs, 'job')}, {counted(schedules, 'schedule')}: {counted(len(problems), 'problem')}.",
            err=True,
        )
        sys.exit(1)
    click.echo(f"{counted(jobs, 'job')}, {counted(schedules, 'schedule')}: all is well.")


def _print_jobs(pool: WorkerPool[Any]) -> None:
    for job_type in sorted(pool.registry, key=lambda one: one.name):
        signature = job_type.signature if job_type.resolved else "(a type in its signature cannot be found)"
        shown = signature if signature.startswith(job_type.name) else f"{job_type.name}: {signature}"
        colour = "async " if job_type.is_async else ""
        click.echo(f"{colour}{shown}    {job_type.location}")
    if len(pool.registry):
        click.echo()


def _print_schedules(pool: WorkerPool[Any]) -> None:
    for record in pool.periodics.values():
        schedule = cron.parse(record.spec, record.timezone)
        click.echo(f"{record.job}: {cron.describe(schedule)}")
        click.echo(f"    next: {_runs(schedule)}")
    if pool.periodics:
        click.echo()


def _runs(schedule: cron.Schedule) -> str:
    zone = ZoneInfo(schedule.timezone)
    found: list[str] = []
    at: int | None = int(time.time())
    while at is not None and len(found) < _NEXT:
        at = schedule.next_after(at)
        if at is not None:
            found.append(datetime.fromtimestamp(at, zone).strftime("%a %d %b %Y %H:%M:%S"))
    return ", ".join(found) + f" ({schedule.timezone})" if found else "never"

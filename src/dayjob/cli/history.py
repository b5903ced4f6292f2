"""`dayjob history` and `dayjob sources`: attempts that ended, and what each source used."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from dayjob import text
from dayjob.admin import sorting
from dayjob.admin.records import AttemptRecord, HistoryPage, SourceView
from dayjob.cli import completions, console
from dayjob.cli.console import took
from dayjob.cli.group import group
from dayjob.store.ops.history import ENDINGS
from dayjob.text import counted


def _moment(value: str | None, option: str) -> float | None:
    """A moment as the user wrote it; None if it was not given. Raises BadOption."""
    return None if value is None else text.read_moment(value, option, time.time())


_since = click.option(
    "--since",
    metavar="TIME",
    help="Only from here on: a span such as 1h, a time such as 02:00, or a date and time.",
)
_until = click.option("--until", metavar="TIME", help="Only before this time.")


@group()
def history() -> None:
    """List the attempts that ended: when, how and how long they ran.

    Redis keeps a record of each attempt for 24 hours, 20,000 of each job name, unless the pool has other options.
    """


@history.command(epilog="Example: dayjob history ls --since 02:00 --until 02:10 --outcome failed")
@click.option("--name", shell_complete=completions.queues, help="Only this job name.")
@_since
@_until
@click.option(
    "--outcome", type=click.Choice(["failed", *ENDINGS]), help="Only attempts that ended in this way."
)
@click.option("--source", shell_complete=completions.sources, help="Only jobs of this source.")
@click.option("--pool", shell_complete=completions.pools, help="Only attempts of the pool with this ID.")
@click.option(
    "--schedule", shell_complete=completions.schedules, help="Only jobs that this schedule enqueued."
)
@console.sort_option(sorting.HISTORY)
@click.option(
    "--size", type=click.IntRange(1, 500), default=50, show_default=True, help="The most attempts to show."
)
@click.option("--after", default="", metavar="CURSOR", help="The next page.")
@console.options
def ls(
    name: str | None, since: str | None, until: str | None, outcome: str | None, source: str | None, pool: str | None,
    schedule: str | None, sort: str, size: int, after: str, redis: str | None, namespace: str, as_json: bool,
) -> None:  # fmt: skip
    """List attempts that ended, the newest first; --sort -ran lists the slowest."""
    with console.opened(redis, namespace) as admin:
        page = admin.history(
            name, since=_moment(since, "--since"), until=_moment(until, "--until"), outcome=outcome,
            source=source, pool=pool, schedule=schedule, sort=sort, limit=size, after=after,
        )  # fmt: skip
    if console.emitted(page, as_json=as_json):
        return
    if page.records:
        print_attempts(page.records)
    _print_foot(page)


def print_attempts(records: Sequence[AttemptRecord]) -> None:
    """A table of attempts."""
    rows = [
        (
            console.when(one.ended_at), one.outcome.replace("_", " "), one.name, one.id, one.attempt, took(one.waited),
            took(one.ran), text.source_text(one.source), one.reason,
        )
        for one in records
    ]  # fmt: skip
    head = ("ENDED", "OUTCOME", "JOB", "ID", "ATTEMPT", "WAITED", "RAN", "SOURCE", "ERROR")
    console.table(head, rows, right="ATTEMPT WAITED RAN")


def _print_foot(page: HistoryPage) -> None:
    if not page.records:
        click.echo(f"No attempt matches ({text.counted(page.searched, 'record')} searched).")
    if page.sample_rate < 0.995:
        click.echo(
            f"Under load pools record a sample: these are about {page.sample_rate:.1%} of the attempts."
        )
    if page.partial:
        click.echo(f"The newest {page.searched:,} records were searched.")
    if page.next:
        click.echo(f"More: --after {page.next}")


@group()
def sources() -> None:
    """Show what each source used: attempts, failures and time."""


@sources.command("ls", epilog="Example: dayjob sources ls --since 1h")
@_since
@_until
@console.sort_option(sorting.SOURCES)
@console.options
def list_sources(
    since: str | None, until: str | None, sort: str, redis: str | None, namespace: str, as_json: bool
) -> None:
    """List the sources, those that used most time first. Without --since, of the last 24 hours."""
    with console.opened(redis, namespace) as admin:
        found = admin.sources(since=_moment(since, "--since"), until=_moment(until, "--until"), sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found.sources:
        click.echo("No job with a source has run. Set one with using(source=...) when you enqueue.")
        return
    _print_sources(found.sources)
    if found.partial:
        click.echo(f"Since {console.when(found.since)}: the newest {found.searched:,} records were counted.")


@sources.command(epilog="Example: dayjob sources show acme")
@click.argument("source", shell_complete=completions.sources)
@console.options
def show(source: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one source: what it used in the last 24 hours, what it has stored, and its last attempts."""
    with console.opened(redis, namespace) as admin:
        found = admin.source(source)
    if console.emitted(found, as_json=as_json):
        return
    _print_sources([found.used])
    if found.partial:
        click.echo(f"Since {console.when(found.since)}: the newest {found.searched:,} records were counted.")
    for state, count in found.stored.items():
        click.echo(f"{state:<11}{count.matched:,} of {counted(count.searched, 'job')} searched")
    if found.recent:
        print_attempts(found.recent)


def _print_sources(found: Sequence[SourceView]) -> None:
    rows = [
        (
            one.source, f"{one.attempts:,}", f"{one.failed:,}", text.span(one.worked), took(one.waited), one.running,
            console.when(one.last_at), ", ".join(one.names),
        )
        for one in found
    ]  # fmt: skip
    head = ("SOURCE", "ATTEMPTS", "FAILED", "WORKED", "WAITED", "RUNNING", "LAST", "JOBS")
    console.table(head, rows, right="ATTEMPTS FAILED WORKED WAITED RUNNING")

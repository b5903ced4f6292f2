"""Prints jobs in a terminal: a page of them, the running ones, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import msgspec

from dayjob import text
from dayjob.admin.records import AttemptRecord
from dayjob.admin.views import BusyWorker, JobDetail, JobPage, JobView
from dayjob.cli import console
from dayjob.cli.console import ago, clean
from dayjob.cli.history import print_attempts
from dayjob.store.stream_reader import Emitted
from dayjob.text import counted, escaped, escaped_json


def print_running(page: JobPage, busy: Sequence[BusyWorker]) -> None:
    """Print running jobs, with what the pools report about those that have run for more than 0.5 s."""
    reported = {(one.pool_id, one.worker.token): one for one in busy}
    rows = [_running_row(job, reported.get((job.pool_id, job.token))) for job in page.jobs]
    head = ("ID", "NAME", "FOR", "TIMEOUT", "WHERE", "DONE", "CHECK-IN", "SOURCE", "ARGUMENTS")
    console.table(head, rows, right="FOR TIMEOUT DONE")
    _print_foot(page)


def _running_row(job: JobView, one: BusyWorker | None) -> tuple[object, ...]:
    name, source = job.name, "" if job.source is None else job.source
    if one is None:
        return job.id or "(unreadable)", name, "", "", f"pool {job.pool_id}", "", "", source, _line(job)
    checkin = "cancelling" if one.worker.cancelled else one.worker.checkin or ""
    if one.stale:
        checkin = "no heartbeat from its pool"
    progress = "" if one.progress is None else f"{one.progress:.0%}"
    host = f"{one.host}/{one.pid}"
    return job.id, name, ago(one.running_for), ago(one.timeout), host, progress, checkin, source, one.args


def print_page(page: JobPage, *, filtered: bool = False) -> None:
    """Print a page of jobs, and how to see the rest."""
    if not page.jobs:
        none = f"None of {counted(page.searched, 'job')} in {page.state} matches."
        click.echo(none if page.searched else "No jobs.")
    else:
        print_table(page)
    _print_foot(page, filtered=filtered)


def print_table(page: JobPage) -> None:
    """Print the jobs of a page."""
    rows = [
        (
            job.id or "(unreadable)",
            job.name,
            _moment(job, page.now),
            job.fails or "",
            text.size(job.size),
            _line(job),
        )
        for job in page.jobs
    ]
    heads = {
        "waiting": "WAITS",
        "scheduled": "DUE IN",
        "retry": "DUE IN",
        "dead": "DIED",
        "done": "KEPT FOR",
        "running": "",
    }
    console.table(
        ("ID", "NAME", heads[page.state], "FAILS", "SIZE", "ERROR OR ARGUMENTS"), rows, right="FAILS SIZE"
    )


def _print_foot(page: JobPage, *, filtered: bool = False) -> None:
    """How much of the list this is, and how to see the rest."""
    searched = f"; {page.searched:,} searched, {page.left:,} left" if filtered or page.sorted_among else ""
    click.echo(f"{len(page.jobs):,} of {page.total:,} in {page.state}{searched}", err=True)
    if page.hidden:
        click.echo(hidden_text(page.hidden), err=True)
    if page.sorted_among:
        click.echo(f"sorted among the {page.sorted_among:,} that were searched, not among all", err=True)
    if page.next:
        click.echo(f"more: the same with --after {page.next}", err=True)
    if page.beyond:
        click.echo(
            f"{counted(page.beyond, 'job')} behind the first 10,000 of their queue cannot be listed", err=True
        )


def hidden_text(count: int) -> str:
    """That so many jobs were passed over, because a filter compares arguments and theirs are hidden."""
    return f"{counted(count, 'job')} could not be compared: their arguments are hidden, because no pool has announced them"


def _moment(job: JobView, now: float) -> str:
    if job.state == "waiting":
        return ago(now - job.due_at) if job.due_at else ""
    if job.at is None:
        return ""
    return f"{ago(now - job.at)} ago" if job.at < now else ago(job.at - now)


def _line(job: JobView) -> str:
    if job.problem:
        return job.problem
    return job.error.strip().partition("\n")[0] or str(job.args)


def print_job(found: JobDetail, children: Sequence[AttemptRecord]) -> None:
    """Print one job with its timeline, its attempts, its error and the jobs that it enqueued."""
    job = found.job
    click.echo(click.style(clean(f"{job.name} {job.id}"), bold=True) + f"  {job.state}")
    print_sentence(found.sentence)
    for label, value in (
        ("arguments", job.args), ("source", job.source), ("headers", job.headers or None), console.attempt_number(job), ("result", job.result),
        ("pool", job.pool_id), ("unique key", job.unique_key), ("by", job.parent or job.producer),
    ):  # fmt: skip
        if value not in (None, "", {}):
            click.echo(f"{label:<11}{clean(value)}")
    for event in found.timeline:
        click.echo(f"{console.when(event.at)}  {clean(event.text)}")
    if found.attempts:
        click.echo()
        print_attempts(found.attempts)
    if children:
        click.echo("\nEnqueued these:")
        print_attempts(children)
    if job.trace or job.error:
        click.echo()
        for line in (job.trace or job.error).splitlines():
            click.echo("    " + "".join(c if c.isprintable() else " " for c in line))
    click.echo(f"\nAgain: {clean(found.command)}")


def print_sentence(text: str, *, err: bool = False) -> None:
    """Print a sentence, and the next step indented below it."""
    first, _, rest = text.partition("\n")
    click.echo(clean(first), err=err)
    if rest:
        click.echo(f"    {clean(rest)}", err=err)


def print_stream(values: Iterable[Emitted], *, as_json: bool) -> None:
    """Print what a job emits, as it comes."""
    in_line = False
    try:
        for one in values:
            if as_json:
                click.echo(escaped_json(msgspec.json.encode(one._asdict()).decode()))
                continue
            if one.restarted:
                click.echo(f"{chr(10) * in_line}-- attempt {one.attempt} begins anew --", err=True)
                in_line = False
            if isinstance(one.value, str):
                click.echo("\n".join(map(escaped, one.value.split("\n"))), nl=False)
                in_line = not one.value.endswith("\n")
            else:
                click.echo("\n" * in_line + clean(msgspec.json.encode(one.value).decode()))
                in_line = False
    finally:
        if in_line:
            click.echo()

"""`dayjob metrics`: throughput, wait and run times."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.admin.scrape import bucket_limit
from dayjob.admin.views import Histogram, JobSpread, Metrics
from dayjob.cli import completions, console
from dayjob.cli.console import took


@click.command(epilog="Example: dayjob metrics --hours 24 --steps")
@click.option("--hours", type=click.Choice(["1", "24", "72"]), default="1", show_default=True)
@click.option("--steps", is_flag=True, help="Also show each minute, quarter of an hour or hour.")
@click.option(
    "--job",
    metavar="NAME",
    shell_complete=completions.queues,
    help="Show how the wait and run times of one job are spread.",
)
@console.sort_option(sorting.METRICS)
@console.options
def metrics(
    hours: str, steps: bool, job: str | None, sort: str, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Show what ran in the last hours by job name: number of jobs, wait and run times, and all-time totals."""
    with console.opened(redis, namespace) as admin:
        if job is not None:
            _show_spread(admin.spread(job, int(hours)), as_json=as_json)
            return
        found = admin.metrics(int(hours), sort=sort)
    if as_json:
        console.emit(found)
    elif steps:
        _print_steps(found)
    else:
        _print_jobs(found)


def _print_jobs(found: Metrics) -> None:
    if not found.jobs:
        click.echo("No figures yet.")
        return
    rows = [
        (
            job.name, f"{job.runs.count:,}", "" if job.failing is None else f"{job.failing:.1%}", took(job.waits.p50), took(job.waits.p95), took(job.runs.p50), took(job.runs.p95),
            took(job.runs.p99), f"{job.totals.get('done', 0):,}", f"{job.totals.get('failed', 0):,}",
        )
        for job in found.jobs
    ]  # fmt: skip
    head = (
        "JOB",
        "RAN",
        "FAILED",
        "WAIT-P50",
        "WAIT-P95",
        "RUN-P50",
        "RUN-P95",
        "RUN-P99",
        "TOTAL-DONE",
        "TOTAL-FAILED",
    )
    console.table(head, rows, right=" ".join(head[1:]))


def _print_steps(found: Metrics) -> None:
    rows = []
    for place, start in enumerate(found.starts):
        ran = [f"{job.name} {job.series[place]:,}" for job in found.jobs if job.series[place]]
        if ran:
            total, failed = (
                sum(part)
                for part in zip(*((job.series[place], job.fails[place]) for job in found.jobs), strict=True)
            )
            rows.append((console.when(start), f"{total:,}", f"{failed:,}", ", ".join(ran)))
    if not rows:
        click.echo("Nothing ran.")
        return
    console.table(("FROM", "RAN", "FAILED", "JOBS"), rows, right="RAN FAILED")


#: The longest bar of a histogram.
_BAR = 40


def _show_spread(found: JobSpread, *, as_json: bool) -> None:
    if console.emitted(found, as_json=as_json):
        return
    for title, histogram in (("ran", found.all_runs), ("waited", found.all_waits)):
        click.echo(f"{title} in the last {found.hours} h: {histogram.count:,}")
        _print_histogram(histogram)


def _print_histogram(histogram: Histogram) -> None:
    used = [bucket for bucket, number in histogram.buckets.items() if number]
    if not used:
        return
    most = max(histogram.buckets.values())
    rows = [(bucket, histogram.buckets.get(bucket, 0)) for bucket in range(min(used), max(used) + 1)]
    table = [
        (took(bucket_limit(bucket)), f"{number:,}", "#" * round(_BAR * number / most))
        for bucket, number in rows
    ]
    console.table(("UP TO", "JOBS", ""), table, right="JOBS")

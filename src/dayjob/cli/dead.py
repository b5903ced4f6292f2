"""`dayjob dead`: list, group, retry and delete dead jobs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dayjob import text
from dayjob.admin import sorting
from dayjob.admin.views import BulkProgress, FailureGroup
from dayjob.admin.waves import MAX_WAVE
from dayjob.cli import completions, console
from dayjob.cli.group import group
from dayjob.cli.job_actions import acting, perform, where_option
from dayjob.cli.jobs import ls as list_jobs
from dayjob.cli.jobs import page_options
from dayjob.errors import BadOption

F = TypeVar("F", bound=Callable[..., Any])


@group(epilog="Example: dayjob dead groups --within 24h")
def dead() -> None:
    """List, retry and delete dead jobs; show groups of failures, and note or ignore them."""


@dead.command(epilog="Example: dayjob dead ls --where 'name=mail error~Timeout'")
@where_option
@page_options
@console.sort_option(sorting.JOBS["dead"])
@console.options
@click.pass_context
def ls(ctx: click.Context, /, **given: Any) -> None:
    """List dead jobs, newest first."""
    ctx.invoke(list_jobs, state="dead", **given)


@dead.command(epilog="Example: dayjob dead groups --within 1h")
@click.option("--within", metavar="SPAN", help="Only jobs that failed within this time: 90s, 5m, 1h, 2d.")
@console.sort_option(sorting.FAILURES)
@console.options
def groups(within: str | None, sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Group the jobs in retry and dead by error and job name: how many, how many failed last in 1 h, 24 h and 72 h, since when.

    Also shows how often each job failed in the last hour, including attempts that succeeded on retry.
    """
    window = None if within is None else text.read_span(within, "--within")
    with console.opened(redis, namespace) as admin:
        found = admin.failures(window=window, sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found.groups:
        click.echo(
            "No job is in retry or dead for a failure."
            if window is None
            else f"No job in retry or dead failed within {text.span(window)}."
        )
    else:
        rows = [
            (
                group.name, f"{group.count:,}", f"{group.last_hour:,}", f"{group.last_day:,}", f"{group.last_three_days:,}", f"{group.dead:,}",
                since(found.now, group), _noted(group), group.kind,
            )
            for group in found.groups
        ]  # fmt: skip
        head = ("NAME", "JOBS", "1H", "24H", "72H", "DEAD", "FIRST", "NOTE", "ERROR")
        console.table(head, rows, right="JOBS 1H 24H 72H DEAD")
    for one in found.attempts:
        times = text.counted(one.last_hour, "time")
        click.echo(
            console.clean(
                f'"{one.name}" failed {times} in the last hour, including attempts that succeeded on retry'
            )
        )
    if found.searched < found.total:
        click.echo(f"{found.searched:,} of {found.total:,} entries searched", err=True)


def _noted(group: FailureGroup) -> str:
    """What operators noted about a group."""
    until = group.mark.ignored_until
    return ", ".join(filter(None, (f"ignored until {console.when(until)}" if until else "", group.mark.note)))


def _of_group(fn: F) -> F:
    """Arguments that name a group, as `dead groups` shows it."""
    return click.argument("name", shell_complete=completions.queues)(
        click.argument("kind", metavar="ERROR")(fn)
    )


@dead.command("group", epilog="Example: dayjob dead group charge 'TimeoutError: no answer within # s'")
@_of_group
@console.options
def show_group(name: str, kind: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one group of failures: how many, since when, where, its note, and the jobs that failed last. Exits with 1 if there is none."""
    with console.opened(redis, namespace) as admin:
        found = admin.failure_group(name, kind)
    if found is None:
        click.echo(console.clean(f'No job of "{name}" is in retry or dead with this error.'), err=True)
        sys.exit(console.NOT_DONE)
    if console.emitted(found, as_json=as_json):
        return
    one = found.group
    click.echo(console.clean(f"{one.name}: {one.kind}"))
    click.echo(
        f"{one.count:,} jobs: {one.dead:,} dead, {one.retry:,} in retry; the first {since(found.now, one)}"
    )
    if one.mark.note:
        click.echo(console.clean(f"note by {one.mark.noted_by}: {one.mark.note}"))
    if one.mark.ignored_until:
        click.echo(
            console.clean(f"ignored until {console.when(one.mark.ignored_until)} by {one.mark.ignored_by}")
        )
    for place in found.places:
        where = f"on {place.host or 'a machine that is not known any more'}, {place.tag or 'no tag'}"
        failed = f"{text.counted(place.attempts, 'attempt')} failed {where}; the last at {console.when(place.last_at)}"
        click.echo(console.clean(failed))
    rows = [(job.id, job.state, job.attempts, console.when(job.failed_at), job.args) for job in found.jobs]
    console.table(("JOB", "STATE", "ATTEMPTS", "FAILED", "ARGUMENTS"), rows, right="ATTEMPTS")


@dead.command(
    epilog="Example: dayjob dead note charge 'TimeoutError: no answer within # s' 'the bank works on it'"
)
@_of_group
@click.argument("note")
@console.options
def note(name: str, kind: str, note: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Write a note on a group of failures for other operators. An empty note removes it."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.note_group(name, kind, note)], as_json=as_json)


@dead.command(epilog="Example: dayjob dead ignore charge 'TimeoutError: no answer within # s' --for 2d")
@_of_group
@click.option(
    "--for", "span", default="1d", show_default=True, metavar="SPAN", help="For how long: 2h, 3d, 1w."
)
@console.options
def ignore(name: str, kind: str, span: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Hide a group of failures from Home and the list of failures for a time. Its jobs stay where they are."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.ignore_group(name, kind, text.read_span(span, "--for"))], as_json=as_json)


@dead.command(epilog="Example: dayjob dead unignore charge 'TimeoutError: no answer within # s'")
@_of_group
@console.options
def unignore(name: str, kind: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show a group of failures again."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.ignore_group(name, kind, None)], as_json=as_json)


def since(now: float, group: FailureGroup) -> str:
    """How long ago the first failure of a group was."""
    return f"{console.ago(now - group.first_at)} ago" + ("" if group.first_known else " or earlier")


@dead.command(epilog="Example: dayjob dead retry --waves --where 'error~Timeout'")
@acting("retry", "dead")
@click.option("--waves", is_flag=True, help="Retry 1, 2, 4, 8 ... at a time; stop when most fail again.")
@click.option(
    "--wave-size", type=click.IntRange(1, MAX_WAVE), help="With --waves: this many jobs in each wave."
)
@click.option(
    "--stop-above", type=click.IntRange(0, 100), default=20, show_default=True, metavar="PERCENT",
    help="With --waves: stop when more than this share of the ended jobs failed again.",
)  # fmt: skip
def retry(waves: bool, wave_size: int | None, stop_above: int, **given: Any) -> None:
    """Put dead jobs back into their queues, at once or in waves that stop by themselves when most fail again.

    A wave begins when all jobs of the one before have completed or failed. Ctrl-C stops; the jobs that were not retried
    stay dead. Exits with 1 if some stay dead. To retry ten first, use --limit 10.
    """
    if not waves:
        if given["where"] is None and not given["ids"]:
            raise BadOption(
                "give IDs, --where with conditions, or --waves; `dayjob dead retry-all` retries all"
            )
        perform("retry", "dead", **given)
        return
    if given["ids"] or given["limit"] is not None or given["dry_run"] or given["state"] not in (None, "dead"):
        raise BadOption(
            "--waves takes --where, --wave-size and --stop-above; not IDs, --state, --limit or --dry-run"
        )
    _retry_in_waves(given, wave_size, stop_above / 100)


def _retry_in_waves(given: dict[str, Any], size: int | None, stop_above: float) -> None:
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        with (
            console.opened(given["redis"], given["namespace"]) as admin,
            console.meter("retried", quiet=given["as_json"]) as draw,
        ):

            def report(progress: BulkProgress) -> bool:
                draw(progress)
                return not stopping

            tally = admin.retry_in_waves(
                where=given["where"], size=size, stop_above=stop_above, progress=report
            )
    finally:
        signal.signal(signal.SIGINT, before)
    console.show_tally(tally, as_json=given["as_json"])
    if not tally.changed or tally.changed < tally.matched:
        sys.exit(console.NOT_DONE)


@dead.command("retry-all", epilog="Example: dayjob dead retry-all --where 'error~Timeout'")
@where_option
@click.option("--limit", type=click.IntRange(1), help="Change at most this many jobs.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@console.yes_option
@console.options
def retry_all(**given: Any) -> None:
    """Put dead jobs back into their queues as if they had never failed. Exits with 1 if there are none."""
    perform("retry", "dead", ids=(), state="dead", everything=True, **given)


@dead.command("delete-all", epilog="Example: dayjob dead delete-all --where 'age>30d' --yes")
@where_option
@click.option("--limit", type=click.IntRange(1), help="Change at most this many jobs.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@console.yes_option
@console.no_undo_option
@console.options
def delete_all(**given: Any) -> None:
    """Delete dead jobs. Exits with 1 if there are none. `dayjob undo` puts them back within ten minutes."""
    perform("delete", "dead", ids=(), state="dead", everything=True, **given)

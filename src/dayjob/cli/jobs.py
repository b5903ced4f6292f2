"""`dayjob jobs`: lists, shows and explains jobs, and acts on one, some, or all that match a filter."""

from __future__ import annotations

import sys
from typing import Any

import click

from dayjob.admin import sorting, verbs
from dayjob.cli import completions, console
from dayjob.cli.broken import list_broken
from dayjob.cli.console import ago, clean
from dayjob.cli.enqueue import read_moment
from dayjob.cli.group import group
from dayjob.cli.job_actions import F, acting, perform, show_preview, where_option
from dayjob.cli.job_tables import (
    hidden_text,
    print_job,
    print_page,
    print_running,
    print_sentence,
    print_stream,
)
from dayjob.errors import BadOption, JobFailed
from dayjob.text import read_span

STATES = ("waiting", "scheduled", "retry", "dead", "done")
#: The columns that sort jobs, of any state.
_COLUMNS = dict.fromkeys(column for table in sorting.JOBS.values() for column in table.columns)


def page_options(fn: F) -> F:
    """Give a command that lists jobs the options --size and --after."""
    fn = click.option(
        "--after", default="", metavar="CURSOR", help="Continue after a page; its last line has the cursor."
    )(fn)
    return click.option(
        "--size", type=click.IntRange(1, 500), default=50, show_default=True, help="The most jobs to show."
    )(fn)


@group(epilog="Example: dayjob jobs ls --state dead --where 'name=mail error~Timeout'")
def jobs() -> None:
    """List, show, explain, retry, delete and cancel jobs.

    Actions take IDs, or --where with --state for all jobs that match. They exit with 1 if a job was in another state or
    nothing matched.
    """


@jobs.command(epilog="Example: dayjob jobs ls --state retry --where 'error~Timeout age>10m'")
@click.option(
    "--state", type=click.Choice([*STATES, "running", "broken"]), default="waiting", show_default=True
)
@where_option
@page_options
@click.option(
    "--sort",
    default="",
    metavar="COLUMN",
    help=f"Sort by {', '.join(_COLUMNS)}; a minus puts the greatest first. By place, due, died and kept all jobs are in order; otherwise the 3,000 that were read.",
)
@console.options
def ls(
    state: Any,
    where: str | None,
    size: int,
    after: str,
    sort: str,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List jobs in one state. Waiting jobs are listed queue by queue; --where name=... lists one queue."""
    with console.opened(redis, namespace) as admin:
        if state == "broken":
            if where:
                raise BadOption("--where cannot be used with --state broken: these entries cannot be read")
            list_broken(admin, size, after, sort, as_json=as_json)
            return
        page = admin.jobs(state, where=where, after=after, size=size, sort=sort)
        if as_json:
            console.emit(page)
        elif state == "running" and page.jobs:
            print_running(page, admin.busy())
        else:
            print_page(page, filtered=where is not None)


@jobs.command(epilog="Example: dayjob jobs count --state dead --where 'error~Timeout'")
@click.option("--state", type=click.Choice([*STATES, "running"]), default="waiting", show_default=True)
@where_option
@console.options
def count(state: Any, where: str | None, redis: str | None, namespace: str, as_json: bool) -> None:
    """Count the jobs of one state that match. All are searched, in many small reads; of each queue the first 10,000."""
    with console.opened(redis, namespace) as admin:
        found = admin.count(state, where=where, most=None)
    if as_json:
        console.emit({**console.plain(found), "complete": found.complete})
        return
    least = "" if found.complete else "at least "
    click.echo(f"{least}{found.matched:,} of {found.total:,} in {state}")
    if found.hidden:
        click.echo(hidden_text(found.hidden), err=True)


@jobs.command(epilog="Example: dayjob jobs show 5f1c0a... --json")
@click.argument("job_id", metavar="ID")
@click.option(
    "--name", shell_complete=completions.queues, help="Its job name, which makes the search faster."
)
@console.options
def show(job_id: str, name: str | None, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one job in any state: timeline, arguments, error and traceback. Exits with 1 if it is not found."""
    with console.opened(redis, namespace) as admin:
        found = admin.job(job_id, name=name)
        if found is None:
            click.echo(clean(admin.explain(job_id, name=name)), err=True)
            sys.exit(console.NOT_DONE)
        children = admin.children(job_id) if found.job.attempts else ()
    if as_json:
        console.emit(found)
    else:
        print_job(found, children)


@jobs.command(epilog="Example: dayjob jobs logs 5f1c0a... --attempt 2")
@click.argument("job_id", metavar="ID")
@click.option(
    "--name", shell_complete=completions.queues, help="Its job name, which makes the search faster."
)
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@console.options
def logs(
    job_id: str, name: str | None, attempt: int | None, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Show what the attempts of a job logged. Exits with 1 if nothing is kept.

    Job types with keep_logs keep the last lines of each attempt, as long as the history.
    """
    with console.opened(redis, namespace) as admin:
        found = [one for one in admin.logs(job_id, name=name) if attempt in (None, one.attempt)]
    if as_json:
        console.emit(found)
    for one in found if not as_json else ():
        click.echo(click.style(f"attempt {one.attempt}", bold=True))
        for line in one.text.splitlines():
            click.echo("    " + "".join(c if c.isprintable() else " " for c in line))
    if not found:
        click.echo(clean(f"No log lines of {job_id} are kept: its job type needs keep_logs."), err=True)
        sys.exit(console.NOT_DONE)


@jobs.command(epilog="Example: dayjob jobs explain 5f1c0a...")
@click.argument("job_id", metavar="ID")
@click.option(
    "--name", shell_complete=completions.queues, help="Its job name, which makes the search faster."
)
@console.options
def explain(job_id: str, name: str | None, redis: str | None, namespace: str, as_json: bool) -> None:
    """Explain in one sentence why a job is not running. Exits with 1 if it is not found."""
    with console.opened(redis, namespace) as admin:
        found = admin.job(job_id, name=name)
        sentence = found.sentence if found else admin.explain(job_id, name=name)
    if as_json:
        console.emit({"id": job_id, "kind": found.kind if found else "not_found", "sentence": sentence})
    else:
        print_sentence(sentence, err=found is None)
    if found is None:
        sys.exit(console.NOT_DONE)


@jobs.command(epilog="Example: dayjob jobs retry --where 'name=mail error~Timeout' --dry-run")
@acting("retry", "dead")
def retry(**given: Any) -> None:
    """Put dead jobs back into their queues as if they had never failed; run jobs in retry or scheduled now."""
    perform("retry", "dead", **given)


@jobs.command(epilog="Example: dayjob jobs run 5f1c0a...")
@acting("run_now", "scheduled")
def run(**given: Any) -> None:
    """Run jobs in scheduled or retry now."""
    perform("run_now", "scheduled", **given)


@jobs.command(epilog="Example: dayjob jobs delete --state dead --where 'age>30d' --yes")
@acting("delete")
def delete(**given: Any) -> None:
    """Delete jobs that are not running. `dayjob undo` puts them back within ten minutes."""
    perform("delete", None, **given)


@jobs.command(epilog="Example: dayjob jobs kill --state retry --where name=mail --yes")
@acting("kill")
@click.option("--running", is_flag=True, help="End running jobs; replace their process if they do not stop.")
def kill(running: bool, **given: Any) -> None:
    """Move waiting or scheduled jobs, or jobs in retry, to dead. With --running, end a running job."""
    if running:
        if given["state"] not in (None, "running"):
            raise BadOption(f"--running does not go with --state {given['state']}")
        given["state"] = "running"
    perform("kill", None, **given)


@jobs.command(epilog="Example: dayjob jobs cancel --state running --where name=export --dry-run")
@acting("cancel")
def cancel(**given: Any) -> None:
    """Cancel jobs: waiting jobs are removed, running jobs are stopped at their pool's next heartbeat."""
    perform("cancel", None, **given)


@jobs.command(epilog="Example: dayjob jobs reschedule 5f1c0a... --in 2h")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--in", "delay", metavar="SPAN", help="After this time: 90s, 5m, 1h30m, 2d.")
@click.option("--at", "when", metavar="TIME", help="At this time, with a time zone: 2030-01-31T09:00+01:00.")
@click.option(
    "--state", type=click.Choice(verbs.row("due_job", "reschedule").states), help="Only in this state."
)
@console.options
def reschedule(
    ids: tuple[str, ...],
    delay: str | None,
    when: str | None,
    state: Any,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Change when jobs of scheduled or retry are due."""
    if (delay is None) == (when is None):
        raise BadOption("give --in or --at, and not both")
    span = None if delay is None else read_span(delay, "--in")
    at = None if when is None else read_moment(when).timestamp()
    with console.opened(redis, namespace) as admin:
        outcomes = [admin.reschedule(job_id, at=at, delay=span, state=state) for job_id in ids]
    console.conclude(outcomes, as_json=as_json)


@jobs.command(epilog="Example: dayjob jobs move --where 'name=mail source=42' --to mail_slow")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--to",
    required=True,
    metavar="NAME",
    shell_complete=completions.jobs,
    help="The job name of the other queue.",
)
@where_option
@click.option("--limit", type=click.IntRange(1), help="With --where: move at most this many jobs.")
@click.option("--no-check", is_flag=True, help="Also move jobs whose arguments do not fit that job type.")
@click.option("--dry-run", is_flag=True, help="Only show what would be moved.")
@click.option("--state", type=click.Choice(verbs.row("waiting_job", "move").states), help="Always waiting.")
@console.options
def move(
    ids: tuple[str, ...],
    to: str,
    where: str | None,
    limit: int | None,
    no_check: bool,
    dry_run: bool,
    state: Any,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Move waiting jobs to another queue, in their order, to be run as that job."""
    if bool(ids) == (where is not None) or (ids and (limit is not None or dry_run)):
        raise BadOption("give IDs, or --where with conditions; --limit and --dry-run go with --where")
    with console.opened(redis, namespace) as admin:
        if ids:
            moved = [admin.move(job_id, to, state=state, check=not no_check) for job_id in ids]
            console.conclude(moved, as_json=as_json)
            return
        if dry_run:
            found = admin.preview_move(where=where, most=limit)
            show_preview(found, "move", "waiting", as_json=as_json)
        with console.meter("moved", quiet=as_json) as report:
            tally = admin.move_all(to, where=where, most=limit, check=not no_check, progress=report)
    console.show_tally(tally, as_json=as_json)
    if not tally.changed:
        sys.exit(console.NOT_DONE)


@jobs.command(epilog="Example: dayjob jobs stream 6f1c0a...")
@click.argument("job_id", metavar="ID")
@click.option(
    "--after", default="", metavar="PLACE", help="Continue after this value; --json shows the places."
)
@console.options
def stream(job_id: str, after: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Print what a job emits, until it has ended.

    Texts are printed as they are, one behind the other; other values as lines of JSON. Exits with 1 if the job failed.
    """
    with console.opened(redis, namespace) as admin:
        try:
            print_stream(admin.stream(job_id, after=after), as_json=as_json)
        except JobFailed as error:
            click.echo(f"dayjob: {clean(str(error))}", err=True)
            sys.exit(console.NOT_DONE)


@jobs.command(epilog="Example: dayjob jobs types --sort -timeout")
@console.sort_option(sorting.JOB_TYPES)
@console.options
def types(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the job types that pools have announced, with their arguments and options."""
    with console.opened(redis, namespace) as admin:
        found = admin.job_types(sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found:
        click.echo("No pool has announced any. Start one: dayjob worker app.jobs:pool")
        return
    rows = [
        (
            one.signature,
            one.colour,
            one.priority,
            one.max_fails,
            ago(one.timeout),
            ", ".join(one.redact),
            one.doc,
        )
        for one in found
    ]
    head = ("JOB", "KIND", "PRIORITY", "FAILS", "TIMEOUT", "HIDDEN", "")
    console.table(head, rows, right="PRIORITY FAILS TIMEOUT")

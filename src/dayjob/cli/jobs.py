"""`dayjob jobs`: lists, shows and explains jobs, and acts on one, some, or all that match a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click

from dayjob import text
from dayjob.admin import sorting, verbs
from dayjob.admin.actions import MAX_SELECTED
from dayjob.admin.client import Admin
from dayjob.admin.filters import filter_of
from dayjob.admin.records import AttemptRecord
from dayjob.admin.verbs import Verb
from dayjob.admin.views import BusyWorker, Count, JobDetail, JobPage, JobView, Outcome, Preview, Seen, State
from dayjob.cli import completions, console
from dayjob.cli.console import ago, clean
from dayjob.cli.enqueue import read_moment
from dayjob.cli.history import print_attempts
from dayjob.errors import BadOption
from dayjob.text import counted, read_span

F = TypeVar("F", bound=Callable[..., Any])

STATES = ("waiting", "scheduled", "retry", "dead", "done")
_WHERE_HELP = (
    "Only jobs that match: 'name=mail error~Timeout args.user_id=7 not age<1h'; see the guide to the console."
)
where_option = click.option("--where", metavar="CONDITIONS", help=_WHERE_HELP)
#: The columns that sort jobs, of any state.
_COLUMNS = dict.fromkeys(column for table in sorting.JOBS.values() for column in table.columns)
#: How many jobs a dry run shows.
_SOME = 10


def page_options(fn: F) -> F:
    """Give a command that lists jobs the options --size and --after."""
    fn = click.option(
        "--after", default="", metavar="CURSOR", help="Continue after a page; its last line has the cursor."
    )(fn)
    return click.option(
        "--size", type=click.IntRange(1, 500), default=50, show_default=True, help="The most jobs to show."
    )(fn)


@click.group(epilog="Example: dayjob jobs ls --state dead --where 'name=mail error~Timeout'")
def jobs() -> None:
    """List, show, explain, retry, delete and cancel jobs.

    Actions take IDs, or --where with --state for all jobs that match. They exit with 1 if a job was in another state or
    nothing matched.
    """


# Reading.


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
            _print_running(page, admin.busy())
        else:
            _print_page(page, filtered=where is not None)


def _print_running(page: JobPage, busy: Sequence[BusyWorker]) -> None:
    """Includes what the pools report about jobs that have run for more than 0.5 s."""
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


def list_broken(admin: Admin, size: int, after: str, sort: str = "", *, as_json: bool) -> None:
    """Print broken entries. Raises BadOption."""
    if after and not after.isdecimal():
        raise BadOption(f"--after {after!r}: broken entries are numbered; give the number of the first one")
    first = int(after or 0)
    page = admin.broken(offset=first, size=size, sort=sort)
    if as_json:
        entries = [{"id": entry.digest, **console.plain(entry)} for entry in page.entries]
        console.emit({"total": page.total, "entries": entries, "sorted_among": page.sorted_among})
        return
    if not page.entries:
        click.echo("No broken entries.")
        return
    rows = [
        (
            entry.index,
            entry.digest,
            console.when(entry.at),
            entry.where,
            entry.why,
            entry.payload[:200].decode("utf-8", "replace"),
        )
        for entry in page.entries
    ]
    console.table(("NUMBER", "ID", "FOUND", "WHERE", "WHY", "BYTES"), rows, right="NUMBER")
    among = f"; sorted among the first {page.sorted_among:,}" if page.sorted_among else ""
    click.echo(f"{len(page.entries):,} of {page.total:,} broken entries{among}", err=True)
    following = first + len(page.entries)
    if following < (page.sorted_among or page.total):
        click.echo(f"more: the same with --after {following}", err=True)


def _print_page(page: JobPage, *, filtered: bool = False) -> None:
    if not page.jobs:
        none = f"None of {counted(page.searched, 'job')} in {page.state} matches."
        click.echo(none if page.searched else "No jobs.")
    else:
        _print_table(page)
    _print_foot(page, filtered=filtered)


def _print_table(page: JobPage) -> None:
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
        click.echo(
            f"{counted(page.hidden, 'job')} could not be compared: their arguments are hidden, because no pool has announced them",
            err=True,
        )
    if page.sorted_among:
        click.echo(f"sorted among the {page.sorted_among:,} that were searched, not among all", err=True)
    if page.next:
        click.echo(f"more: the same with --after {page.next}", err=True)
    if page.beyond:
        click.echo(
            f"{counted(page.beyond, 'job')} behind the first 10,000 of their queue cannot be listed", err=True
        )


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
        _print_job(found, children)


def _print_job(found: JobDetail, children: Sequence[AttemptRecord]) -> None:
    job = found.job
    click.echo(click.style(clean(f"{job.name} {job.id}"), bold=True) + f"  {job.state}")
    _print_lines(found.sentence)
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


def _print_lines(text: str, *, err: bool = False) -> None:
    """A sentence, and the next step indented below it."""
    first, _, rest = text.partition("\n")
    click.echo(clean(first), err=err)
    if rest:
        click.echo(f"    {clean(rest)}", err=err)


@jobs.command(epilog="Example: dayjob jobs logs 5f1c0a... --attempt 2")
@click.argument("job_id", metavar="ID")
@click.option("--name", help="Its job name, which makes the search faster.")
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
        _print_lines(sentence, err=found is None)
    if found is None:
        sys.exit(console.NOT_DONE)


# Acting.


def acting(verb: Verb, default: State | None = None) -> Callable[[F], F]:
    """The options of a verb that takes ids or a filter."""

    def decorate(fn: F) -> F:
        help_text = "The state of the jobs." + (f" With --where the default is {default}." if default else "")
        for option in (
            click.argument("ids", metavar="[ID]...", nargs=-1),
            click.option("--state", type=click.Choice(verbs.row("job", verb).states), help=help_text),
            where_option,
            click.option(
                "--limit", type=click.IntRange(1), help="With --where: change at most this many jobs."
            ),
            click.option("--dry-run", is_flag=True, help="Only show what would be changed."),
            console.yes_option,
            *((console.no_undo_option,) if verbs.row("job", verb).undoes else ()),
        ):
            fn = option(fn)
        return console.options(fn)

    return decorate


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
    """Let jobs of scheduled or retry be due at another time."""
    if (delay is None) == (when is None):
        raise BadOption("give --in or --at, and not both")
    span = None if delay is None else read_span(delay, "--in")
    at = None if when is None else read_moment(when).timestamp()
    with console.opened(redis, namespace) as admin:
        outcomes = [admin.reschedule(job_id, at=at, delay=span, state=state) for job_id in ids]
    console.conclude(outcomes, as_json=as_json)


@jobs.command(epilog="Example: dayjob jobs move --where 'name=mail source=42' --to mail_slow")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--to", required=True, metavar="NAME", help="The job name under which they shall wait.")
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
    """Let waiting jobs wait under another name, in their order, to be run as that job."""
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


@jobs.command(epilog="Example: dayjob jobs types --sort -timeout")
@console.sort_option(sorting.JOB_TYPES)
@console.options
def types(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the job types that pools have announced, with their arguments and options."""
    with console.opened(redis, namespace) as admin:
        found = admin.job_types(sort=sort)
    if as_json:
        console.emit(found)
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


def perform(
    verb: Verb,
    default: State | None,
    *,
    ids: tuple[str, ...],
    state: Any,
    where: str | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
    no_undo: bool = False,
    everything: bool = False,
) -> None:
    """One action on jobs by ID, or on all that match. Raises BadOption, UsageError."""
    if bool(ids) == (where is not None or everything):
        raise BadOption("give IDs, or --where with conditions; not both")
    if ids and limit is not None:
        raise BadOption("--limit goes with --where")
    if where is not None and filter_of(where).empty and not everything:
        raise BadOption("--where has no condition: write one, such as name=mail")
    with console.opened(redis, namespace) as admin:
        if ids:
            if dry_run:
                _preview_ids(admin, verb, ids, as_json=as_json)
            _on_ids(admin, verb, ids, state, undo=not no_undo, yes=yes, as_json=as_json)
            return
        chosen = state or default
        if chosen is None:
            states = "|".join(verbs.row("job", verb).bulk)
            raise BadOption(f"--where needs a state to {verb} jobs: add --state {states}")
        if dry_run:
            _preview(admin, verb, chosen, where, limit, as_json=as_json)
        _on_all(admin, verb, chosen, where, limit, undo=not no_undo, yes=yes, as_json=as_json)


def _preview_ids(admin: Admin, verb: Verb, ids: tuple[str, ...], *, as_json: bool) -> NoReturn:
    found = {job_id: admin.job(job_id) for job_id in ids}
    if as_json:
        console.emit(found)
    for job_id, one in found.items() if not as_json else ():
        would = f"would {_word(verb)}: {one.sentence.splitlines()[0]}" if one else "is not found"
        click.echo(clean(f"{job_id}: {would}"))
    sys.exit(0 if all(found.values()) else console.NOT_DONE)


def _on_ids(
    admin: Admin,
    verb: Verb,
    ids: tuple[str, ...],
    state: State | None,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    _confirm(verb, counted(len(ids), "job"), yes=yes, undo=undo)
    jobs = [Seen(job_id, state) for job_id in ids]
    outcomes: list[Outcome] = []
    for first in range(0, len(jobs), MAX_SELECTED):
        outcomes += admin.selection(verb, jobs[first : first + MAX_SELECTED], undo=undo)
    console.conclude(outcomes, as_json=as_json)


def _on_all(
    admin: Admin,
    verb: Verb,
    state: State,
    where: str | None,
    limit: int | None,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    count = admin.count(state, where=where)
    number = count.matched if limit is None else min(limit, count.matched)
    if not count.matched and count.complete:
        _ended(f"None of {counted(count.total, 'job')} in {state} matches.", as_json=as_json)
    _confirm(verb, f"{_about(count, number)} in {state}", yes=yes, undo=undo)
    with console.meter(f"{_word(verb)}", quiet=as_json) as report:
        tally = admin.apply(verb, state, where=where, most=limit, progress=report, undo=undo)
    console.show_tally(tally, as_json=as_json)
    if not tally.changed:
        sys.exit(console.NOT_DONE)


def _ended(message: str, *, as_json: bool) -> None:
    if as_json:
        console.emit({"searched": 0, "matched": 0, "changed": 0, "message": message})
    else:
        click.echo(message, err=True)
    sys.exit(console.NOT_DONE)


def _preview(
    admin: Admin, verb: Verb, state: State, where: str | None, limit: int | None, *, as_json: bool
) -> NoReturn:
    show_preview(admin.preview(verb, state, where=where, most=limit), _word(verb), state, as_json=as_json)


def show_preview(found: Preview, word: str, state: State, *, as_json: bool) -> NoReturn:
    """Print what an action would change, and exit: with 1 if nothing."""
    if as_json:
        console.emit({"count": found.count, "would_change": found.would_change, "some": found.samples})
    else:
        about = _about(found.count, found.would_change)
        click.echo(f"Would {word} {about} in {state}.")
        if found.samples:
            _print_table(JobPage(found.now, state, found.count.total, found.samples))
            click.echo(f"{len(found.samples):,} of {about} shown", err=True)
    sys.exit(0 if found.would_change else console.NOT_DONE)


def _about(count: Count, number: int) -> str:
    return counted(number, "job") if count.complete else f"at least {counted(number, 'job')}"


def _confirm(verb: Verb, what: str, *, yes: bool, undo: bool) -> None:
    row = verbs.row("job", verb)
    if row.asks:
        good = "" if undo or not row.undoes else " for good"
        console.confirm(f"{row.label} {what}{good}?", yes=yes)


def _word(verb: Verb) -> str:
    """The verb as its command spells it."""
    return verbs.row("job", verb).command.split()[-1]

"""`dayjob queues`: list, show, pause, resume, limit and purge queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from dayjob.admin import sorting, verbs
from dayjob.admin.views import Outcome, Quantiles, QueueDetail, QueuesView, QueueView
from dayjob.cli import completions, console, queue_keys
from dayjob.cli.console import ago, clean, took
from dayjob.cli.group import group
from dayjob.cli.job_actions import show_preview
from dayjob.cli.limits import limits_of
from dayjob.errors import BadOption, UnknownQueue
from dayjob.text import counted

_names_argument = click.argument(
    "names", metavar="[NAME|PATTERN]...", nargs=-1, shell_complete=completions.queues
)
_all_option = click.option("--all", "everything", is_flag=True, help="All queues of the namespace.")
_force_option = click.option("--force", is_flag=True, help="Accept a queue that does not exist yet.")


@group(epilog="Example: dayjob queues ls")
def queues() -> None:
    """List, show, pause, resume, limit and purge queues. Each job name has its own queue."""


@queues.command(epilog="Example: dayjob queues ls --sort -waiting")
@console.sort_option(sorting.QUEUES)
@console.options
def ls(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show every queue: waiting jobs, age of the oldest, workers, jobs in and out per minute."""
    with console.opened(redis, namespace) as admin:
        found = admin.queues(sort=sort)
    if as_json:
        console.emit(found)
    elif found.queues:
        _print_all(found)
    else:
        click.echo(
            f'No queues yet in namespace "{namespace}". --namespace or DAYJOB_NAMESPACE chooses another one.'
        )


def _print_all(found: QueuesView) -> None:
    rows = [
        (
            view.queue.name, f"{view.queue.size:,}", ago(view.queue.age), f"{view.running:,}", view.crew,
            "" if view.incoming is None else f"{view.incoming:,.0f}", f"{view.out:,.0f}",
            "" if not view.failing else f"{view.failing:.0%}", "" if view.queue.limit is None else f"{view.queue.limit:,}",
            view.drain.text, _remark(view, found.now),
        )
        for view in found.queues
    ]  # fmt: skip
    head = (
        "QUEUE",
        "WAITING",
        "OLDEST",
        "RUNNING",
        "WORKERS",
        "IN/MIN",
        "OUT/MIN",
        "FAILS",
        "LIMIT",
        "EMPTY",
        "",
    )
    console.table(head, rows, right="WAITING OLDEST RUNNING WORKERS IN/MIN OUT/MIN FAILS LIMIT")


def _remark(view: QueueView, now: float) -> str:
    queue = view.queue
    if view.unattended:
        return "no worker"
    if view.obstacle == "wrong_type":
        return "its key has a wrong type"
    if view.obstacle == "paused":
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        return f"paused{by}" + (f" for {ago(now - queue.paused_at)}" if queue.paused_at else "")
    return "at its limit" if view.obstacle == "at_limit" else ""


@queues.command(epilog="Example: dayjob queues show send_mail")
@click.argument("name", shell_complete=completions.queues)
@console.options
def show(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one queue: jobs in and out per minute, wait and run times, the next jobs."""
    with console.opened(redis, namespace) as admin:
        found = admin.queue(name)
    if as_json:
        console.emit(found)
    else:
        _print_one(found)


def _print_one(found: QueueDetail) -> None:
    queue = found.view.queue
    oldest = f", the oldest for {ago(queue.age)}" if queue.age is not None else ""
    click.echo(f"{clean(queue.name)}: {counted(queue.size, 'job')} waiting{oldest}")
    if queue.paused:
        by = f" by {clean(found.paused_by)} at {console.when(found.paused_at)}" if found.paused_by else ""
        click.echo(f"paused{by}")
    click.echo(
        f"workers  {found.view.crew} in {counted(len(found.pools), 'pool')}, {found.view.running:,} running"
    )
    about = "" if found.incoming_exact else "about "
    click.echo(f"in/min   {about}{found.incoming:,.1f}")
    click.echo(f"out/min  {found.view.out:,.1f}")
    click.echo(f"empty    {found.view.drain.text}")
    if found.view.failing is not None:
        click.echo(f"fails    {found.view.failing:.0%} of the last five minutes")
    if found.view.utilisation is not None:
        click.echo(f"busy     about {found.view.utilisation:.0%} of its workers' time")
    if queue.limit is not None:
        click.echo(f"limit    {queue.held:,} of {queue.limit:,} held")
    for label, text in limits_of(found):
        click.echo(f"{label:<8} {clean(text)}")
    click.echo(f"waited   {_times(found.waits)}")
    click.echo(f"ran      {_times(found.runs)}")
    totals = ", ".join(f"{counter} {number:,}" for counter, number in found.totals.items())
    click.echo(f"totals   {totals or 'none'}")
    _print_links(found)
    if found.next:
        click.echo()
        rows = [(job.id, ago(found.now - job.due_at) if job.due_at else "", job.args) for job in found.next]
        console.table(("NEXT", "WAITS", "ARGUMENTS"), rows, right="WAITS")


def _print_links(found: QueueDetail) -> None:
    """What leads on from a queue: its job type, schedules, running jobs and failures."""
    if found.job_type is not None:
        click.echo(clean(f"type     {found.job_type.signature}"))
    for schedule in found.schedules:
        click.echo(clean(f"schedule {schedule.name}: {schedule.english}"))
    for worker in found.busy[:5]:
        on = f"{worker.host}/{worker.pid}"
        click.echo(clean(f"runs     {worker.worker.id} for {ago(worker.running_for)} on {on}"))
    for one in found.failures[:5]:
        click.echo(clean(f"failing  {one.retry:,} in retry, {one.dead:,} dead: {one.kind}"))


def _times(found: Quantiles) -> str:
    if not found.count:
        return "no figures in the last hour"
    return (
        f"median {took(found.p50)}, p95 {took(found.p95)}, p99 {took(found.p99)} (last hour, {found.count:,})"
    )


@queues.command(epilog="Example: dayjob queues pause 'mail.*'")
@_names_argument
@_all_option
@_force_option
@console.options
def pause(
    names: tuple[str, ...],
    everything: bool,
    force: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Stop fetching from queues, by name or by a pattern such as 'mail.*'. Running jobs continue.

    Exits with 1 if a queue that you named was paused already. A pattern and --all skip paused queues.
    """
    with console.opened(redis, namespace) as admin:
        _each(
            lambda name: admin.pause(name, force=force), _chosen(names, everything, "pause"),
            as_json=as_json, matching=admin.pause_matching,
        )  # fmt: skip


@queues.command(epilog="Example: dayjob queues resume --all")
@_names_argument
@_all_option
@console.options
def resume(
    names: tuple[str, ...], everything: bool, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Fetch from queues again, by name or by a pattern such as 'mail.*'.

    Exits with 1 if a queue that you named was not paused. A pattern and --all skip queues that are not paused.
    """
    with console.opened(redis, namespace) as admin:
        chosen = _chosen(names, everything, "resume")
        _each(admin.resume, chosen, as_json=as_json, matching=admin.resume_matching)


def _chosen(names: tuple[str, ...], everything: bool, verb: str) -> tuple[str, ...]:
    if bool(names) == everything:
        raise BadOption(f"which queues? Give names, patterns or --all: dayjob queues {verb} 'mail.*'")
    return ("*",) if everything else names


def _each(
    act: Callable[[str], Outcome],
    names: Sequence[str],
    *,
    as_json: bool,
    matching: Callable[[str], Sequence[Outcome]] | None = None,
) -> None:
    """Act on each queue, or on all that match a pattern. Unknown names are reported at the end. Raises BadOption."""
    outcomes: list[Outcome] = []
    unknown: list[UnknownQueue] = []
    for name in names:
        try:
            if matching is not None and set(name) & set("*?["):
                outcomes += matching(name)
            else:
                outcomes.append(act(name))
        except UnknownQueue as error:
            unknown.append(error)
    if unknown:
        if outcomes:
            console.show(outcomes, as_json=as_json)
        raise BadOption("\n".join(f"{error.problem}\n    {error.advice('--force')}" for error in unknown))
    if not outcomes and not as_json:
        click.echo("No queue had to be changed.")
    console.conclude(outcomes, as_json=as_json)


@queues.command(epilog="Example: dayjob queues limit export_report 2")
@click.argument("name", shell_complete=completions.queues)
@click.argument("number", metavar="NUMBER|none")
@_force_option
@console.options
def limit(name: str, number: str, force: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """Limit how many jobs of a queue run at once, over all pools. `none` removes the limit."""
    if number != "none" and not number.isdecimal():
        raise BadOption(f"{number!r}: give a number, or none to remove the limit")
    wanted = None if number == "none" else int(number)
    with console.opened(redis, namespace) as admin:
        _each(lambda one: admin.limit(one, wanted, force=force), [name], as_json=as_json)


@queues.command(epilog="Example: dayjob queues purge send_mail --yes")
@click.argument("name", shell_complete=completions.queues)
@console.yes_option
@console.no_undo_option
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@console.options
def purge(
    name: str, yes: bool, no_undo: bool, dry_run: bool, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Delete every waiting job of a queue. Jobs that arrive later stay. `dayjob undo` puts them back within ten minutes."""
    with console.opened(redis, namespace) as admin:
        size = admin.queue(name).view.queue.size
        if dry_run:
            show_preview(admin.preview_purge(name), "delete", "waiting", as_json=as_json)
        if verbs.row("queue", "purge").asks:
            good = " for good" if no_undo else ""
            console.confirm(f'Delete {counted(size, "job")} of the queue "{name}"{good}?', yes=yes)
        with console.meter("deleted", quiet=as_json) as report:
            tally = admin.purge(name, progress=report, undo=not no_undo)
    console.show_tally(tally, as_json=as_json)


queues.add_command(queue_keys.keys)
queues.add_command(queue_keys.key_, "key")

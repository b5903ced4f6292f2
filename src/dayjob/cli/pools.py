"""`dayjob pools`: lists worker pools, shows one and its stacks, and asks them to go quiet, resume or stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

import click

from dayjob.admin import sorting, verbs
from dayjob.admin.client import Admin
from dayjob.admin.detail_views import PoolDetail
from dayjob.admin.views import Pool, PoolsView, Stacks
from dayjob.cli import completions, console
from dayjob.cli.console import ago, clean
from dayjob.cli.group import group
from dayjob.cli.history import print_attempts
from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.text import counted, read_span

F = TypeVar("F", bound=Callable[..., Any])

#: How many attempts that a pool ended are printed.
MAX_ATTEMPTS = 20
#: Seconds between two looks at the pools of `quiet --wait`.
POLL_SECONDS = 0.5


@group(epilog="Example: dayjob pools ls")
def pools() -> None:
    """List worker pools, show the stacks of their workers, and ask them to go quiet, to resume or to stop."""


@pools.command(epilog="Example: dayjob pools ls --sort -memory")
@console.sort_option(sorting.POOLS)
@console.options
def ls(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the pools: host, busy workers, memory and remaining lease."""
    with console.opened(redis, namespace) as admin:
        found = admin.pools(sort=sort)
    if as_json:
        console.emit(found)
    else:
        _print(found)


def _print(found: PoolsView) -> None:
    if not found.pools:
        click.echo("No pool is running. Start one: dayjob worker app.jobs:pool")
    else:
        rows = [_row(pool, leads=pool.id == found.leader) for pool in found.pools]
        head = ("POOL", "HOST", "PID", "BUSY", "MEMORY", "VERSION", "LEASE", "TAG", "", "JOBS")
        console.table(head, rows, right="PID BUSY MEMORY LEASE")
    for one in found.condemned:
        click.echo(f"dead: {console.clean(one.id)}, {counted(one.held, 'attempt')} to be rescued")


def _row(pool: Pool, *, leads: bool) -> tuple[object, ...]:
    status = pool.status
    lease = ago(pool.lease) if pool.lease > 0 else "no heartbeat"
    if status is None:
        return pool.id, "", "", "", "", "", lease, "", "no status reported yet", ""
    quiet = "stopping " if status.stopping else "quiet " if status.quiet else ""
    state = ", ".join(filter(None, [f"{quiet}{'leader' if leads else ''}".strip(), *status.troubles]))
    busy = f"{sum(status.running.values()):,}/{status.concurrency:,}"
    names = ", ".join(status.names[:5]) + (
        f" and {len(status.names) - 5:,} more" if len(status.names) > 5 else ""
    )
    memory = f"{status.rss / (1 << 20):,.0f} MiB" if status.rss else ""
    return pool.id, status.host, status.pid, busy, memory, status.version, lease, status.tag, state, names


@pools.command(epilog="Example: dayjob pools show 5f1c0a...")
@click.argument("pool_id", metavar="ID", shell_complete=completions.pools)
@console.options
def show(pool_id: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one pool: its process, its busy workers, what it ended last, and what operators did to it."""
    with console.opened(redis, namespace) as admin:
        found = admin.pool(pool_id)
    if as_json:
        console.emit(found)
    else:
        _print_one(found)


def _print_one(found: PoolDetail) -> None:
    pool = found.pool
    if pool is None:
        dead = f"; it died at {console.when(found.died_at)}" if found.died_at else ""
        click.echo(clean(f"pool {found.id} is gone{dead}. It holds {counted(found.held, 'attempt')}."))
    elif pool.status is None:
        click.echo(clean(f"pool {found.id} has not reported a status yet"))
    else:
        status = pool.status
        state = "stopping" if status.stopping else "quiet" if status.quiet else "running"
        for label, value in (
            ("pool", found.id),
            ("process", f"{status.host}/{status.pid}" + (f" ({status.tag})" if status.tag else "")),
            ("state", state + (", leader" if found.leads else "") + (", no heartbeat" if pool.lease <= 0 else "")),
            ("busy", f"{sum(status.running.values()):,} of {counted(status.concurrency, 'worker')}, {found.held:,} held"),
            ("memory", f"{status.rss / (1 << 20):,.0f} MiB" if status.rss else "not known"),
            ("up", ago(found.now - status.started_at)),
            ("version", f"dayjob {status.version}, Python {status.python}"),
            ("jobs", ", ".join(status.names)),
            ("schedules", ", ".join(status.schedules or ()) or "none"),
            *(("trouble", one) for one in status.troubles),
        ):  # fmt: skip
            click.echo(f"{label:<11}{clean(value)}")
    for one in found.workers:
        checkin = f": {one.worker.checkin}" if one.worker.checkin else ""
        click.echo(clean(f"runs {one.worker.name} {one.worker.id} for {ago(one.running_for)}{checkin}"))
    for event in found.events:
        click.echo(clean(f"{console.when(event.at)} {event.text}"))
    if found.ended:
        print_attempts(found.ended[:MAX_ATTEMPTS])
    for entry in found.actions:
        click.echo(clean(f"{console.when(entry.at)} {entry.actor}: {entry.action}: {entry.result}"))


@pools.command(epilog="Example: dayjob pools busy --sort left")
@console.sort_option(sorting.BUSY)
@console.options
def busy(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the workers that have run a job for more than 0.5 s, the longest first: what each does, and which are stuck."""
    with console.opened(redis, namespace) as admin:
        found = admin.busy(sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found:
        click.echo("No worker has run a job for more than 0.5 s.")
        return
    rows = [
        (
            one.worker.id, one.worker.name, ago(one.running_for), "past its timeout" if one.worker.stuck else "",
            f"{one.host}/{one.pid}", "" if one.progress is None else f"{one.progress:.0%}", one.worker.checkin,
        )
        for one in found
    ]  # fmt: skip
    console.table(("ID", "JOB", "FOR", "STATE", "WHERE", "DONE", "CHECK-IN"), rows, right="FOR DONE")


# Requests.


def _chosen(fn: F) -> F:
    """Options that choose pools: by ID, by host, or all."""
    for option in (
        click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completions.pools),
        click.option("--host", help="All pools on this machine, as `pools ls` shows it."),
        click.option("--all", "everything", is_flag=True, help="All pools of the namespace."),
        click.option("--dry-run", is_flag=True, help="Only show which pools would be asked."),
    ):
        fn = option(fn)
    return fn


@pools.command(epilog="Example: dayjob pools quiet --host web-3 --wait")
@_chosen
@click.option("--wait", is_flag=True, help="Wait until these pools run nothing more, or are gone.")
@click.option(
    "--timeout", default="10m", show_default=True, metavar="SPAN", help="How long to wait; then exits with 1."
)
@console.options
def quiet(wait: bool, timeout: str, **given: Any) -> None:
    """Ask pools to stop fetching. Running jobs continue. Pools react at their next heartbeat, within 5 seconds."""
    _ask("quiet", **given, wait=read_span(timeout, "--timeout") if wait else None)


@pools.command(epilog="Example: dayjob pools resume --host web-3")
@_chosen
@console.options
def resume(**given: Any) -> None:
    """Ask quiet pools to fetch jobs again, from their next heartbeat on."""
    _ask("resume", **given)


@pools.command(epilog="Example: dayjob pools stop 5f1c0a... --yes")
@_chosen
@console.yes_option
@console.options
def stop(**given: Any) -> None:
    """Ask pools to stop as after TERM. A supervised process is not restarted; after the last one its parent exits."""
    _ask("stop", **given)


def _ask(
    verb: Literal["quiet", "resume", "stop"],
    *,
    ids: tuple[str, ...],
    host: str | None,
    everything: bool,
    dry_run: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
    yes: bool = True,
    wait: float | None = None,
) -> None:
    row = verbs.row("pool", verb)
    if sum((bool(ids), host is not None, everything)) != 1:
        raise BadOption(f"which pools? Give IDs, --host or --all: dayjob pools {verb} --host web-3")
    with console.opened(redis, namespace) as admin:
        wanted = list(ids) or _of_host(admin.pools(), host)
        if dry_run:
            if as_json:
                console.emit(wanted)
            else:
                for pool_id in wanted:
                    click.echo(clean(f"would {verb} pool {pool_id}"))
            return
        if row.asks:
            console.confirm(f"{row.label} {counted(len(wanted), 'pool')}?", yes=yes)
        act = {"quiet": admin.quiet, "resume": admin.resume_pool, "stop": admin.stop}[verb]
        outcomes = [act(pool_id) for pool_id in wanted]
        if wait is None:
            console.conclude(outcomes, as_json=as_json)
            return
        console.show(outcomes, as_json=as_json)
        _await_idle(admin, wanted, wait)


def _await_idle(admin: Admin, ids: Collection[str], seconds: float) -> None:
    """Wait until these pools are quiet and run nothing, or are gone. Exits with 1 if that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pool for pool in admin.pools(workers=False).pools if pool.id in ids and not _idle(pool)]
        if not left:
            return
        if time.monotonic() > deadline:
            running = sum(pool.status.in_use for pool in left if pool.status is not None)
            click.echo(
                f"{counted(len(left), 'pool')} with {counted(running, 'running job')} left after {ago(seconds)}.",
                err=True,
            )
            sys.exit(console.NOT_DONE)
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _idle(pool: Pool) -> bool:
    status = pool.status
    return pool.lease <= 0 or (
        status is not None and status.quiet and status.held == 0 and status.in_use == 0
    )


def _of_host(found: PoolsView, host: str | None) -> list[str]:
    hosts = sorted({pool.status.host for pool in found.pools if pool.status is not None})
    wanted = [
        pool.id
        for pool in found.pools
        if host is None or (pool.status is not None and pool.status.host == host)
    ]
    if not wanted:
        near = suggest(host, hosts) if host is not None else ""
        raise BadOption(
            f"no pool runs {f'on {host!r}' if host else 'in this namespace'}{near or '; dayjob pools ls shows all'}"
        )
    return wanted


@pools.command(epilog="Example: dayjob pools stacks 5f1c0a... --own")
@click.argument("pool_id", metavar="ID", shell_complete=completions.pools)
@click.option("--own", is_flag=True, help="Only frames of your own code, without libraries.")
@click.option(
    "--wait", default="10s", show_default=True, metavar="SPAN", help="How long to wait for the answer."
)
@console.options
def stacks(pool_id: str, own: bool, wait: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show the stack of each busy worker of a pool. Exits with 1 if the pool does not answer."""
    with console.opened(redis, namespace) as admin:
        found = admin.stacks(pool_id, wait=read_span(wait, "--wait"))
    if found is None:
        click.echo(clean(f"Pool {pool_id} is gone, or did not answer within {wait}."), err=True)
        sys.exit(console.NOT_DONE)
    if as_json:
        console.emit(found)
    else:
        _print_stacks(found, own=own)


def _print_stacks(found: Stacks, *, own: bool) -> None:
    if not found.workers:
        click.echo("No worker is busy.")
    for worker in found.workers:
        head = clean(f"{worker.name} {worker.id}")
        click.echo(click.style(head, bold=True) + f"  {worker.colour}, running for {ago(worker.running_for)}")
        for frame in worker.frames:
            if frame.own or not own:
                place = clean(f"{frame.file}:{frame.line} in {frame.function}")
                click.echo(click.style(f"  {place}", dim=not frame.own))
                if frame.source:
                    click.echo(click.style(f"      {clean(frame.source)}", dim=not frame.own))

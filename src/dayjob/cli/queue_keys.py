"""`dayjob queues keys` and `dayjob queues key`: the keys of a queue, and what can be done to one."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.admin.views.limits import KeysView, KeyView
from dayjob.cli import completions, console
from dayjob.cli.console import ago
from dayjob.errors import BadOption
from dayjob.text import counted, span


@click.command(epilog="Example: dayjob queues keys transcode")
@click.argument("name", shell_complete=completions.queues)
@click.option(
    "--size", type=click.IntRange(1, 5000), default=100, show_default=True, help="The most keys to list."
)
@console.sort_option(sorting.KEYS)
@console.options
def keys(name: str, size: int, sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the keys of a queue, such as its tenants: those with most waiting jobs first unless sorted otherwise."""
    with console.opened(redis, namespace) as admin:
        found = admin.queue_keys(name, most=size, sort=sort)
    if as_json:
        console.emit(found)
    else:
        _print(found)
        if len(found.keys) == size < found.total:
            click.echo(f"the first {size:,} in this order; --size shows more", err=True)


def _print(found: KeysView) -> None:
    if not found.by and not found.keys:
        click.echo(f"The queue {console.clean(found.queue)} has no keys.")
        return
    by = " and ".join(found.by) or "an older rule"
    click.echo(
        console.clean(f"{counted(found.total, 'key')} by {by} with jobs, {found.held_back:,} held back")
    )
    if found.keys:
        rows = [_columns(one) for one in found.keys]
        head = ("KEY", "WAITING", "SHARE", "OLDEST", "RUNNING", "LIMIT", "WEIGHT", "")
        console.table(head, rows, right="WAITING SHARE OLDEST RUNNING LIMIT WEIGHT")


def _columns(one: KeyView) -> tuple[str, ...]:
    limit = "" if one.limit is None else f"{one.limit:,}" + ("*" if one.own_limit else "")
    return (
        one.key or '""', f"{one.waiting:,}", f"{one.share:.0%}", ago(one.oldest), "" if one.running is None else f"{one.running:,}", limit, f"{one.weight:g}",
        remark(one),
    )  # fmt: skip


def remark(one: KeyView) -> str:
    """Why the jobs of a key wait, in a few words; "" if they do not."""
    if one.paused:
        return "paused"
    if one.full:
        return "at its limit"
    return f"next in {span(one.wait)}" if one.wait else ""


@click.command(epilog="Example: dayjob queues key transcode acme --weight 3")
@click.argument("name", shell_complete=completions.queues)
@click.argument("key")
@click.option("--weight", type=float, help="How many turns it takes while another key takes one.")
@click.option(
    "--limit", metavar="NUMBER|code", help="How many of its jobs run at once; code for that of the job type."
)
@click.option("--pause", "action", flag_value="pause", help="Fetch no more of its jobs.")
@click.option("--resume", "action", flag_value="resume", help="Fetch its jobs again.")
@click.option("--purge", "action", flag_value="purge", help="Delete its waiting jobs; undo puts them back.")
@click.option("--yes", is_flag=True, help="Do not ask before a purge.")
@console.options
def key_(
    name: str,
    key: str,
    weight: float | None,
    limit: str | None,
    action: str | None,
    yes: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Set the weight or the limit of one key of a queue; pause, resume or purge it."""
    if sum(one is not None for one in (weight, limit, action)) != 1:
        raise BadOption("what to do? Give one of --weight, --limit, --pause, --resume, --purge")
    if limit is not None and limit != "code" and not (limit.isascii() and limit.isdecimal()):
        raise BadOption(f"--limit {limit!r}: give a number, or code for the limit of the job type")
    with console.opened(redis, namespace) as admin:
        if weight is not None:
            outcome = admin.set_weight(name, key, weight)
        elif limit is not None:
            outcome = admin.limit_key(name, key, None if limit == "code" else int(limit))
        elif action == "purge":
            console.confirm(f'Delete the waiting jobs of "{key}" in the queue "{name}"?', yes=yes)
            console.show_tally(admin.purge_key(name, key), as_json=as_json)
            return
        else:
            outcome = admin.pause_key(name, key) if action == "pause" else admin.resume_key(name, key)
    console.conclude([outcome], as_json=as_json)

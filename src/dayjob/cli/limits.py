"""`dayjob limits`: list, show, set, reset and hold rate limits."""

from __future__ import annotations

import click

from dayjob.admin import sorting
from dayjob.admin.views import QueueDetail
from dayjob.admin.views.limits import LimitView
from dayjob.cli import completions, console
from dayjob.cli.group import group
from dayjob.errors import BadOption
from dayjob.text import counted, span

_key_option = click.option("--key", help="For one key, if the limit counts by key.")


@group(epilog="Example: dayjob limits ls")
def limits() -> None:
    """List, show, set, reset and hold rate limits. `dayjob queues limit` limits how many jobs run at once."""


@limits.command(epilog="Example: dayjob limits ls --sort -waiting")
@console.sort_option(sorting.LIMITS)
@console.options
def ls(sort: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """List the rate limits: what each allows, what is used, and what waits."""
    with console.opened(redis, namespace) as admin:
        found = admin.limits(sort=sort)
    if as_json:
        console.emit(found)
    elif found:
        rows = [(*columns(one), ", ".join(one.queues)) for one in found]
        head = ("LIMIT", "ALLOWS", "USED", "NEXT", "WAITING", "QUEUES")
        console.table(head, rows, right="USED NEXT WAITING")
    else:
        click.echo("No rate limits. A job type has one with @pool.job(limits=[Rate(100, per=1)]).")


def columns(one: LimitView) -> tuple[str, ...]:
    """A limit in words: its name, what it allows, what is used, when the next job may start, how many wait."""
    if one.by:
        allows = f"{one.allows} for each {' and '.join(one.by)}"
        return (
            one.name,
            allows,
            "by key",
            counted(one.keys_held_back, "key") + " held back",
            f"{one.waiting:,}",
        )
    used = f"{one.used:,}" + ("" if one.most is None else f" of {one.most:,}")
    wait = "wrong type" if one.wrong else f"held {span(one.held_for)}" if one.held_for else _wait(one.wait)
    return one.name, one.allows + (" (operator)" if one.by_operator else ""), used, wait, f"{one.waiting:,}"


def limits_of(queue: QueueDetail) -> list[tuple[str, str]]:
    """The limits of a queue in words, each with a label, but for that on how many of its jobs run at once."""
    found = [("per key", queue.per_key)] if queue.per_key else []
    for one in queue.limits:
        name, allows, used, wait, _ = columns(one)
        found.append(
            ("rate", f"{name}: {allows}; " + (wait if one.by else f"{used} used, next start {wait}"))
        )
    return found


def _wait(seconds: float) -> str:
    return span(seconds) if seconds else "now"


@limits.command(epilog="Example: dayjob limits show stripe")
@click.argument("name", shell_complete=completions.limits)
@console.options
def show(name: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one rate limit."""
    with console.opened(redis, namespace) as admin:
        found = admin.limit_of(name)
    if console.emitted(found, as_json=as_json):
        return
    label, allows, used, wait, waiting = columns(found)
    click.echo(f"{console.clean(label)}: {allows}")
    if found.by_operator:
        click.echo(f"code     {found.declared}")
    click.echo(f"used     {used}")
    click.echo(f"next     {wait}")
    for own in found.own_keys:
        click.echo(console.clean(f"key      {own.key}: {own.allows} (operator)"))
    click.echo(f"waiting  {waiting} in {console.clean(', '.join(found.queues)) or 'no queue'}")


@limits.command("set", epilog="Example: dayjob limits set stripe 50 --burst 10")
@click.argument("name", shell_complete=completions.limits)
@click.argument("number", metavar="NUMBER|none|code")
@click.option("--per", type=float, help="Seconds; as before unless given.")
@click.option("--burst", type=int, help="How many may start at once; NUMBER unless given.")
@_key_option
@console.options
def set_(
    name: str,
    number: str,
    per: float | None,
    burst: int | None,
    key: str | None,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Set a rate limit for all pools. `none` lifts it, `code` hands it back to what the code declares."""
    if number not in ("none", "code") and not (number.isascii() and number.isdecimal()):
        raise BadOption(
            f"{number!r}: give a number, none to lift the limit, or code for what the code declares"
        )
    with console.opened(redis, namespace) as admin:
        if number == "none":
            outcome = admin.lift_limit(name, key=key)
        elif number == "code":
            outcome = admin.restore_limit(name, key=key)
        else:
            outcome = admin.set_rate(name, int(number), per=per, burst=burst, key=key)
    console.conclude([outcome], as_json=as_json)


@limits.command(epilog="Example: dayjob limits reset stripe")
@click.argument("name", shell_complete=completions.limits)
@_key_option
@console.options
def reset(name: str, key: str | None, redis: str | None, namespace: str, as_json: bool) -> None:
    """Forget what a limit has counted, and end a hold: its full burst may start at once."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.reset_limit(name, key=key)], as_json=as_json)


@limits.command(epilog="Example: dayjob limits hold stripe 60")
@click.argument("name", shell_complete=completions.limits)
@click.argument("seconds", type=float)
@_key_option
@console.options
def hold(
    name: str, seconds: float, key: str | None, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Start no jobs under a limit for some seconds, in any pool."""
    with console.opened(redis, namespace) as admin:
        console.conclude([admin.hold_limit(name, seconds, key=key)], as_json=as_json)

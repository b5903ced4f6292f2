"""`dayjob redis`: the state of the Redis server, now and over time."""

from __future__ import annotations

import click

from dayjob.admin.views import RedisView, Vitals
from dayjob.cli import console
from dayjob.cli.console import clean, took


@click.command(epilog="Example: dayjob redis --steps --hours 24")
@click.option("--steps", is_flag=True, help="Show each minute, quarter of an hour or hour instead.")
@click.option(
    "--hours", type=click.Choice(["1", "24", "72"]), default="1", show_default=True, help="With --steps."
)
@console.options
def redis(steps: bool, hours: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show the server's memory, clients, commands per second, round trips and slow log; or how they were over time.

    `dayjob doctor` checks its settings.
    """
    with console.opened(redis, namespace) as admin:
        if steps:
            vitals = admin.vitals(int(hours))
        else:
            found = admin.redis()
    if as_json:
        console.emit(vitals if steps else found)
    elif steps:
        _print_steps(vitals)
    else:
        _print_now(found)


def _print_now(found: RedisView) -> None:
    info = found.health.info
    limit = info.get("maxmemory_human", "0B").replace("0B", "no limit")
    for label, value in (
        ("memory", f"{info.get('used_memory_human', '?')} of {limit}"),
        ("clients", info.get("connected_clients", "?")),
        ("commands", f"{info.get('instantaneous_ops_per_sec', '?')} per second"),
        (
            "trips",
            f"p50 {took(found.trips.p50)}, p99 {took(found.trips.p99)}" if found.trips.count else "none",
        ),
    ):
        click.echo(f"{label:<10}{clean(value)}")
    for slow in found.health.slow or ():
        click.echo(f"{'slow':<10}{clean(slow.command)}, {took(slow.seconds)}, {console.when(slow.at)}")


def _print_steps(found: Vitals) -> None:
    rows = [
        (
            console.when(start), _size(found.memory[place]), _number(found.clients[place]), _number(found.commands[place]),
            took(found.trip_p50[place]), took(found.trip_p99[place]), _number(found.busy[place]), _number(found.workers[place]),
        )
        for place, start in enumerate(found.starts)
        if found.memory[place] is not None or found.workers[place] is not None
    ]  # fmt: skip
    if not rows:
        click.echo("Nothing was measured. The leader measures once a minute while a pool runs.")
        return
    head = ("FROM", "MEMORY", "CLIENTS", "COMMANDS/S", "TRIP-P50", "TRIP-P99", "BUSY", "WORKERS")
    console.table(head, rows, right=" ".join(head[1:]))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    return "" if value is None else f"{value / (1 << 20):,.1f} MiB"

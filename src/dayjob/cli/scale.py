"""`dayjob scale`: whether there are enough workers, in a sentence and in figures."""

from __future__ import annotations

import click

from dayjob import text
from dayjob.admin.scale import WITHIN_SECONDS, Scale
from dayjob.cli import console
from dayjob.cli.console import ago, clean, took
from dayjob.errors import BadOption

#: The longest time in which a backlog may be cleared.
MAX_WITHIN_SECONDS = 86_400.0


@click.command(epilog="Example: dayjob scale --within 5m")
@click.option(
    "--within", metavar="SPAN", default=f"{WITHIN_SECONDS:g}s", show_default=True,
    help="The time in which the backlog should be cleared (30s, 5m, 1h); counts for WANTED.",
)  # fmt: skip
@console.options
def scale(within: str, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show whether there are enough workers: which queues fall behind, and how many workers each queue wants."""
    seconds = text.read_span(within, "--within")
    if not 1 <= seconds <= MAX_WITHIN_SECONDS:
        raise BadOption(f"--within {within!r}: give between 1s and 1d")
    with console.opened(redis, namespace) as admin:
        found = admin.scale(seconds)
    if as_json:
        console.emit(found)
    else:
        _print(found)


def _print(found: Scale) -> None:
    click.echo(clean(found.sentence))
    if not found.queues:
        return
    click.echo()
    rows = [
        (
            one.name, f"{one.waiting:,}", ago(one.oldest), "" if one.in_per_minute is None else f"{one.in_per_minute:,.0f}",
            f"{one.out_per_minute:,.0f}", took(one.run_seconds), f"{one.busy:,}", f"{one.capacity:,}",
            "?" if one.wanted is None else f"{one.wanted:,}", "paused" if one.paused else one.drain.text,
        )
        for one in found.queues
    ]  # fmt: skip
    total = found.total
    rows.append(
        (
            "all together", f"{total.waiting:,}", ago(total.oldest), f"{total.in_per_minute:,.0f}", f"{total.out_per_minute:,.0f}",
            "", f"{total.busy:,}", f"{total.capacity:,}", f"{total.wanted:,}", f"{total.stuck:,} stuck" if total.stuck else "",
        )
    )  # fmt: skip
    head = ("QUEUE", "WAITING", "OLDEST", "IN/MIN", "OUT/MIN", "RUN", "BUSY", "WORKERS", "WANTED", "EMPTY")
    console.table(head, rows, right=" ".join(head[1:-1]))

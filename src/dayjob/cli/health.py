"""`dayjob health`: a health check that reports by its exit code."""

from __future__ import annotations

import platform
import sys

import click

from dayjob import text
from dayjob.admin.client import Admin
from dayjob.admin.views import PoolsView, Verdict
from dayjob.cli import console
from dayjob.store.ops.outbox import MAX_SILENCE_SECONDS
from dayjob.text import counted, doing


@click.command(epilog="Example: dayjob health --here --max-wait 5m")
@click.option("--here", is_flag=True, help="A live pool must run on this machine or in this container.")
@click.option(
    "--min-pools", type=click.IntRange(0), default=0, help="At least this many live pools must run."
)
@click.option(
    "--max-wait",
    metavar="SPAN",
    help="No job may have waited longer than this (90s, 5m, 1h), except in paused queues.",
)
@click.option(
    "--max-unsent", metavar="SPAN", help="No row of the outbox may have waited longer than this to be sent."
)
@click.option("--max-dead", type=click.IntRange(0), help="At most this many jobs may be dead.")
@console.options
def health(
    here: bool,
    min_pools: int,
    max_wait: str | None,
    max_unsent: str | None,
    max_dead: int | None,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Exit with 0 if all conditions hold, 1 if one does not, 69 if Redis cannot be reached.

    Without options the only condition is that Redis answers. Other warnings are printed and do not change the exit code.
    """
    most = None if max_wait is None else text.read_span(max_wait, "--max-wait")
    with console.opened(redis, namespace) as admin:
        problems = [
            *_pools(admin.pools(), here=here, least=min_pools), *_waits(admin, most), *_dead(admin, max_dead),
        ]  # fmt: skip
        verdict = admin.verdict()
    problems += _outbox(verdict, max_unsent)
    if as_json:
        state = {"level": verdict.level, "verdict": verdict.sentence}
        console.emit({"healthy": not problems, "problems": problems, **state})
    else:
        for problem in problems:
            click.echo(console.clean(problem), err=True)
        if not problems:
            fine = verdict.level in ("ok", "notice")
            click.echo("healthy" if fine else console.clean(f"Redis answers. {verdict.sentence}"))
    sys.exit(1 if problems else 0)


def _outbox(verdict: Verdict, max_unsent: str | None) -> list[str]:
    if max_unsent is None:
        return []
    most = text.read_span(max_unsent, "--max-unsent")
    if verdict.unsent_age > most:
        oldest = text.span(verdict.unsent_age)
        return [f"{counted(verdict.unsent, 'row')} of the outbox not sent, the oldest for {oldest}"]
    if verdict.relay_silence > max(most, MAX_SILENCE_SECONDS):
        return [f"no relay has read the outbox for {text.span(verdict.relay_silence)}"]
    return []


def _pools(found: PoolsView, *, here: bool, least: int) -> list[str]:
    live = [pool for pool in found.pools if pool.lease > 0]
    problems = []
    if len(live) < least:
        problems.append(f"{doing(len(live), 'pool', 'run')}, not {least:,}")
    if here and not any(pool.status and pool.status.host == platform.node() for pool in live):
        problems.append(f"no live pool on {platform.node()}")
    return problems


def _waits(admin: Admin, most: float | None) -> list[str]:
    if most is None:
        return []
    return [
        f"{view.queue.name}: the oldest job has waited for {text.span(view.queue.age)}"
        for view in admin.queues().queues
        if view.queue.age is not None and view.queue.age > most and view.obstacle != "paused"
    ]


def _dead(admin: Admin, most: int | None) -> list[str]:
    if most is None:
        return []
    dead = admin.count("dead").total
    return [f"{counted(dead, 'job')} dead, more than {most:,}"] if dead > most else []

"""`dayjob stats`: the verdict and every queue, once or repeatedly."""

from __future__ import annotations

import os
import sys
import time

import click
import msgspec

from dayjob import text
from dayjob.admin import sorting
from dayjob.admin.client import Admin
from dayjob.admin.views import QueuesView, Verdict
from dayjob.cli import console
from dayjob.cli.queues import _print_all
from dayjob.errors import StoreError
from dayjob.text import counted, escaped_json

_COLOURS = {"ok": "green", "notice": "cyan", "warning": "yellow", "error": "red"}


@click.command(epilog="Example: dayjob stats --watch --every 5s")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C; redrawn in place on a terminal.")
@click.option("--every", default="2s", show_default=True, metavar="SPAN", help="How often, with --watch.")
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after this many times.")
@console.sort_option(sorting.QUEUES)
@console.options
def stats(
    watch: bool, every: str, times: int | None, sort: str, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Show what is wrong, worst first, then every queue."""
    pause = text.read_span(every, "--every")
    live = watch and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not as_json
    rounds = (times or sys.maxsize) if watch else 1
    with console.opened(redis, namespace) as admin:
        while True:
            try:
                _show(admin, sort, as_json=as_json, lines=watch, live=live)
            except StoreError as error:
                if not watch:
                    raise
                click.echo(f"{error}", err=True)
            rounds -= 1
            if rounds <= 0:
                return
            sys.stdout.flush()
            try:
                time.sleep(pause)
            except KeyboardInterrupt:
                return


def _show(admin: Admin, sort: str, *, as_json: bool, lines: bool, live: bool) -> None:
    verdict, queues = admin.verdict(), admin.queues(sort=sort)
    if as_json:
        answer = {"verdict": verdict, "queues": queues.queues}
        if lines:
            click.echo(escaped_json(msgspec.json.encode(console.plain(answer)).decode()))
        else:
            console.emit(answer)
        return
    if live:
        click.echo("\x1b[H\x1b[2J", nl=False)
    _print(verdict, queues)


def _print(verdict: Verdict, queues: QueuesView) -> None:
    sizes = verdict.sizes
    click.echo(click.style(console.clean(verdict.sentence), fg=_COLOURS[verdict.level]))
    click.echo(
        f"{console.when(verdict.now)}  {counted(verdict.waiting, 'job')} waiting, {verdict.running:,} running,"
        f" {sizes.scheduled:,} scheduled, {sizes.retry:,} in retry, {sizes.dead:,} dead"
    )
    for note in verdict.notes:
        longer = " or longer" if note.or_earlier else ""
        since = f" (for {text.span(verdict.now - note.since)}{longer})" if note.since else ""
        click.echo(console.clean(f"- {note.text}{since}: {note.todo}"))
    if queues.queues:
        click.echo()
        _print_all(queues)

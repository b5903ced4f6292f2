"""`dayjob export` and `dayjob import`: every job of a namespace as JSON lines, and back."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from dayjob.admin.transfer import Moved
from dayjob.admin.views import BulkProgress, State
from dayjob.cli import console, target
from dayjob.text import counted

_SETS: tuple[State, ...] = ("scheduled", "retry", "dead")


@click.command(epilog="Example: dayjob export jobs.jsonl --namespace shop")
@click.argument("file", type=click.File("wb"), default="-")
@target.options
@target.app_option
def export(file: BinaryIO, redis: str | None, namespace: str) -> None:
    """Write every waiting, scheduled, retried and dead job as JSON lines, to FILE or stdout.

    Arguments are written in clear text, including secrets. Running jobs are left out. For an exact copy stop the workers
    first, because jobs that move during the export may be missing or appear twice. Reads in bounded steps.
    """
    with console.opened(redis, namespace) as admin, console.meter("written") as report:
        total = sum(view.queue.size for view in admin.queues().queues)
        total += sum(admin.count(state).total for state in _SETS)
        done = -1

        def put(line: bytes) -> None:
            nonlocal done
            file.write(line)
            done += 1
            if done % 1000 == 0:
                report(BulkProgress(done, total, done, done))

        moved = admin.export(put)
    file.flush()
    _summary("Exported", moved, err=True)
    if moved.left_out:
        click.echo(f"{counted(moved.left_out, 'job')} running and not exported.", err=True)
    if moved.changed:
        click.echo(f"Changed while they were read: {console.clean(', '.join(moved.changed))}.", err=True)


@click.command("import", epilog="Example: dayjob import jobs.jsonl --namespace shop_copy")
@click.argument("file", type=click.File("rb"), default="-")
@console.options
def import_(file: BinaryIO, redis: str | None, namespace: str, as_json: bool) -> None:
    """Store the jobs that `dayjob export` wrote, from FILE or stdin; also in another namespace or on another server.

    Jobs are added to those in the namespace. If the import is interrupted, repeat it within an hour: no job is stored
    twice. It prints how many jobs were new. A truncated file is imported as far as it goes, and reported. Unique jobs whose
    key is held by another job are left out.
    """
    with console.opened(redis, namespace) as admin, console.meter("imported", quiet=as_json) as report:
        moved = admin.load(file, progress=lambda done: report(BulkProgress(done, done, done, done)))
    if as_json:
        console.emit({"counts": moved.counts, "already_there": moved.there, "left_out": moved.left_out})
        return
    _summary("Imported", moved, err=False)
    if moved.there:
        were = "was" if moved.there == 1 else "were"
        click.echo(f"{counted(moved.there, 'job')} of this export {were} there already.", err=True)
    if moved.left_out:
        click.echo(f"{counted(moved.left_out, 'unique job')} left out: other jobs hold their keys.", err=True)


def _summary(verb: str, moved: Moved, *, err: bool) -> None:
    parts = ", ".join(f"{number:,} {state}" for state, number in moved.counts.items() if number)
    click.echo(f"{verb} {counted(moved.total, 'job')}{f' ({parts})' if parts else ''}.", err=err)
    sys.stderr.flush()

"""Shared by the operator's commands: the connection, tables and JSON, confirmation, progress, exit codes."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from dayjob import text
from dayjob.admin.client import Admin
from dayjob.admin.sorting import SortTable
from dayjob.admin.views import BrokenEntry, BulkProgress, JobView, Outcome, Tally
from dayjob.cli import completions, target
from dayjob.errors import UsageError
from dayjob.text import escaped_json, span

F = TypeVar("F", bound=Callable[..., Any])

#: Exit code if nothing was changed: the job is in another state, or nothing matched.
NOT_DONE = 1
#: Seconds between two lines of progress if there is no terminal.
_PROGRESS_SECONDS = 5.0

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
no_undo_option = click.option(
    "--no-undo",
    is_flag=True,
    help="Delete for good: the jobs do not go to the bin, and their memory is free at once.",
)


def options(fn: F) -> F:
    """Give a command --json, --redis, --namespace and --app."""
    return json_option(target.options(target.app_option(fn)))


def opened(redis: str | None, namespace: str) -> Admin:
    """The admin of a namespace; use it in a `with`."""
    return Admin(namespace, redis=redis)


def sort_option(table: SortTable[Any]) -> Callable[[F], F]:
    """Give a command that lists something the option --sort."""
    columns = ", ".join(table.columns)
    return click.option(
        "--sort", default="", metavar="COLUMN", shell_complete=completions.columns(table),
        help=f"Sort by {columns}; a minus puts the greatest first. Default: {table.default}.",
    )  # fmt: skip


# Output.


def clean(text: object) -> str:
    """Untrusted text on one line of a terminal, without control characters, which could change the screen."""
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in str(text))).strip()


def plain(value: Any) -> Any:
    """Any answer as JSON values, without the raw bytes of jobs and broken entries, which contain redacted values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hidden = (
            {"payload"}
            if isinstance(value, JobView)
            else {"entry"}
            if isinstance(value, BrokenEntry)
            else set()
        )
        names = [field.name for field in dataclasses.fields(value) if field.name not in hidden]
        found = {name: plain(getattr(value, name)) for name in names}
        return {**found, "size": value.size} if isinstance(value, JobView) else found
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def emit(value: Any) -> None:
    """Print an answer as JSON."""
    click.echo(escaped_json(msgspec.json.format(msgspec.json.encode(plain(value))).decode()))


def emitted(value: Any, *, as_json: bool) -> bool:
    """Print an answer as JSON if that was asked for. Returns whether it was."""
    if as_json:
        emit(value)
    return as_json


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, right: str = "") -> None:
    """Print a table. Columns named in `right` are right-aligned; the last column is cut to the width of the screen."""
    cells = [[clean(cell) for cell in row] for row in rows]
    width = [max(len(head[i]), *(len(row[i]) for row in cells), 0) for i in range(len(head))]
    flush = right.split()
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    click.echo(click.style(_row(head, head, width, flush)[:most].rstrip(), bold=True))
    for row in cells:
        click.echo(_row(head, row, width, flush)[:most].rstrip())


def _row(head: Sequence[str], row: Sequence[str], width: list[int], flush: list[str]) -> str:
    return "  ".join(
        cell.rjust(width[i]) if head[i] in flush else cell.ljust(width[i]) for i, cell in enumerate(row)
    )


def when(at: float | None) -> str:
    """A point in time in the time zone of this machine, with its name."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def ago(seconds: float | None) -> str:
    """A duration, or an empty string."""
    return "" if seconds is None else span(seconds)


def attempt_number(job: JobView) -> tuple[str, int]:
    """A label and a number: how many attempts were made if the job ended, else the number of the current or next one."""
    return ("attempts", job.attempts) if job.state in ("retry", "dead") else ("attempt", job.attempt)


def took(seconds: float | None) -> str:
    """A duration of a job, which may be short."""
    return "" if seconds is None else text.took(seconds)


# Confirmation and results.


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is deleted. Raises UsageError if there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question}\n    There is no terminal to ask on: add --yes to confirm.")
    click.confirm(question, abort=True, err=True)


def show(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print the results of actions."""
    if as_json:
        emit(outcomes)
        return
    for one in outcomes:
        click.echo(clean(f"{one.subject}: {one.message}"), err=not one.done)
    for deletion in dict.fromkeys(one.undo for one in outcomes if one.undo):
        offer_undo(deletion)


def offer_undo(deletion: str) -> None:
    """Print how to undo a deletion."""
    click.echo(f"Undo within ten minutes: dayjob undo {deletion}", err=True)


def show_tally(tally: Tally, *, as_json: bool) -> None:
    """Print what became of an action on many jobs."""
    if as_json:
        emit(tally)
        return
    click.echo(tally.message)
    if tally.undo:
        offer_undo(tally.undo)


def conclude(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print the results of actions, and exit with 1 if one of them changed nothing."""
    show(outcomes, as_json=as_json)
    if not all(one.done for one in outcomes):
        sys.exit(NOT_DONE)


@contextlib.contextmanager
def meter(what: str, *, quiet: bool = False) -> Iterator[Callable[[BulkProgress], None]]:
    """Report progress on stderr: a bar on a terminal, else a line every few seconds."""
    drawn, last = False, time.monotonic()
    live = sys.stderr.isatty()

    def report(progress: BulkProgress) -> None:
        nonlocal drawn, last
        if quiet or (not live and time.monotonic() - last < _PROGRESS_SECONDS):
            return
        last = time.monotonic()
        share = progress.searched / max(1, progress.total)
        words = f"{what}: {progress.changed:,} of {progress.total:,}"
        words += f" ({progress.message})" if progress.message else ""
        if live:
            drawn = True
            filled = round(share * 30)
            click.echo(f"\r[{'#' * filled}{'.' * (30 - filled)}] {words}\x1b[K", err=True, nl=False)
        else:
            click.echo(f"{words} ({share:.0%})", err=True)

    try:
        yield report
    finally:
        if drawn:
            click.echo("\r\x1b[K", err=True, nl=False)

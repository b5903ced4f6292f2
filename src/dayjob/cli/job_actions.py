"""Actions on jobs by ID, or on all that match a filter: their options, the preview, the question and the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from dayjob.admin import verbs
from dayjob.admin.actions import MAX_SELECTED
from dayjob.admin.client import Admin
from dayjob.admin.filters import filter_of
from dayjob.admin.verbs import Verb
from dayjob.admin.views import Count, JobPage, Outcome, Preview, Seen, State
from dayjob.cli import console
from dayjob.cli.console import clean
from dayjob.cli.job_tables import print_table
from dayjob.errors import BadOption
from dayjob.text import counted

F = TypeVar("F", bound=Callable[..., Any])
_WHERE_HELP = (
    "Only jobs that match: 'name=mail error~Timeout args.user_id=7 not age<1h'; see the guide to the console."
)
where_option = click.option("--where", metavar="CONDITIONS", help=_WHERE_HELP)


def acting(verb: Verb, default: State | None = None) -> Callable[[F], F]:
    """The options of a verb that takes ids or a filter."""

    def decorate(fn: F) -> F:
        help_text = "The state of the jobs." + (f" With --where the default is {default}." if default else "")
        for option in (
            click.argument("ids", metavar="[ID]...", nargs=-1),
            click.option("--state", type=click.Choice(verbs.row("job", verb).states), help=help_text),
            where_option,
            click.option(
                "--limit", type=click.IntRange(1), help="With --where: change at most this many jobs."
            ),
            click.option("--dry-run", is_flag=True, help="Only show what would be changed."),
            console.yes_option,
            *((console.no_undo_option,) if verbs.row("job", verb).undoes else ()),
        ):
            fn = option(fn)
        return console.options(fn)

    return decorate


def perform(
    verb: Verb,
    default: State | None,
    *,
    ids: tuple[str, ...],
    state: Any,
    where: str | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
    no_undo: bool = False,
    everything: bool = False,
) -> None:
    """One action on jobs by ID, or on all that match. Raises BadOption, UsageError."""
    if bool(ids) == (where is not None or everything):
        raise BadOption("give IDs, or --where with conditions; not both")
    if ids and limit is not None:
        raise BadOption("--limit goes with --where")
    if where is not None and filter_of(where).empty and not everything:
        raise BadOption("--where has no condition: write one, such as name=mail")
    with console.opened(redis, namespace) as admin:
        if ids:
            if dry_run:
                _preview_ids(admin, verb, ids, as_json=as_json)
            _on_ids(admin, verb, ids, state, undo=not no_undo, yes=yes, as_json=as_json)
            return
        chosen = state or default
        if chosen is None:
            states = "|".join(verbs.row("job", verb).bulk)
            raise BadOption(f"--where needs a state to {verb} jobs: add --state {states}")
        if dry_run:
            _preview(admin, verb, chosen, where, limit, as_json=as_json)
        _on_all(admin, verb, chosen, where, limit, undo=not no_undo, yes=yes, as_json=as_json)


def _preview_ids(admin: Admin, verb: Verb, ids: tuple[str, ...], *, as_json: bool) -> NoReturn:
    found = {job_id: admin.job(job_id) for job_id in ids}
    if as_json:
        console.emit(found)
    for job_id, one in found.items() if not as_json else ():
        would = f"would {_word(verb)}: {one.sentence.splitlines()[0]}" if one else "is not found"
        click.echo(clean(f"{job_id}: {would}"))
    sys.exit(0 if all(found.values()) else console.NOT_DONE)


def _on_ids(
    admin: Admin,
    verb: Verb,
    ids: tuple[str, ...],
    state: State | None,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    _confirm(verb, counted(len(ids), "job"), yes=yes, undo=undo)
    jobs = [Seen(job_id, state) for job_id in ids]
    outcomes: list[Outcome] = []
    for first in range(0, len(jobs), MAX_SELECTED):
        outcomes += admin.selection(verb, jobs[first : first + MAX_SELECTED], undo=undo)
    console.conclude(outcomes, as_json=as_json)


def _on_all(
    admin: Admin,
    verb: Verb,
    state: State,
    where: str | None,
    limit: int | None,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    count = admin.count(state, where=where, most=None)
    number = count.matched if limit is None else min(limit, count.matched)
    if not count.matched and count.complete:
        _ended(f"None of {counted(count.total, 'job')} in {state} matches.", as_json=as_json)
    _confirm(verb, f"{_about(count, number)} in {state}", yes=yes, undo=undo)
    with console.meter(f"{_word(verb)}", quiet=as_json) as report:
        tally = admin.apply(verb, state, where=where, most=limit, progress=report, undo=undo)
    console.show_tally(tally, as_json=as_json)
    if not tally.changed:
        sys.exit(console.NOT_DONE)


def _ended(message: str, *, as_json: bool) -> None:
    if as_json:
        console.emit({"searched": 0, "matched": 0, "changed": 0, "message": message})
    else:
        click.echo(message, err=True)
    sys.exit(console.NOT_DONE)


def _preview(
    admin: Admin, verb: Verb, state: State, where: str | None, limit: int | None, *, as_json: bool
) -> NoReturn:
    show_preview(admin.preview(verb, state, where=where, most=limit), _word(verb), state, as_json=as_json)


def show_preview(found: Preview, word: str, state: State, *, as_json: bool) -> NoReturn:
    """Print what an action would change, and exit: with 1 if nothing."""
    if as_json:
        console.emit({"count": found.count, "would_change": found.would_change, "some": found.samples})
    else:
        about = _about(found.count, found.would_change)
        click.echo(f"Would {word} {about} in {state}.")
        if found.samples:
            print_table(JobPage(found.now, state, found.count.total, found.samples))
            click.echo(f"{len(found.samples):,} of {about} shown", err=True)
    sys.exit(0 if found.would_change else console.NOT_DONE)


def _about(count: Count, number: int) -> str:
    return counted(number, "job") if count.complete else f"at least {counted(number, 'job')}"


def _confirm(verb: Verb, what: str, *, yes: bool, undo: bool) -> None:
    row = verbs.row("job", verb)
    if row.asks:
        good = "" if undo or not row.undoes else " for good"
        console.confirm(f"{row.label} {what}{good}?", yes=yes)


def _word(verb: Verb) -> str:
    """The verb as its command spells it."""
    return verbs.row("job", verb).command.split()[-1]

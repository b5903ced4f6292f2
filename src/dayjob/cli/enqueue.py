"""`dayjob enqueue`: enqueues a job by its name, with or without the program that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from dayjob.cli import completions, target
from dayjob.cli.load import ready_pool
from dayjob.enqueue.enqueuer import Enqueuer
from dayjob.errors import BadArguments, BadOption
from dayjob.handlers.describe import misfit
from dayjob.job import Job
from dayjob.names import check_name, suggest
from dayjob.options import Using
from dayjob.store.keys import Keys
from dayjob.store.ops import job_types, maintain
from dayjob.text import read_span


@click.command(epilog="Example: dayjob enqueue send_mail to=ada@example.com copies=2 --in 5m")
@click.argument(
    "words",
    metavar="[MODULE:POOL] NAME [KEY=VALUE]...",
    nargs=-1,
    required=True,
    shell_complete=completions.jobs,
)
@click.option("--json", "text", metavar="OBJECT", help="More arguments, as a JSON object.")
@click.option("--in", "delay", metavar="SPAN", help="Run it after this time: 90s, 5m, 1h30m, 2d.")
@click.option(
    "--at", "when", metavar="TIME", help="Run it at this time, with a time zone: 2030-01-31T09:00+01:00."
)
@click.option("--unique", is_flag=True, help="Do nothing if the same job is already waiting.")
@click.option(
    "--id", "job_id", help="The ID of the job; repeating the command with the same ID is safe for a day."
)
@click.option("--source", shell_complete=completions.sources, help="Who the job is for.")
@click.option(
    "--force", is_flag=True, help="Enqueue even if no pool knows the name, or the arguments do not fit."
)
@target.options
@target.app_flag
def enqueue(
    words: tuple[str, ...],
    text: str | None,
    delay: str | None,
    when: str | None,
    unique: bool,
    job_id: str | None,
    source: str | None,
    force: bool,
    redis: str | None,
    namespace: str,
    app: str | None,
) -> None:
    """Enqueue a job by its name, and print its ID.

    A VALUE is parsed as JSON if possible (7, true, null, [1, 2], "7" for the text 7); otherwise it is text. The name and
    the arguments are checked against MODULE:POOL, or without it against the job types that pools have announced.
    """
    pool, name, pairs = _split(words)
    pool = target.one_pool(pool, app)
    check_name(name)
    args = _read_arguments(pairs, text)
    if delay is not None and when is not None:
        raise BadOption("give --in or --at, not both")
    wait = None if delay is None else read_span(delay, "--in")
    moment = None if when is None else read_moment(when)
    if pool is None:
        enqueuer = Enqueuer(namespace, redis=redis)
    else:
        enqueuer = _of_pool(pool, name, redis, namespace, force=force)
    options: Using = {}
    if job_id is not None:
        options["id"] = job_id
    if source is not None:
        options["source"] = _source(source)
    try:
        chosen = enqueuer.using(**options) if options else enqueuer
        if pool is None and not force:
            _check(enqueuer, namespace, name, args)
        job = _send(chosen, name, args, wait, moment, unique=unique)
    finally:
        enqueuer.close()
    if job is None:
        click.echo(f"Not enqueued: the same {name} is already waiting.", err=True)
    else:
        click.echo(job.id)


def _split(words: Sequence[str]) -> tuple[str | None, str, Sequence[str]]:
    """The pool if one is named, the job name, the arguments. No job name has a colon."""
    if ":" not in words[0]:
        return None, words[0], words[1:]
    if len(words) == 1:
        raise BadOption(f"which job of {words[0]}? Write dayjob enqueue {words[0]} NAME key=value ...")
    return words[0], words[1], words[2:]


def _of_pool(where: str, name: str, redis: str | None, namespace: str, *, force: bool) -> Enqueuer:
    """The enqueuer of a pool, which checks the arguments; with `force` one that checks nothing."""
    pool = ready_pool(where)
    redis, namespace = target.of_pool(pool, redis, namespace)
    if force:
        return Enqueuer(namespace, redis=redis)
    pool.find(name)
    return pool.enqueuer_for(namespace, redis)


def _send(
    enqueuer: Enqueuer,
    name: str,
    args: dict[str, Any],
    wait: float | None,
    when: datetime | None,
    *,
    unique: bool,
) -> Job | None:
    if wait is not None:
        return (
            enqueuer.enqueue_unique_in(name, wait, **args)
            if unique
            else enqueuer.enqueue_in(name, wait, **args)
        )
    if when is not None:
        return (
            enqueuer.enqueue_unique_at(name, when, **args)
            if unique
            else enqueuer.enqueue_at(name, when, **args)
        )
    return enqueuer.enqueue_unique(name, **args) if unique else enqueuer.enqueue(name, **args)


def _check(enqueuer: Enqueuer, namespace: str, name: str, args: dict[str, Any]) -> None:
    """Refuse a job that no pool would run. Raises BadOption, BadArguments."""
    keys = Keys(namespace)
    known = enqueuer.run(job_types.some(keys, [name]))[0]
    if known is not None:
        problem = misfit(known.described, args)
        if problem:
            hint = f"    {known.described.signature}    as its pools announced it; --force enqueues the job anyway"
            raise BadArguments(f"{name}: {problem}\n{hint}")
        return
    names = enqueuer.run(maintain.known_jobs(keys))
    if name in names:
        return
    names = sorted({*names, *enqueuer.run(job_types.names(keys))})
    if not names:
        raise BadOption(
            f"the namespace {namespace!r} was never used: no pool has started there, and nothing was enqueued.\n"
            "    Check --namespace and --redis, or add --force to enqueue anyway."
        )
    near = suggest(name, names)
    raise BadOption(
        f"no job {name!r} is known in the namespace {namespace!r}{near or '.'}\n"
        "    Add --force to enqueue it anyway, for a pool that starts later."
    )


def _read_arguments(pairs: Sequence[str], text: str | None) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if text is not None:
        try:
            args = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadArguments(f"--json: {error}. Write an object: --json '{{\"user_id\": 7}}'") from None
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadArguments(f"{pair!r} is not an argument: write key=value, such as user_id=7")
        if key in args:
            raise BadArguments(f"the argument {key!r} is given twice")
        args[key] = _read_value(value)
    return args


def _read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _source(text: str) -> str | int:
    return int(text) if text.isdecimal() and text == str(int(text)) else text


def read_moment(text: str) -> datetime:
    """A moment with a time zone, as --at takes it. Raises BadOption."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"--at {text!r}: write a time such as 2030-01-31T09:00+01:00, or ...Z for UTC"
        ) from None
    if when.tzinfo is None:
        here = when.replace(tzinfo=UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
        raise BadOption(
            f"--at {text!r} has no time zone: write {here} for UTC, or add an offset such as +01:00"
        )
    return when

"""`dayjob enqueue`: put a job in, by name. Nothing of the program that runs it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from dayjob import wording
from dayjob.cli import target
from dayjob.enqueue import Enqueuer
from dayjob.errors import BadArguments, BadOption
from dayjob.job import Job
from dayjob.options import suggest
from dayjob.store.keys import Keys
from dayjob.store.ops import maintain


@click.command(epilog="Example: dayjob enqueue send_mail to=ada@example.com copies=2 --in 5m")
@click.argument("name")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "text", metavar="OBJECT", help="More arguments, as a JSON object.")
@click.option("--in", "delay", metavar="SPAN", help="Run it after a span of time: 90s, 5m, 1h30m, 2d.")
@click.option("--at", "when", metavar="TIME", help="Run it at a time with its zone: 2030-01-31T09:00+01:00.")
@click.option("--unique", is_flag=True, help="Not if one like it already waits.")
@click.option("--id", "job_id", help="The id of the job; a repeat with the same id is safe for a day.")
@click.option("--source", help="Who the job is for.")
@target.options
def enqueue(
    name: str,
    arguments: tuple[str, ...],
    text: str | None,
    delay: str | None,
    when: str | None,
    unique: bool,
    job_id: str | None,
    source: str | None,
    redis: str | None,
    namespace: str,
) -> None:
    """Put a job in, by name, and print its id.

    A VALUE is JSON where it can be read as such (7, true, null, [1, 2], "7" for the text 7), and text otherwise.
    """
    args = _read_arguments(arguments, text)
    if delay is not None and when is not None:
        raise BadOption("give --in or --at, not both")
    enqueuer = Enqueuer(namespace, redis=redis)
    if job_id is not None:
        enqueuer = enqueuer.using(id=job_id)
    if source is not None:
        enqueuer = enqueuer.using(source=_source(source))
    wait = None if delay is None else wording.read_span(delay, "--in")
    moment = None if when is None else _read_time(when)
    try:
        _warn_of_typo(enqueuer, namespace, name)
        job = _send(enqueuer, name, args, wait, moment, unique=unique)
    finally:
        enqueuer.close()
    if job is None:
        click.echo(f"Not enqueued: a {name} like it already waits.", err=True)
    else:
        click.echo(job.id)


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


def _warn_of_typo(enqueuer: Enqueuer, namespace: str, name: str) -> None:
    known = enqueuer.run(maintain.known_jobs(Keys(namespace)))
    if known and name not in known:
        near = suggest(name, known)
        click.echo(
            f"Note: no job {name!r} is known in the namespace {namespace!r} yet{near or '.'}", err=True
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
            raise BadArguments(f"{pair!r} is no argument: write key=value, like user_id=7")
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


def _read_time(text: str) -> datetime:
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

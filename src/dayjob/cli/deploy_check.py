"""`dayjob deploy-check`: tries every stored job against the signatures of this code, before it is deployed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from dayjob.admin.transfer import Record
from dayjob.cli import console, target
from dayjob.cli.load import ready_pool
from dayjob.errors import UnknownJob
from dayjob.handlers.redact import without
from dayjob.instruments import secrets_of
from dayjob.pool import WorkerPool
from dayjob.store import codec
from dayjob.text import counted, message_of

#: Problems that differ only in their message. Messages may quote values, so there may be as many as jobs.
MAX_PROBLEMS = 100

_decode = msgspec.json.Decoder(Record).decode


@dataclass
class StoredProblem:
    """One way in which stored jobs do not fit, with the first of them as a sample."""

    name: str
    why: str
    sample: str
    states: dict[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many jobs have it."""
        return sum(self.states.values())


class DeployCheck:
    """Tries jobs against the job types of a pool, and counts those that do not fit."""

    def __init__(self, pool: WorkerPool[Any]) -> None:
        self._pool = pool
        self.tried = 0
        self.problems: dict[tuple[str, str], StoredProblem] = {}

    def put(self, line: bytes) -> None:
        """Try a line of an export. Its first and last line are no jobs."""
        if line.startswith(b'{"dayjob"'):
            return
        record = _decode(line)
        self.tried += 1
        if record.job is None:
            self._add(record.name, "its payload is no text", "(unreadable)", record.state)
            return
        try:
            wire = codec.read(record.job.encode())
        except codec.UNREADABLE as error:
            self._add(
                record.name, f"its payload cannot be read: {message_of(error)}", "(unreadable)", record.state
            )
            return
        why = self._why(wire)
        if why:
            self._add(wire.name, why, wire.id, record.state)

    def _why(self, wire: codec.Wire) -> str:
        try:
            job_type = self._pool.registry.get(wire.name)
        except UnknownJob:
            return "this code has no such job"
        try:
            job_type.call_args(wire.args)
        except Exception as error:  # converters of the program's own types may raise anything
            if len(self.problems) >= MAX_PROBLEMS:
                return type(error).__name__
            job = codec.job_of(wire)
            job.redact = job_type.options.redact
            # The name stands before the problem already.
            why = message_of(error).partition("\n")[0].removeprefix(f"{wire.name}: ")
            return without(why, secrets_of(job)) or type(error).__name__
        return ""

    def _add(self, name: str, why: str, sample: str, state: str) -> None:
        found = self.problems.setdefault((name, why), StoredProblem(name, why, sample))
        found.states[state] = found.states.get(state, 0) + 1


@click.command(epilog="Example: dayjob deploy-check app.jobs:pool")
@click.argument("pool", metavar="MODULE:POOL")
@target.pool_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def deploy_check(pool: str, *, redis: str | None, namespace: str | None, as_json: bool) -> None:
    """Try every waiting, scheduled, retried and dead job against the signatures of this code.

    Run it with the new code before a deploy. Nothing is run or changed. Exits with 1 if a job does not fit, and names one
    sample for each problem. Reads in bounded steps.
    """
    found = ready_pool(pool)
    redis, named = target.of_pool(found, redis, namespace)
    check = DeployCheck(found)
    with console.opened(redis, named) as admin:
        admin.export(check.put)
    problems = sorted(check.problems.values(), key=lambda one: (-one.count, one.name))
    if as_json:
        rows = [
            {"name": one.name, "why": one.why, "sample": one.sample, "count": one.count, "states": one.states}
            for one in problems
        ]
        console.emit({"tried": check.tried, "problems": rows})
    else:
        _print(check.tried, problems, named)
    sys.exit(1 if problems else 0)


def _print(tried: int, problems: list[StoredProblem], namespace: str) -> None:
    for one in problems:
        states = ", ".join(f"{count:,} {state}" for state, count in one.states.items())
        click.echo(console.clean(f"{one.name}: {one.why}"))
        click.echo(
            "    " + console.clean(f"{counted(one.count, 'job')} ({states}); for example {one.sample}")
        )
    if problems:
        misfits = sum(one.count for one in problems)
        click.echo(f"Stored jobs in {namespace!r} that do not fit this code: {misfits:,} of {tried:,}.")
    else:
        click.echo(f"All stored jobs in {namespace!r} fit this code: {tried:,} of {tried:,}.")

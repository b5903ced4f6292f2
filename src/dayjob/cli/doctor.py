"""`dayjob doctor`: checks for anything that could lose or stop jobs."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

import click
import msgspec

from dayjob.admin.doctor import examine
from dayjob.admin.findings import Finding
from dayjob.cli import UNAVAILABLE, target
from dayjob.errors import Rejected, StoreError
from dayjob.store.link import walk
from dayjob.text import counted, escaped_json

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red", "could not check": "cyan"}
_MARKS = {"ok": "ok", "warning": "warning", "error": "ERROR", "could not check": "unknown"}


@click.command(epilog="Example: dayjob doctor --redis redis://localhost:6379/0 --namespace shop")
@target.options
@target.app_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(redis: str | None, namespace: str, as_json: bool) -> None:
    """Check the server and the namespace for problems.

    Exits with 1 if there are errors, and with 69 if the server cannot be reached.
    """
    try:
        with target.connected(redis, namespace) as (link, keys):
            findings = walk(link, examine(keys, time.time))
    except Rejected as error:
        click.echo(f"dayjob: {error}", err=True)
        click.echo(
            "    The server refuses this user a command that every check needs. Allow it:\n"
            "    ACL SETUSER <user> +time",
            err=True,
        )
        sys.exit(UNAVAILABLE)
    except StoreError as error:
        click.echo(f"dayjob: {error}", err=True)
        click.echo(
            "    Is it running, and is this the right URL? Name another one with --redis or DAYJOB_REDIS_URL.\n"
            "    To check the embedded server: dayjob doctor --redis embedded",
            err=True,
        )
        sys.exit(UNAVAILABLE)
    if as_json:
        text = msgspec.json.encode([asdict(finding) for finding in findings])
        click.echo(escaped_json(msgspec.json.format(text).decode()))
    else:
        _print(findings)
    sys.exit(1 if any(finding.level == "error" for finding in findings) else 0)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        mark = click.style(f"{_MARKS[finding.level]:<8}", fg=_COLOURS[finding.level])
        click.echo(f"{mark} {finding.topic:<12} {finding.what}")
        if finding.todo:
            click.echo(f"{'':<22}{finding.todo}")
    counts = {level: sum(finding.level == level for finding in findings) for level in _MARKS}
    blind = counts["could not check"]
    if counts["error"] or counts["warning"]:
        click.echo(f"\n{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}.")
    elif blind:
        click.echo(f"\nNothing wrong was found; {counted(blind, 'thing')} could not be checked.")
    else:
        click.echo("\nAll is well.")

"""The command line: `dayjob NOUN VERB`. Each command lives in a file of its own and is imported when it is used."""

from __future__ import annotations

import difflib
import importlib
import sys

import click

from dayjob.errors import DayjobError
from dayjob.version import __version__

#: Command to where it is defined and what it does, in the order that help shows them.
COMMANDS = {
    "demo": ("dayjob.cli.demo:demo", "Watch a pool work through fake jobs on the embedded server."),
    "worker": ("dayjob.cli.worker:worker", "Run the jobs of a pool in supervised processes."),
    "enqueue": ("dayjob.cli.enqueue:enqueue", "Put a job in, by name."),
    "check": ("dayjob.cli.check:check", "Import every job and check signatures and schedules."),
    "doctor": ("dayjob.cli.doctor:doctor", "Look at the server and the namespace for trouble."),
    "server": ("dayjob.cli.server:server", "Start, stop and look at the embedded server."),
}

#: Exit codes: 0 done, 1 something is wrong (doctor, check), 2 a mistake in the call, 69 Redis unavailable, 70 internal.
UNAVAILABLE = 69


class Commands(click.Group):
    """Imports a command when it is called for, and suggests one for a typo."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" There are: {', '.join(COMMANDS)}."
            ctx.fail(f"no command '{cmd_name}'.{hint}")
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)  # noqa: S101 - a typo in COMMANDS
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DAYJOB"}
)
@click.version_option(__version__, prog_name="dayjob")
def cli() -> None:
    """Background jobs for Python on Redis and Valkey."""


def main() -> None:
    """Run the command line; mistakes end in a few lines and an exit code, never in a traceback."""
    from dayjob.errors import StoreError  # noqa: PLC0415 - kept beside its use

    try:
        cli()
    except DayjobError as error:
        click.echo(f"dayjob: {error}", err=True)
        sys.exit(UNAVAILABLE if isinstance(error, StoreError) else 2)

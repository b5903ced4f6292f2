"""The command line: `dayjob NOUN VERB`. Each command is in its own file and is imported when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable

import click

from dayjob.cli import defaults
from dayjob.cli.group import unknown
from dayjob.errors import DayjobError, SilentServer, StoreError, Unavailable, UntrustedFolder
from dayjob.version import __version__

#: Command: where it is defined, and its description. In the order of the help text.
COMMANDS = {
    "demo": ("dayjob.cli.demo:demo", "Try it: fake jobs, workers and the console on an embedded server."),
    "worker": ("dayjob.cli.worker:worker", "Run the jobs of a pool in supervised processes."),
    "web": ("dayjob.cli.web:web", "Serve the console: every page and action in a browser."),
    "relay": ("dayjob.cli.relay:relay", "Send the jobs of an outbox that their writers did not send."),
    "mcp": ("dayjob.cli.mcp:mcp", "Serve a namespace to an assistant (Model Context Protocol)."),
    "top": ("dayjob.cli.top:top", "Watch and operate a namespace in the terminal."),
    "enqueue": ("dayjob.cli.enqueue:enqueue", "Enqueue a job by its name."),
    "queues": ("dayjob.cli.queues:queues", "List, show, pause, resume, limit and purge queues."),
    "limits": ("dayjob.cli.limits:limits", "List, show, set, reset and hold rate limits."),
    "jobs": ("dayjob.cli.jobs:jobs", "List, show, explain, retry, delete and cancel jobs."),
    "batches": ("dayjob.cli.batches:batches", "List, show, cancel, retry and audit batches."),
    "workflows": (
        "dayjob.cli.workflows:workflows",
        "List, show, cancel and retry workflows, and skip their nodes.",
    ),
    "find": ("dayjob.cli.find:find", "Find jobs, queues, pools, schedules and errors by a text."),
    "dead": ("dayjob.cli.dead:dead", "List, retry and delete dead jobs."),
    "broken": ("dayjob.cli.broken:broken", "List, repair and delete entries that could not be read."),
    "bin": ("dayjob.cli.bin:bin_", "List what was deleted in the last ten minutes."),
    "undo": ("dayjob.cli.bin:undo", "Put deleted jobs back."),
    "pools": ("dayjob.cli.pools:pools", "List worker pools, show their stacks, ask them to stop."),
    "periodic": ("dayjob.cli.periodic:periodic", "List, run, pause and resume schedules."),
    "calendar": ("dayjob.cli.calendar:calendar", "Show what will run in the next hours."),
    "stats": ("dayjob.cli.stats:stats", "Show what is wrong, and every queue; once or repeatedly."),
    "scale": ("dayjob.cli.scale:scale", "Show whether there are enough workers, and how many are wanted."),
    "metrics": ("dayjob.cli.metrics:metrics", "Show what ran in the last hours, and how long it took."),
    "payloads": ("dayjob.cli.payloads:payloads", "Show how large stored jobs are."),
    "redis": ("dayjob.cli.redis:redis", "Show the state of the Redis server, now and over time."),
    "events": ("dayjob.cli.events:events", "Show what happened: pools, deploys, ticks, pauses, actions."),
    "history": ("dayjob.cli.history:history", "List the attempts that ended: when, how and how long."),
    "sources": ("dayjob.cli.history:sources", "List what each source used."),
    "audit": ("dayjob.cli.audit:audit", "Show who did what."),
    "watch": ("dayjob.cli.watch:watch", "Post alerts to webhooks and Slack."),
    "health": ("dayjob.cli.health:health", "Health check: reports by its exit code."),
    "check": ("dayjob.cli.check:check", "Import every job and check signatures and schedules."),
    "deploy-check": (
        "dayjob.cli.deploy_check:deploy_check",
        "Try stored jobs against the signatures of this code.",
    ),
    "doctor": ("dayjob.cli.doctor:doctor", "Check the server and the namespace for problems."),
    "config": ("dayjob.cli.config:config", "Show each setting and where it came from."),
    "server": ("dayjob.cli.server:server", "Start, stop and inspect the embedded server."),
    "export": ("dayjob.cli.export:export", "Write all jobs that are not running as JSON lines."),
    "import": ("dayjob.cli.export:import_", "Store the jobs of an export."),
    "fake-data": ("dayjob.cli.fake_data:fake_data", "Fill a namespace with sample jobs and statistics."),
    "completion": ("dayjob.cli.completion:completion", "Print a completion script for a shell."),
    "grafana": ("dayjob.cli.grafana:grafana", "Print a dashboard for Grafana."),
    "alerts": ("dayjob.cli.alerts:alerts", "Print alert rules for Prometheus."),
    "systemd": ("dayjob.cli.printers:systemd", "Print a unit file for systemd."),
    "compose": ("dayjob.cli.printers:compose", "Print a file for Docker Compose."),
    "kubernetes": ("dayjob.cli.printers:kubernetes", "Print a deployment for Kubernetes."),
}

#: Exit codes: 0 done; 1 a check failed (doctor, check, health), or nothing was changed; 2 a usage error;
#: 69 Redis unavailable; 70 internal.
UNAVAILABLE = 69


class Commands(click.Group):
    """Imports a command when it is used, and suggests one for a typo."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            ctx.fail(unknown(cmd_name, COMMANDS))
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)  # noqa: S101 - a typo in COMMANDS
        ctx.default_map = {cmd_name: defaults.of_command(found, cmd_name, defaults.read(COMMANDS))}
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


def main(args: list[str] | None = None, prog: str | None = None) -> None:
    """Run the command line. A usage error prints a few lines and sets an exit code; it never prints a traceback."""
    _run(lambda: args, prog)


def main_of(pool: str, args: list[str], prog: str) -> None:
    """Run the command line of a framework that knows its pool."""
    _run(lambda: with_pool(args, pool), prog)


def _run(words: Callable[[], list[str] | None], prog: str | None) -> None:
    # click checks only the terminal; https://no-color.org asks programs to check this variable too.
    color = False if os.environ.get("NO_COLOR") else None
    try:
        try:
            cli(args=words(), prog_name=prog, color=color)
        except UntrustedFolder as error:
            _accept(error)
            cli(args=words(), prog_name=prog, color=color)
    except DayjobError as error:
        click.echo(f"dayjob: {error}", err=True)
        if isinstance(error, Unavailable):
            from dayjob.store.link_errors import NEXT_STEP  # noqa: PLC0415 - imports the client library

            click.echo(f"    {NEXT_STEP}", err=True)
        sys.exit(UNAVAILABLE if isinstance(error, StoreError | SilentServer) else 2)


def with_pool(args: list[str], pool: str) -> list[str]:
    """The arguments of a command with MODULE:POOL filled in. Those that name no command are returned as they are."""
    command: click.Command = cli
    place = 0
    while isinstance(command, click.Group) and place < len(args):
        try:
            found = command.get_command(click.Context(command), args[place])
        except click.UsageError:
            return args
        if found is None:
            return args
        command = found
        place += 1
    names = {option for parameter in command.params for option in parameter.opts}
    if "--app" in names:
        given = ["--app", pool]
    elif any(isinstance(one, click.Argument) and one.name in ("pool", "words") for one in command.params):
        given = [pool]
    else:
        given = []
    return [*args[:place], *given, *args[place:]]


def _accept(error: UntrustedFolder) -> None:
    """Ask on the terminal whether to use a folder that dayjob did not create. Raises `error` without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise error
    click.echo(f"dayjob: {error}", err=True)
    try:
        accepted = click.confirm("Use this folder?", err=True)
    except click.Abort:
        accepted = False
    if not accepted:
        sys.exit(2)
    from dayjob.store.data_folder import trust_folder  # noqa: PLC0415 - seldom needed

    trust_folder(error.folder)

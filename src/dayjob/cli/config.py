"""`dayjob config`: each setting and where it came from."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import click
from click.core import ParameterSource

from dayjob.cli import COMMANDS, console, defaults
from dayjob.cli.group import group
from dayjob.cli.receivers import host_of
from dayjob.errors import UsageError
from dayjob.store import addresses
from dayjob.store.urls import redacted


@group(epilog="Example: dayjob config show")
def config() -> None:
    """Show each setting and where it came from."""


@config.command(epilog="Example: DAYJOB_NAMESPACE=shop dayjob config show")
@click.option("--all", "everything", is_flag=True, help="Show defaults, too.")
@console.json_option
@click.pass_context
def show(ctx: click.Context, everything: bool, as_json: bool) -> None:
    """Show every option that a variable or pyproject.toml sets, and where it came from.

    The command line comes first, then a variable, then the pool if the command has one, then [tool.dayjob] of
    ./pyproject.toml, then the default.
    """
    rows = [_server()]
    root = ctx.find_root()
    for name in COMMANDS:
        command = root.command.get_command(root, name) if isinstance(root.command, click.Group) else None
        if command is not None:
            rows += _of_command(command, name, root, ())
    shown = [row for row in rows if everything or row["from"] != "default"]
    if as_json:
        console.emit(shown)
    else:
        console.table(
            ("COMMAND", "SETTING", "VALUE", "FROM"),
            [(row["command"], row["setting"], row["value"], row["from"]) for row in shown],
        )


def _server() -> dict[str, Any]:
    """The server that commands use if they have no --redis."""
    defaults.read(COMMANDS)
    try:
        found = addresses.resolve(None)
        value, origin = redacted(found.url), found.origin
    except UsageError as error:
        value, origin = "", str(error).partition("\n")[0]
    return {"command": "", "setting": "redis", "value": value, "from": origin}


def _of_command(
    command: click.Command, name: str, parent: click.Context, path: tuple[str, ...]
) -> list[dict[str, Any]]:
    path = (*path, name)
    # Nothing is run, and missing arguments are not an error.
    context = command.context_class(
        command, info_name=name, parent=parent, resilient_parsing=True, **command.context_settings
    )
    rows = [
        _of_option(parameter, context, " ".join(path))
        for parameter in command.params
        if isinstance(parameter, click.Option)
    ]
    if isinstance(command, click.Group):
        for verb, inner in command.commands.items():
            rows += _of_command(inner, verb, context, path)
    return rows


def _of_option(option: click.Option, context: click.Context, command: str) -> dict[str, Any]:
    value: Any = None
    source: ParameterSource | None = None
    with contextlib.suppress(click.ClickException):
        value, source = option.consume_value(context, {})
    if source == ParameterSource.DEFAULT:
        value = option.get_default(context)
    text = str(value) if isinstance(value, str | int | float | list | tuple) else ""
    if option.name == "redis":
        text = redacted(text)
    if option.name in ("webhook", "slack") and isinstance(value, list | tuple):
        # The path of such an address is a secret.
        text = ", ".join(map(host_of, value))
    flag = max(option.opts, key=len)
    return {"command": command, "setting": flag, "value": text, "from": _origin(option, context, source)}


def _origin(option: click.Option, context: click.Context, source: ParameterSource | None) -> str:
    if source == ParameterSource.DEFAULT_MAP:
        return addresses.IN_FILE
    if source != ParameterSource.ENVIRONMENT:
        return "default"
    named = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    named.append(f"{context.auto_envvar_prefix}_{option.name}".upper())
    return next((name for name in named if os.environ.get(name)), "a variable")

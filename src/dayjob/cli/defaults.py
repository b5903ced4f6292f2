"""Reads `[tool.dayjob]` of ./pyproject.toml: values for options that neither the command line nor a variable sets.

`redis` and `namespace` apply to every command, a table such as `[tool.dayjob.worker]` or `[tool.dayjob.queues.ls]` to one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.store import addresses
from dayjob.store.addresses import FILE

#: The settings of [tool.dayjob] itself.
SHARED = ("redis", "namespace")
#: Options that only the user may give: the file may have come with the folder that `--trust` accepts.
CALL_ONLY = ("trust",)


def read(commands: Collection[str], folder: Path | None = None) -> Mapping[str, Any]:
    """The table, or an empty one. Raises BadOption for a key that no command uses."""
    table = addresses.read_file(folder)
    for key, value in table.items():
        if key not in SHARED and not (key in commands and isinstance(value, dict)):
            near = suggest(key, (*SHARED, *commands))
            raise BadOption(
                f"{FILE}: [tool.dayjob] has no {key!r}{near}\n"
                f"    There are {', '.join(SHARED)}, and a table for each command, such as [tool.dayjob.worker]"
            )
    return table


def of_command(command: click.Command, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of one command as click takes them. Raises BadOption for an option that it does not have."""
    shared = {key: table[key] for key in SHARED if key in table}
    # `redis` is a setting and a command. The command has no table.
    own = {} if name in SHARED else table.get(name, {})
    return _defaults(command, f"tool.dayjob.{name}", own, shared)


def _defaults(
    command: click.Command, where: str, own: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
    names = {
        option.lstrip("-").replace("-", "_"): parameter.name or ""
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    verbs = command.commands if isinstance(command, click.Group) else {}
    found: dict[str, Any] = {names[key]: value for key, value in shared.items() if key in names}
    for verb, inner in verbs.items():
        found[verb] = _defaults(inner, f"{where}.{verb}", own.get(verb, {}), shared)
    for key, value in own.items():
        if key in verbs:
            continue
        option = key.replace("-", "_")
        if option not in names:
            raise BadOption(f"{FILE}: [{where}] has no option {key!r}{suggest(option, list(names))}")
        if option in CALL_ONLY:
            raise BadOption(f"{FILE}: [{where}] cannot set {key!r}: pass --{option} to the command yourself")
        found[names[option]] = value
    if any(variable in os.environ for variable in ("DAYJOB_REDIS_URL", "REDIS_URL")):
        # click knows no variable for --redis: `addresses` reads both variables, and they come before the file.
        found.pop("redis", None)
    return found

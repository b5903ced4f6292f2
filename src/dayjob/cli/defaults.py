"""What `[tool.dayjob]` of ./pyproject.toml says: the values of options that neither the call nor a variable gives.

`redis` and `namespace` hold for every command; a table such as `[tool.dayjob.worker]` or `[tool.dayjob.queues.ls]` for one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from dayjob.errors import BadOption
from dayjob.options import suggest

FILE = "pyproject.toml"
#: What may stand in [tool.dayjob] itself.
SHARED = ("redis", "namespace")


def read(commands: Collection[str], folder: Path | None = None) -> Mapping[str, Any]:
    """The table, or an empty one. Raises BadOption for what no command would ever look at."""
    table = _table((folder or Path.cwd()) / FILE)
    for key, value in table.items():
        if key not in SHARED and not (key in commands and isinstance(value, dict)):
            near = suggest(key, (*SHARED, *commands))
            raise BadOption(
                f"{FILE}: [tool.dayjob] has no {key!r}{near}\n"
                f"    There are {', '.join(SHARED)}, and a table for each command, such as [tool.dayjob.worker]"
            )
    return table


@cache
def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    # Most programs have a pyproject.toml without us in it; a mistake elsewhere in it is not our business.
    if "tool.dayjob" not in text:
        return {}
    try:
        found = tomllib.loads(text).get("tool", {}).get("dayjob", {})
    except tomllib.TOMLDecodeError as error:
        raise BadOption(f"{FILE} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def of_command(command: click.Command, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of one command as click takes them. Raises BadOption for an option that it does not have."""
    shared = {key: table[key] for key in SHARED if key in table}
    return _defaults(command, f"tool.dayjob.{name}", table.get(name, {}), shared)


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
        found[names[option]] = value
    return found

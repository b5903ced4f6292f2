"""A command with commands of its own, such as `dayjob queues`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Any

import click


def unknown(name: str, names: Collection[str]) -> str:
    """The message for a command that does not exist: the nearest one, or all."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}."
    return f"no command '{name}'. {hint}"


class Group(click.Group):
    """Names its commands after a typo, and does not cut their descriptions."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(unknown(args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        rows = [(name, one.get_short_help_str(200)) for name, one in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def group(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Group]:
    """`click.group` that makes a Group."""
    return click.group(name, cls=Group, **options)

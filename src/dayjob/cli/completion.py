"""`dayjob completion`: prints a script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dayjob.errors import UsageError


@click.command(epilog='Example: eval "$(dayjob completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    bash: eval "$(dayjob completion bash)"    in ~/.bashrc
    zsh:  eval "$(dayjob completion zsh)"     in ~/.zshrc
    fish: dayjob completion fish > ~/.config/fish/completions/dayjob.fish
    """  # noqa: D301 - the escape is click's mark for a paragraph that keeps its lines
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click cannot complete in {shell}")
    found = kind(ctx.find_root().command, {}, "dayjob", "_DAYJOB_COMPLETE")
    # source() would start the shell to read its version.
    click.echo(found.source_template % found.source_vars())

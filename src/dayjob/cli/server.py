"""`dayjob server`: starts, stops and inspects the embedded server of a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dayjob.cli.group import group
from dayjob.store.data_folder import trust_folder
from dayjob.store.embedded import open_server, server_status, stop_server

_folder = click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(".dayjob"), show_default=True,
    help="The folder with its data.",
)  # fmt: skip


@group(epilog="Example: dayjob server start && export DAYJOB_REDIS_URL=embedded")
def server() -> None:
    """Start, stop and inspect the embedded server.

    Commands and pools that use it start it. It runs until you stop it, and its data is kept in the folder.
    """


@server.command(epilog="Example: dayjob server start --folder /var/lib/shop")
@_folder
@click.option("--trust", is_flag=True, help="Accept a folder that your dayjob did not create.")
def start(folder: Path, trust: bool) -> None:
    """Start the server of a folder if it is not running, and print its URL.

    A folder that your dayjob did not create, such as one from a cloned repository, is refused until you accept it with
    --trust, because its jobs may come from another person.
    """
    if trust:
        trust_folder(folder)
    click.echo(open_server(folder))


@server.command(epilog="Example: dayjob server stop")
@_folder
def stop(folder: Path) -> None:
    """Stop the server of a folder. Its data is kept."""
    stopped = stop_server(folder)
    click.echo(
        f"Stopped. Its data is kept in {folder.resolve()}."
        if stopped
        else f"No server runs in {folder.resolve()}."
    )


@server.command(epilog="Example: dayjob server status || dayjob server start")
@_folder
def status(folder: Path) -> None:
    """Show whether the server of a folder runs. Exits with 1 if it does not."""
    found = server_status(folder)
    size = f"{found.bytes_on_disk / (1 << 20):.1f} MiB on disk"
    if not found.running:
        last = f", last {found.version}" if found.version else ""
        click.echo(f"Not running in {found.folder} ({size}{last}).")
        sys.exit(1)
    click.echo(f"Running in {found.folder}: {found.version or 'starting'}, pid {found.pid}, {size}.")
    click.echo(f"    unix://{found.socket}")


@server.command(epilog="Example: redis-cli -s $(dayjob server path)")
@_folder
def path(folder: Path) -> None:
    """Print the path of the server's socket, even if it is not running."""
    click.echo(server_status(folder).socket)

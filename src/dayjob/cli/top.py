"""`dayjob top`: the live terminal view."""

from __future__ import annotations

import os
import sys

import click

from dayjob import text
from dayjob.admin.client import AsyncAdmin
from dayjob.cli import target
from dayjob.errors import BadOption, UsageError
from dayjob.names import suggest


@click.command(epilog="Example: dayjob top app.jobs:pool --tab dead")
@target.optional_pool
@click.option("--tab", default="home", show_default=True, metavar="NAME", help="The tab to open first.")
@click.option("--every", default="1s", show_default=True, metavar="SPAN", help="How often to refresh.")
@target.options
def top(pool: str | None, tab: str, every: str, redis: str | None, namespace: str) -> None:
    """Watch and operate a namespace in the terminal: the same tabs as the web.

    MODULE:POOL, such as app.jobs:pool, uses the server and namespace of that pool; or use --redis and --namespace.
    Keys are shown at the bottom; ? shows all of them, q quits. Only the visible tab is read from Redis.
    """
    try:
        from dayjob.tui import app, views  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in ("textual", "rich"):
            raise UsageError("dayjob top needs textual: pip install 'dayjob[tui]'") from None
        raise
    pause = max(0.1, text.read_span(every, "--every"))
    names = [view.title.lower() for view in views.tabs()]
    if tab.lower() not in names:
        raise BadOption(f"--tab {tab!r}: there are {', '.join(names)}{suggest(tab.lower(), names)}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("dayjob top needs a terminal. Without one: dayjob stats --watch")
    if pool is not None:
        from dayjob.cli.load import find_pool  # noqa: PLC0415 - imports the program only where it is named

        redis, namespace = target.of_pool(find_pool(pool), redis, namespace)
    admin = AsyncAdmin(namespace, redis=redis)
    # The server is found, and the embedded one started, before the screen changes.
    where = str(admin._address())
    app.Top(admin, where, tab=names.index(tab.lower()), every=pause).run(mouse=False)

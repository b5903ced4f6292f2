"""`dayjob relay`: sends the rows of an outbox, in a process of its own."""

from __future__ import annotations

import signal
import threading

import click

from dayjob.cli import logs
from dayjob.cli.load import find_pool
from dayjob.errors import StoreError, UsageError

#: Seconds to wait after Redis could not be reached.
RETRY_SECONDS = 1.0


@click.command(epilog="Example: dayjob relay app.jobs:pool")
@click.argument("pool", metavar="MODULE:POOL")
@click.option(
    "--once", is_flag=True, help="Make one round and end. Exits with 69 if Redis cannot be reached."
)
def relay(pool: str, once: bool) -> None:
    """Send the jobs of an outbox that their writers did not send.

    Every pool with an outbox does this too. Use it where no worker can reach the database. TERM and INT stop it.
    """
    logs.set_up(form="auto", warnings_only=False)
    found = find_pool(pool)
    if found.outbox is None:
        raise UsageError(
            f"{pool} has no outbox.\n    Write WorkerPool(outbox=Outbox(engine)); in Django, DAYJOB = {{'OUTBOX': True}}."
        )
    step = found.outbox.relay_step(found)
    if once:
        step()
        return
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    click.echo(f"Relaying the outbox of {pool}  (Ctrl-C stops it)")
    wait = 0.0
    while not ended.wait(wait):
        try:
            wait = step()
        except StoreError as error:
            click.echo(f"dayjob: Redis cannot be reached, the rows wait: {error}", err=True)
            wait = RETRY_SECONDS

"""`dayjob worker`: run the jobs of a pool in supervised processes."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from dayjob.cli import logs, reload, target
from dayjob.errors import UsageError
from dayjob.worker.supervisor.channel import Config, Filed
from dayjob.worker.supervisor.supervisor import ProcessPlan, Supervisor


@click.command()
@click.argument("pool", metavar="MODULE:POOL")
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many processes, each with a pool.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    help="Jobs at once in each process; else what the pool says.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 100_000),
    help="Threads for sync jobs in each process; else what the pool says.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=25.0,
    show_default=True,
    help="Seconds that running jobs get to end at a stop.",
)
@click.option("--max-memory", type=click.IntRange(1), metavar="MB", help="Recycle a process that uses more.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Recycle a process after so many jobs.")
@click.option(
    "--redis",
    metavar="URL",
    help="The server; else DAYJOB_REDIS_URL, the pool's, REDIS_URL, pyproject.toml, embedded.",
)
@click.option(
    "--namespace",
    envvar="DAYJOB_NAMESPACE",
    help="The namespace; else DAYJOB_NAMESPACE, the pool's, pyproject.toml, dayjob.",
)
@click.option("--tag", default="", help="A word that consoles show beside the pool.")
@click.option(
    "--reload",
    "reloading",
    is_flag=True,
    help="Replace the processes when a Python file below this folder changes.",
)
@click.option("--quiet", is_flag=True, help="Log warnings and errors only.")
@click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", show_default=True,
    help="auto: text on a terminal, else JSON lines.",
)  # fmt: skip
def worker(
    pool: str,
    *,
    processes: int,
    concurrency: int | None,
    threads: int | None,
    timeout: float,
    max_memory: int | None,
    max_jobs: int | None,
    redis: str | None,
    namespace: str | None,
    tag: str,
    reloading: bool,
    quiet: bool,
    log_format: str,
) -> None:
    """Run the jobs of a pool in supervised processes.

    MODULE:POOL is where it is, like app.jobs:pool. Each option can also be given as DAYJOB_WORKER_..., like
    DAYJOB_WORKER_PROCESSES=4.

    TERM or INT stops within the timeout, a second one gives back at once; USR1 or TSTP stops fetching; HUP replaces
    the processes one by one, with the code as it is then.
    """
    if sys.platform == "win32":
        raise UsageError(
            "supervised processes need POSIX signals.\n    On Windows call pool.run() from a script of your own."
        )
    logs.set_up(form=log_format, warnings_only=quiet)
    named, filed = target.split(
        {"redis": redis, "namespace": namespace, "concurrency": concurrency, "threads": threads}
    )
    config = Config(
        pool=pool, timeout=timeout, tag=tag, log_format=log_format, warnings_only=quiet, **named, filed=Filed(**filed)
    )  # fmt: skip
    plan = ProcessPlan(processes, None if max_memory is None else max_memory << 20, max_jobs)
    supervisor = Supervisor((sys.executable, "-m", "dayjob.cli.child"), config, plan)
    if reloading:
        reload.watch(Path.cwd(), supervisor.roll)
    verdict = supervisor.run()
    if verdict.text:
        click.echo(f"dayjob: {verdict.text}", err=True)
    # At once: nothing here needs an interpreter to tidy up, and that would take its time from the deadline of a stop.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(verdict.code)

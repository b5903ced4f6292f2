"""`dayjob worker`: run the jobs of a pool in supervised processes."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from dayjob.cli import logs, reload, target
from dayjob.errors import UsageError
from dayjob.safe_logging import SafeLogger
from dayjob.worker.supervisor.channel import Config, Filed
from dayjob.worker.supervisor.health_port import HealthPort
from dayjob.worker.supervisor.supervisor import ProcessPlan, Supervisor

logger = SafeLogger("dayjob.worker.supervisor.supervisor")


@click.command()
@click.argument("pool", metavar="MODULE:POOL")
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of processes, each with a pool.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    help="Jobs at once in each process. Default: the pool's.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 100_000),
    help="Threads for sync jobs in each process. Default: the pool's.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=25.0,
    show_default=True,
    help="Seconds that running jobs may take to end at a stop.",
)
@click.option(
    "--max-memory", type=click.IntRange(1), metavar="MB", help="Replace a process that uses more memory."
)
@click.option(
    "--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a process after this many jobs."
)
@target.pool_options
@click.option(
    "--tag",
    default="",
    help="The version of your program. The console shows it with the pool; a new one is a deploy.",
)
@click.option(
    "--reload",
    "reloading",
    is_flag=True,
    help="Replace the processes when a Python file in this folder changes.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Answer /healthz, /readyz and /metrics over HTTP on this port, without asking Redis.",
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
    health_port: int | None,
    quiet: bool,
    log_format: str,
) -> None:
    """Run the jobs of a pool in supervised processes.

    MODULE:POOL is the module and the name of the pool in it, such as app.jobs:pool. Every option can also be set as a
    variable, such as DAYJOB_WORKER_PROCESSES=4.

    TERM or INT stops within the timeout; a second one gives back all jobs at once. USR1 or TSTP stops fetching. HUP
    replaces the processes one by one, with the current code.
    """
    if sys.platform == "win32":
        raise UsageError(
            "supervised processes need POSIX signals.\n    On Windows, call pool.run() in your own script."
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
    if health_port is not None:
        answering = HealthPort(health_port, supervisor.condition)
        answering.start()
        logger.info("probes are answered on port %d: /healthz, /readyz, /metrics", answering.port)
    if reloading:
        reload.watch(Path.cwd(), supervisor.roll)
    verdict = supervisor.run()
    if verdict.text:
        click.echo(f"dayjob: {verdict.text}", err=True)
    # The interpreter's shutdown has nothing to clean up here, and would take time from the deadline of a stop.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(verdict.code)

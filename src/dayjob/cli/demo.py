"""`dayjob demo`: a pool that works through fake jobs on the embedded server, and a summary of it once a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dayjob import retry
from dayjob.cli import target
from dayjob.errors import Snooze, StoreError
from dayjob.job import Job
from dayjob.pool import WorkerPool
from dayjob.store.embedded import server_status, stop_server
from dayjob.store.keys import Keys
from dayjob.store.ops import figures, health, inspect, pools
from dayjob.store.steps import walk
from dayjob.store.sync import Link

NAMESPACE = "demo"
FOLDER = Path(".dayjob")
#: Seconds that running jobs get to end.
PATIENCE = 0.8
CITIES = ("Paris", "Lagos", "Osaka", "Lima", "Oslo", "Pune")


@click.command(epilog="Example: dayjob demo --seconds 20 --plain")
@click.option("--seconds", type=click.FloatRange(0), help="End after so many seconds; otherwise at Ctrl-C.")
@click.option("--plain", is_flag=True, help="One line a second, instead of a table that is drawn anew.")
def demo(seconds: float | None, plain: bool) -> None:
    """Watch a pool work through fake jobs on the embedded server.

    The server's data are in ./.dayjob; Ctrl-C ends the demo.
    """
    # Failing now and then is part of the show.
    logging.getLogger("dayjob.job").setLevel(logging.CRITICAL)
    ours = not server_status(FOLDER).running
    pool = build_pool(random.Random())
    began = time.monotonic()
    with ending() as end, target.connected("embedded", NAMESPACE) as (link, keys):
        before = look(link, keys)
        pool.start()
        producer = threading.Thread(target=produce, args=(pool, end), name="demo-producer", daemon=True)
        producer.start()
        try:
            show(link, keys, before, end, seconds, plain=plain or not can_draw())
        finally:
            end.set()
            pool.stop(timeout=PATIENCE)
            producer.join(1.0)
            pool.enqueuer.close()
        _close(look(link, keys), before, time.monotonic() - began)
        alone = walk(link, health.read_info()).get("connected_clients") == "1"
    if ours and alone:
        stop_server(FOLDER)


@contextlib.contextmanager
def ending() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    end = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: end.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield end
    finally:
        for number, action in before.items():
            signal.signal(number, action)


# The jobs.


def build_pool(rng: random.Random) -> WorkerPool[Any]:
    """A pool with a handful of jobs that pretend to work: fast, slow, async, failing, unique, limited, periodic."""
    pool = WorkerPool(namespace=NAMESPACE, redis="embedded", concurrency=12)

    @pool.job(priority=5)
    def resize_photo(photo: int) -> None:  # noqa: ARG001 - it only pretends
        time.sleep(rng.uniform(0.005, 0.03))

    @pool.job
    async def fetch_weather(city: str) -> None:  # noqa: ARG001 - it only pretends
        await asyncio.sleep(rng.uniform(0.05, 0.3))

    @pool.job(max_fails=3, backoff=retry.exponential(1.0, cap=6.0))
    def charge_card(order: int) -> None:
        time.sleep(rng.uniform(0.02, 0.1))
        if rng.random() < 0.3:
            raise ConnectionError(f"the bank did not answer for order {order}")

    @pool.job(max_concurrency=2)
    def export_report(job: Job, rows: int) -> None:
        for row in range(0, rows, 100):
            time.sleep(0.1)
            if job.checkin(f"row {row} of {rows}", done=row, total=rows):
                raise Snooze("the pool stops", after=1)

    @pool.job
    def rebuild_index(shop: int) -> None:  # noqa: ARG001 - it only pretends
        time.sleep(rng.uniform(0.2, 0.6))

    @pool.job
    def send_reminder(customer: int) -> None:  # noqa: ARG001 - it only pretends
        time.sleep(0.01)

    @pool.job
    def sweep_carts() -> None:
        time.sleep(0.05)

    pool.periodic("@every 5s", sweep_carts)
    return pool


def produce(pool: WorkerPool[Any], end: threading.Event) -> None:
    """Put fake jobs in until the end."""
    rng = random.Random()
    enqueuer = pool.enqueuer
    number = 0
    while not end.wait(0.1):
        number += 1
        # While the server is away the pool says so; the producer just goes on.
        with contextlib.suppress(StoreError):
            enqueuer.enqueue_many(
                "resize_photo", [{"photo": number * 10 + i} for i in range(rng.randint(1, 6))]
            )
            enqueuer.enqueue("fetch_weather", city=rng.choice(CITIES))
            if number % 3 == 0:
                enqueuer.enqueue("charge_card", order=1000 + number)
            if number % 5 == 0:
                enqueuer.enqueue_unique("rebuild_index", shop=rng.randint(1, 3))
                enqueuer.enqueue_in("send_reminder", rng.uniform(3, 9), customer=number)
            if number % 40 == 0:
                enqueuer.enqueue_many("fetch_weather", [{"city": city} for city in CITIES * 40])
            if number % 20 == 0:
                enqueuer.enqueue("export_report", rows=rng.randint(10, 40) * 100)


# The summary.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How the demo stands at one moment."""

    at: float
    queues: tuple[inspect.Queue, ...]
    sizes: inspect.Sizes
    totals: dict[str, dict[str, int]]
    running: dict[str, int]

    def count(self, counter: str, name: str | None = None) -> int:
        """A total, of one job name or of all."""
        by_name = self.totals.get(counter, {})
        return sum(by_name.values()) if name is None else by_name.get(name, 0)


def look(link: Link, keys: Keys) -> Snapshot:
    """Read all that the summary shows."""
    overview = walk(link, inspect.all_queues(keys))
    running: dict[str, int] = {}
    for pool in walk(link, pools.pools(keys)):
        for name, count in pool.status.running.items() if pool.status else ():
            running[name] = running.get(name, 0) + count
    sizes = walk(link, inspect.sizes(keys))
    return Snapshot(overview.now, overview.queues, sizes, link.run(figures.totals(keys)), running)


def can_draw() -> bool:
    """Whether the terminal can redraw a table in place."""
    return (
        sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
        and shutil.get_terminal_size().lines > 15
    )


def show(
    link: Link, keys: Keys, first: Snapshot, end: threading.Event, seconds: float | None, *, plain: bool
) -> None:
    """Print the summary once a second until the end."""
    deadline = None if seconds is None else time.monotonic() + seconds
    last, drawn = first, 0
    click.echo(f"dayjob demo: embedded server in {FOLDER.resolve()}, namespace {NAMESPACE}. Ctrl-C ends it.")
    while not end.wait(1.0 if deadline is None else max(0.0, min(1.0, deadline - time.monotonic()))):
        try:
            now = look(link, keys)
        except StoreError as error:
            click.echo(f"{error}")
            drawn = 0
        else:
            lines = [_line(now, first, last)] if plain else _table(now, first, last)
            if drawn:
                click.echo(f"\x1b[{drawn}F\x1b[J", nl=False)
            click.echo("\n".join(lines))
            sys.stdout.flush()
            last, drawn = now, 0 if plain else len(lines)
        if deadline is not None and time.monotonic() >= deadline:
            return


def _line(now: Snapshot, first: Snapshot, last: Snapshot) -> str:
    waiting = sum(queue.size for queue in now.queues)
    when = time.strftime("%H:%M:%S", time.localtime(now.at))
    return f"{when}  waiting {waiting:,}  {_sums(now, first, last)}"


def _sums(now: Snapshot, first: Snapshot, last: Snapshot) -> str:
    done = now.count("done") - last.count("done")
    rate = done / max(now.at - last.at, 0.001)
    return (
        f"processed {now.count('done') - first.count('done'):,} ({rate:.0f}/s)"
        f"  failed {now.count('failed') - first.count('failed'):,}  retry {now.sizes.retry}"
        f"  scheduled {now.sizes.scheduled}  dead {now.sizes.dead}"
    )


def _table(now: Snapshot, first: Snapshot, last: Snapshot) -> list[str]:
    lines = ["", f"  {'job':<16}{'waiting':>9}{'running':>9}{'done':>9}{'failed':>9}"]
    for queue in now.queues:
        done, failed = (
            now.count(what, queue.name) - first.count(what, queue.name) for what in ("done", "failed")
        )
        limit = f"   at most {queue.limit} at once" if queue.limit is not None else ""
        running = now.running.get(queue.name, 0)
        lines.append(f"  {queue.name:<16}{queue.size:>9,}{running:>9,}{done:>9,}{failed:>9,}{limit}")
    return [*lines, "", f"  {_sums(now, first, last)}"]


def _close(now: Snapshot, first: Snapshot, took: float) -> None:
    done, failed = (now.count(what) - first.count(what) for what in ("done", "failed"))
    waiting = sum(queue.size for queue in now.queues) + now.sizes.scheduled + now.sizes.retry
    click.echo(
        f"\nRan {done:,} jobs in {took:.0f} s; {failed:,} attempts failed, {now.sizes.dead} jobs are dead and"
        f" {waiting:,} wait in {FOLDER} for the next demo.\n"
        f"Try: dayjob enqueue export_report rows=2000 --redis embedded --namespace {NAMESPACE}; dayjob demo\n"
        f"     dayjob doctor --redis embedded --namespace {NAMESPACE}"
    )

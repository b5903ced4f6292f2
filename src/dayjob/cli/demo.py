"""`dayjob demo`: an embedded server, fake jobs, workers and the console, with a summary once a second."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import random
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dayjob.admin.client import Admin
from dayjob.cli import demo_jobs, target
from dayjob.cli.demo_jobs import NAMESPACE
from dayjob.errors import StoreError
from dayjob.pool import WorkerPool
from dayjob.store.embedded import server_status, stop_server
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.ops import figures, health, inspect, pools

FOLDER = Path(".dayjob")
PORT = 5040
#: Seconds that running jobs and HTTP answers may take to end.
END_SECONDS = 0.5


@click.command(epilog="Example: dayjob demo --seconds 20 --plain --no-open")
@click.option(
    "--seconds", type=click.FloatRange(0), help="Stop after this many seconds; otherwise at Ctrl-C."
)
@click.option("--plain", is_flag=True, help="Print one line per second instead of a table.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True,
    help="Port of the console; another one if it is in use.",
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open the console in a browser.")
@click.option("--no-web", is_flag=True, help="Workers only, without the console.")
def demo(seconds: float | None, plain: bool, port: int, no_open: bool, no_web: bool) -> None:
    """Run fake jobs on the embedded server, and watch them in the console and in this terminal.

    The jobs succeed, fail, are retried or dead, are delayed, periodic, unique, limited, paused, slow, atomic, members of a batch or nodes of a workflow,
    and some emit text. The server keeps its data in ./.dayjob. Ctrl-C stops the demo.
    """
    # Some of the demo's jobs fail on purpose.
    logging.getLogger("dayjob.job").setLevel(logging.CRITICAL)
    # Variables take precedence over the pool, but the demo's jobs must not go to another server.
    os.environ |= {"DAYJOB_REDIS_URL": "embedded", "DAYJOB_NAMESPACE": NAMESPACE}
    ours = not server_status(FOLDER).running
    both = demo_jobs.build_pools(random.Random())
    began = time.monotonic()
    with ending() as end, target.connected("embedded", NAMESPACE) as (link, keys):
        with Admin(NAMESPACE, redis="embedded") as admin:
            demo_jobs.set_the_stage(link, keys, admin)
        before = look(link, keys)
        web = None if no_web else console_at(port)
        for pool in both:
            pool.start()
        producer = threading.Thread(
            target=demo_jobs.produce, args=(both[0], end), name="demo-producer", daemon=True
        )
        producer.start()
        try:
            greet(web, opens=not no_open, wanted=not no_web)
            show(link, keys, before, end, seconds, plain=plain or not can_draw())
        finally:
            end.set()
            stop(both, web)
            producer.join(1.0)
            both[0].enqueuer.close()
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


def stop(both: list[WorkerPool[Any]], web: DemoConsole | None) -> None:
    """Stop the pools and the console at the same time."""
    threads = [threading.Thread(target=pool.stop, kwargs={"timeout": END_SECONDS}) for pool in both]
    threads += [threading.Thread(target=web.stop)] if web else []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# The console.


class DemoConsole:
    """The console in a thread of this process."""

    def __init__(self, port: int) -> None:
        from dayjob.admin.client import AsyncAdmin  # noqa: PLC0415 - as what uses it
        from dayjob.web import WebOptions, create_app, server  # noqa: PLC0415 - an extra

        admin = AsyncAdmin(NAMESPACE, redis="embedded")
        admin._address()
        app = create_app(admin, options=WebOptions(title="dayjob demo"))
        self._listening = _listen(port)
        self.url = server.address_of("127.0.0.1", self._listening.getsockname()[1])
        self._server = server.ConsoleServer(server.configure(app, grace=1))
        self._thread = threading.Thread(target=self._run, name="demo-console", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        """Stop it, after the answers that are being sent."""
        self._server.should_exit = True
        self._thread.join(END_SECONDS)
        self._server.force_exit = True
        self._thread.join(END_SECONDS)
        self._listening.close()


def _listen(port: int) -> socket.socket:
    """A socket at this port, or at a free one."""
    for number in (port, 0):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", number))
            found.listen(128)
        except OSError:
            found.close()
            if number == 0:
                raise
        else:
            return found
    raise AssertionError("the loop ends in one of three other ways")


def console_at(port: int) -> DemoConsole | None:
    """The console, if its packages are installed."""
    if all(importlib.util.find_spec(module) for module in ("starlette", "uvicorn", "jinja2")):
        return DemoConsole(port)
    return None


def greet(web: DemoConsole | None, *, opens: bool, wanted: bool) -> None:
    """Print where the server and the console are, and open the console on a desktop."""
    click.echo(f"dayjob demo: embedded server in {FOLDER.resolve()}, namespace {NAMESPACE}. Ctrl-C stops it.")
    if web is None:
        if wanted:
            click.echo("The console needs more packages: pip install 'dayjob[web]'")
        return
    click.echo(f"The console: {click.style(web.url, bold=True)}")
    if opens and on_a_desktop(os.environ, tty=sys.stdout.isatty(), platform=sys.platform):
        # On a thread, because with some browsers the call returns only when the browser is closed.
        threading.Thread(target=webbrowser.open, args=(web.url,), daemon=True).start()


def on_a_desktop(environ: Mapping[str, str], *, tty: bool, platform: str) -> bool:
    """Whether a browser can be opened on this machine's screen."""
    if not tty or environ.get("CI") or environ.get("SSH_CONNECTION"):
        return False
    return platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


# The summary.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The figures of the demo at one moment."""

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
    """Read the figures of the summary."""
    overview = walk(link, inspect.all_queues(keys))
    running: dict[str, int] = {}
    for pool in walk(link, pools.pools(keys)):
        for name, count in pool.status.running.items() if pool.status else ():
            running[name] = running.get(name, 0) + count
    sizes = walk(link, inspect.sizes(keys))
    return Snapshot(overview.now, overview.queues, sizes, link.run(figures.totals(keys)), running)


def can_draw() -> bool:
    """Whether the terminal can redraw a table in place and is large enough."""
    size = shutil.get_terminal_size()
    return (
        sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
        and size.lines > 20
        and size.columns > 60
    )


def show(
    link: Link, keys: Keys, first: Snapshot, end: threading.Event, seconds: float | None, *, plain: bool
) -> None:
    """Print the summary once a second until the end."""
    deadline = None if seconds is None else time.monotonic() + seconds
    last, drawn = first, 0
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
            most = shutil.get_terminal_size().columns - 1 if drawn or not plain else 10_000
            click.echo("\n".join(line[:most] for line in lines))
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
    wide = max((len(queue.name) for queue in now.queues), default=0)
    lines = ["", f"  {'job':<{wide}}{'waiting':>9}{'running':>9}{'done':>9}{'failed':>9}"]
    for queue in now.queues:
        done, failed = (
            now.count(what, queue.name) - first.count(what, queue.name) for what in ("done", "failed")
        )
        limit = f"   at most {queue.limit} at once" if queue.limit is not None else ""
        running = now.running.get(queue.name, 0)
        lines.append(f"  {queue.name:<{wide}}{queue.size:>9,}{running:>9,}{done:>9,}{failed:>9,}{limit}")
    return [*lines, "", f"  {_sums(now, first, last)}"]


def _close(now: Snapshot, first: Snapshot, took: float) -> None:
    done, failed = (now.count(what) - first.count(what) for what in ("done", "failed"))
    waiting = sum(queue.size for queue in now.queues) + now.sizes.scheduled + now.sizes.retry
    click.echo(
        f"\nRan {done:,} jobs in {took:.0f} s; {failed:,} attempts failed, {now.sizes.dead:,} jobs are dead and"
        f" {waiting:,} wait in {FOLDER} for the next demo.\n"
        f"Try: {_command()} top --redis embedded --namespace {NAMESPACE}\n"
        f"     {_command()} doctor --redis embedded --namespace {NAMESPACE}"
    )


def _command() -> str:
    """How this program was called: `dayjob` if the shell finds this program under that name, else its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dayjob"
    found = shutil.which("dayjob")
    if found is not None and Path(found).resolve() == called.resolve():
        return "dayjob"
    return shlex.quote(sys.argv[0])

"""The world of a chaos run: a server, supervised workers, embedded pools and producers, each a real process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from chaos import look
from chaos.jobs import digest, memory_group, retried
from dayjob import Admin, Enqueuer
from dayjob.errors import StoreError
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from faults.ledger import Census, Item, Ledger
from proxy import Proxy
from server import Server, binary, wait_until

TESTS = Path(__file__).parent.parent
#: Batches and workflows whose dead jobs are retried at one rest.
MAX_RETRIED = 12
#: Seconds that a supervised worker is given to stop.
DEADLINE = 2.0


def child_environment(folder: Path, group: str, namespace: str, **more: str) -> dict[str, str]:
    """What a process of the run is started with."""
    paths = [str(TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("DAYJOB_REDIS_URL", "REDIS_URL")
    }
    return {
        **inherited, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "CHAOS_FOLDER": str(folder), "CHAOS_GROUP": group,
        "CHAOS_NAMESPACE": namespace, **more,
    }  # fmt: skip


def clock_environment(hours: float) -> dict[str, str]:
    """An environment in which the clock of a process is off; empty where the library for it is not installed."""
    for folder in Path("/usr/lib").glob("*/faketime"):
        library = folder / "libfaketimeMT.so.1"
        if library.exists():
            offset = f"{hours:+.4f}h"
            return {"LD_PRELOAD": str(library), "FAKETIME": offset, "DONT_FAKE_MONOTONIC": "1"}
    return {}


class LastingServer(Server):
    """A server whose writes past the end of a full disk fail, rather than end it."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [
                binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                "--enable-debug-command", "yes", *self.options,
            ],
            stdout=subprocess.DEVNULL, restore_signals=False, start_new_session=True,
        )  # fmt: skip
        wait_until(self.answers)


class Workers:
    """A group of workers behind one address: a process we started, and its children if it is a parent."""

    def __init__(
        self, world: World, name: str, url: str, *, processes: int, proxy: Proxy | None = None
    ) -> None:
        self.world, self.name, self.url, self.processes, self.proxy = world, name, url, processes, proxy
        self.process: subprocess.Popen[bytes] | None = None
        self.hours = 0.0
        self._log = (world.folder / f"{name}.log").open("ab")
        #: One fault at a time for what concerns its processes.
        self.lock = threading.Lock()
        self.network = threading.Lock()

    @property
    def supervised(self) -> bool:
        return self.processes > 0

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.pid

    def start(self) -> None:
        env = child_environment(
            self.world.ledgers, self.name, self.world.namespace, CHAOS_DEADLINE=str(DEADLINE), DAYJOB_REDIS_URL=self.url,
            **(clock_environment(self.hours) if self.hours else {}),
        )  # fmt: skip
        if self.supervised:
            command = [
                sys.executable, "-m", "dayjob", "worker", "chaos.program:pool", "--redis", self.url, "--namespace",
                self.world.namespace, "--processes", str(self.processes), "--timeout", str(DEADLINE), "--log-format", "text",
            ]  # fmt: skip
        else:
            command = [sys.executable, "-m", "chaos.embedded"]
        self.process = subprocess.Popen(
            command, cwd=TESTS, env=env, stderr=self._log, stdout=self._log, start_new_session=True
        )

    def children(self) -> list[int]:
        """The processes that run jobs: the children of a parent, or the process itself."""
        if not self.alive:
            # Its number may be somebody else's by now.
            return []
        if not self.supervised:
            return [self.pid]
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(self.pid).children()]
        return []

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait for the process we started; None when it has not ended in time."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End all of it, at once."""
        pids = self.children()
        if self.alive:
            assert self.process is not None
            self.process.kill()
            self.process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()


class Producers:
    """A producer process and the way to talk to it."""

    def __init__(self, world: World, number: int, module: str, *arguments: object) -> None:
        self._log = (world.folder / f"producer{number}.log").open("ab")
        env = child_environment(
            world.ledgers, f"producer{number}", world.namespace, DAYJOB_REDIS_URL=world.server.url
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)], cwd=TESTS, env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def paused(self) -> None:
        """Wait until it says that it has paused."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != b"paused\n":
            raise RuntimeError(f"a producer ended: {line!r}; see its log")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._log.close()


class World:
    """Everything that a run consists of."""

    def __init__(self, folder: Path, seed: int, *, small: bool = False, bulk: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.namespace = "chaos"
        self.ledgers = folder / "ledger"
        self.ledgers.mkdir(parents=True)
        (folder / "server").mkdir()
        self.keys = Keys(self.namespace)
        self.ledger = Ledger(self.ledgers, "harness")
        self.server = LastingServer(
            folder / "server", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
            "--logfile", str(folder / "server.log"),
        )  # fmt: skip
        self.server_lock = threading.Lock()
        self.serial = 0
        self.small, self.bulk = small, bulk
        self.proxies: list[Proxy] = []
        self.groups: list[Workers] = []
        self.producers: list[Producers] = []
        self._link_lock = threading.Lock()

    def attach(self) -> None:
        """Connect to the server."""
        self.link = Link(addresses.parse_url(self.server.url), tag=self.keys.known_jobs, timeout=20)
        self.enqueuer = Enqueuer(self.namespace, redis=self.server.url, timeout=1.0)
        self.admin = Admin(self.namespace, redis=self.server.url)

    def start(self) -> None:
        self.server.start()
        self.attach()
        for _ in range(2):
            proxy = Proxy(self.server.port)
            proxy.start()
            self.proxies.append(proxy)
        first, second = self.proxies
        self.groups = [
            Workers(self, "near", self.server.url, processes=1 if self.small else 2),
            Workers(self, "far", first.url, processes=1, proxy=first),
            Workers(self, "embedded", second.url, processes=0, proxy=second),
        ]
        for group in self.groups:
            group.start()
        rate = 15.0 if self.small else 30.0
        where = (self.seed, self.server.url, self.namespace)
        self.producers = [
            Producers(self, 1, "chaos.producer", "sync", 1, *where, rate, self.bulk),
            Producers(self, 2, "chaos.producer", "async", 2, *where, rate, 0),
        ]
        if not self.small:
            # Beside other tests, a run with these jobs broke a rule: a job started again without a cause that the ledger has. A
            # lease that was lost on a busy machine is suspected, and not proven.
            self.producers.append(Producers(self, 3, "chaos.group_producer", 3, *where, 1.0))
        wait_until(lambda: self.tell("ZCARD", self.keys.pools) >= 3, step=0.05)
        self.clock()
        self.census()

    def tell(self, *words: Any) -> Any:
        """Send one command past all proxies. Raises StoreError."""
        with self._link_lock:
            return self.link.run(plain(*words))

    @staticmethod
    def insist(action: Callable[[], Any]) -> Any:
        """Do something that is safe to repeat until Redis answers: connections may be stale after a fault."""
        while True:
            try:
                return action()
            except StoreError:
                time.sleep(0.1)

    def clock(self) -> None:
        self.ledger.write("clock")

    def census(self, *, rest: bool = False) -> Census | None:
        """Look, and write it down; None while Redis is away."""
        try:
            with self._link_lock:
                found = look.take(self.link, self.keys)
        except StoreError:
            return None
        found.rest = rest
        self.ledger.write("census", census=found)
        return found

    def enqueue(self, name: str, plan: str, **args: Any) -> str:
        """Enqueue one job as a producer would; the answer is its serial."""
        self.serial += 1
        serial = f"h/{self.serial}"
        self.ledger.write("asked", serial=serial, name=name, plan=plan, digest=digest(None))
        while True:
            try:
                job = self.enqueuer.using(id=f"id-{serial}").enqueue(name, serial=serial, plan=plan, **args)
            except StoreError:
                # Its id makes it safe.
                time.sleep(0.2)
                continue
            self.ledger.write("stored", serial=serial, job=f"id-{serial}" if job is None else job.id)
            return serial

    def go(self) -> None:
        for producer in self.producers:
            producer.tell("go")

    def rest(self, seconds: float = 60.0) -> Census:
        """Have producers pause, wait until everything has run, and take a census at rest. Raises AssertionError."""
        for producer in self.producers:
            producer.tell("pause")
        for producer in self.producers:
            producer.paused()
        deadline = time.monotonic() + seconds
        while True:
            for group in self.groups:
                if not group.alive:
                    group.start()
            try:
                with self._link_lock:
                    found = look.take(self.link, self.keys)
                    quiet = look.is_at_rest(found, time.time())
                    if quiet:
                        look.add_groups(self.link, self.keys, found)
            except StoreError:
                quiet = False
            if quiet:
                found.rest = True
                self.ledger.write("census", census=found)
                return found
            if time.monotonic() > deadline:
                self.ledger.write("census", census=found)
                raise AssertionError(
                    f"not at rest within {seconds} s: waiting {dict(found.waiting)}, held {found.held}, "
                    f"condemned {found.condemned}, retry {len(found.places['retry'])}"
                )
            time.sleep(0.02)

    def retry_dead(self, census: Census, rng: random.Random) -> int:
        """As an operator: retry the dead members of some batches, and the dead nodes of some workflows. The answer is how many."""
        groups: dict[str, list[Item]] = {}
        for item in census.places["dead"]:
            for group in item.groups if item.name != "called" else ():
                groups.setdefault(group, []).append(item)
        seen: set[str] = set()
        for group in rng.sample(sorted(groups), min(MAX_RETRIED, len(groups) // 2)):
            items = groups[group]
            # What goes on without a dead node has gone on: its retry would run that again. And what was retried a moment
            # ago, with a batch around or inside this one, may be dead again.
            if set(census.workflows.get(group, "")) & set("nk") or any(item.job in seen for item in items):
                continue
            for item in items:
                seen.add(item.job)
                self.ledger.write("revived", serial=item.serial, fails=item.fails)
                retried(self.ledgers, item.job).touch()
            if group in census.batches:
                self.admin.retry_batch(group)
            else:
                self.admin.retry_workflow(group)
        return len(seen)

    def bury(self) -> None:
        """Say of every process that wrote in the ledger and is no more that it is gone."""
        for path in self.ledgers.glob("*.jsonl"):
            pid = int(path.name.split("-")[1])
            if path.name.startswith(("harness", "producer")):
                continue
            if not psutil.pid_exists(pid) or psutil.Process(pid).create_time() > path.stat().st_mtime:
                self.ledger.write("gone", serial=path.name, target=pid, how="found dead")

    def close(self) -> None:
        for producer in self.producers:
            producer.close()
        for group in self.groups:
            group.close()
        for proxy in self.proxies:
            proxy.stop()
        self.server.kill()
        self.ledger.close()
        for path in self.ledgers.glob("*.jsonl"):
            # What a job made that ran out of memory; its process is gone.
            with contextlib.suppress(OSError):
                memory_group(int(path.name.split("-")[1])).rmdir()


def rng_for(seed: int, what: str) -> random.Random:
    """Random numbers of one part of a run, the same for the same seed."""
    return random.Random(f"{seed}/{what}")

"""One function per workload: run one system once and say what was seen. Nothing is judged here.

Each returns a record of plain values. A run that went wrong is a record too, with `error` and what it got done.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis
from figures import percentile
from machine import SCRIPTS, Counts, Program, Server, Watch, pinned, proxied, round_trip
from systems import HERE, SYSTEMS, Installed, System

from contract import Ledger
from dayjob.store.scripts import load

SOURCE = HERE.parent / "src"
#: Seconds after which a run is given up.
LIMIT = 90.0
#: Seconds without a single execution after which it is given up.
STALL = 25.0
#: How often the ledger is looked at, and for how long after the last job repeats are waited for.
LOOK = 0.005
GRACE = 0.3
#: Share of the jobs after which costs are counted: the start is not what A asks about.
WARM = 0.1
#: What a pool sends to stay alive, by script.
HEARTBEAT = ("beat", "status")


class Failed(Exception):
    """A run that did not come to its end."""


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    workload: str
    system: System
    config: str
    #: What this case is about beside system and configuration: "", "1 ms", "AOF", "200 names".
    variant: str = ""
    count: int = 1000
    names: int = 5
    concurrency: int = 10
    processes: int = 1
    pools: int = 1
    sleep: float = 0.0
    gap: float = 0.0
    mode: str = "single"
    pin: str = "scheduler"
    delay: float = 0.0
    aof: bool = False
    #: L and P: which limits and keys the job names have.
    rules: str = ""
    #: paths and enqueue: what the jobs do, or how they are enqueued; see paths.py.
    path: str = ""
    #: The program of the system that runs it, and executions beside those of the jobs; see groups.py.
    program: str = "program"
    extra: int = 0
    #: Seconds from the start of the enqueues until scheduled jobs are due.
    due_in: float = 0.0
    #: D: how long it is watched. C and D: how long the worker is idle before.
    seconds: float = 10.0
    rest: float = 1.0
    #: For programs that measure by themselves.
    more: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def runs(self) -> int:
        """Executions that each job needs: two where it fails first, or enqueues another."""
        return 2 if self.path in ("retry", "nested", "atomic") else 1

    @property
    def key(self) -> str:
        """What the runs of one figure have in common."""
        return " / ".join(filter(None, (self.workload, self.system.name, self.config, self.variant)))


class Bench:
    """The servers and the installed systems of one run of the benchmark."""

    def __init__(self, folder: Path, installed: dict[str, Installed]) -> None:
        self.folder = folder
        self.installed = installed
        self._servers: dict[bool, Server] = {}
        #: Round trip asked for, to what the proxy must hold back for it.
        self._holds: dict[float, float] = {}
        #: What a PING took through the last proxy, in seconds.
        self.round_trip = 0.0

    def server(self, aof: bool = False) -> Server:
        if aof not in self._servers:
            self._servers[aof] = Server(self.folder / f"server-{int(aof)}", aof=aof)
        return self._servers[aof]

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()

    def run(self, case: Case) -> dict[str, Any]:
        """One run; whatever goes wrong is in the record."""
        watch = Watch()
        record: dict[str, Any] = {
            "key": case.key, "workload": case.workload, "system": case.system.name, "config": case.config,
            "variant": case.variant, "count": case.count, "at": round(time.time(), 1), "error": "",
        }  # fmt: skip
        try:
            record |= RUNS[case.workload](self, case)
        except Failed as error:
            record |= {"error": str(error.args[0]), **(error.args[1] if len(error.args) > 1 else {})}
        except (OSError, psutil.Error, redis.RedisError) as error:
            # Such as a worker that ended while its CPU time was read. The other runs go on.
            record |= {"error": repr(error)[:300]}
        if case.delay:
            record["round_trip_ms"] = round(self.round_trip * 1000, 3)
        record |= watch.stop()
        return record

    # Programs.

    def env(self, case: Case, url: str, **more: Any) -> dict[str, str]:
        settings = {
            "url": url, "count": case.count, "names": case.names, "concurrency": case.concurrency,
            "config": case.config, "due": 0, "mode": case.mode, "gap": case.gap, "sleep": case.sleep, "rules": case.rules,
            "path": case.path, "first": 0, **more,
        }  # fmt: skip
        found = {f"BENCH_{key.upper()}": str(value) for key, value in settings.items()}
        folders = [HERE / "contract", *([SOURCE] if case.system.kind == "own" else [])]
        return {
            **found, "PYTHONPATH": ":".join(map(str, folders)), "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",
        }  # fmt: skip

    def send(self, case: Case, url: str, system: System | None = None, **more: Any) -> dict[str, Any]:
        """Run a system's enqueue program to its end; what it printed."""
        system = system or case.system
        program = self.installed[system.name]
        try:
            done = subprocess.run(
                [*program.named(case.program), "enqueue"], env={**os.environ, **self.env(case, url, **more)},
                cwd=program.folder, capture_output=True, text=True, timeout=LIMIT, check=True,
            )  # fmt: skip
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            raise Failed(f"enqueueing took longer than {LIMIT:g} s") from None
        except subprocess.CalledProcessError as error:
            raise Failed(f"enqueueing failed: {(error.stderr or '').strip()[-300:]}") from None
        except (IndexError, ValueError):
            raise Failed(f"enqueueing printed no figures: {done.stdout[-200:]}") from None
        return answer

    @contextlib.contextmanager
    def workers(self, case: Case, url: str, ledger: Path, processes: int = 1) -> Iterator[list[Program]]:
        program = self.installed[case.system.name]
        log = self.folder / "worker.log"
        log.write_bytes(b"")
        share = max(1, case.pools // processes)
        env = self.env(case, url, ledger=ledger, pools=share)
        running = [
            Program([*program.named(case.program), "work"], env, program.folder, log)
            for _ in range(processes)
        ]
        try:
            yield running
        finally:
            for one in running:
                one.stop()

    @contextlib.contextmanager
    def address(self, case: Case, server: Server) -> Iterator[str]:
        """The URL for workers: the server itself, or a proxy that delays."""
        if not case.delay:
            yield server.url
            return
        if case.delay not in self._holds:
            # A proxy delays by its own work too: it holds back so much less.
            with proxied(server.port, case.delay) as port:
                self._holds[case.delay] = case.delay - (round_trip(port) - case.delay)
        with proxied(server.port, self._holds[case.delay]) as port:
            self.round_trip = round_trip(port)
            yield f"redis://127.0.0.1:{port}"

    def waiting(self, server: Server, glob: str) -> int:
        """How many jobs wait in the keys that match."""
        sizes = {"list": "LLEN", "zset": "ZCARD", "stream": "XLEN", "hash": "HLEN", "set": "SCARD"}
        client, total = server.client, 0
        for key in client.scan_iter(glob, 1000):
            total += int(client.execute_command(sizes[client.type(key)], key))
        return total


# A, E, F and part of G: drain.


def drain(bench: Bench, case: Case) -> dict[str, Any]:
    """Enqueue everything, then let a worker run it all."""
    server = bench.server(case.aof)
    server.empty()
    # The bare loop runs what dayjob enqueues, and so do bare tasks, in a way.
    filler = SYSTEMS["dayjob"] if case.system.name in ("bare", "tasks") else case.system
    path = bench.folder / "ledger"
    ledger = Ledger.create(path, case.count * case.runs + case.extra)
    due = time.time() + case.due_in
    stored = bench.send(case, server.url, filler, mode="bulk", due=due)
    with bench.address(case, server) as url, bench.workers(case, url, path, case.processes) as programs:
        seen = _watch_drain(bench, case, server, ledger, programs)
    return {
        **seen,
        **delivered(ledger, ledger.count),
        "enqueue_seconds": round(stored["last"] - stored["first"], 3),
        "enqueue_us": round(stored["cpu"] / case.count * 1e6, 1),
    }


def grouped(bench: Bench, case: Case) -> dict[str, Any]:
    """Drain jobs that belong together, and add up the CPU time that one costs from its enqueue to its end."""
    server = bench.server(case.aof)
    before = Counts.take(server).cpu
    seen = drain(bench, case)
    server_us = (Counts.take(server).cpu - before) / case.count * 1e6
    return {**seen, "whole_us": round(seen["enqueue_us"] + seen.get("worker_us", 0.0) + server_us, 2)}


def paced(bench: Bench, case: Case) -> dict[str, Any]:
    """Drain under a rate: how fast it went, and how many jobs started in the busiest second."""
    seen = drain(bench, case)
    times = sorted(Ledger(bench.folder / "ledger").times)
    first = busiest = 0
    for last, at in enumerate(times):
        while at - times[first] >= 1.0:
            first += 1
        busiest = max(busiest, last - first + 1)
    return {**seen, "busiest": busiest}


def _watch_drain(
    bench: Bench, case: Case, server: Server, ledger: Ledger, programs: list[Program]
) -> dict[str, Any]:
    count, counts = ledger.count, ledger.counts
    stride = max(1, count // 200)
    limit = time.monotonic() + LIMIT
    before: tuple[Counts, float, int] | None = None
    seen, deadline = b"", limit
    while ledger.memory.find(b"\0", 8 * count) >= 0:
        sample = bytes(counts[::stride])
        if before is None and len(sample) - sample.count(0) >= WARM * len(sample):
            before = Counts.take(server), sum(map(Program.cpu, programs)), count - bytes(counts).count(0)
        if sample != seen:
            seen, deadline = sample, min(limit, time.monotonic() + STALL)
        _check(programs, deadline, ledger, count)
        time.sleep(LOOK)
    time.sleep(0.03)
    after, cpu = Counts.take(server), sum(map(Program.cpu, programs))
    memory = sum(map(Program.memory, programs))
    time.sleep(GRACE)
    first, last = min(ledger.times), max(ledger.times)
    seconds = max(1e-9, last - first)
    figures: dict[str, Any] = {
        "rate": round((count - 1) / case.runs / seconds, 1), "seconds": round(seconds, 4), "clients": after.clients, "rss": memory,
    }  # fmt: skip
    if case.sleep:
        slots = case.concurrency * case.pools
        figures["ideal"] = round(max(1, count / slots - 1) * case.sleep / seconds, 4)
    if before is not None and count - before[2] > 0:
        jobs, spent = (count - before[2]) / case.runs, after.since(before[0])
        figures |= {
            "commands": round(spent["commands"] / jobs, 4), "reads": round(spent["reads"] / jobs, 4),
            "bytes": round(spent["bytes"] / jobs, 1), "server_us": round(spent["cpu"] / jobs * 1e6, 2),
            "worker_us": round((cpu - before[1]) / jobs * 1e6, 2),
        }  # fmt: skip
        if case.system.kind == "own":
            # What we send while busy is scripts and waits for bells, so that it can be told from what scripts do.
            sent = sum(spent["calls"].get(name, 0) for name in (*SCRIPTS, "bzpopmin"))
            figures["trips"] = round(sent / jobs, 5)
    return figures


def _check(programs: list[Program], deadline: float, ledger: Ledger, count: int) -> None:
    if any(program.ended for program in programs):
        raise Failed(f"a worker ended: {programs[0].tail()}", delivered(ledger, count))
    if time.monotonic() > deadline:
        raise Failed(f"not done in time: {programs[0].tail()}", delivered(ledger, count))


def delivered(ledger: Ledger, count: int) -> dict[str, int]:
    """How many jobs ran, how many more than once, how many not at all."""
    counts = bytes(ledger.counts[:count])
    missing = counts.count(0)
    return {"executed": count - missing, "missing": missing, "twice": count - missing - counts.count(1)}


# B: enqueue.


def enqueue(bench: Bench, case: Case) -> dict[str, Any]:
    """Enqueue from one process; nobody works."""
    server = bench.server(case.aof)
    server.empty()
    with pinned(server, case.pin), bench.address(case, server) as url:
        before = Counts.take(server)
        answer = bench.send(case, url)
        spent = Counts.take(server).since(before)
    found = bench.waiting(server, case.system.waiting)
    seconds = answer["last"] - answer["first"]
    return {
        "rate": round(answer["count"] / max(1e-9, seconds), 1), "seconds": round(seconds, 4),
        "executed": found, "missing": case.count - found, "twice": 0,
        "cpu_us": round(answer["cpu"] / case.count * 1e6, 1), "server_us": round(spent["cpu"] / case.count * 1e6, 2),
        "bytes": round(spent["bytes"] / case.count, 1),
    }  # fmt: skip


# C: pickup.


def pickup(bench: Bench, case: Case) -> dict[str, Any]:
    """From enqueue to handler start, on a worker that was idle."""
    server = bench.server(case.aof)
    server.empty()
    path = bench.folder / "ledger"
    ledger = Ledger.create(path, case.count + 1)
    with bench.address(case, server) as url, bench.workers(case, url, path) as programs:
        bench.send(case, url, count=1, gap=0)
        wait_executed(ledger, range(1), programs)
        time.sleep(case.rest)
        answer = bench.send(case, url, first=1)
        wait_executed(ledger, range(1, case.count + 1), programs)
        time.sleep(GRACE)
    waits = [ledger.times[i + 1] - sent for i, sent in enumerate(answer["sent"])]
    # The first waits for its producer to connect: it is shown by itself.
    ordered = sorted(waits[1:])
    return {
        "p50_ms": round(statistics.median(ordered) * 1000, 3),
        "p99_ms": round(percentile(ordered, 0.99) * 1000, 3),
        "worst_ms": round(ordered[-1] * 1000, 3), "first_ms": round(waits[0] * 1000, 3),
        **delivered(ledger, case.count + 1),
    }  # fmt: skip


def wait_executed(ledger: Ledger, numbers: range, programs: list[Program]) -> None:
    deadline = time.monotonic() + LIMIT
    start, stop = 8 * ledger.count + numbers.start, 8 * ledger.count + numbers.stop
    while ledger.memory.find(b"\0", start, stop) >= 0:
        _check(programs, deadline, ledger, ledger.count)
        time.sleep(LOOK)


# start: from the command to the first job.


def start(bench: Bench, case: Case) -> dict[str, Any]:
    """How long `dayjob worker` takes from its start to the start of a job that waits, and the memory it has then."""
    server = bench.server(case.aof)
    server.empty()
    path = bench.folder / "ledger"
    ledger = Ledger.create(path, case.count)
    bench.send(case, server.url)
    log = bench.folder / "worker.log"
    log.write_bytes(b"")
    env = bench.env(case, server.url, ledger=path)
    command = [sys.executable, "-m", "dayjob", "worker", "program:app", "--quiet"]
    began = time.time()
    program = Program(command, env, HERE / "peers/dayjob", log)
    try:
        wait_executed(ledger, range(case.count), [program])
        # What it imports after its first job counts too.
        time.sleep(1.0)
        child = program.process.children()[0]
        parent_mb, child_mb = (one.memory_info().rss / 2**20 for one in (program.process, child))
    finally:
        program.stop()
    return {
        "first_s": round(min(ledger.times) - began, 3), "parent_mb": round(parent_mb, 1), "child_mb": round(child_mb, 1),
        **delivered(ledger, case.count),
    }  # fmt: skip


# D: idle.


def idle(bench: Bench, case: Case) -> dict[str, Any]:
    """What workers with nothing to do send to the server, seen by MONITOR."""
    server = bench.server(case.aof)
    server.empty()
    path = bench.folder / "ledger"
    Ledger.create(path, 8)
    processes = min(4, case.pools)
    with bench.workers(case, server.url, path, processes) as programs:
        clients = _settled(case, server, programs)
        time.sleep(case.rest)
        cpu, started = sum(map(Program.cpu, programs)), time.time()
        sent, inner = _monitor(server, case.seconds)
        seconds = time.time() - started
        cpu = sum(map(Program.cpu, programs)) - cpu
        memory = sum(map(Program.memory, programs))
    heartbeat = sum(number for name, number in sent.items() if name in HEARTBEAT)
    return {
        "sent_s": round(sum(sent.values()) / seconds, 2), "inner_s": round(inner / seconds, 2),
        "heartbeat_s": round(heartbeat / seconds, 2),
        "beside_s": round((sum(sent.values()) - heartbeat) / seconds, 2),
        "what": {name: round(number / seconds, 2) for name, number in sent.most_common(12)},
        "clients": clients, "rss": memory, "cpu_percent": round(cpu / seconds * 100, 2), "pools": case.pools,
    }  # fmt: skip


def _settled(case: Case, server: Server, programs: list[Program]) -> int:
    """Wait until the workers have opened what connections they open; how many those are."""
    deadline = time.monotonic() + LIMIT
    clients, since = 0, time.monotonic()
    while clients == 0 or time.monotonic() - since < case.system.settle:
        if any(program.ended for program in programs):
            raise Failed(f"a worker ended: {programs[0].tail()}")
        if time.monotonic() > deadline:
            raise Failed(f"its connections do not settle: {clients}")
        time.sleep(0.1)
        now = Counts.take(server).clients
        if now != clients:
            clients, since = now, time.monotonic()
    return clients


def _monitor(server: Server, seconds: float) -> tuple[Counter[str], int]:
    """Commands that clients sent, scripts by their names where they are ours; and how many ran inside scripts."""
    names = {load(path.stem).sha: path.stem for path in (SOURCE / "dayjob/store/scripts").glob("*.lua")}
    sent: Counter[str] = Counter()
    inner = 0
    with server.client.monitor() as monitor:
        monitor.connection.disconnect_on_error = False
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not monitor.connection.can_read(timeout=left):
                break
            seen = monitor.next_command()
            if seen["client_type"] == "lua":
                inner += 1
                continue
            words = seen["command"].split(" ", 2)
            name = words[0].lower()
            if name in ("evalsha", "eval") and len(words) > 1:
                name = names.get(words[1], name)
            sent[name] += 1
    return sent, inner


# Programs that measure inside and print.


def printed(bench: Bench, case: Case) -> dict[str, Any]:
    """Run one of our own measuring programs; what it printed."""
    server = bench.server(case.aof)
    server.empty()
    command = [sys.executable, str(HERE / case.more["program"]), *map(str, case.more.get("arguments", ()))]
    env = {**os.environ, **bench.env(case, server.url)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip()[-300:])
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def limits(bench: Bench, case: Case) -> dict[str, Any]:
    """redis-benchmark, where there is one."""
    tool = shutil.which("valkey-benchmark") or shutil.which("redis-benchmark")
    if tool is None:
        raise Failed("neither valkey-benchmark nor redis-benchmark is on the PATH")
    server = bench.server(case.aof)
    server.empty()
    with pinned(server, case.pin):
        done = subprocess.run(
            [tool, "-p", str(server.port), "-q", "-d", "110", "--csv", *case.more["arguments"]],
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    fields = [line.split(",") for line in done.stdout.strip().splitlines()]
    if done.returncode or not fields:
        raise Failed(done.stderr.strip()[-200:] or "no figures")
    return {"rate": float(fields[-1][1].strip('"'))}


RUNS = {
    "A": drain, "B": enqueue, "C": pickup, "D": idle, "F": drain, "G": drain, "G ops": printed, "G keys": printed, "H": printed,
    "L": drain, "P": paced, "limits": limits, "paths": drain, "enqueue": enqueue, "start": start,
    "groups": grouped, "call": printed, "children": printed,
}  # fmt: skip

"""What one server carries: 50 pools, ten million waiting jobs, a million scheduled and a million dead ones, for minutes.

Run: python benchmarks/scale.py --minutes 5. Writes benchmarks/results/scale.json and renders docs/scale.md.

1. idle: what the pools cost while there is nothing to do.
2. one by one: a paced producer, so that nearly each job is fetched by itself. The dearest way to run a job.
3. steady: all the jobs above are stored, the pools drain at full speed, and one producer keeps the number of waiting jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(HERE / "contract"), str(SOURCE)]

import machine  # noqa: E402 - after the path
import msgspec  # noqa: E402 - after the path
import psutil  # noqa: E402 - after the path
import scale_page  # noqa: E402 - after the path
from machine import Counts, Program, Server  # noqa: E402 - after the path

from dayjob import Admin, WorkerPool  # noqa: E402 - after the path
from dayjob.job import new_id  # noqa: E402 - after the path
from dayjob.store import codec  # noqa: E402 - after the path
from dayjob.store.keys import Keys  # noqa: E402 - after the path
from dayjob.store.scripts import load  # noqa: E402 - after the path

NAMESPACE = "bench"
KEYS = Keys(NAMESPACE)
NAMES = [f"job{number}" for number in range(20)]
#: Workers of each pool.
CONCURRENCY = 4
#: One job in so many fails and goes to dead; one scheduled job in each of these parts of a second becomes due.
FAILING = 10_000
DUE_SECONDS = 0.01
#: Seconds of the first two phases, and between two samples; jobs a second of the second phase.
IDLE_SECONDS = 15.0
ONE_BY_ONE_SECONDS = 20.0
ONE_BY_ONE_RATE = 500
SAMPLE_SECONDS = 5.0
#: Commands that take longer, in microseconds, are in the slow log.
SLOW_MICROS = 2000
BULK = 1000
#: Workers get the CPU that the server and the producer leave, so that the server's clock counts its own work.
NICE = 19
#: The same for the session of each worker. Less extreme, because that of the lowest priority gets nothing on a busy machine.
GROUP_NICE = 10
#: The priority of the server, where the operating system allows it.
SERVER_NICE = -15
#: Seconds within which all pools start, and run the jobs of a phase. Their processes have the lowest priority, so a busy machine
#: lets them wait.
START_SECONDS = 240.0


def group_priority(pid: int, nice: int) -> None:
    """Give the session of a process a priority, where Linux shares the CPU among sessions before it looks at processes."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def fail_or_end(i: int) -> None:
    """What each job does."""
    if i % FAILING == FAILING - 1:
        raise ValueError(f"job {i} fails")


def new_pool(url: str) -> WorkerPool[Any]:
    pool = WorkerPool(namespace=NAMESPACE, redis=url, concurrency=CONCURRENCY, dead_count=100_000_000)
    for name in NAMES:
        pool.register(name, fail_or_end, max_fails=1)
    return pool


class Scale:
    """The server, the pools and the producer of one run."""

    def __init__(self, server: Server, folder: Path, pools: int) -> None:
        self._server, self._folder, self._pools = server, folder, pools
        self._client = server.client
        self._enqueuer = new_pool(server.url).enqueuer
        self._made = 0
        self._shas = {
            load(path.stem).sha: path.stem for path in (SOURCE / "dayjob/store/scripts").glob("*.lua")
        }

    @contextlib.contextmanager
    def workers(self) -> Iterator[list[Program]]:
        """One process for each pool."""
        env = {"BENCH_URL": self._server.url, "PYTHONPATH": f"{HERE / 'contract'}:{SOURCE}"}
        command = ["nice", "-n", str(NICE), sys.executable, str(HERE / "scale.py"), "--work"]
        running: list[Program] = []
        try:
            log = self._folder / "worker.log"
            running.extend(Program(command, env, HERE, log) for _ in range(self._pools))
            self._wait(lambda: self._client.zcard(KEYS.pools) == self._pools, START_SECONDS, "pools start")
            for one in running:
                group_priority(one.process.pid, GROUP_NICE)
            yield running
        finally:
            for one in running:
                one.stop()

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: not within {seconds:g} s")
            time.sleep(0.1)

    def waiting(self) -> int:
        pipe = self._client.pipeline(transaction=False)
        for name in NAMES:
            pipe.llen(KEYS.queue(name))
        return sum(pipe.execute())

    def enqueue(self, name: str, count: int) -> None:
        self._enqueuer.enqueue_many(name, [{"i": self._made + n} for n in range(count)])
        self._made += count

    # Phases.

    def idle(self, seconds: float) -> dict[str, Any]:
        time.sleep(seconds / 3)
        before = Counts.take(self._server)
        time.sleep(seconds)
        return _spent(before, Counts.take(self._server))

    def one_by_one(self, seconds: float) -> dict[str, Any]:
        """Enqueue at a rate far below what the pools can do."""
        self._enqueuer.enqueue(NAMES[0], i=0)
        before, started, count = Counts.take(self._server), time.monotonic(), 0
        while (now := time.monotonic()) < started + seconds:
            at = started + count / ONE_BY_ONE_RATE
            if now < at:
                time.sleep(at - now)
            self._enqueuer.enqueue(NAMES[count % len(NAMES)], i=count * FAILING)
            count += 1
        self._wait(lambda: self.waiting() == 0, START_SECONDS, "the pools run all jobs")
        return {**_spent(before, Counts.take(self._server)), "jobs": count}

    def fill(self, waiting: int, scheduled: int, dead: int) -> dict[str, Any]:
        """Store everything while the queues are paused."""
        before = int(self._client.info("memory")["used_memory"])
        with Admin(NAMESPACE, redis=self._server.url) as admin:
            for name in NAMES:
                admin.pause(name)
            say(f"storing {waiting:,} waiting jobs")
            while (missing := waiting - self.waiting()) > 0:
                for name in NAMES:
                    for _ in range(max(1, missing // BULK // len(NAMES))):
                        self.enqueue(name, BULK)
            per_job = (int(self._client.info("memory")["used_memory"]) - before) / self.waiting()
            say(f"storing {scheduled:,} scheduled and {dead:,} dead jobs")
            now = time.time()
            # The first are due when the queues are fetched from again.
            self._fill_set(KEYS.scheduled, scheduled, lambda n: now + 60 + n * DUE_SECONDS, {})
            failed = {"fails": 1, "err": "ValueError: it fails", "failed_at": int(now)}
            self._fill_set(KEYS.dead, dead, lambda n: now - n * 0.01, failed)
            for name in NAMES:
                admin.resume(name)
        return {"bytes_per_waiting": round(per_job, 1), "memory": self._client.info("memory")["used_memory"]}

    def _fill_set(self, key: str, count: int, score: Callable[[int], float], extras: dict[str, Any]) -> None:
        for first in range(0, count, BULK):
            name = codec.quoted(NAMES[first // BULK % len(NAMES)])
            found = {
                codec.write(name, new_id(), time.time(), msgspec.json.encode({"i": n * FAILING}), extras): round(score(n), 3)
                for n in range(first, min(count, first + BULK))
            }  # fmt: skip
            self._client.zadd(key, found)

    def steady(self, level: int, seconds: float, programs: list[Program]) -> list[dict[str, Any]]:
        """Drain at full speed and keep the level; one sample every few seconds."""
        self._client.slowlog_reset()
        self._client.execute_command("LATENCY", "RESET")
        started = time.monotonic()
        made, waits = self._made, self.waiting()
        before, cpu = Counts.take(self._server), sum(map(Program.cpu, programs))
        due = int(self._client.zcard(KEYS.scheduled))
        switches = self._server.process.num_ctx_switches().involuntary
        samples: list[dict[str, Any]] = []
        turn = 0
        while time.monotonic() < started + seconds:
            upto = time.monotonic() + SAMPLE_SECONDS
            while time.monotonic() < upto:
                missing = level - self.waiting()
                for _ in range(min(40, missing // BULK)):
                    self.enqueue(NAMES[turn % len(NAMES)], BULK)
                    turn += 1
                if missing < BULK:
                    time.sleep(0.005)
            if any(program.ended for program in programs):
                raise SystemExit(f"a worker ended: {programs[0].tail()}")
            now, now_cpu = Counts.take(self._server), sum(map(Program.cpu, programs))
            now_waits, now_due = self.waiting(), int(self._client.zcard(KEYS.scheduled))
            ran = self._made - made + waits - now_waits + due - now_due
            spent, put_aside = (
                _spent(before, now),
                self._server.process.num_ctx_switches().involuntary - switches,
            )
            samples.append(
                {
                    **spent, "at": round(time.monotonic() - started, 1), "jobs": ran, "enqueued": self._made - made, "due": due - now_due,
                    "waiting": now_waits, "memory": now.memory, "worker_us": round((now_cpu - cpu) / max(1, ran) * 1e6, 2), "slow": self._slow(),
                    "put_aside": put_aside,
                }
            )  # fmt: skip
            say(_line(samples[-1]))
            before, cpu, made, waits, due = now, now_cpu, self._made, now_waits, now_due
            switches += put_aside
        return samples

    def look(self) -> dict[str, float]:
        """Milliseconds that an operator waits for lists of this size."""
        found = {}
        with Admin(NAMESPACE, redis=self._server.url) as admin:
            for label, read in (
                ("queues", admin.queues),
                ("first page of dead", lambda: admin.jobs("dead")),
                ("first page of scheduled", lambda: admin.jobs("scheduled")),
            ):
                began = time.perf_counter()
                read()
                found[label] = round((time.perf_counter() - began) * 1000, 1)
        return found

    def _slow(self) -> dict[str, float]:
        """The slowest scripts and waits since the last sample, in milliseconds. Commands inside scripts are in their time."""
        found: dict[str, float] = {}
        for entry in self._client.slowlog_get(1000):
            words = entry["command"].decode(errors="replace").split()
            name = words[0].lower()
            if name == "evalsha" and len(words) > 1:
                name = self._shas.get(words[1], name)
            if name == "bzpopmin" or name in self._shas.values():
                found[name] = max(found.get(name, 0.0), entry["duration"] / 1000)
        self._client.slowlog_reset()
        return found

    def latency(self) -> list[list[Any]]:
        """What the server's own latency monitor saw: event, when, last and longest in milliseconds."""
        found: list[list[Any]] = self._client.execute_command("LATENCY", "LATEST")
        return found


def _spent(before: Counts, after: Counts) -> dict[str, Any]:
    spent = after.since(before)
    sent = sum(number for name, number in spent["calls"].items() if name in (*machine.SCRIPTS, "bzpopmin"))
    return {
        "seconds": round(spent["seconds"], 3), "cpu": round(spent["cpu"], 3), "sent": sent,
        "script_seconds": round(spent["script_micros"] / 1e6, 3), "bytes": spent["bytes"],
    }  # fmt: skip


def _line(sample: dict[str, Any]) -> str:
    jobs = max(1, sample["jobs"])
    worst = max(sample["slow"].values(), default=0.0)
    return (
        f"  {sample['at']:6.1f} s: {sample['jobs'] / sample['seconds']:,.0f} jobs/s, server {sample['cpu'] / jobs * 1e6:.2f} µs/job, "
        f"{sample['cpu'] / sample['seconds']:.0%} of a core, {sample['waiting']:,} waiting, slowest {worst:.1f} ms"
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All phases; the results."""
    started = time.time()
    about, before = machine.about(), os.getloadavg()[0]
    server = Server(folder / "server")
    try:
        with contextlib.suppress(psutil.AccessDenied):
            server.process.nice(SERVER_NICE)
        # The server is in the driver's session.
        group_priority(os.getpid(), SERVER_NICE)
        server.client.config_set("slowlog-log-slower-than", SLOW_MICROS)
        server.client.config_set("slowlog-max-len", 1000)
        server.client.config_set("latency-monitor-threshold", 10)
        scale = Scale(server, folder, given.pools)
        say(f"starting {given.pools} worker processes")
        with scale.workers() as programs:
            say("idle")
            idle = scale.idle(given.idle)
            say("one by one")
            single = scale.one_by_one(given.one_by_one)
            filled = scale.fill(given.waiting, given.scheduled, given.dead)
            say("steady")
            samples = scale.steady(given.waiting, given.minutes * 60, programs)
            memory = sum(map(Program.memory, programs))
            looks = scale.look()
            latency = scale.latency()
        return {
            "started": time.strftime("%Y-%m-%d %H:%M", time.gmtime(started)), "seconds": round(time.time() - started),
            "machine": about, "server": server.version(), "source": machine.source(SOURCE), "load": round(before, 1),
            "pools": given.pools, "concurrency": CONCURRENCY, "names": len(NAMES), "waiting": given.waiting,
            "scheduled": given.scheduled, "dead": given.dead, "one_by_one_rate": ONE_BY_ONE_RATE, "slow_micros": SLOW_MICROS,
            "idle": idle, "single": single, "filled": filled, "samples": samples, "looks_ms": looks, "latency": latency,
            "server_nice": server.process.nice(), "workers_memory": memory,
        }  # fmt: skip
    finally:
        server.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=5.0, help="length of the steady phase")
    options.add_argument("--pools", type=int, default=50)
    options.add_argument("--waiting", type=int, default=10_000_000)
    options.add_argument("--scheduled", type=int, default=1_000_000)
    options.add_argument("--dead", type=int, default=1_000_000)
    options.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds of the idle phase")
    options.add_argument(
        "--one-by-one", type=float, default=ONE_BY_ONE_SECONDS, help="seconds of the second phase"
    )
    options.add_argument("--out", type=Path, default=HERE / "results" / "scale.json")
    options.add_argument("--page", type=Path, default=HERE.parent / "docs" / "scale.md")
    options.add_argument("--work", action="store_true", help="be one of the workers")
    given = options.parse_args()
    if given.work:
        new_pool(os.environ["BENCH_URL"]).run()
        return
    # So that the server and the workers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="dayjob-scale-") as folder:
        results = measure(given, Path(folder))
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    scale_page.write(results, given.page)
    say(f"{results['seconds']} s; written to {given.out} and {given.page}")


if __name__ == "__main__":
    main()

"""How long pages of the console and answers of its API take, with a fleet that is larger than most: the first view, and those after it.

A console of its own for each page, so that its first view is the first of all; three of them, and the middle one counts. For an address of
the API, one console. Prints a table, and what took longer than 100 ms: of each page also the CPU time of a view, in the console and in the
server. The loop beside each shows whether the machine or the page was slow. At the end it prints every command that took the server longer
than 10 ms, as its slow log has them, and the mean time of the slowest commands.

A server that waits for a processor while it runs a command has a slow entry, too. The same command of the same page is slow in one view of
eighteen then; one that truly takes so long is slow in each.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, get_args

import httpx
import msgspec
import psutil

from dayjob import Rate, WorkerPool
from dayjob.limits import Limit
from dayjob.store import addresses, scripts
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import events, history, rates, rollups
from dayjob.store.ops.rates import RateRule
from dayjob.store.scripts import load
from dayjob.worker.chores.recorder import Recorder
from dayjob.worker.shared_link import SharedLink

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from keyed import fill_keys, key_name
from server import running  # the server of the tests: a process of its own, on a port of its own

NAMESPACE = "pages"
GROUP = "/failure?name=job000&kind=TimeoutError%3A%20no%20answer%20within%20%23%20s"
PAGES = (
    "/", "/queues", "/queue?name=job000", "/worker_pools", "/pool?id=pool000", "/busy_workers", "/busy_workers?offset=200", "/jobs", "/jobs?where=error~nothing",
    "/scheduled_jobs", "/retry_jobs", "/dead_jobs", "/dead_jobs?where=error~nothing", "DEAD", "/job?id=nowhere", "/job?id=nowhere&deep=1", "/failures", GROUP,
    "/history", "/history?sort=-ran", "/history?name=job000&outcome=failed", "/sources", "/source?source=tenant-3",
    "/periodic", "/schedule?name=nightly", "/timeline", "/timeline?kind=died", "/limits", "/queue?name=tenants", "/search?q=job00", "/search?q=answer",
    "/batches", "/batches?sort=-left", "BATCH", "/workflows", "/workflows?state=failed", "WORKFLOW", "/done_jobs", "/broken", "/api", "/calendar", "/calendar?hours=72", "/metrics", "/metrics?name=job000", "/metrics?name=job000&hours=72", "/metrics?hours=24", "/metrics?hours=72", "/metrics?sort=-run_p95", "/metrics?hours=72&sort=-run_p95", "/redis", "/payloads", "/enqueue", "/audit", "/settings",
)  # fmt: skip
#: Addresses of the API that read; those that search every job, or wait for a pool, are not among them.
API = (
    "/queues", "/queue?name=job000", "/queue/keys?name=tenants", "/limits", "/pools", "/pool?pool=pool000", "/busy", "/jobs?state=waiting",
    "/jobs?state=waiting&sort=-size", "/jobs?state=dead", "/jobs?state=dead&where=error~nothing", "/jobs/count?state=dead&where=error~nothing", "DEAD",
    "/job/explain?id=nowhere", "/job/children?id=nowhere", "/job/logs?id=nowhere", "/bin", "/job_types", "/failures", f"/failures/group{GROUP.removeprefix('/failure')}",
    "/history", "/history?sort=-ran", "/history/counts", "/sources", "/source?source=tenant-3", "/periodic", "/schedule?name=nightly", "/calendar", "/calendar?hours=72",
    "/metrics", "/metrics?hours=72", "/throughput", "/throughput?hours=72", "/spread?name=job000", "/vitals", "/scale", "/verdict", "/redis", "/payloads", "/search?q=answer",
    "/events", "/audit", "/broken", "/batches", "BATCH", "/workflows", "WORKFLOW", "/me", "/openapi.json",
)  # fmt: skip
#: Milliseconds that a view may take.
MAX_MS = 100
#: Attempts of the last day that the history has of each name, and of the busiest names: as many as it keeps.
RECORDS, MOST_RECORDS, BUSIEST = 2000, 20_000, 5
DAY_MS = 86_400_000
#: How many batches and workflows there are, the nodes of the largest workflow, and the keys of the queue that has keys.
GROUPS, NODES, KEYS = 2000, 400, 1000
#: Minutes that are written as pools would have; what is older is a copy of it.
WRITTEN = 150
VIEWS = 6
HEAD = (
    "| page | first view, ms | median of the next, ms | CPU of the console, ms | CPU of the server, ms | KB | a loop, ms |\n"
    "|---|---|---|---|---|---|---|"
)
#: Milliseconds that a command may take in the server.
SLOW_MS = 10
#: The digest of each script to its name.
SCRIPTS = {load(path.stem).sha: path.stem for path in Path(scripts.__file__).parent.glob("*.lua")}
CONSOLES = 3


class Fleet:
    """Fills a namespace: names, their figures over three days, pools with busy workers, jobs in every state."""

    def __init__(self, link: Link, url: str, names: int, pools: int, jobs: int) -> None:
        self._url = url
        #: The addresses of pages whose ids differ with each run.
        self.addresses = {"DEAD": f"/job?id={0:024x}"}
        self._link, self._keys, self._rng = link, Keys(NAMESPACE), random.Random(1)
        self._names = [f"job{n:03}" for n in range(names)]
        self._middle = {name: self._rng.randrange(8, 45) for name in self._names}
        self._pools, self._jobs = pools, jobs
        self._recorder = Recorder(self._keys, SharedLink(link))

    def fill(self) -> None:
        self._call("SADD", self._keys.known_jobs, *self._names)
        self._fill_jobs()
        now = int(time.time() // 60)
        for minute in range(now - WRITTEN, now + 1):
            self._call("HSET", self._keys.minute(minute), *self._minute())
            self._recorder.record(minute * 60.0, self._names)
        self._copy_back(now)
        for number in range(self._pools):
            self._fill_pool(f"pool{number:03}", time.time())
        self._fill_history()
        self._fill_events()
        self._fill_groups()
        self._fill_limits()

    def watch(self) -> None:
        """Have the server note slow commands, and forget those of filling it."""
        self._call("CONFIG", "SET", "slowlog-log-slower-than", SLOW_MS * 1000)
        self._call("CONFIG", "SET", "slowlog-max-len", 10_000)
        self._call("CONFIG", "RESETSTAT")
        self._call("SLOWLOG", "RESET")

    def slow(self) -> list[tuple[str, float]]:
        """The slow commands since the last call, each with its milliseconds."""
        found = self._call("SLOWLOG", "GET", -1)
        self._call("SLOWLOG", "RESET")
        return [(self._named(entry[3]), entry[2] / 1000) for entry in found]

    def mean_ms(self) -> list[tuple[str, int, float]]:
        """Each command with how often it was called and its mean milliseconds, the slowest first."""
        stats = self._call("INFO", "commandstats").decode()
        lines = re.findall(r"cmdstat_([^:]+):calls=(\d+),.*usec_per_call=([\d.]+)", stats)
        found = [(name, int(calls), float(mean) / 1000) for name, calls, mean in lines]
        return sorted(found, key=lambda one: -one[2])

    def _named(self, words: list[bytes]) -> str:
        """A command as it is shown: with its script, or with its key."""
        shown = [word.decode("utf-8", "replace") for word in words[:4]]
        if shown[0].upper().startswith("EVAL"):
            header = re.search(r"--\[\[ (\w+):", shown[1])
            script = header[1] if header else SCRIPTS.get(shown[1], shown[1])
            return f"{shown[0]} {script} {' '.join(shown[3:])[:60]}"
        return " ".join(shown)[:80]

    def go_on(self) -> None:
        """What the pools and their leader do as time passes."""
        now = int(time.time() // 60)
        for minute in (now - 1, now):
            self._call("HSET", self._keys.minute(minute), *self._minute())
        self._recorder.record(now * 60.0, self._names)

    def server_cpu(self) -> float:
        """Seconds of CPU that the server has used."""
        info = self._call("INFO", "cpu")
        found = [
            line.split(b":")[1]
            for line in info.split()
            if line.startswith((b"used_cpu_user:", b"used_cpu_sys:"))
        ]
        return sum(map(float, found))

    def _call(self, *words: object) -> object:
        return self._link.run(plain(*words))

    def _minute(self) -> list[object]:
        found: list[object] = ["|q", 1]
        for name in self._names:
            for kind in "rw":
                buckets = {round(self._rng.gauss(self._middle[name], 3)) for _ in range(60)}
                found += [word for b in buckets for word in (f"{name}|{kind}{min(max(b, 0), 59)}", 40)]
            found += [f"{name}|f", 3, f"{name}|o", 90, f"{name}|q", 5]
        return found

    def _copy_back(self, now: int) -> None:
        """What was rolled up of the last hours, for the three days before them."""
        for span, back in ((15, 1440), (60, 4320), (360, 4320)):
            known = (now - 10) // min(span, 60) * min(span, 60) - min(span, 60)
            for kind in (self._keys.counts, self._keys.times):
                value = self._call("GET", kind(min(span, 60), known))
                for start in range((now - 10) // span * span - span, now - back - span, -span):
                    self._call("SET", kind(span, start), value, "NX", "EX", rollups.KEPT_SECONDS[span])

    def _fill_pool(self, pool_id: str, now: float) -> None:
        workers = [
            {
                "token": f"{n}:x", "name": self._rng.choice(self._names), "id": f"{pool_id}-{n}", "started_at": now - n,
                "args": {"order": n, "to": "ada@example.com", "text": "x" * 60}, "timeout": 600, "checkin": "half way",
                "done": 5, "total": 10,
            }
            for n in range(100)
        ]  # fmt: skip
        status = {
            "id": pool_id, "host": pool_id, "concurrency": 100, "names": self._names, "workers": workers,
            "running": dict.fromkeys(self._names[:100], 1), "beat_at": now, "started_at": now - 9999,
        }  # fmt: skip
        self._call("SET", self._keys.pool(pool_id), msgspec.json.encode(status), "EX", 3600)
        self._call("ZADD", self._keys.pools, int((now + 3600) * 1000), pool_id)

    def _fill_history(self) -> None:
        """What ended in the last 24 hours, as pools record it: one attempt in twenty failed."""
        for number, name in enumerate(self._names):
            count = MOST_RECORDS if number < BUSIEST else RECORDS
            for completed, some in ((True, count), (False, count // 20)):
                key = history.stream(self._keys, name, completed=completed)
                now = int(time.time() * 1000)
                ops = []
                for n in range(some):
                    ended = now - DAY_MS + DAY_MS * n // some
                    record = history.StoredRecord(
                        f"{n:024x}", "completed" if completed else self._rng.choice(("retried", "dead")), ended,
                        self._rng.randrange(3_000_000), self._rng.randrange(9_000_000), 5000, 1 if completed else 2,
                        f"pool{self._rng.randrange(self._pools):03}", f"tenant-{self._rng.randrange(50)}",
                        "" if completed else "TimeoutError", tag="v41",
                    )  # fmt: skip
                    ops.append(plain("XADD", key, f"{ended}-{n}", "r", history.encode(record)))
                for first in range(0, some, 2000):
                    self._link.run_many(ops[first : first + 2000])

    def _fill_events(self) -> None:
        """Full lists of events and actions, and one schedule."""
        now = int(time.time() * 1000)
        for kind in get_args(events.StoredKind):
            for n in range(events.MAX_EVENTS):
                event = {
                    "pool": f"pool{n % 10:03}",
                    "about": {"host": "web-1", "tag": "v41"},
                    "name": self._names[n % 20],
                }
                self._call(
                    "RPUSH",
                    self._keys.events(kind),
                    f"{now - n * 60_000} ".encode() + msgspec.json.encode(event),
                )
        for n in range(1000):
            action = {"actor": "ada", "action": "retry", "subject": f"dead job {n:024x}", "result": "done"}
            self._call(
                "RPUSH", self._keys.audit, f"{now - n * 60_000} ".encode() + msgspec.json.encode(action)
            )
        described = {"spec": "30 2 * * *", "job": self._names[0], "args": {}}
        self._call(
            "HSET", self._keys.periodic, "nightly", now // 1000, "nightly|is", msgspec.json.encode(described)
        )

    def _fill_groups(self) -> None:
        """Batches and workflows that have not ended, the last ones with many members."""
        pool = WorkerPool(namespace=NAMESPACE, redis=self._url)
        step = pool.register("step", lambda n: None)
        for n in range(GROUPS):
            with pool.batch(description=f"Mails {n}") as batch:
                step.enqueue_many([{"n": k} for k in range(1000 if n == GROUPS - 1 else 5)])
            flow = pool.workflow("import")
            first = flow.add(step, n=0)
            parts = [flow.add(step, n=k, after=[first]) for k in range(NODES if n == GROUPS - 1 else 3)]
            flow.add(step, n=9, after=parts)
            started = flow.start()
        self.addresses |= {"BATCH": f"/batch?id={batch.id}", "WORKFLOW": f"/workflow?id={started.id}"}
        pool.enqueuer.close()

    def _fill_limits(self) -> None:
        """A rate limit for each name, and a queue with many keys."""
        for name in self._names:
            self._link.run(rates.declare(self._keys, Limit(f"{name}-limit", Rate(100))))
            self._link.run(rates.change_rule(self._keys, name, RateRule(1, (f"{name}-limit",))))
        key_name(self._keys, self._link, "tenants", kinds={"tenant-limit": Rate(5)})
        jobs = [
            (f"tenant-{n % KEYS}", f'{{"name":"tenants","id":"{n:024x}","t":1790000000,"args":{{}}}}')
            for n in range(self._jobs)
        ]
        fill_keys(self._keys, self._link, "tenants", *jobs)

    def _fill_jobs(self) -> None:
        """As many jobs in each state: due in the next three days, dead since the last three, kept for as long."""
        now, step = time.time(), 3 * 86_400 / self._jobs
        for first in range(0, self._jobs, 500):
            payloads = [self._job(n, now - n * step) for n in range(first, first + 500)]
            for place, way in (
                (self._keys.dead, -step), (self._keys.retry, step), (self._keys.scheduled, step), (self._keys.done, step),
            ):  # fmt: skip
                flat = [word for n, one in enumerate(payloads, first) for word in (now + n * way, one)]
                self._call("ZADD", place, *flat)
            self._call("LPUSH", self._keys.queue(self._names[first // 500 % 20]), *payloads)

    def _job(self, n: int, failed_at: float) -> bytes:
        trace = f'Traceback (most recent call last):\n  File "shop.py", line {n % 90}, in run\n' * 5
        job = {
            "name": self._rng.choice(self._names[:20]), "id": f"{n:024x}", "t": int(failed_at) - 60, "args": {"order": n, "to": "ada@example.com"},
            "fails": 2, "err": f"TimeoutError: no answer within {n} s", "failed_at": int(failed_at), "trace": trace,
        }  # fmt: skip
        return msgspec.json.encode(job)


class Viewed(NamedTuple):
    """Some views of one page, from a console of its own."""

    status: int
    size: int
    #: Seconds of each view.
    took: list[float]
    #: Seconds of CPU of the console and of the server, for each view after the first.
    console: float
    server: float


def measure(fleet: Fleet, url: str, port: int, path: str) -> Viewed:
    """View a page some times, from a console that has shown none before."""
    words = ["web", "--redis", url, "--namespace", NAMESPACE, "--port", str(port)]
    console = subprocess.Popen([sys.executable, "-m", "dayjob", *words], stdout=subprocess.PIPE)
    took: list[float] = []
    used: list[tuple[float, float]] = []
    process = psutil.Process(console.pid)
    try:
        assert console.stdout is not None
        if not console.stdout.readline().startswith(b"The console is at"):
            raise SystemExit(f"no console could be started at port {port}: give another with --port")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"accept": "text/html"}) as client:
            client.get("/healthz")
            for _ in range(VIEWS):
                began = time.perf_counter()
                answer = client.get(path)
                took.append(time.perf_counter() - began)
                # So that what is kept for a moment is read again.
                time.sleep(0.4)
                cpu = process.cpu_times()
                used.append((cpu.user + cpu.system, fleet.server_cpu()))
    finally:
        console.send_signal(signal.SIGTERM)
        console.wait(10)
    console_cpu, server_cpu = (
        (last - first) / (VIEWS - 1) for first, last in zip(used[0], used[-1], strict=True)
    )
    return Viewed(answer.status_code, len(answer.content), took, console_cpu, server_cpu)


def row(
    fleet: Fleet, url: str, port: int, path: str, consoles: int
) -> tuple[str, float, list[tuple[str, float]]]:
    """One line of the table, the milliseconds of a view, and the commands that were slow in the server."""
    loops, views, slow = [], [], []
    for _ in range(consoles):
        fleet.go_on()
        loops.append(unit())
        # What the fleet did is not what a page does.
        fleet.slow()
        views.append(viewed := measure(fleet, url, port, path))
        slow += fleet.slow()
        loops.append(unit())
        assert viewed.status in (200, 404), f"{path}: {viewed.status}"
    first = 1000 * statistics.median(one.took[0] for one in views)
    later = 1000 * statistics.median(took for one in views for took in one.took[1:])
    console, server = (
        1000 * statistics.median(found)
        for found in zip(*((one.console, one.server) for one in views), strict=True)
    )
    cells = (
        f"{first:.0f}",
        f"{later:.0f}",
        f"{console:.0f}",
        f"{server:.0f}",
        f"{viewed.size / 1000:.0f}",
    )
    return f"| `{path}` | {' | '.join(cells)} | {1000 * statistics.median(loops):.0f} |", later, slow


def unit() -> float:
    """Seconds of a loop that does nothing."""
    began = time.perf_counter()
    for _ in range(2_000_000):
        pass
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=200)
    parser.add_argument("--pools", type=int, default=10, help="each with 100 busy workers")
    parser.add_argument(
        "--jobs", type=int, default=100_000, help="in each of waiting, scheduled, retry and dead"
    )
    parser.add_argument("--port", type=int, default=5991)
    parser.add_argument("--only", nargs="*", default=[], help="pages whose address begins with one of these")
    parser.add_argument("--consoles", type=int, default=CONSOLES, help="how many consoles look at each page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        url = f"redis://127.0.0.1:{server.port}"
        link = Link(addresses.parse_url(url), tag=NAMESPACE)
        fleet = Fleet(link, url, given.names, given.pools, given.jobs)
        fleet.fill()
        fleet.watch()
        print(
            f"{given.names} names, {given.pools} pools with {100 * given.pools:,} busy workers, {given.jobs:,} jobs in each state\n"
        )
        print(HEAD)
        pages = [(fleet.addresses.get(page, page), given.consoles) for page in PAGES]
        pages += [("/api/v1" + fleet.addresses.get(one, one), 1) for one in API]
        slow: list[str] = []
        commands: list[tuple[str, str, float]] = []
        for path, consoles in pages:
            if given.only and not path.startswith(tuple(given.only)):
                continue
            line, took, found = row(fleet, url, given.port, path, consoles)
            print(line, flush=True)
            commands += [(path, *one) for one in found]
            if took > MAX_MS:
                slow.append(f"{path} {took:.0f}")
        print(f"\nOver {MAX_MS} ms: {', '.join(slow) or 'nothing'}")
        report(fleet, commands)
        link.close()


def report(fleet: Fleet, commands: list[tuple[str, str, float]]) -> None:
    """Print the commands that were slow in the server, and what each kind of command took on average."""
    print(f"\nCommands over {SLOW_MS} ms in Redis, with the address that was read: {len(commands) or 'none'}")
    seen: dict[tuple[str, str], list[float]] = {}
    for path, name, took in commands:
        seen.setdefault((path, name), []).append(took)
    for (path, name), all_of_it in sorted(seen.items(), key=lambda one: -len(one[1])):
        print(f"    {len(all_of_it)} times, {1000 * max(all_of_it):,.0f} µs at most: {name} ({path})")
    print("Mean time of commands in Redis:")
    for name, calls, mean in fleet.mean_ms()[:10]:
        print(f"    {1000 * mean:,.0f} µs, {calls:,} calls: {name}")


if __name__ == "__main__":
    main()

"""A thousand stops: a pool under load is told to stop at a random moment, and must have within its deadline and a second."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from chaos.queued import Queued
from chaos.world import child_environment
from dayjob import Enqueuer
from dayjob.errors import StoreError
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from proxy import Fault, Proxy
from server import running, wait_until

#: How many are tried at the same time.
AT_ONCE = 4
#: What the jobs of a pool do when it is told to stop, one kind each.
KINDS = ("quick", "slow", "deaf", "stubborn", "async", "async_stubborn", "blocking", "mixed")
#: Only under a parent: a C call that keeps the interpreter to itself keeps it from stopping, too.
SUPERVISED_KINDS = (*KINDS, "gil")
#: What is wrong with the server at that moment.
WEATHER = ("fine", "fine", "fine", "refused", "black hole", "delay")

PROGRAM = """
import asyncio, ctypes, os, signal, sys, threading, time
from dayjob import WorkerPool
pool = WorkerPool(concurrency=8, lease=3, beat=0.75)

@pool.job
def quick(n: int) -> None: pass

@pool.job
def slow(n: int) -> None: time.sleep(0.2 + n % 7 * 0.3)

@pool.job
def deaf(n: int) -> None: ctypes.CDLL(None).usleep(60_000_000)

@pool.job
def stubborn(n: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            while time.monotonic() < until: time.sleep(0.01)
        except BaseException: pass

@pool.job
def gil(n: int) -> None: ctypes.PyDLL(None).usleep(60_000_000)

@pool.job("async")
async def async_(n: int) -> None: await asyncio.sleep(n % 5 * 0.5)

@pool.job
async def async_stubborn(n: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try: await asyncio.sleep(0.05)
        except BaseException: pass

@pool.job
async def blocking(n: int) -> None: time.sleep(60)

def main(url, namespace, deadline):
    pool.redis, pool.namespace = url, namespace
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    pool.start()
    os.write(1, b"up\\n")
    while not told: time.sleep(0.002)
    began = time.monotonic()
    pool.stop(timeout=float(deadline))
    os.write(1, b"%.6f\\n" % (time.monotonic() - began))
    os._exit(0)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@dataclass(frozen=True)
class Case:
    """What is told to stop, and when."""

    supervised: bool
    kind: str
    weather: str
    deadline: float


@dataclass
class Tried:
    """One stop."""

    case: Case
    took: float
    #: Seconds that its processes waited for a processor meanwhile.
    starved: float
    held: int


@dataclass
class Stops:
    """All of them."""

    seed: int
    stops: int = 0
    #: Longest time beyond the deadline, and the same less the time that its processes waited for a processor.
    worst: float = -99.0
    worst_fair: float = -99.0
    beyond: int = 0
    left_held: int = 0
    by_kind: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def run(seed: int, count: int) -> Stops:
    """Try that many stops."""
    found = Stops(seed)
    with tempfile.TemporaryDirectory(prefix="dayjob-stops-") as folder, running(Path(folder)) as server:
        program = Path(folder) / "stops.py"
        program.write_text(PROGRAM)
        with ThreadPoolExecutor(AT_ONCE) as executor:
            tried = executor.map(lambda n: _try(program, server.port, f"{seed}/{n}"), range(count))
            for one in tried:
                found.stops += 1
                over = one.took - one.case.deadline
                found.worst, found.worst_fair = (
                    max(found.worst, over),
                    max(found.worst_fair, over - one.starved),
                )
                label = f"{'worker' if one.case.supervised else 'pool'}, {one.case.kind}"
                found.by_kind[label] = round(max(over, found.by_kind.get(label, -99.0)), 3)
                found.beyond += over > 1.0
                if one.held:
                    found.left_held += one.held
                    found.violations.append(
                        f"{one}: left {one.held} attempts held with a server that answers"
                    )
                if over - one.starved > 1.0:
                    found.violations.append(f"{one}: {over:.3f} s beyond its deadline")
    found.worst, found.worst_fair = round(found.worst, 3), round(found.worst_fair, 3)
    return found


def _try(program: Path, port: int, seed: str) -> Tried:
    """One stop, all of it by chance."""
    rng = random.Random(seed)
    supervised = rng.random() < 0.4
    kind = rng.choice(SUPERVISED_KINDS if supervised else KINDS)
    case = Case(supervised, kind, rng.choice(WEATHER), rng.choice((0.0, 0.1, 0.5, 1.0, 2.0)))
    return attempt(case, program, port, "stop" + seed.replace("/", "-"), rng)


def attempt(case: Case, program: Path, port: int, namespace: str, rng: random.Random) -> Tried:
    """Start a pool or a worker with such jobs, tell it to stop at some moment, and measure."""
    proxy = Proxy(port)
    proxy.start()
    enqueuer = Enqueuer(namespace, redis=f"redis://127.0.0.1:{port}")
    for name in [name for name in KINDS if name != "mixed"] if case.kind == "mixed" else [case.kind]:
        enqueuer.enqueue_many(name, [{"n": n} for n in range(2000 if name == "quick" else 30)])
    command = [sys.executable, str(program), proxy.url, namespace, str(case.deadline)]
    if case.supervised:
        command = [
            sys.executable, "-m", "dayjob", "worker", f"{program.stem}:pool", "--redis", proxy.url, "--namespace", namespace,
            "--timeout", str(case.deadline), "--processes", str(rng.choice((1, 2))),
        ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=program.parent, start_new_session=True,
        env=child_environment(program.parent, "stop", namespace),
    )  # fmt: skip
    try:
        _wait_for_work(port, namespace, process)
        time.sleep(rng.uniform(0, 0.8))
        if case.weather == "refused":
            proxy.refuse()
        elif case.weather == "black hole":
            proxy.black_hole()
        elif case.weather == "delay":
            proxy.each(lambda _: Fault("delay", rng.uniform(0, 0.3)))
        queued = Queued(process.pid)
        queued.start()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        took = _ended(process, began) if case.supervised else _said(process)
        starved = queued.end()
        held = _held(port, namespace) if case.weather == "fine" and case.kind != "gil" else 0
        return Tried(case, took, starved, held)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        enqueuer.close()
        proxy.stop()


def _said(process: subprocess.Popen[bytes]) -> float:
    """How long the stop took, as the process says itself."""
    assert process.stdout is not None
    # So that one that never stops is a failure, and not the end of the run.
    late = threading.Timer(60, process.kill)
    late.start()
    try:
        for line in process.stdout:
            if line != b"up\n":
                return float(line)
    finally:
        late.cancel()
    raise RuntimeError("the pool did not stop within a minute")


def _ended(process: subprocess.Popen[bytes], began: float) -> float:
    """How long it took until the process was gone. By a descriptor: waiting with a limit would look now and then."""
    gone = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([gone], [], [], 60)
        took = time.monotonic() - began
    finally:
        os.close(gone)
    if not ready:
        raise RuntimeError("the worker did not stop within a minute")
    return took


def _wait_for_work(port: int, namespace: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until something runs: a worker that is still starting has nothing to stop."""

    def works() -> bool:
        if process.poll() is not None:
            raise RuntimeError("it ended before it was told to")
        return _held(port, namespace) > 0 or _some_done(port, namespace)

    wait_until(works, step=0.02)


def _some_done(port: int, namespace: str) -> bool:
    """Whether jobs that are too quick to be seen running have ended."""
    keys = Keys(namespace)
    link = Link(addresses.parse_url(f"redis://127.0.0.1:{port}"), tag=keys.known_jobs)
    try:
        return bool(link.run(plain("HLEN", keys.totals)))
    except StoreError:
        return False
    finally:
        link.close()


def _held(port: int, namespace: str) -> int:
    """How many attempts pools of this namespace hold."""
    keys = Keys(namespace)
    link = Link(addresses.parse_url(f"redis://127.0.0.1:{port}"), tag=keys.known_jobs)
    try:
        pools = [
            *link.run(plain("ZRANGE", keys.pools, 0, -1)),
            *link.run(plain("ZRANGE", keys.condemned, 0, -1)),
        ]
        return sum(link.run(plain("HLEN", keys.held(pool.decode()))) for pool in pools)
    except StoreError:
        return 0
    finally:
        link.close()

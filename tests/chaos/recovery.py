"""How soon an interrupted job starts again: one kill at a time, nothing else wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.world import Workers, World
from faults.ledger import Event, read_file
from server import wait_until

#: How long the jobs take whose process is killed.
SECONDS = 1.5


@dataclass
class Recovery:
    """What was measured, in seconds; for each way the times until every interrupted job had started again."""

    seed: int
    lease: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, how: str, took: float, bound: float) -> None:
        self.times.setdefault(how, []).append(round(took, 3))
        if took > bound:
            self.violations.append(f"{how}: {took:.2f} s, {bound:g} s are promised")


class Starts:
    """Follows the ledgers of a world and knows who started which job when."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, serial: str) -> list[Event]:
        found: list[Event] = []
        for path in self._world.ledgers.glob("*.jsonl"):
            if not path.name.startswith(("harness", "producer")):
                found += [one for one in read_file(path) if one.kind == "start" and one.serial == serial]
        return sorted(found, key=lambda one: one.at)


def measure(folder: Path, seed: int, count: int, lease: float) -> Recovery:
    """Kill children, hosts and the server, `count` times each."""
    found = Recovery(seed, lease)
    rng = random.Random(seed)
    world = World(folder, seed)
    world.server.start()
    world.attach()
    starts = Starts(world)
    try:
        for processes in (2, 1):
            group = Workers(world, f"near{processes}", world.server.url, processes=processes)
            world.groups.append(group)
            group.start()
            wait_until(lambda: len(pools(world)) == processes, step=0.02)
            if processes == 2:
                _crowds(world, starts, found, max(1, count // 8))
            how = "kill -9 of one child of two" if processes == 2 else "kill -9 of the only child"
            for _ in range(count):
                took = _once(world, starts, lambda first: kill(first.pid))
                # Without another child it takes as long as an interpreter takes to start.
                found.add(how, took, 1.0 if processes == 2 else float("inf"))
                wait_until(
                    lambda: len(pools(world)) == processes and len(group.children()) == processes,
                    step=0.02,
                )
                # Let it work for a while: one that crashes at once is started again later each time.
                time.sleep(rng.uniform(1.0, 2.5))
            os.kill(group.pid, signal.SIGTERM)
            group.wait(60)
            wait_until(lambda: not pools(world), step=0.05)
        _hosts(world, starts, found, count, lease)
        _servers(world, found, rng, count)
    finally:
        world.close()
    return found


def _crowds(world: World, starts: Starts, found: Recovery, count: int) -> None:
    """A child with eight jobs of a second: when the first and the last of them start again. Nothing is promised here."""
    for _ in range(count):
        serials = [world.enqueue("note", "ok", seconds=1.0) for _ in range(16)]
        first = wait_until(lambda serials=serials: _all(starts, serials, 1), step=0.02)
        victim = first[0].pid
        began = time.monotonic()
        kill(victim)
        held = [one.serial for one in first if one.pid == victim]
        again = wait_until(lambda held=held: _all(starts, held, 2), 120, step=0.05)
        times = sorted(one.at - began for one in again)
        found.add("first of eight jobs of one child", times[0], float("inf"))
        found.add("last of eight jobs of one child", times[-1], float("inf"))
        wait_until(
            lambda: not any(world.tell("HLEN", world.keys.held(pool.decode())) for pool in pools(world))
        )


def _all(starts: Starts, serials: list[str], count: int) -> list[Event]:
    """The nth start of each of these jobs, once all have had it."""
    found = [starts.of(serial) for serial in serials]
    return [one[count - 1] for one in found] if all(len(one) >= count for one in found) else []


def _hosts(world: World, starts: Starts, found: Recovery, count: int, lease: float) -> None:
    groups = [Workers(world, f"host{i}", world.server.url, processes=1) for i in range(2)]
    world.groups += groups
    for group in groups:
        group.start()
    wait_until(lambda: len(pools(world)) == 2, step=0.02)
    for _ in range(max(2, count // 4)):

        def lose_host(first: Event) -> None:
            group = next(one for one in groups if first.pid in one.children())
            os.kill(group.pid, signal.SIGSTOP)
            kill(first.pid)
            kill(group.pid)
            group.wait(60)

        took = _once(world, starts, lose_host, patience=lease + 30)
        found.add("loss of a whole host", took, lease + 5.0)
        for group in groups:
            if not group.alive:
                group.start()
        wait_until(lambda: len(pools(world)) == 2, step=0.02)


def _servers(world: World, found: Recovery, rng: random.Random, count: int) -> None:
    """From the moment that the server answers again until a job that was enqueued then has run."""
    faults: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "kill -9 of the server": (world.server.kill, world.server.start),
        "restart of the server": (world.server.stop, world.server.start),
        "SIGSTOP of the server": (
            lambda: _server(world, signal.SIGSTOP),
            lambda: _server(world, signal.SIGCONT),
        ),
    }
    for how, (harm, heal) in faults.items():
        for _ in range(max(2, count // 2)):
            harm()
            time.sleep(rng.uniform(0.2, 4.0))
            heal()
            wait_until(world.server.answers)
            began = time.monotonic()
            serial = world.enqueue("note", "ok")
            first = wait_until(lambda serial=serial: Starts(world).of(serial), step=0.01)[0]
            found.add(how, first.at - began, 5.0)


def _server(world: World, number: int) -> None:
    assert world.server.process is not None
    world.server.process.send_signal(number)


def _once(world: World, starts: Starts, harm: Callable[[Event], object], patience: float = 40.0) -> float:
    """Have a job run, do the harm, and measure until it runs again."""
    serial = world.enqueue("note", "ok", seconds=SECONDS)
    first = wait_until(lambda: starts.of(serial), step=0.01)[0]
    began = time.monotonic()
    harm(first)
    second = wait_until(lambda: starts.of(serial)[1:], patience, step=0.01)[0]
    wait_until(lambda: world.tell("HGET", world.keys.totals, "done:note"), step=0.05)
    time.sleep(SECONDS)
    return second.at - began


def pools(world: World) -> list[bytes]:
    found: list[bytes] = world.tell("ZRANGE", world.keys.pools, 0, -1)
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

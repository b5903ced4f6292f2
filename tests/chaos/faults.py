"""The faults of a chaos run. Each is a generator: what comes before the yield does harm, what comes after heals it.

A fault yields for how many seconds it lasts. Faults of one area never overlap, so that each can be healed by itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from chaos.jobs import LEASE
from chaos.queued import Queued
from chaos.world import DEADLINE, Workers, World, clock_environment
from dayjob.errors import StoreError
from faults.checker import ROLLING_RESTART
from proxy import AFTER, BEFORE, PASS, SWALLOW, Fault, reply
from server import wait_until

Harm = Callable[[World, random.Random], Iterator[float]]


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    #: Where it strikes: `server`, `workers` (the processes of a group) or `network` (the proxy before one).
    area: str
    harm: Callable[..., Iterator[float]]
    #: Which groups it can strike: all, or only those with a parent, an embedded pool, or a proxy.
    where: str = "any"
    #: How often it is chosen beside the others.
    weight: float = 1.0
    #: Not in short runs.
    slow: bool = False


KINDS: dict[str, Kind] = {}


def fault(name: str, area: str, *, where: str = "any", weight: float = 1.0, slow: bool = False):  # noqa: ANN201
    """Register a fault."""

    def register(harm: Callable[..., Iterator[float]]) -> Callable[..., Iterator[float]]:
        KINDS[name] = Kind(name, area, harm, where, weight, slow)
        return harm

    return register


def _signal(pid: int, number: int) -> bool:
    """Signal a process of a run, and none but that: the number of one that has ended may be somebody else's by now."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if "CHAOS_NAMESPACE" in psutil.Process(pid).environ():
            os.kill(pid, number)
            return True
    return False


def _a_child(group: Workers, rng: random.Random) -> int | None:
    children = group.children()
    return rng.choice(children) if children else None


# Processes.


@fault("kill -9 of a child", "workers", where="supervised", weight=4)
def kill_child(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    pid = _a_child(group, rng)
    if pid is not None:
        world.ledger.write("fault", how="kill -9 of a child", target=pid, name=group.name)
        _signal(pid, signal.SIGKILL)
    yield rng.uniform(0.3, 1.5)


@fault("kill -9 of a parent", "workers", where="supervised", weight=2)
def kill_parent(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    for pid in group.children():
        world.ledger.write("fault", how="kill -9 of its parent", target=pid, name=group.name)
    _signal(group.pid, signal.SIGKILL)
    group.wait(60)
    yield rng.uniform(0, 1)
    group.start()


@fault("kill -9 of parent and children", "workers", where="supervised", weight=2)
def kill_host(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    """As when a machine is lost: nobody proves the death, the lease does."""
    pids = group.children()
    _signal(group.pid, signal.SIGSTOP)
    for pid in pids:
        world.ledger.write("fault", how="kill -9 of parent and children", target=pid, name=group.name)
        _signal(pid, signal.SIGKILL)
    _signal(group.pid, signal.SIGKILL)
    group.wait(60)
    yield rng.uniform(0, 1)
    group.start()


@fault("kill -9 of an embedded pool", "workers", where="embedded", weight=3)
def kill_embedded(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    world.ledger.write("fault", how="kill -9 of an embedded pool", target=group.pid, name=group.name)
    _signal(group.pid, signal.SIGKILL)
    group.wait(60)
    yield rng.uniform(0, 1)
    group.start()


def _pause(world: World, group: Workers, pid: int | None, how: str, seconds: float) -> Iterator[float]:
    if pid is None:
        yield 0
        return
    world.ledger.write("fault", how=how, target=pid, name=group.name, seconds=seconds)
    _signal(pid, signal.SIGSTOP)
    yield seconds
    _signal(pid, signal.SIGCONT)


@fault("SIGSTOP of a process for longer than its lease", "workers", weight=3)
def pause_long(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    seconds = LEASE * rng.uniform(1.2, 2.0)
    yield from _pause(world, group, _a_child(group, rng), "SIGSTOP for longer than the lease", seconds)


@fault("SIGSTOP of a process for less than its lease", "workers", weight=2)
def pause_short(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    seconds = LEASE * rng.uniform(0.1, 0.6)
    yield from _pause(world, group, _a_child(group, rng), "SIGSTOP for less than the lease", seconds)


@fault("SIGSTOP of a parent", "workers", where="supervised")
def pause_parent(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    yield from _pause(world, group, group.pid, "SIGSTOP of a parent", LEASE * rng.uniform(0.5, 1.5))


def stop(world: World, group: Workers, again: float | None = None) -> Iterator[float]:
    """TERM, a second one after so many seconds if asked for; measure; then start it again."""
    if not group.alive:
        # A job of this run ended it.
        group.start()
        return
    pid = group.pid
    deadline = DEADLINE if again is None else min(DEADLINE, again + 1.0)
    world.ledger.write("stop", target=pid, seconds=deadline, name=group.name)
    queued = Queued(pid)
    queued.start()
    asked = time.monotonic()
    _signal(pid, signal.SIGTERM)
    if again is not None:
        time.sleep(again)
        _signal(pid, signal.SIGTERM)
    code = group.wait(60)
    # An embedded pool says itself that it has stopped, unless something ended it first.
    if group.supervised or code != 0:
        world.ledger.write("stopped", target=pid, seconds=time.monotonic() - asked)
    world.ledger.write("late", target=pid, seconds=queued.end())
    yield 0.1
    group.start()


@fault("TERM with a deadline", "workers", weight=2)
def term(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    yield from stop(world, group)


@fault("TERM twice", "workers", where="supervised")
def term_twice(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    yield from stop(world, group, rng.uniform(0, 0.3))


@fault("HUP: a rolling restart", "workers", where="supervised", weight=2)
def hang_up(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    world.ledger.write("fault", name=group.name, how=ROLLING_RESTART)
    _signal(group.pid, signal.SIGHUP)
    yield rng.uniform(1, 4)


@fault("USR1, then HUP: quiet and back", "workers", where="supervised")
def quiet(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    _signal(group.pid, signal.SIGUSR1)
    yield rng.uniform(0.3, 1.5)
    world.ledger.write("fault", name=group.name, how=ROLLING_RESTART)
    _signal(group.pid, signal.SIGHUP)


@fault("a clock an hour off", "workers", weight=1.5)
def wrong_clock(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    """Its processes are replaced by some that believe in another time, and those by good ones."""
    if not clock_environment(1):
        yield 0
        return
    for hours in (rng.choice((-1.0, 1.0)), 0.0):
        group.hours = hours
        yield from stop(world, group)
        if hours:
            yield rng.uniform(4, 8)


# Jobs that are faults.


@fault("a job that ends its process, three times", "jobs")
def poison(world: World, rng: random.Random) -> Iterator[float]:
    world.enqueue("poison", "poison 3", how=rng.choice(("exit", "segfault")))
    yield rng.uniform(1, 2)


@fault("a process out of memory", "jobs", weight=1.5)
def out_of_memory(world: World, rng: random.Random) -> Iterator[float]:
    world.enqueue("poison", "poison 1", how="memory")
    yield rng.uniform(1, 2)


@fault("a job past its timeout that cannot be interrupted", "jobs", weight=1.5)
def overrun(world: World, rng: random.Random) -> Iterator[float]:
    world.enqueue("overrun", "overrun 1")
    yield rng.uniform(1.5, 2.5)


@fault("the GIL held for three leases", "jobs", slow=True)
def hold_gil(world: World, rng: random.Random) -> Iterator[float]:
    world.enqueue("hold_gil", "ok", seconds=3 * LEASE)
    yield rng.uniform(1, 3)


@fault("an event loop blocked for longer than the lease", "jobs")
def block_loop(world: World, rng: random.Random) -> Iterator[float]:
    world.enqueue("block_loop", "ok", seconds=1.3 * LEASE)
    yield rng.uniform(1, 3)


@fault("entries that are no jobs", "server", weight=1.5)
def garbage(world: World, rng: random.Random) -> Iterator[float]:
    """In the server's area, so that no answer is lost: it must be known what was put in."""
    entry = rng.choice(
        (b"", b"\xff\xfe", b"{", b"[]", b'{"name":"note"', b'{"name":"other","id":"x"}', b"null", b"0")
    )
    # Unlike any other one in this run.
    entry += b" %d" % rng.getrandbits(60)
    world.insist(lambda: world.tell("PING"))
    world.ledger.write("injected", how=entry.hex())
    world.tell("LPUSH", world.keys.queue("note"), entry)
    yield rng.uniform(0.1, 0.5)


# The server.


def _server(world: World, how: str, on: bool) -> None:
    world.ledger.write("fault" if on else "healed", how=f"server: {how}")


@fault("kill -9 of the server", "server", weight=3)
def kill_server(world: World, rng: random.Random) -> Iterator[float]:
    _server(world, "kill -9", True)
    world.server.kill()
    yield rng.uniform(0, 2)
    world.server.start()
    _server(world, "kill -9", False)


@fault("a restart of the server", "server", weight=2)
def restart_server(world: World, rng: random.Random) -> Iterator[float]:
    _server(world, "restart", True)
    world.server.stop()
    yield rng.uniform(0, 1)
    world.server.start()
    _server(world, "restart", False)


@fault("SIGSTOP of the server", "server", weight=2)
def pause_server(world: World, rng: random.Random) -> Iterator[float]:
    """Often for longer than a lease: nobody may lose one for it."""
    assert world.server.process is not None
    _server(world, "SIGSTOP", True)
    world.server.process.send_signal(signal.SIGSTOP)
    yield rng.choice((rng.uniform(0.2, 2.0), LEASE * 1.5))
    world.server.process.send_signal(signal.SIGCONT)
    wait_until(world.server.answers)
    _server(world, "SIGSTOP", False)


@fault("DEBUG SLEEP", "server", weight=2)
def debug_sleep(world: World, rng: random.Random) -> Iterator[float]:
    seconds = rng.choice((0.5, 1.5, LEASE * 1.3))
    _server(world, "DEBUG SLEEP", True)
    with contextlib.suppress(StoreError):
        world.tell("DEBUG", "SLEEP", seconds)
    wait_until(world.server.answers)
    _server(world, "DEBUG SLEEP", False)
    yield 0


@fault("CLIENT PAUSE", "server", weight=2)
def client_pause(world: World, rng: random.Random) -> Iterator[float]:
    seconds = rng.uniform(0.2, LEASE)
    _server(world, "CLIENT PAUSE", True)
    with contextlib.suppress(StoreError):
        world.tell("CLIENT", "PAUSE", int(seconds * 1000), rng.choice(("WRITE", "ALL")))
    yield seconds
    _server(world, "CLIENT PAUSE", False)


@fault("memory full", "server", weight=2)
def memory_full(world: World, rng: random.Random) -> Iterator[float]:
    _server(world, "memory full", True)
    with contextlib.suppress(StoreError):
        world.tell("CONFIG", "SET", "maxmemory", "1")
    yield rng.uniform(0.5, 3.0)
    world.insist(lambda: world.tell("CONFIG", "SET", "maxmemory", "0"))
    _server(world, "memory full", False)


@fault("disk full", "server", weight=2)
def disk_full(world: World, rng: random.Random) -> Iterator[float]:
    """The server may write no further into its file; where every write must be on disk it ends itself."""
    assert world.server.process is not None
    always = rng.random() < 0.5
    _server(world, "disk full", True)
    process = world.server.process
    if not always:
        world.insist(lambda: world.tell("CONFIG", "SET", "appendfsync", "everysec"))
    size = max(path.stat().st_size for path in (world.folder / "server").rglob("*.aof"))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 4096, resource.RLIM_INFINITY))
    yield rng.uniform(0.5, 2.0)
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # It may have been about to end itself.
    wait_until(lambda: process.poll() is not None or _writable(world), step=0.05)
    if process.poll() is None:
        world.insist(lambda: world.tell("CONFIG", "SET", "appendfsync", "always"))
    else:
        process.wait()
        world.server.start()
    _server(world, "disk full", False)


def _writable(world: World) -> bool:
    with contextlib.suppress(StoreError):
        world.tell("SET", "chaos-probe", "1")
        return True
    return False


@fault("SCRIPT FLUSH", "server", weight=2)
def script_flush(world: World, rng: random.Random) -> Iterator[float]:
    _server(world, "SCRIPT FLUSH", True)
    for _ in range(rng.randrange(1, 20)):
        with contextlib.suppress(StoreError):
            world.tell("SCRIPT", "FLUSH")
        time.sleep(0.03)
    _server(world, "SCRIPT FLUSH", False)
    yield 0.2


@fault("CLIENT KILL of everybody", "server", weight=2)
def client_kill(world: World, rng: random.Random) -> Iterator[float]:
    _server(world, "CLIENT KILL", True)
    for _ in range(rng.randrange(1, 6)):
        with contextlib.suppress(StoreError):
            world.tell("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(rng.uniform(0, 0.3))
    _server(world, "CLIENT KILL", False)
    yield 0.2


@fault("a queue paused and resumed", "operator")
def pause_queue(world: World, rng: random.Random) -> Iterator[float]:
    name = rng.choice(("note", "anote", "narrow", "bulk", "member", "node", "parent", "tenant_work"))
    with contextlib.suppress(StoreError):
        world.admin.pause(name)
    yield rng.uniform(0.5, 2)
    world.insist(lambda: world.admin.resume(name))


# The network between a group and the server.


def _network(world: World, group: Workers, how: str, on: bool) -> None:
    world.ledger.write("fault" if on else "healed", how=f"net: {how}", name=group.name)


@fault("connections cut", "network", where="proxied", weight=2)
def cut(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    assert group.proxy is not None
    _network(world, group, "cut", True)
    for _ in range(rng.randrange(1, 10)):
        group.proxy.cut()
        time.sleep(rng.uniform(0, 0.2))
    _network(world, group, "cut", False)
    yield 0.2


@fault("connections refused", "network", where="proxied", weight=2)
def refuse(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    assert group.proxy is not None
    _network(world, group, "refused", True)
    group.proxy.refuse()
    yield rng.choice((0.5, 2.0, LEASE * 1.5))
    group.proxy.accept()
    _network(world, group, "refused", False)


@fault("a black hole for less than the lease", "network", where="proxied", weight=2)
def short_hole(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    yield from _hole(world, group, "half-open connections", rng.uniform(0.1, LEASE * 0.5))


@fault("a black hole for longer than the lease", "network", where="proxied", weight=2)
def long_hole(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    yield from _hole(world, group, "black hole", LEASE * rng.uniform(1.2, 2.0))


def _hole(world: World, group: Workers, how: str, seconds: float) -> Iterator[float]:
    assert group.proxy is not None
    _network(world, group, how, True)
    group.proxy.black_hole()
    yield seconds
    group.proxy.resume()
    _network(world, group, how, False)


@fault("delay", "network", where="proxied", weight=2)
def delay(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    assert group.proxy is not None
    most = rng.choice((0.05, 0.5, 2.0))
    _network(world, group, "delay", True)
    group.proxy.each(lambda _words: Fault("delay", rng.uniform(0, most)))
    yield rng.uniform(1, 4)
    group.proxy.each(None)
    _network(world, group, "delay", False)


@fault("throttle", "network", where="proxied", weight=2)
def throttle(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    """So many bytes a second, for requests."""
    assert group.proxy is not None
    rate = rng.choice((8_000, 32_000))
    _network(world, group, "throttle", True)
    group.proxy.each(lambda words: Fault("delay", sum(map(len, words)) / rate))
    yield rng.uniform(1, 4)
    group.proxy.each(None)
    _network(world, group, "throttle", False)


@fault("requests and replies cut anywhere", "network", where="proxied", weight=3)
def cut_anywhere(world: World, rng: random.Random, group: Workers) -> Iterator[float]:
    assert group.proxy is not None

    def choose(_words: list[bytes]) -> Fault:
        if rng.random() < 0.8:
            return PASS
        return rng.choice((BEFORE, AFTER, reply(rng.randrange(0, 200)), SWALLOW))

    _network(world, group, "cut anywhere", True)
    group.proxy.each(choose)
    yield rng.uniform(1, 3)
    group.proxy.each(None)
    _network(world, group, "cut anywhere", False)

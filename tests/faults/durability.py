"""Measures what survives what: jobs whose enqueue was answered, a fault of the server, and how many are missing after it.

Run: python -m faults.durability [--trials N] [--write], with tests/ on the path, as root for the power failure.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dayjob import Enqueuer
from dayjob.errors import Rejected, StoreError, Unknown
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from server import Server, binary, wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "durability.md"
FIGURES = Path(__file__).with_name("durability.json")
NAMESPACE = "durability"

#: _IOR('X', 125, __u32), and the flag that drops even the journal that is not on the disk yet.
EXT4_IOC_SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
NO_LOG_FLUSH = 2

#: Seconds after which the fault comes, at least and at most.
SPAN = (1.0, 2.5)
#: Seconds there and back between the server and its replica.
DISTANCE = 0.02
#: Seconds for which the line to the replica is dead when the machine is lost.
STALL = 0.5


@dataclass(frozen=True)
class Setup:
    """How a server is set up, and what the enqueuers ask of it."""

    name: str
    options: tuple[str, ...]
    durability: str = "memory"
    replica: bool = False


SNAPSHOTS = ("--save", "3600 1 300 100 60 10000")
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
SETUPS = (
    Setup("nothing on disk", ()),
    Setup("snapshots (default save points)", SNAPSHOTS),
    Setup("AOF everysec", EVERYSEC),
    Setup("AOF always", ALWAYS),
    Setup('AOF everysec, `durability="disk"`', EVERYSEC, "disk"),
    Setup('AOF always, `durability="disk"`', ALWAYS, "disk"),
    Setup("a replica", (), replica=True),
    Setup('a replica, `durability="replicas:1"`', (), "replicas:1", replica=True),
)


@dataclass
class Figures:
    """One line of the table."""

    server: str
    setup: str
    fault: str
    trials: int = 0
    #: Enqueues that returned, and how many of those jobs are nowhere afterwards.
    answered: int = 0
    lost: int = 0
    worst: int = 0
    #: Enqueues that ended in Unknown, and how many of those jobs were there afterwards all the same.
    unknown: int = 0
    found: int = 0
    reason: str = ""


@dataclass
class Said:
    """What the enqueuers were told, by job id."""

    answered: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    #: The words of the last one that was refused for good.
    refusal: str = ""


class Load:
    """Threads that enqueue one job after the other until they are told to end."""

    def __init__(self, url: str, durability: str) -> None:
        self.said = Said()
        self._over = threading.Event()
        patience = 5.0 if durability == "disk" else 1.0
        self._enqueuer = Enqueuer(NAMESPACE, redis=url, timeout=patience, durability=durability)
        # To wait for a disk takes up to a second: the more wait at once, the more is measured.
        count = 16 if durability == "disk" else 4
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        serial = 0
        while not self._over.is_set():
            serial += 1
            job_id = f"{number}-{serial}"
            try:
                self._enqueuer.using(id=job_id).enqueue("a", n=serial)
            except Unknown:
                self.said.unknown.add(job_id)
            except Rejected as error:
                self.said.refusal = str(error)
                self._over.wait(0.5)
            except StoreError:
                pass  # not stored, and said so
            else:
                self.said.answered.add(job_id)

    def is_answered(self) -> bool:
        """Whether the server has answered: stored a job, or refused one for good."""
        return bool(self.said.answered or self.said.refusal)

    def halt(self) -> None:
        """Let nobody begin another job."""
        self._over.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._enqueuer.close()


def there(server: Server) -> set[str]:
    """The ids of all jobs that a server has."""
    link = Link(addresses.parse_url(server.url), tag="", timeout=30)
    raw = link.run(plain("LRANGE", Keys(NAMESPACE).queue("a"), 0, -1))
    link.close()
    return {json.loads(one)["id"] for one in raw}


class PlainServer(Server):
    """A server without the options of the tests, so that it saves as it was set up to."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        saves = () if "--save" in self.options else ("--save", "")
        self.process = subprocess.Popen(
            [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *saves, *self.options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self.answers)


class Disk:
    """A file system of its own that can lose power."""

    def __init__(self, folder: Path) -> None:
        self._image, self.path = folder / "disk.img", folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(256 << 20)
        _command("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def _mount(self) -> None:
        _command("mount", "-o", "loop", str(self._image), str(self.path))

    def cut(self) -> None:
        """Lose power and get it back: what was not synced is gone, and the journal is read again."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)
        _command("umount", str(self.path))
        self._mount()

    def close(self) -> None:
        _command("umount", str(self.path))


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def disk() -> Iterator[Disk | None]:
    """A disk that can lose power, or None where that cannot be had: it takes root, loop devices and ext4."""
    folder = Path(tempfile.mkdtemp(prefix="dayjob-durability-"))
    try:
        found = Disk(folder)
    except (OSError, subprocess.CalledProcessError):
        found = None
    try:
        yield found
    finally:
        if found is not None:
            found.close()
        shutil.rmtree(folder)


# The faults. Each leaves a server that answers again and has what survived.


def restart(server: Server, place: Disk | None) -> None:
    """The server is told to end, and started again."""
    server.stop()


def kill(server: Server, place: Disk | None) -> None:
    """The server is killed; the machine goes on."""
    server.kill()


def power_loss(server: Server, place: Disk | None) -> None:
    """The server is gone, and with it whatever its machine had not written to the disk."""
    server.kill()
    assert place is not None
    place.cut()


FAULTS: dict[str, Callable[[Server, Disk | None], None]] = {
    "normal restart": restart, "`kill -9` of the server": kill, "power failure": power_loss,
}  # fmt: skip


def trial(
    setup: Setup, fault: Callable[[Server, Disk | None], None], place: Disk | None, chance: random.Random
) -> tuple[Said, set[str]]:
    """One server, one load, one fault: what was said, and what is there."""
    root = place.path if place is not None else Path(tempfile.mkdtemp(prefix="dayjob-durability-"))
    folder = root / f"trial{chance.randrange(1 << 40)}"
    folder.mkdir()
    # The name of the folder is on the disk whatever happens: a machine that loses power had its server set up long ago.
    os.sync()
    server = PlainServer(folder, *setup.options)
    server.start()
    load = Load(server.url, setup.durability)
    try:
        wait_until(load.is_answered)
        time.sleep(chance.uniform(*SPAN))
        if fault is restart:
            load.halt()
            load.join()
        fault(server, place)
        load.halt()
        load.join()
        server.start()
        found = there(server)
    finally:
        load.halt()
        load.join()
        server.kill()
        shutil.rmtree(folder if place is not None else root, ignore_errors=True)
    return load.said, found


def failover(setup: Setup, chance: random.Random, *, stalled: bool) -> tuple[Said, set[str]]:
    """A server and a replica at some distance; the server's machine is lost, and the replica promoted."""
    root = Path(tempfile.mkdtemp(prefix="dayjob-durability-"))
    for name in ("primary", "replica"):
        (root / name).mkdir()
    primary = PlainServer(root / "primary", "--repl-diskless-sync-delay", "0")
    primary.start()
    line = subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "delay.py"), str(primary.port), str(DISTANCE)],
        stdout=subprocess.PIPE,
    )
    assert line.stdout is not None
    replica = PlainServer(
        root / "replica", "--replicaof", "127.0.0.1", line.stdout.readline().decode().strip()
    )
    replica.start()
    wait_until(lambda: b"state=online" in _ask(primary, "INFO", "replication"))
    wait_until(lambda: _ask(primary, "WAIT", 1, 1000) == 1)
    load = Load(primary.url, setup.durability)
    try:
        wait_until(load.is_answered)
        time.sleep(chance.uniform(*SPAN))
        if stalled:
            line.send_signal(signal.SIGSTOP)
            time.sleep(STALL)
            if setup.durability == "memory":
                # Jobs are stored while nothing reaches the replica.
                answered = len(load.said.answered)
                wait_until(lambda: len(load.said.answered) > answered)
        # What is on the line is lost with the machine.
        line.kill()
        primary.kill()
        load.halt()
        load.join()
        _ask(replica, "REPLICAOF", "NO", "ONE")
        found = there(replica)
    finally:
        load.halt()
        load.join()
        line.kill()
        line.wait()
        line.stdout.close()
        primary.kill()
        replica.kill()
        shutil.rmtree(root)
    return load.said, found


def _ask(server: Server, *words: str | int) -> object:
    link = Link(addresses.parse_url(server.url), tag="", timeout=30)
    try:
        return link.run(plain(str(words[0]), *words[1:]))
    finally:
        link.close()


# The table.


def measure(setups: tuple[Setup, ...], trials: int, seed: int) -> list[Figures]:
    """Every set-up under every fault that can befall it."""
    lines: list[Figures] = []
    for setup in setups:
        chance = random.Random(f"{seed} {setup.name}")
        if setup.replica:
            for stalled in (False, True):
                name = "loss of the machine, failover"
                name += f"; the link dead for {STALL:g} s before" if stalled else ""
                line = Figures(version(), setup.name, name)
                for _ in range(trials):
                    note(line, *failover(setup, chance, stalled=stalled))
                lines.append(show(line))
            continue
        for name, fault in FAULTS.items():
            line = Figures(version(), setup.name, name)
            with disk() as place:
                if fault is power_loss and place is None:
                    line.reason = "needs root, a loop device and ext4"
                else:
                    for _ in range(trials):
                        note(line, *trial(setup, fault, place, chance))
            lines.append(show(line))
    return lines


def note(line: Figures, said: Said, found: set[str]) -> None:
    """Add one trial to its line."""
    lost = len(said.answered - found)
    line.trials += 1
    line.answered += len(said.answered)
    line.lost += lost
    line.worst = max(line.worst, lost)
    line.unknown += len(said.unknown)
    line.found += len(said.unknown & found)
    if said.refusal:
        line.reason = "refused: " + said.refusal.partition("nothing was stored. ")[2]


def show(line: Figures) -> Figures:
    sys.stderr.write(f"{line}\n")
    return line


def version() -> str:
    """The server that is measured, by name and number."""
    words = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout.split()
    return f"{words[0]} {next(word.removeprefix('v=') for word in words if word.startswith('v='))}"


def table(lines: list[Figures]) -> str:
    """The lines for the page."""
    rows = [
        "| server | settings | fault | trials | jobs answered | lost | worst trial | `Unknown` answers, and how many of these jobs were stored |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        first = f"| {line.server} | {line.setup} | {line.fault} | {line.trials or 'none'} "
        if not line.answered:
            rows.append(f"{first}| none: {line.reason} | | | |")
            continue
        lost = "**0**" if not line.lost else f"{line.lost:,} ({line.lost / line.answered:.1%})"
        rows.append(
            f"{first}| {line.answered:,} | {lost} | {line.worst:,} | {line.unknown:,}, {line.found:,} |"
        )
    return "\n".join(rows) + "\n"


def write(lines: list[Figures]) -> None:
    """Put new lines in the place of old ones, into the figures and into the page."""
    known = [Figures(**line) for line in json.loads(FIGURES.read_text())] if FIGURES.exists() else []
    new = {(line.server, line.setup, line.fault): line for line in lines}
    merged = [new.pop((line.server, line.setup, line.fault), line) for line in known]
    merged += new.values()
    FIGURES.write_text(json.dumps([dataclasses.asdict(line) for line in merged], indent=1) + "\n")
    mark = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
    text = PAGE.read_text("utf-8")
    PAGE.write_text(mark.sub(lambda found: f"{found[1]}\n{table(merged)}\n{found[2]}", text), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.durability", description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="only set-ups whose name has this in it")
    parser.add_argument("--write", action="store_true", help="put the table into docs/durability.md")
    options = parser.parse_args()
    chosen = tuple(setup for setup in SETUPS if options.only is None or options.only in setup.name)
    lines = measure(chosen, options.trials, options.seed)
    sys.stdout.write(table(lines))
    if options.write:
        write(lines)
    broken = [line for line in lines if line.lost and promised(line)]
    for line in broken:
        sys.stderr.write(f"LOST what was promised: {line}\n")
    return 1 if broken else 0


def promised(line: Figures) -> bool:
    """Whether this set-up must lose nothing under this fault."""
    if "replicas:1" in line.setup or "disk" in line.setup.partition(",")[2]:
        return True
    if line.setup == "AOF always" or line.fault == "normal restart":
        return line.setup not in ("nothing on disk", "a replica")
    return False


if __name__ == "__main__":
    sys.exit(main())

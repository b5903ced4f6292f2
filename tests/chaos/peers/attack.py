"""The attack: a steady flow of jobs in four parts, a kind of fault in each, and what the ledger says became of the jobs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chaos.peers.fleet import LEASE, Entry, Fleet

#: Jobs in a part, and how many of them a second.
JOBS = 300
RATE = 20.0
#: Faults in a part, the seconds between two, and for how long a worker is stopped.
FAULTS = 8
EVERY = 1.5
STOPPED = LEASE + 3
#: Seconds without anything new after which the next part begins, and after which what is missing is given up.
PAUSE = 15.0
PATIENCE = 45.0


@dataclass
class Part:
    """What became of the jobs of one part."""

    fault: str
    faults: int = 0
    stored: int = 0
    #: Never ended within the patience: begun, or not even that.
    lost_begun: int = 0
    lost_unbegun: int = 0
    #: Ended more than once.
    twice: int = 0
    #: Were interrupted, and the longest time from there to an end.
    interrupted: int = 0
    slowest: float = 0.0
    #: The longest time from stored to ended.
    longest: float = 0.0

    @property
    def lost(self) -> int:
        return self.lost_begun + self.lost_unbegun


@dataclass
class Result:
    """One system."""

    name: str
    version: str
    settings: str
    parts: list[Part] = field(default_factory=list)
    restarts: int = 0
    reason: str = ""


def kill_runner(fleet: Fleet, chance: random.Random) -> bool:
    """kill -9 of a process that runs a job now."""
    runs = list(fleet.book.running().values())
    chance.shuffle(runs)
    for run in runs:
        if fleet.owns(run.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.pid, signal.SIGKILL)
                return True
    return False


def kill_worker(fleet: Fleet, chance: random.Random) -> bool:
    """kill -9 of a worker with its parent and all its children, as the loss of a host is."""
    worker = chance.choice(fleet.workers)
    pids = worker.tree()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def cut(fleet: Fleet, chance: random.Random) -> bool:
    """Every connection between the workers and the server is cut."""
    fleet.proxy.cut()
    return True


class Stopper:
    """SIGSTOP of one worker after the other, each for longer than its lease."""

    def __init__(self) -> None:
        #: Worker to the moment at which it goes on.
        self.stopped: dict[int, float] = {}

    def __call__(self, fleet: Fleet, chance: random.Random) -> bool:
        awake = [number for number in range(len(fleet.workers)) if number not in self.stopped]
        # Half of them at most: somebody must be there to take over.
        if len(self.stopped) * 2 >= len(fleet.workers):
            return False
        number = chance.choice(awake)
        fleet.workers[number].send(signal.SIGSTOP)
        self.stopped[number] = time.monotonic() + STOPPED
        return True

    def wake(self, fleet: Fleet) -> None:
        for number, until in list(self.stopped.items()):
            if time.monotonic() >= until:
                fleet.workers[number].send(signal.SIGCONT)
                del self.stopped[number]


def attack(fleet: Fleet, result: Result, seed: int) -> None:
    """Do all parts, wait for what can still come, and count."""
    chance = random.Random(seed)
    # Every worker is up before the first fault; these jobs count for nothing.
    fleet.order(-100, 100, 20)
    fleet.ordered()
    if not fleet.ready(30):
        result.reason = "no job ran"
        return
    rest(fleet, PAUSE)
    stopper = Stopper()
    parts: dict[str, Callable[[Fleet, random.Random], bool]] = {
        "`kill -9` of the process that runs a job": kill_runner,
        "`kill -9` of a whole worker": kill_worker,
        "connections cut": cut,
        f"SIGSTOP for {STOPPED} s": stopper,
    }
    for number, (name, fault) in enumerate(parts.items()):
        part = Part(name)
        result.parts.append(part)
        fleet.order(number * JOBS, JOBS, RATE)
        due, ends = time.monotonic() + EVERY, time.monotonic() + 2 * JOBS / RATE
        while part.faults < FAULTS and time.monotonic() < ends:
            if time.monotonic() >= due and fault(fleet, chance):
                part.faults += 1
                due = time.monotonic() + EVERY
            stopper.wake(fleet)
            time.sleep(0.01)
        fleet.ordered()
        while stopper.stopped:
            stopper.wake(fleet)
            time.sleep(0.1)
        rest(fleet, PAUSE)
    rest(fleet, PATIENCE)
    result.restarts = fleet.restarts
    count(fleet.book.read(), result)


def rest(fleet: Fleet, patience: float) -> None:
    """Wait until every job has ended, or nothing has happened for long."""
    seen, since = 0, time.monotonic()
    while time.monotonic() - since < patience:
        entries = fleet.book.read()
        stored = {entry.number for entry in entries if entry.kind == "stored"}
        if stored <= {entry.number for entry in entries if entry.kind == "end"}:
            return
        if len(entries) != seen:
            seen, since = len(entries), time.monotonic()
        time.sleep(0.25)


def count(ledger: Sequence[Entry], result: Result) -> None:
    """What the ledger says of each part."""
    entries = [entry for entry in ledger if entry.number >= 0]
    stored = {entry.number: entry.at for entry in entries if entry.kind == "stored"}
    ended = {entry.run for entry in entries if entry.kind == "end"}
    starts: dict[int, list[float]] = {}
    open_since: dict[int, float] = {}
    ends: dict[int, list[float]] = {}
    for entry in entries:
        if entry.kind == "start":
            starts.setdefault(entry.number, []).append(entry.at)
            if entry.run not in ended:
                open_since.setdefault(entry.number, entry.at)
        elif entry.kind == "end":
            ends.setdefault(entry.number, []).append(entry.at)
    for index, part in enumerate(result.parts):
        numbers = [number for number in stored if index * JOBS <= number < (index + 1) * JOBS]
        part.stored = len(numbers)
        for number in numbers:
            if number not in ends:
                part.lost_begun += number in starts
                part.lost_unbegun += number not in starts
                continue
            part.twice += len(ends[number]) > 1
            part.longest = max(part.longest, ends[number][0] - stored[number])
            if number in open_since:
                part.interrupted += 1
                part.slowest = max(part.slowest, ends[number][0] - open_since[number])
        part.slowest, part.longest = round(part.slowest, 1), round(part.longest, 1)

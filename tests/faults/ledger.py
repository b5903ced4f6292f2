"""The ledger: what enqueuers, handlers and the harness saw, written outside Redis, one append-only file per process.

A line is one write() to a file opened with O_APPEND, so a process killed in the middle of anything leaves whole lines.
Every line has the process id, a number that counts up from 1 in that process, and the machine's monotonic clock.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec


class Item(msgspec.Struct, omit_defaults=True):
    """A job as a census found it."""

    serial: str
    job: str = ""
    name: str = ""
    fails: int = 0
    deaths: int = 0
    snoozes: int = 0
    unique: str = ""
    #: Its batch and those above it, or its workflow.
    groups: list[str] = []


class NodePlan(msgspec.Struct, omit_defaults=True):
    """A node of a workflow, as it was asked for."""

    serial: str
    #: Numbers of the nodes that it needs, and of those whose failure it waits for.
    needs: list[int] = []
    watches: list[int] = []
    policy: str = "stop"


class BatchSeen(msgspec.Struct, omit_defaults=True):
    """A batch as a census found it."""

    total: int
    ended: int = 0
    dead: int = 0
    failed: int = 0
    closed: bool = False
    #: Events whose callbacks were enqueued.
    sent: list[str] = []


class Census(msgspec.Struct, omit_defaults=True):
    """Where every job was at one instant, and what Redis had counted by then."""

    #: Place (`queue`, `held`, `scheduled`, `retry`, `dead`, `done`) to the jobs in it.
    places: dict[str, list[Item]] = {}
    #: Counter and job name, `done:note`, to its total.
    totals: dict[str, int] = {}
    #: Job name to how many jobs wait; all names, those that are not listed one by one too.
    waiting: dict[str, int] = {}
    #: Pool id to the tokens it holds; live and condemned pools alike.
    held: dict[str, list[str]] = {}
    pools: list[str] = []
    condemned: list[str] = []
    #: Job name to its limit, and to the members of the set that the limit counts.
    limits: dict[str, int] = {}
    members: dict[str, list[str]] = {}
    #: The same for limits by key: `<name>|<key>` to its members.
    key_members: dict[str, list[str]] = {}
    #: Unique key to the id of the job that holds it.
    unique: dict[str, str] = {}
    #: Schedule to its last tick.
    periodic: dict[str, int] = {}
    #: Entries that could not be read, in hex, without their headers.
    broken: list[str] = []
    #: When the first scheduled job is due, by the clock of Redis.
    soonest: float | None = None
    #: Jobs of atomic jobs that have completed, in parts that are not in their queues yet.
    released: int = 0
    #: Batch id to what became of it, and workflow id to a letter for each node; at rest only.
    batches: dict[str, BatchSeen] = {}
    workflows: dict[str, str] = {}
    #: Counted jobs (`child`) in dead whose processes were killed too often while they ran; and bulk jobs.
    crashed_children: int = 0
    #: Bulk jobs in dead whose processes were killed too often while they ran.
    crashed_bulk: int = 0
    #: Nothing was going on: no fault, no producer, every job that is due has ended.
    rest: bool = False


class Event(msgspec.Struct, omit_defaults=True):
    """One thing that one process saw. Which fields are set depends on the kind; see KINDS."""

    kind: str
    at: float
    pid: int
    seq: int
    #: The producer's own name for a job; it travels in its arguments.
    serial: str = ""
    name: str = ""
    #: The job's id in Redis.
    job: str = ""
    plan: str = ""
    digest: str = ""
    #: By the clock of the server, in seconds; 0 for at once.
    due: float = 0.0
    unique: str = ""
    #: The attempt: who holds it, under which token, and whether it was taken away before it started.
    pool: str = ""
    token: str = ""
    lost: bool = False
    #: When Redis handed it out, by its clock; 0 if that is not known.
    fetched: float = 0.0
    fails: int = 0
    deaths: int = 0
    snoozes: int = 0
    #: The attempt that last changed the job, `<pool>/<token>`, as its payload says.
    after: str = ""
    #: How an attempt ended, what a fault is, why something happened.
    how: str = ""
    #: Seconds: until a retry, or a deadline; and how many.
    seconds: float = 0.0
    #: What an attempt used of its rate limit, if it is less than its cost.
    units: float | None = None
    count: int = 0
    #: The process that a fault or a stop is about.
    target: int = 0
    #: The batch or workflow that a job belongs to, and the batch above a batch.
    group: str = ""
    above: str = ""
    #: The serial of the job whose attempt enqueued this one, if it is stored only when that attempt completes.
    parent: str = ""
    graph: list[NodePlan] = []
    census: Census | None = None


#: Every kind of event and what it says.
KINDS = {
    "asked": "a producer is about to enqueue: serial, name, plan, digest, unique",
    "stored": "it was stored: serial, job, due",
    "refused": "it was not stored, for certain",
    "unknown": "the producer never learnt whether it was stored",
    "duplicate": "one with its unique key waits already",
    "pending": "a job that exists only if something else happens: serial, name, plan, digest, group, parent, pool, token",
    "group": "a batch or workflow is about to be stored: job (its id), how (its callbacks), above, graph",
    "grouped": "the answer: job, how (stored, unknown)",
    "revived": "an operator is about to retry a dead job: serial, fails (what it had)",
    "start": "a handler begins: serial, name, job, digest, pool, token, lost, fetched, fails, deaths, snoozes, after, unique, due, how (results that a node got)",
    "end": "a handler ends: serial, job, pool, token, how (ok, fail, snooze, discard, dead, abandoned), seconds, units",
    "up": "a pool has started in this process",
    "down": "the pool of this process has stopped in order",
    "heard": "Redis renewed the lease of the pool of this process, since its last answer that is noted",
    "reaped": "this process found one of its pools taken away: pool",
    "said": "something the product logged in this process, from warnings up: how",
    "fault": "the harness begins a fault: how, target, seconds",
    "healed": "that fault is over: how, target",
    "gone": "a process of the product has ended, as the harness saw it: target, or serial (the name of its file), how",
    "stop": "a process was told to stop: target, seconds (its deadline)",
    "stopped": "and has ended: target, seconds (how long that took)",
    "deleted": "an operator deleted a job: serial",
    "limit": "a limit is in force from now on: name, count",
    "injected": "bytes that are no job were put into Redis: how (hex)",
    "clock": "the machine's clock, to compare with the server's: seconds",
    "bulk": "a range of jobs that are counted, not listed: how (asked, stored, refused, unknown), serial, count",
    "late": "while it stopped, a process waited for a processor: target, seconds",
    "emptied": "the server lost all it had, on purpose: what was stored before is not looked for after",
    "census": "where everything is",
}

#: What is added to a process id for each time that it was used before.
AGAIN = 10_000_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class Ledger:
    """Writes the events of this process. Any thread may write."""

    def __init__(self, folder: Path, who: str) -> None:
        self.path = folder / f"{who}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[tuple[str, dict[str, Any], threading.Lock] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._write_all, name="ledger", daemon=True)
        self._thread.start()

    def write(self, kind: str, **facts: Any) -> None:
        """Note one event, now; it is written when this returns.

        By a thread of its own: a handler can be interrupted anywhere, and a number must not be spent without its line.
        """
        written = threading.Lock()
        written.acquire()
        self._queue.put((kind, facts, written))
        written.acquire()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        os.close(self._fd)

    def _write_all(self) -> None:
        seq = 0
        while (order := self._queue.get()) is not None:
            kind, facts, written = order
            seq += 1
            at = time.monotonic()
            if kind == "clock":
                # The first reading may be interrupted before the second: the quickest pair of several is the best.
                pairs = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(9)]
                at, facts["seconds"], _ = min(pairs, key=lambda pair: pair[2] - pair[0])
            os.write(self._fd, _encode(Event(kind, at, self._pid, seq, **facts)) + b"\n")
            written.release()


class Torn(Exception):
    """A ledger file that is not what its process wrote."""


def read_file(path: Path) -> list[Event]:
    """The events of one process. Raises Torn when a line is missing, doubled, out of order or unreadable."""
    *lines, rest = path.read_bytes().split(b"\n")
    # A process killed inside write() may leave half a line, and nothing after it.
    del rest
    try:
        events = [_decode(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise Torn(f"{path.name}: {error}") from None
    for problem in torn(events):
        raise Torn(f"{path.name}: {problem}")
    return events


def torn(events: Iterable[Event]) -> Iterator[str]:
    """What shows that these are not the events of one process, all of them and in order."""
    seq, at = 0, 0.0
    for event in events:
        if event.seq != seq + 1:
            yield f"event {event.seq} follows event {seq}"
        if event.at < at:
            yield f"event {event.seq} is {at - event.at:.6f} s earlier than the one before it"
        if event.kind not in KINDS:
            yield f"event {event.seq} is a {event.kind!r}, which nobody writes"
        seq, at = event.seq, event.at


def read(folder: Path) -> list[Event]:
    """All events of all processes, in the order of time. Raises Torn.

    A process id that was used again stands for another process: it is given a number of its own.
    """
    files = [(events, path.name) for path in folder.glob("*.jsonl") if (events := read_file(path))]
    files.sort(key=lambda file: file[0][0].at)
    used: dict[int, list[tuple[float, int]]] = {}
    named: dict[str, int] = {}
    for events, name in files:
        pid = events[0].pid
        named[name] = pid + len(used.setdefault(pid, [])) * AGAIN
        used[pid].append((events[0].at, named[name]))
        for event in events:
            event.pid = named[name]
    found = [event for events, _ in files for event in events]
    for event in found:
        if event.kind == "gone" and event.serial in named:
            event.target, event.serial = named[event.serial], ""
        elif event.target in used:
            begun = [alias for at, alias in used[event.target] if at <= event.at]
            event.target = begun[-1] if begun else event.target
    found.sort(key=lambda event: (event.at, event.pid, event.seq))
    return found

"""Operations: what programs do in several round trips, so that each can be cut or killed at any of them.

`ready` prepares a namespace, `act` does the work over a URL and insists as the real loops do. `crash_groups` has those of
batches and workflows; a `nursery` does them in processes that can be killed.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from census import census
from dayjob import Enqueuer, Job, WorkerPool
from dayjob.errors import Unavailable, Unknown
from dayjob.handlers.periodic import PeriodicJob as Record
from dayjob.job import new_id
from dayjob.options import JobOptions
from dayjob.outcome import NameSuspect
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import bin, consume, inspect, maintain, membership, operate, produce
from dayjob.store.ops.produce import Slot
from dayjob.worker.chores import requeuer
from dayjob.worker.chores.periodic import PeriodicScheduler
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.requeuer import Requeuer
from dayjob.worker.chores.trimmer import Trimmer
from pools import Pool

#: A moment that has passed, at a full minute; and five minutes in seconds.
LONG_AGO = 1_000_000_020 // 60 * 60
FIVE = 300


@dataclass(frozen=True)
class Operation:
    """`ready` returns how many jobs there are before; `act` how many its callers were told of."""

    name: str
    ready: Callable[[Keys, Link], int]
    act: Callable[[str, Keys, Path], int]
    #: Whether doing it again after it was killed ends as if it had been done once.
    repeatable: bool = True
    #: Whether it runs jobs, with threads whose requests come in no fixed order.
    works: bool = False


ALL: dict[str, Operation] = {}


def operation(name: str, ready: Callable[[Keys, Link], int], **how: Any) -> Callable[[Any], Any]:
    def register(act: Callable[[str, Keys, Path], int]) -> Callable[[str, Keys, Path], int]:
        ALL[name] = Operation(name, ready, act, **how)
        return act

    return register


def dial(url: str, keys: Keys) -> Link:
    return Link(addresses.parse_url(url), tag=keys.known_jobs)


def insist(step: Callable[[], Any]) -> Any:
    """Do it until Redis lets it, as a service of a pool does."""
    for _ in range(20):
        try:
            return step()
        except Unavailable:
            continue
    raise AssertionError("Redis did not come back")


def payload(name: str, job_id: str, **fields: Any) -> bytes:
    return codec.write(codec.quoted(name), job_id, 1.0, b"{}", fields or None)


def fill(keys: Keys, link: Link, name: str, count: int) -> list[bytes]:
    some = [payload(name, new_id()) for _ in range(count)]
    link.run(produce.enqueue(keys, Slot(new_id(), 1), name, some, introduce=True))
    return some


# Enqueueing.


def nothing(keys: Keys, link: Link) -> int:
    return 0


def send(url: str, keys: Keys, put: Callable[[Enqueuer], Any]) -> int:
    """Enqueue, and repeat what is unknown: the answer is how many jobs the caller knows of."""
    enqueuer = Enqueuer(keys.namespace, redis=url, timeout=60.0)
    try:
        try:
            answer = put(enqueuer)
        except Unknown as unknown:
            answer = unknown.repeat()
    finally:
        enqueuer.close()
    return len(answer) if isinstance(answer, list) else int(answer is not None)


@operation("enqueue", nothing, repeatable=False)
def _enqueue(url: str, keys: Keys, folder: Path) -> int:
    return send(url, keys, lambda enqueuer: enqueuer.enqueue("a", n=1))


@operation("enqueue_many", nothing, repeatable=False)
def _enqueue_many(url: str, keys: Keys, folder: Path) -> int:
    return send(url, keys, lambda enqueuer: enqueuer.enqueue_many("a", [{"n": n} for n in range(3)]))


@operation("schedule", nothing, repeatable=False)
def _schedule(url: str, keys: Keys, folder: Path) -> int:
    return send(url, keys, lambda enqueuer: enqueuer.enqueue_in("a", 600, n=1))


@operation("unique", nothing)
def _unique(url: str, keys: Keys, folder: Path) -> int:
    return send(url, keys, lambda enqueuer: enqueuer.enqueue_unique("a", n=1))


@operation("chosen id", nothing)
def _chosen(url: str, keys: Keys, folder: Path) -> int:
    return send(url, keys, lambda enqueuer: enqueuer.using(id="mine").enqueue("a", n=1))


# Chores.


def with_a_dead_pool(keys: Keys, link: Link) -> int:
    """A pool past its lease with three attempts; one job has died twice before, one is no job."""
    fill(keys, link, "a", 1)
    link.run(plain("LPUSH", keys.queue("a"), payload("a", new_id(), deaths=2)))
    link.run(plain("LPUSH", keys.queue("a"), b"no job"))
    pool = Pool(keys, link, names=["a"])
    assert len(pool.fetch("a")) == 3
    pool.settle(consume.Entry("a", "2:a", NameSuspect()))
    link.run(membership.beat(keys, pool.id, lease=-1.0))
    link.run(plain("DEL", keys.leader))
    return 3


@operation("reap", with_a_dead_pool)
def _reap(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)
    reaper = Reaper(
        keys, link, lease=15.0, options=lambda name: JobOptions(), on_dead=lambda job, error: None,
        rng=random.Random(1),
    )  # fmt: skip
    insist(lambda: reaper.sweep_all(link.run(maintain.condemn(keys, lease=15.0))))
    link.close()
    return 0


def with_due_jobs(keys: Keys, link: Link) -> int:
    for source in (keys.scheduled, keys.retry):
        link.run(plain("ZADD", source, 1, payload("a", new_id()), 2, payload("b", new_id())))
    link.run(plain("ZADD", keys.retry, 3, b"no job"))
    return 5


@operation("requeue", with_due_jobs)
def _requeue(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)
    # However long it takes, it is done in one turn: else the number of round trips would depend on the machine.
    with patch.object(requeuer, "TURN_SECONDS", 600.0):
        insist(Requeuer(keys, link).step)
    link.close()
    return 0


def with_open_ticks(keys: Keys, link: Link) -> int:
    link.run(plain("HSET", keys.periodic, "each minute", LONG_AGO))
    return 0


@operation("tick", with_open_ticks)
def _tick(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)
    record = Record("each minute", "* * * * *", "a", b"{}", None, "all")
    periodic = PeriodicScheduler(keys, link, [record], lambda: LONG_AGO + FIVE + 1.0, lambda: True)
    insist(periodic.step)
    link.close()
    return FIVE // 60


def with_dead_jobs(keys: Keys, link: Link) -> int:
    unique = keys.unique("a", "u")
    link.run(plain("SET", unique, "first"))
    owner = payload("a", "first", unique=True, unique_key=unique)
    link.run(plain("ZADD", keys.dead, 1, owner, 2, payload("a", "second"), 3, payload("b", "third")))
    return 3


@operation("trim", with_dead_jobs)
def _trim(url: str, keys: Keys, folder: Path) -> int:
    from dayjob.options import PoolOptions  # noqa: PLC0415 - only here

    link = dial(url, keys)
    trimmer = Trimmer(keys, link, PoolOptions(dead_count=1))
    insist(lambda: trimmer.trim(100.0))
    link.close()
    return 0


@operation("revive all", with_dead_jobs)
def _revive(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)

    def revive_all() -> None:
        seen = link.run(inspect.page(keys.dead))
        for entry in seen.entries:
            link.run(operate.revive(keys, entry.member, now=seen.now))

    insist(revive_all)
    link.close()
    return 0


def with_waiting_jobs(keys: Keys, link: Link) -> int:
    unique = keys.unique("a", "u")
    link.run(plain("SET", unique, "first"))
    owner = payload("a", "first", unique=True, unique_key=unique)
    link.run(produce.enqueue(keys, Slot(new_id(), 1), "a", [owner], introduce=True))
    fill(keys, link, "a", 149)
    return 150


def _purge_to_bin(keys: Keys, link: Link) -> None:
    deletion = bin.Deletion(keys, actor="ada", action="purge", subject="queue a")
    insist(lambda: walk(link, operate.purge(keys, "a", deletion=deletion)))


@operation("purge to the bin", with_waiting_jobs)
def _purge(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)
    _purge_to_bin(keys, link)
    link.close()
    return 0


def with_a_full_bin(keys: Keys, link: Link) -> int:
    jobs = with_waiting_jobs(keys, link)
    _purge_to_bin(keys, link)
    return jobs


@operation("undo", with_a_full_bin)
def _undo(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)

    def undo_all() -> None:
        for deletion in walk(link, bin.deletions(keys)):
            walk(link, bin.undo_all(keys, deletion))

    insist(undo_all)
    link.close()
    return 0


def with_a_limit(keys: Keys, link: Link) -> int:
    fill(keys, link, "a", 4)
    assert len(Pool(keys, link, names=["a"]).fetch("a", room=2)) == 2
    return 4


@operation("limit", with_a_limit)
def _limit(url: str, keys: Keys, folder: Path) -> int:
    link = dial(url, keys)
    insist(lambda: walk(link, operate.set_concurrency_limit(keys, "a", 2)))
    link.close()
    return 0


# Pools.


def with_jobs(keys: Keys, link: Link) -> int:
    fill(keys, link, "a", 3)
    unique = keys.unique("one", "u")
    link.run(
        produce.admit(
            keys, Slot(new_id(), 1), "one", payload("one", "single", unique=True, unique_key=unique), produce.When(),
            job_id="single", chosen=False, unique_key=unique, unique_for=None, introduce=True,
        )
    )  # fmt: skip
    fill(keys, link, "fails", 1)
    return 5


def say(folder: Path, word: str) -> None:
    """One line in a file that outlives this process."""
    fd = os.open(folder / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (word + "\n").encode())
    os.close(fd)


def pool_of(url: str, keys: Keys, folder: Path) -> WorkerPool[Any]:
    """A pool whose handlers leave a line for each attempt that they start."""
    pool = WorkerPool(namespace=keys.namespace, redis=url, concurrency=2, lease=10.0, beat=1.0)

    def note(job: Job) -> None:
        say(folder, f"{job.id} {job.attempt}")

    pool.register("a", note)
    pool.register("one", note, max_concurrency=1)

    @pool.job(max_fails=2, backoff=0.001)
    def fails(job: Job) -> None:
        note(job)
        if not job.fails:
            raise ValueError("once")

    return pool


def server_url() -> str:
    """The server itself, past any proxy."""
    return f"redis://127.0.0.1:{os.environ['DAYJOB_TEST_PORT']}"


def work_until(pool: WorkerPool[Any], keys: Keys, done: Callable[[Link], bool]) -> None:
    """Start a pool, wait until something is done, for a minute at most, and stop it."""
    logging.disable(logging.CRITICAL)
    insist(pool.start)
    link = dial(server_url(), keys)
    pause = threading.Event()
    for _ in range(6000):
        if done(link):
            break
        pause.wait(0.01)
    link.close()
    pool.stop(timeout=5)
    logging.disable(logging.NOTSET)


@operation("work", with_jobs, works=True)
def _work(url: str, keys: Keys, folder: Path) -> int:
    """Start, run everything that there is, retries included, and stop."""
    work_until(pool_of(url, keys, folder), keys, lambda link: finished(keys, link) == 5)
    return 0


@operation("stop", with_jobs, works=True)
def _stop(url: str, keys: Keys, folder: Path) -> int:
    """Start, and stop while a handler runs that does not end: it is given back."""
    logging.disable(logging.CRITICAL)
    pool = WorkerPool(namespace=keys.namespace, redis=url, concurrency=1, lease=10.0, beat=1.0)
    started = threading.Event()

    def hang(job: Job) -> None:
        say(folder, f"{job.id} {job.attempt}")
        started.set()
        while not job.stopping:
            threading.Event().wait(0.002)
        raise RuntimeError("stopped")

    pool.register("a", hang)
    insist(pool.start)
    started.wait(60)
    pool.stop(timeout=0)
    logging.disable(logging.NOTSET)
    return 0


#: How many jobs each atomic job of the operation below enqueues. The last one stages them.
FAMILIES = (0, 1, 3, 1200)


def with_parents(keys: Keys, link: Link) -> int:
    for number, count in enumerate(FAMILIES):
        raw = codec.write(codec.quoted("parent"), f"p{number}", 1.0, b'{"count":%d}' % count)
        link.run(produce.enqueue(keys, Slot(new_id(), 1), "parent", [raw], introduce=True))
    return len(FAMILIES)


def family_of(url: str, keys: Keys) -> WorkerPool[Any]:
    """A pool of atomic jobs, the first attempt of each of which fails, and of their children."""
    pool = WorkerPool(namespace=keys.namespace, redis=url, concurrency=2, lease=10.0, beat=1.0)

    @pool.job(atomic=True, backoff=0.001, max_fails=100)
    def parent(job: Job, count: int) -> None:
        for n in range(count):
            child.using(source=f"{job.id}/{n}").enqueue()
        if not job.fails:
            raise ValueError("once")

    @pool.job
    def child() -> None: ...

    return pool


def family_done(keys: Keys, link: Link) -> bool:
    totals = totals_of(keys, link)
    return totals.get("done:parent") == len(FAMILIES) and totals.get("done:child", 0) >= sum(FAMILIES)


@operation("atomic", with_parents, works=True)
def _atomic(url: str, keys: Keys, folder: Path) -> int:
    """Run atomic jobs and all that they enqueue, and stop."""
    work_until(family_of(url, keys), keys, lambda link: family_done(keys, link))
    return 0


# What there is after.


@dataclass(frozen=True)
class Found:
    """Where jobs are: counted by place and name, and the ids that are somewhere."""

    places: Counter[tuple[str, str]]
    ids: Counter[str]
    #: Id to fails and deaths together: the causes of repeats that a job carries.
    causes: dict[str, int]
    totals: dict[str, int]
    unique: dict[str, bytes] = field(default_factory=dict)


#: Totals of jobs that are in no place any more.
GONE = ("done", "discarded", "deleted", "trimmed")


def totals_of(keys: Keys, link: Link) -> dict[str, int]:
    flat = link.run(plain("HGETALL", keys.totals))
    return {label.decode(): int(n) for label, n in zip(flat[::2], flat[1::2], strict=True)}


def finished(keys: Keys, link: Link) -> int:
    """How many jobs have ended for good. Those in the bin are deleted and still there."""
    totals = totals_of(keys, link)
    gone = sum(n for label, n in totals.items() if label.partition(":")[0] in GONE)
    restored = sum(n for label, n in totals.items() if label.startswith("restored:"))
    return gone - restored - sum(map(len, census(keys, link).bin.values()))


def survey(keys: Keys, link: Link) -> Found:
    """Look everywhere."""
    seen = census(keys, link)
    places: Counter[tuple[str, str]] = Counter()
    ids: Counter[str] = Counter()
    causes: dict[str, int] = {}

    def note(place: str, raw: bytes) -> None:
        try:
            job = json.loads(raw.rpartition(b"\n")[2])
        except ValueError:
            places[place, "?"] += 1
            return
        places[place, job["name"]] += 1
        ids[job["id"]] += 1
        causes[job["id"]] = job.get("fails", 0) + job.get("deaths", 0)

    for queue in seen.queues.values():
        for raw in queue:
            note("queue", raw)
    for attempts in seen.held.values():
        for raw in attempts.values():
            note("held", raw)
    for part in seen.bin.values():
        for raw in part:
            note("bin", raw)
    for place in ("scheduled", "retry", "dead", "done", "broken"):
        for raw in getattr(seen, place):
            note(place, raw)
    return Found(places, ids, causes, totals_of(keys, link), seen.unique)


def bury_all(keys: Keys, link: Link) -> None:
    """Condemn and sweep every pool: all of them are known to be dead, whoever led included."""
    link.run(plain("DEL", keys.leader))
    ids = [*link.run(membership.pool_ids(keys)), *link.run(membership.condemned_ids(keys))]
    reaper = Reaper(
        keys, link, lease=15.0, options=lambda name: JobOptions(), on_dead=lambda job, error: None,
        rng=random.Random(1),
    )  # fmt: skip
    if ids:
        link.run(maintain.condemn(keys, lease=15.0, proven=ids, judge=False))
        for pool_id in ids:
            reaper.sweep(pool_id)

"""The jobs of a chaos run: each does what its plan says, and says in the ledger what it did."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import logging
import mmap
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

import msgspec

from dayjob import Concurrency, Dead, Discard, Job, JobTimeout, Rate, Snooze, Throttled, Window, WorkerPool
from dayjob.errors import StoreError, Unavailable, Unknown
from dayjob.job import new_id, running
from dayjob.store.ops.consume import Reply, Request
from dayjob.worker.fetching.replies import ReplyHandler
from dayjob.worker.membership import Membership
from dayjob.worker.running.runner import Abandon, TimedOut
from dayjob.worker.state import PoolState
from dayjob.worker.status.heartbeat import Heartbeat
from faults.ledger import Ledger
from faults.story import Rules

#: Seconds; short, so that many pools can lose their lease in one run.
LEASE, BEAT = float(os.environ.get("CHAOS_LEASE", "3")), float(os.environ.get("CHAOS_BEAT", "0.75"))
#: How many bulk jobs a run may have: each has a byte in every process's tally.
MAX_BULK = 8_000_000
#: What must never be seen in a log, an error or a trace.
CANARY = "canary-5f1d7c"
#: Where a process of a run writes; None in what merely imports this, such as a test.
FOLDER = Path(os.environ["CHAOS_FOLDER"]) if "CHAOS_FOLDER" in os.environ else None
GROUP = os.environ.get("CHAOS_GROUP", "?")

LIMIT = 2
#: More than producers ask for on average, so that queues run empty at a rest, and less than they ask for at times.
API, VISITS, COST = Rate(20, per=1, burst=4), Window(6, per=1), 2
#: The same for each key.
TENANTS, TENANT_LIMIT = ("acme", "bolt", "cord", "dyne"), 2
TENANT_API, TENANT_VISITS = Rate(5, per=1, burst=2), Window(4, per=1)
RULES = Rules(
    limits={"narrow": LIMIT, "windowed": 3},
    rates={
        "api": (API, {"metered": 1.0, "costly": COST}), "visits": (VISITS, {"windowed": 1.0}),
        "tenant-api": (TENANT_API, {"tenant_call": 1.0}), "tenant-visits": (TENANT_VISITS, {"tenant_visit": 1.0}),
    },
    key_limits={"tenant_work": TENANT_LIMIT, "tenant_visit": TENANT_LIMIT},
    rates_by_key=frozenset({"tenant-api", "tenant-visits"}),
    max_fails={
        "note": 4, "metered": 4, "anote": 4, "heavy": 4, "overrun": 4, "secret": 2, "tenant_call": 4,
        "parent": 4, "member": 4, "amember": 4, "atomic_member": 4, "node": 4, "anode": 4,
    },
    ticks={"tick": 1},
    resume=5.0,
    lease=LEASE,
    deafening=frozenset({"hold_gil"}),
    counted_apart=frozenset({"bulk", "child"}),
)  # fmt: skip
#: Names whose attempts are noted with the moment when Redis handed them out.
RATED = frozenset(name for _, costs in RULES.rates.values() for name in costs)

pool = WorkerPool(
    namespace=os.environ.get("CHAOS_NAMESPACE", "chaos"), concurrency=8, lease=LEASE, beat=BEAT, grace=0.5,
    dead_count=10_000_000,
)  # fmt: skip


class Planned(Exception):
    """A fail that was asked for."""


class Here:
    """What a process that runs jobs has to write with."""

    def __init__(self) -> None:
        if FOLDER is None:
            raise SystemExit("CHAOS_FOLDER is not set: say where this process is to write its ledger")
        self.ledger = Ledger(FOLDER, GROUP)
        self.state: PoolState | None = None
        #: When it last noted an answer of Redis that renewed the lease.
        self.heard_at = 0.0
        #: Pool id and token to when Redis handed the attempt out.
        self.fetched: dict[tuple[str, str], float] = {}
        path = FOLDER / f"tally-{os.getpid()}-{time.monotonic_ns()}"
        with path.open("wb+") as file:
            file.truncate(MAX_BULK)
            self.tally = mmap.mmap(file.fileno(), MAX_BULK)
        path = FOLDER / f"children-{os.getpid()}-{time.monotonic_ns()}"
        #: A line for each start of a job that an atomic job enqueued.
        self.children = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def heard(self) -> None:
        """Note that Redis renewed the lease, if the last note of it is some time ago."""
        if time.monotonic() - self.heard_at > BEAT / 2:
            self.ledger.write("heard")
            self.heard_at = time.monotonic()


@cache
def here() -> Here:
    """What this process writes with, made at first use: by a process that runs jobs, and by no other."""
    return Here()


class Ears(logging.Handler):
    """Notes what the product says from warnings up, and which of its pools were taken away."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "is no longer registered: " in text:
            here().ledger.write("reaped", pool=text.partition("pool=")[2].partition(" ")[0])
        here().ledger.write("said", how=text[:300])


class Shipper(logging.Handler):
    """A log shipper whose collector is away most of the time."""

    def emit(self, record: logging.LogRecord) -> None:
        if random.random() < 0.7:
            raise random.choice((ConnectionRefusedError("the collector is away"), SystemExit(1)))


def _listen_in() -> None:
    """Keep the state of the pool, which has its id, and note when Redis answers it."""
    join = Membership.join

    def noted(self: Membership) -> None:
        here().state = self._state
        join(self)

    Membership.join = noted  # type: ignore[method-assign]
    take_jobs = ReplyHandler._take_jobs

    def timed(self: ReplyHandler, request: Request, reply: Reply) -> None:
        here().heard()
        if reply.status != "again":
            # A resend is answered later than its jobs were handed out.
            for batch in reply.batches:
                if batch.name in RATED:
                    for token in batch.tokens:
                        here().fetched[self._state.pool_id, token] = reply.now
        take_jobs(self, request, reply)

    ReplyHandler._take_jobs = timed  # type: ignore[method-assign]
    beat = Heartbeat._beat

    def answered(self: Heartbeat) -> bool:
        stale = beat(self)
        here().heard()
        return stale

    Heartbeat._beat = answered  # type: ignore[method-assign]


if FOLDER is not None:
    _listen_in()


@pool.lifespan
def life() -> Iterator[None]:
    # In this order: what the second one raises must not keep the first one from hearing.
    ears, shipper = Ears(logging.WARNING), Shipper()
    logging.getLogger("dayjob").addHandler(ears)
    logging.getLogger("dayjob").addHandler(shipper)
    logging.getLogger("chaos.shop").addHandler(shipper)
    here().ledger.write("up", how=GROUP)
    yield
    logging.getLogger("dayjob").removeHandler(shipper)
    logging.getLogger("dayjob").removeHandler(ears)
    here().ledger.write("down", how=GROUP)


def digest(data: Any) -> str:
    """A fingerprint of arguments as they are read."""
    return hashlib.blake2s(msgspec.json.encode(data), digest_size=6).hexdigest()


class Run:
    """One run of a handler: says that it starts, and how it ended."""

    def __init__(self, job: Job, serial: str, data: Any = None, how: str = "") -> None:
        attempt: Any = running.get()
        # In this order: an attempt is marked before its pool takes another id.
        state = here().state
        pool_id = state.pool_id if state is not None else "?"
        self._facts = {
            "serial": serial,
            "name": job.name,
            "job": job.id,
            "pool": pool_id,
            "token": attempt.token,
        }
        #: The attempt that this is.
        self.place = f"{pool_id}/{attempt.token}"
        #: What the job says it used of its rate limit, if it is less than its cost.
        self.units: float | None = None
        here().ledger.write(
            "start", **self._facts, lost=attempt.lost, fetched=here().fetched.pop((pool_id, attempt.token), 0.0), fails=job.fails, deaths=job.deaths, snoozes=job.snoozes,
            after=attempt.wire.attempt, unique=job.unique_key or "", digest=digest(data), how=how,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            how, seconds = "ok", 0.0
        elif isinstance(error, Snooze):
            how, seconds = "snooze", error.after
        elif isinstance(error, Discard):
            how, seconds = "discard", 0.0
        elif isinstance(error, Dead):
            how, seconds = "dead", 0.0
        elif isinstance(error, Planned | JobTimeout | TimedOut):
            how, seconds = "fail", 0.3
        elif isinstance(error, Abandon | asyncio.CancelledError | Throttled):
            how, seconds = "abandoned", 0.0
        else:
            how, seconds = f"{type(error).__name__}: {error}"[:200], 0.0
        here().ledger.write("end", **self._facts, how=how, seconds=seconds, units=self.units)


def follow(plan: str, job: Job) -> None:
    """Raise what the plan says."""
    word, _, number = plan.partition(" ")
    count = int(number or 0)
    if word == "fail" and job.fails < count:
        raise Planned(f"fail {job.fails + 1} of {count}")
    if word == "snooze" and job.snoozes < count:
        raise Snooze("as planned", after=0.2)
    if word == "discard":
        raise Discard("as planned")
    if word == "dead":
        raise Dead("as planned")
    if word == "mortal" and FOLDER is not None and not retried(FOLDER, job.id).exists():
        raise Dead("as planned, until it is retried")


def retried(folder: Path, job_id: str) -> Path:
    """A file that the operator of a run makes before a mortal job is retried: then it completes."""
    return folder / f"retried-{job_id}"


def _wait(seconds: float, job: Job) -> None:
    """Take a while, in steps, checking in."""
    pause, until = threading.Event(), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        # Not time.sleep: under a library that fakes the clock it can fail.
        pause.wait(min(left, 0.05))
        job.checkin("waiting", done=seconds - left, total=seconds)


@pool.job(backoff=0.3)
def note(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    with Run(job, serial, data):
        _wait(seconds, job)
        follow(plan, job)


@pool.job(backoff=0.3)
async def anote(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    with Run(job, serial, data):
        await asyncio.sleep(seconds)
        follow(plan, job)


@pool.job(backoff=0.3, keep=2)
def heavy(job: Job, serial: str, plan: str = "ok", data: Any = None, size: int = 0) -> str:
    """Returns much, and logs to a handler that mostly raises, which is its own business."""
    with Run(job, serial, data):
        follow(plan, job)
        with contextlib.suppress(ConnectionRefusedError, SystemExit):
            logging.getLogger("chaos.shop").warning("%s returns %d bytes", serial, size)
        return "x" * size


@pool.job
def spawn(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    """A plain handler that enqueues on an event loop of its own, as `asyncio.run` makes one."""
    attempt: Any = running.get()
    with Run(job, serial, data):
        asyncio.run(_enqueue_leaf(f"{serial}/{attempt.token}/{job.deaths}/{new_id()}"))


async def _enqueue_leaf(serial: str) -> None:
    """Enqueue one job, and say in the ledger what the answer was."""
    write = here().ledger.write
    write("asked", serial=serial, name="anote", plan="ok", digest=digest(None))
    try:
        job = await anote.aenqueue(serial=serial)
    except StoreError as error:
        sent = isinstance(error, Unknown) or (isinstance(error, Unavailable) and error.sent)
        write("unknown" if sent else "refused", serial=serial)
    except BaseException:
        write("unknown", serial=serial)
        raise
    else:
        write("stored", serial=serial, job=job.id)


@pool.job(max_concurrency=LIMIT)
def narrow(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    with Run(job, serial, data):
        _wait(seconds, job)


api = pool.limit("api", API)


@pool.job(limits=[api], backoff=0.3, max_fails=4)
def metered(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    """Meets an API that sometimes wants a pause."""
    with Run(job, serial, data):
        follow(plan, job)
        if random.random() < 0.01:
            raise Throttled("as planned", limit=api, after=0.3)


@pool.job(limits=[api], cost=COST)
def costly(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    """Uses less than it was charged, mostly."""
    with Run(job, serial, data) as run:
        run.units = random.choice((0, 1, COST))
        job.spend(run.units)


@pool.job(limits=[pool.limit("visits", VISITS), Concurrency(3)])
async def windowed(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    with Run(job, serial, data):
        await asyncio.sleep(seconds)


@pool.job(limits=[Concurrency(TENANT_LIMIT, by="tenant")])
def tenant_work(
    job: Job, serial: str, tenant: str, plan: str = "ok", data: Any = None, seconds: float = 0.0
) -> None:
    with Run(job, serial, data):
        _wait(seconds, job)


@pool.job(limits=[pool.limit("tenant-api", TENANT_API, by="tenant")], backoff=0.3, max_fails=4)
def tenant_call(job: Job, serial: str, tenant: str, plan: str = "ok", data: Any = None) -> None:
    with Run(job, serial, data):
        follow(plan, job)


@pool.job(
    limits=[pool.limit("tenant-visits", TENANT_VISITS, by="tenant"), Concurrency(TENANT_LIMIT, by="tenant")]
)
async def tenant_visit(
    job: Job, serial: str, tenant: str, plan: str = "ok", data: Any = None, seconds: float = 0.0
) -> None:
    with Run(job, serial, data):
        await asyncio.sleep(seconds)


@pool.job
def once(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    with Run(job, serial, data):
        follow(plan, job)


@pool.job
def later(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    with Run(job, serial, data):
        follow(plan, job)


@pool.job
def tick(job: Job) -> None:
    with Run(job, f"tick/{job.enqueued_at:.0f}"):
        pass


@pool.job(timeout=0.4, backoff=0.3)
def overrun(job: Job, serial: str, plan: str = "ok", data: Any = None) -> None:
    """Its first attempt cannot be interrupted: the parent kills its process."""
    with Run(job, serial, data):
        if job.fails < int(plan.partition(" ")[2]):
            ctypes.CDLL(None).usleep(20_000_000)


@pool.job
def poison(job: Job, serial: str, plan: str = "poison 3", data: Any = None, how: str = "exit") -> None:
    """Ends its process, as often as the plan says."""
    with Run(job, serial, data):
        if job.deaths < int(plan.partition(" ")[2]):
            if how == "memory":
                _exhaust_memory()
            if how == "segfault":
                ctypes.string_at(0)
            os._exit(3)


@pool.job
def hold_gil(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    """A C call that never lets go of the interpreter."""
    with Run(job, serial, data):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@pool.job
async def block_loop(job: Job, serial: str, plan: str = "ok", data: Any = None, seconds: float = 0.0) -> None:
    """Sync code in an async job: nothing else on the loop goes on."""
    with Run(job, serial, data):
        ctypes.CDLL(None).usleep(int(seconds * 1e6))


@pool.job(redact=["password"], max_fails=2, backoff=0.3)
def secret(job: Job, serial: str, password: str, plan: str = "fail 1", data: Any = None) -> None:
    """Fails with its secret in the message, which nobody may see."""
    with Run(job, serial, data):
        if job.fails < 1:
            raise Planned(f"could not log in with {password}")


@pool.job(priority=3)
def bulk(n: int) -> None:
    """Counted in a file that outlives its process; a second run says so in the ledger."""
    attempt: Any = running.get()
    here().tally[n] += 1
    if attempt.attempt > 1:
        here().ledger.write("said", how=f"bulk {n} attempt {attempt.attempt} after {attempt.wire.attempt}")


pool.periodic("* * * * * *", tick, name="tick", missed="all")


def memory_group(pid: int) -> Path:
    """The group of the kernel's that limits the memory of one process of a run."""
    return Path("/sys/fs/cgroup/memory") / f"dayjob-chaos-{pid}"


def _exhaust_memory() -> None:
    """Have the kernel end this process for its memory: for real where memory groups can be made."""
    group = memory_group(os.getpid())
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(96 << 20))
        (group / "tasks").write_text("0")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        os.kill(os.getpid(), signal.SIGKILL)
    kept = []
    for _ in range(64):
        kept.append(bytearray(os.urandom(1) * (8 << 20)))
    os.kill(os.getpid(), signal.SIGKILL)

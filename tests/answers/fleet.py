"""A fleet in which every question of an operator has a known answer: pools that run, hang, died and were deployed; jobs in every state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob import Admin, Job, WorkerPool
from dayjob.handlers.describe import Described
from dayjob.outcome import Reaped
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import job_types, maintain, membership, produce
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.history import StoredRecord
from records import write_records
from server import wait_until

#: The machine that died, and the version before the last.
ABOUT = b'{"host":"web-3","pid":4711,"tag":"v41","dayjob":"1","python":"3"}'
#: The last tick of the schedule, the day before.
DAY = 86_400


@dataclass
class Fleet:
    """What the tests ask about."""

    now: float
    #: The span with the attempts of the night.
    night: float
    morning: float
    pool_id: str
    #: The host of the pools of this process.
    host: str
    #: The job that waits because no pool has its type.
    waits: str


@contextlib.contextmanager
def built(
    admin: Admin, pool: WorkerPool, link: Link, keys: Keys, call: Callable[..., Any]
) -> Iterator[Fleet]:
    """The fleet, alive until the block ends."""
    now = float(call("TIME")[0])
    night = now - 3 * 3600
    gate = threading.Event()
    _died(link, keys, call)
    _history(link, keys, now, night)
    last = _stored(admin, call, keys, now)
    job = b'{"name":"scan","id":"tick-1","t":%d,"args":{}}' % now
    link.run(produce.tick(keys, "nightly", "scan", seen=last - DAY, newest=last, jobs=[(last, job)]))
    # A wait in C does not notice the exception that ends an attempt.
    pool.register("hang", lambda: gate.wait(300), timeout=0.1, max_fails=1)
    pool.register("limited", lambda: gate.wait(300), max_concurrency=1)
    pool.register("mail", lambda n=0: None)

    @pool.job
    def report(job: Job, month: str) -> None:
        job.checkin("page 3", done=3, total=12)
        gate.wait(300)

    @pool.job(max_fails=1)
    def charge(order: int) -> None:
        raise TimeoutError(f"no answer within {order} s")

    link.run(job_types.announce(keys, [Described("mail"), Described("scan")], pool_id="p1", tag="v41"))
    with pool:
        try:
            pool.enqueuer.enqueue("hang")
            wait_until(lambda: any(one.status and one.status.stuck == 1 for one in admin.pools().pools))
            pool.enqueuer.enqueue_many("charge", [{"order": 1}, {"order": 2}])
            wait_until(lambda: admin.verdict().sizes.dead == 3)
            report.enqueue(month="10")
            pool.enqueuer.enqueue_many("limited", [{}, {}])
            wait_until(lambda: len(admin.busy()) == 3)
            status = admin.pools().pools[0].status
            yield Fleet(
                now,
                night,
                night + 600,
                status.id,
                status.host,
                admin.jobs("waiting", name="media").jobs[0].id,
            )
        finally:
            gate.set()


def write_minute(call: Callable[..., Any], keys: Keys) -> None:
    """Figures of the last minute. Written before a console starts, which reads a minute that is over only once."""
    minute = int(call("TIME")[0]) // 60 - 1
    call(
        "HSET",
        keys.minute(minute),
        "scan|r40",
        5,
        "scan|o",
        5,
        "mail|r10",
        90,
        "mail|o",
        90,
        "|x12",
        1_000_000,
        "|q",
        minute * 60,
    )


def _died(link: Link, keys: Keys, call: Callable[..., Any]) -> None:
    """A pool on web-3, with a job that it held; the job went back to its queue and ran again."""
    assert link.run(membership.join(keys, "p1", ["mail"], lease=60.0, term=3.0, about=ABOUT)).registered
    call("HSET", keys.held("p1"), "1:mail", '{"name":"mail","id":"twice-1","t":1,"args":{}}')
    link.run(maintain.condemn(keys, lease=60.0, proven=["p1"], judge=False))
    link.run(maintain.sweep(keys, "p1", [Entry("mail", "1:mail", Reaped(), b"1", "twice-1")]))
    call("DEL", keys.queue("mail"))


def _history(link: Link, keys: Keys, now: float, night: float) -> None:
    def add(name: str, job_id: str, ended: float, ending: str = "completed", **more: Any) -> None:
        fields = {"waited": 250_000, "ran": 1_000_000, "age": 2000, "pool": "p1", "tag": "v41", **more}
        at = int(ended * 1000)
        write_records(link, keys, name, StoredRecord(job_id, ending, at, **fields), place=f"{at}-*")

    add("scan", "nightly-1", now - DAY / 2, schedule="nightly", source="globex", ran=4_000_000)
    add("mail", "night-1", night + 60, "retried", error="SMTPError", source="acme", ran=3_000_000, age=5000)
    add("mail", "night-1", night + 240, attempt=2, source="acme", age=185_000)
    add("scan", "slow-1", night + 540, source="acme", ran=95_000_000)
    add("mail", "twice-1", now - 50, "crashed", waited=-1, ran=-1)
    add("mail", "twice-1", now - 40, attempt=2)


def _stored(admin: Admin, call: Callable[..., Any], keys: Keys, now: float) -> int:
    """Jobs that wait, are scheduled, were deleted, and what cannot be read. Returns the last tick of a schedule."""
    for number, source in enumerate(("acme", "acme", "globex")):
        job = {
            "name": "media",
            "id": f"media-{number}",
            "t": int(now) - 600,
            "args": {"n": number},
            "source": source,
        }
        call("LPUSH", keys.queue("media"), msgspec.json.encode(job))
    call("SADD", keys.known_jobs, "media", "mail", "scan", "newsletter")
    ada = admin.acting("ada")
    ada.pause("scan")
    for number in range(3):
        admin.enqueue("spam", {"n": number}, check=False, delay=7200)
    ada.apply("delete", "scheduled", where="name=spam")
    admin.enqueue("newsletter", {"text": "x" * 5000}, check=False, delay=600)
    call(
        "RPUSH",
        keys.broken,
        msgspec.json.encode({"at": int(now * 1000), "where": "queue mail", "why": "it is not JSON"}) + b"\n{",
    )
    last = int(now // DAY) * DAY
    described = {"job": "scan", "spec": "0 0 * * *", "args": {}}
    call("HSET", keys.periodic, "nightly", last - DAY, "nightly|is", msgspec.json.encode(described))
    return last

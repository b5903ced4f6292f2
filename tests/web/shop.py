"""A small shop for the tests of pages: a real pool with jobs that hold, fail and succeed, and hostile bytes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dayjob import Admin, Job, WorkerPool
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from server import wait_until


class OutOfStock(Exception):
    pass


@dataclass
class Shop:
    """A pool at work."""

    pool: WorkerPool
    admin: Admin
    #: Lets the jobs that hold go on.
    gate: threading.Event

    def fail(self, number: int) -> None:
        """Put jobs in that fail at once and for good, and wait until they are dead."""
        self.pool.enqueuer.enqueue_many("order_goods", [{"item": n} for n in range(number)])
        wait_until(lambda: self.admin.verdict().sizes.dead >= number)


@contextlib.contextmanager
def shop(redis_url: str, namespace: str) -> Iterator[Shop]:
    """A pool with four kinds of jobs, started."""
    gate = threading.Event()
    pool = WorkerPool(namespace=namespace, redis=redis_url, concurrency=4, beat=0.2)

    @pool.job(max_fails=1)
    def order_goods(item: int) -> None:
        raise OutOfStock(f"item {item} is out of stock")

    @pool.job(max_fails=3, backoff=3600.0)
    def charge(order: int) -> None:
        raise ConnectionError(f"the bank did not answer for order {order}")

    @pool.job(timeout=600)
    def pack(job: Job, boxes: int) -> None:
        """Pack boxes until somebody lets it end."""
        while not gate.wait(0.02):
            if job.checkin("packing", done=boxes / 2, total=boxes):
                return

    @pool.job(keep=3600)
    def greet(name: str, times: int = 1, loud: bool = False, tone: Literal["warm", "cool"] = "warm") -> None:
        """Say hello to somebody."""

    pool.periodic("0 9 * * 1-5", greet, {"name": "Ada"}, timezone="Europe/Paris")
    pool.start()
    try:
        with Admin(namespace, redis=redis_url, actor="test") as admin:
            yield Shop(pool, admin, gate)
    finally:
        gate.set()
        pool.stop(timeout=5)
        pool.enqueuer.close()


#: What must be shown and never run. Job names of others may be anything.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "{{7*7}}${7*7}",
    "a/b%2Fc?d#e&f=g",
    "..",
    "ünïcødé 漢字 \u202egnp",
    "</title></textarea></pre><svg onload=alert(1)>",
    "javascript:alert(1)",
)


def poison(link: Link, keys: Keys) -> None:
    """Jobs with hostile names, ids, arguments, errors and sources in every state, and bytes that are no job."""
    for n, bad in enumerate(HOSTILE):
        link.run(plain("SADD", keys.known_jobs, bad))
        job = {
            "name": bad, "id": f"{n}{bad}", "t": 1_700_000_000, "args": {bad: bad, "n": n}, "source": bad, "fails": 2,
            "err": f"Boom: {bad}", "failed_at": 1_700_000_000, "unique": True, "unique_key": f"{keys.unique_prefix}{bad}",
            "trace": f'Traceback (most recent call last):\n  File "{bad}", line 1, in {bad}\n    {bad}\nBoom: {bad}\n',
        }  # fmt: skip
        link.run(plain("LPUSH", keys.queue(bad), json.dumps(job)))
        for place, score in ((keys.scheduled, 9e9), (keys.retry, 9e9), (keys.dead, 1.7e9), (keys.done, 9e9)):
            link.run(plain("ZADD", place, score + n, json.dumps({**job, "id": f"{place[-5:]}{n}{bad}"})))
        link.run(plain("LPUSH", keys.broken, f'{{"at":1700000000.0,"where":{json.dumps(bad)}}}\n{bad}'))

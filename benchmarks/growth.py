"""What one operation costs with so many jobs waiting, and what a waiting job takes in memory.

Fills the queues to a level, then enqueues and exchanges batch by batch so that the level stays. Costs are the server's
own: time inside scripts. Run: python growth.py WAITING
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import redis

from contract import NAMES, URL
from dayjob.job import new_id
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import Op
from dayjob.store.ops import consume, inspect, maintain, membership, produce
from dayjob.store.ops.consume import Request, Want
from dayjob.store.ops.produce import Slot

LEASE = 3600.0
BATCH = 500
#: Exchanges and enqueues of a whole batch that are timed, and rounds that are not.
ROUNDS = 60
WARM = 5


class Bare:
    """A pool and an enqueuer as the server sees them."""

    def __init__(self) -> None:
        self.keys, self.pool_id, self.slot = Keys("bench"), new_id(), new_id()
        self.link = Link(addresses.parse_url(URL), tag=self.keys.known_jobs, name="growth")
        self.client = redis.Redis.from_url(URL, decode_responses=True)
        self.link.run(membership.join(self.keys, self.pool_id, NAMES, lease=LEASE, term=0.001))
        self.number, self.token, self.sent, self.made = 0, 1, 0, 0
        self.done: dict[str, list[str]] = {}
        self.wants = [Want(name, 1, fetch=True) for name in NAMES]

    def payloads(self, name: str, count: int) -> list[bytes]:
        quoted = codec.quoted(name)
        first, self.made = self.made, self.made + count
        return [
            codec.write(quoted, new_id(), 1.7e9, msgspec.json.encode({"i": i}))
            for i in range(first, first + count)
        ]

    def enqueue(self, name: str, payloads: list[bytes]) -> Op[Any]:
        self.sent += 1
        return produce.enqueue(self.keys, Slot(self.slot, self.sent), name, payloads, introduce=False)

    def exchange(self, room: int) -> Op[Any]:
        self.number += 1
        request = Request(self.pool_id, self.number, self.token, self.wants, room=room, done=self.done)
        return consume.exchange(self.keys, request, lease=LEASE, u=0.5)

    def take(self, reply: Any) -> int:
        self.done = {}
        for batch in reply.batches:
            self.done.setdefault(batch.name, []).extend(batch.tokens)
        taken = sum(len(batch.tokens) for batch in reply.batches)
        self.token += taken
        return taken

    def timed(self, op: Op[Any]) -> tuple[float, Any]:
        """Run an op; microseconds that the server spent on it, by its own clock, and the reply."""
        before = self.script_micros()
        reply = self.link.run(op)
        return self.script_micros() - before, reply

    def script_micros(self) -> float:
        """Time inside scripts, by the server."""
        stats = self.client.info("commandstats")
        return sum(float(stats[key]["usec"]) for key in ("cmdstat_evalsha", "cmdstat_eval") if key in stats)


def fill(bare: Bare, waiting: int) -> tuple[float, int]:
    """Put so many jobs in; bytes of memory per job and mean size of a payload."""
    before = int(bare.client.info("memory")["used_memory"])
    size = 0
    for at in range(0, waiting, BATCH):
        payloads = bare.payloads(NAMES[at // BATCH % len(NAMES)], min(BATCH, waiting - at))
        size += sum(map(len, payloads))
        bare.link.run(bare.enqueue(NAMES[at // BATCH % len(NAMES)], payloads))
    after = int(bare.client.info("memory")["used_memory"])
    return (after - before) / waiting, round(size / waiting)


def main(waiting: int) -> dict[str, Any]:
    bare = Bare()
    memory, payload = fill(bare, waiting)
    times: dict[str, list[float]] = {}
    jobs = 0

    def step(label: str, op: Op[Any], count: bool) -> Any:
        spent, reply = bare.timed(op)
        if count:
            times.setdefault(label, []).append(spent)
        return reply

    for round_ in range(WARM + ROUNDS):
        # As many come in as go out, so that the level stays.
        name = NAMES[round_ % len(NAMES)]
        batch = min(BATCH, waiting)
        step("enqueue", bare.enqueue(name, bare.payloads(name, batch)), round_ >= WARM)
        got = bare.take(step("exchange", bare.exchange(batch), round_ >= WARM))
        jobs += got if round_ >= WARM else 0
    others: dict[str, Callable[[], Op[Any]]] = {
        "enqueue one": lambda: bare.enqueue(NAMES[0], bare.payloads(NAMES[0], 1)),
        "overview": lambda: inspect.queues(bare.keys, NAMES),
        "peek in the middle": lambda: inspect.peek(bare.keys, NAMES[0], offset=waiting // len(NAMES) // 2),
        "ring": lambda: maintain.ring(bare.keys, NAMES),
        "beat": lambda: membership.beat(bare.keys, bare.pool_id, lease=LEASE),
    }
    for label, make in others.items():
        for _ in range(20):
            times.setdefault(label, []).append(bare.timed(make())[0])
    worst = {label: round(max(spent) / 1000, 3) for label, spent in times.items()}
    middle = {label: round(statistics.median(spent) / 1000, 3) for label, spent in times.items()}
    # By medians: a batch during which the server was put aside says nothing of the operation.
    per_job = {
        label: statistics.median(times[label]) * len(times[label]) / jobs for label in ("enqueue", "exchange")
    }
    return {
        "waiting": waiting,
        "jobs": jobs,
        "enqueue_us": round(per_job["enqueue"], 3),
        "exchange_us": round(per_job["exchange"], 3),
        "job_us": round(sum(per_job.values()), 3),
        "bytes_per_job": round(memory, 1),
        "payload_bytes": payload,
        "memory_ratio": round(memory / payload, 4),
        "median_ms": middle,
        "worst_ms": worst,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))

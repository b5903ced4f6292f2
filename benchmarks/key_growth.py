"""What keys cost: memory of keys that wait and of keys that are idle, and the slowest scripts with so many of them.

Run: python key_growth.py WAITING SEEN. First SEEN keys get a job each, which is run. Then WAITING keys get two jobs each, of which
one starts, so that they wait for their limit; and two more jobs each under a name without limits, so that they wait for their turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import redis

from contract import URL
from dayjob.job import new_id
from dayjob.limits import KeyRule, Limit, Rate
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import Op
from dayjob.store.ops import consume, inspect, maintain, membership, partitions, produce, rates
from dayjob.store.ops.consume import KeyedName, Reply, Request, Want
from dayjob.store.ops.produce import Keyed, Slot
from dayjob.store.ops.rates import RateRule

LEASE = 3600.0
BATCH = 500
#: One job each hour for each key: what waits for it stays blocked.
HOURLY = Limit("hourly", Rate(1, per=3600))
#: The job names: fair turns; a limit of places for each key; a rate for each key.
FAIR, PLACES, RATED, PLAIN = "fair", "places", "rated", "plain"
RULES = {
    FAIR: RateRule(1, (), KeyRule(("key",), 0), frozenset()),
    PLACES: RateRule(1, (), KeyRule(("key",), 1), frozenset()),
    RATED: RateRule(1, ("hourly",), KeyRule(("key",), 0), frozenset({"hourly"})),
}


class KeyedBench:
    """A pool and an enqueuer as the server sees them, and the time that it spends in scripts."""

    def __init__(self) -> None:
        self.keys, self.pool_id = Keys("bench"), new_id()
        self.link = Link(addresses.parse_url(URL), tag=self.keys.known_jobs, name="key_growth")
        self.client = redis.Redis.from_url(URL, decode_responses=True)
        self.link.run(membership.join(self.keys, self.pool_id, [*RULES, PLAIN], lease=LEASE, term=0.001))
        self.link.run(rates.declare(self.keys, HOURLY))
        for name, rule in RULES.items():
            self.link.run(rates.change_rule(self.keys, name, rule))
        self.number, self.token, self.made = 0, 1, 0
        self.next: dict[str, list[str]] = {}
        self.worst: dict[str, float] = {}

    def memory(self) -> int:
        """Bytes in use, when the server has freed what was unlinked; it does so in a thread."""
        while self.client.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.01)
        return int(self.client.info("memory")["used_memory"])

    def timed(self, label: str, op: Op[Any]) -> Any:
        """Run an op, and note the most milliseconds of CPU time that the server needed for it."""
        before = self._cpu_seconds()
        reply = self.link.run(op)
        self.worst[label] = max(self.worst.get(label, 0.0), (self._cpu_seconds() - before) * 1000)
        return reply

    def _cpu_seconds(self) -> float:
        """CPU time of the thread that runs scripts: unlike a clock, it does not count pauses of the server."""
        stats = self.client.info("cpu")
        return float(stats["used_cpu_user_main_thread"]) + float(stats["used_cpu_sys_main_thread"])

    def fill(self, name: str, numbers: range, label: str) -> None:
        """Enqueue a job for each key. Some of the requests are timed."""
        quoted = codec.quoted(name)
        for first in range(numbers.start, numbers.stop, BATCH):
            some = range(first, min(first + BATCH, numbers.stop))
            payloads = [
                codec.write(quoted, new_id(), 1.7e9, msgspec.json.encode({"key": f"key{n}"})) for n in some
            ]
            keyed = None if name == PLAIN else Keyed(("key",), tuple(f"key{n}" for n in some))
            op = produce.enqueue(self.keys, Slot(new_id(), 1), name, payloads, introduce=False, keyed=keyed)
            if first % (20 * BATCH) == 0:
                self.timed(label, op)
            else:
                self.link.run(op)
        self.client.execute_command("UNLINK", *self.client.keys("bench:sent:*"))

    def exchange(self, name: str, done: Sequence[str] = ()) -> Op[Reply]:
        """The next exchange of one name, with as many keys as a request may pass."""
        self.number += 1
        heads, rule = self.next.get(name, []), RULES[name]
        limits = {
            limit: kind
            for one in rule.limits
            for limit, kind in ((one, "keyed"), *((f"{one}|{key}", "rate") for key in heads))
        }
        settled = sorted({consume.key_in(token) or "" for token in done}.difference(heads))
        request = Request(
            self.pool_id, self.number, self.token, [Want(name, 1, fetch=True)], room=BATCH, done={name: done} if done else {},
            rules={name: rule}, limits=limits, keyed={name: KeyedName(heads, settled)},
        )  # fmt: skip
        return consume.exchange(self.keys, request, lease=LEASE, u=0.5)

    def run(self, name: str, *, timed: int = 20) -> int:
        """Fetch and complete jobs until no key of the name has any that may start. Returns how many ran."""
        ran, done, quiet, count = 0, [], 0, 0
        while quiet < 2 or done:
            op, label = self.exchange(name, done), f"exchange, {name}"
            reply = self.timed(label, op) if count % timed == 0 else self.link.run(op)
            self.next |= reply.next_keys
            done = [token for batch in reply.batches for token in batch.tokens]
            self.token += len(done)
            ran += len(done)
            count += 1
            quiet = 0 if done or self.next.get(name) else quiet + 1
        return ran


def idle_keys(bench: KeyedBench, seen: int) -> dict[str, float]:
    """Bytes of memory for each key that was used and has no jobs now."""
    found = {}
    for name in (FAIR, PLACES):
        before = bench.memory()
        # In parts, so that not all wait at once.
        for first in range(0, seen // 2, 10_000):
            bench.fill(name, range(first, min(first + 10_000, seen // 2)), f"enqueue, {name}")
            bench.run(name, timed=100)
        found[name] = round((bench.memory() - before) / (seen // 2), 3)
    return found


def waiting_keys(bench: KeyedBench, waiting: int) -> dict[str, float]:
    """Bytes of memory for each waiting key, beside its jobs: what a job takes in a plain queue is taken off."""
    before = bench.memory()
    bench.fill(PLAIN, range(waiting), "enqueue, plain")
    job = (bench.memory() - before) / waiting
    found = {}
    before = bench.memory()
    bench.fill(FAIR, range(waiting), "enqueue, fair")
    found["waits for its turn"] = round((bench.memory() - before) / waiting - job, 1)
    before = bench.memory()
    for _ in range(2):
        bench.fill(RATED, range(waiting), "enqueue, rated")
    bench.run(RATED)
    found["waits for a rate"] = round((bench.memory() - before) / waiting - job, 1)
    return found


def others(bench: KeyedBench, waiting: int) -> None:
    """Time the other scripts that read or move keys."""
    keys, some = bench.keys, [f"key{n}" for n in range(partitions.KEYS_AT_ONCE)]
    names = [*RULES, PLAIN]
    makers: dict[str, Callable[[], Op[Any]]] = {
        "exchange, fair": lambda: bench.exchange(FAIR),
        "states of 500 keys": lambda: partitions.key_states(keys, FAIR, some),
        "sizes of 500 keys": lambda: partitions.partition_sizes(keys, FAIR, some),
        "heal 500 keys": lambda: partitions.heal_keys(keys, RATED, some, places=1),
        "weight of a key": lambda: partitions.set_key(keys, FAIR, "key7", partitions.KeyChange(3)),
        "overview": lambda: inspect.queues(keys, names),
        "ring": lambda: maintain.ring(keys, names),
        "state of the limit": lambda: rates.limit_states(keys, {"hourly": "rate"}, cost=1),
    }
    for label, make in makers.items():
        for _ in range(20):
            reply = bench.timed(label, make())
            if isinstance(reply, Reply):
                bench.token += sum(len(batch.tokens) for batch in reply.batches)
                bench.next |= reply.next_keys
    assert len(walk(bench.link, partitions.keys_of(keys, RATED))) == waiting


def main(waiting: int, seen: int) -> dict[str, Any]:
    bench = KeyedBench()
    # What the server does once, such as reading a script, is not the cost of a key.
    idle_keys(bench, 2000)
    waiting_keys(bench, 500)
    bench.client.flushall()
    bench = KeyedBench()
    idle = idle_keys(bench, seen)
    per_key = waiting_keys(bench, waiting)
    others(bench, waiting)
    worst = {label: round(most, 3) for label, most in bench.worst.items()}
    return {
        "waiting": waiting,
        "seen": seen,
        "idle_bytes": max(idle.values()),
        "turn_bytes": per_key["waits for its turn"],
        "rate_bytes": per_key["waits for a rate"],
        "worst_ms": worst,
        "slowest_ms": max(worst.values()),
        "slowest": max(worst, key=lambda label: worst[label]),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))

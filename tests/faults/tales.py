"""Good ledgers, made up: what the processes of a system that keeps every promise would have written.

Their order, times and number of jobs come from a random generator; every kind of event and every fate of a job is in each.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec

from dayjob.limits import Rate
from faults.ledger import BatchSeen, Census, Event, Item, NodePlan
from faults.story import Rules

RULES = Rules(
    limits={"narrow": 2}, max_fails={"note": 4}, ticks={"tick": 1}, resume=5.0, key_limits={"tenant_work": 1},
    rates={"api": (Rate(1, per=1, burst=1), {"metered": 1.0}), "tenant-api": (Rate(1, per=1, burst=1), {"tenant_call": 1.0})},
    rates_by_key=frozenset({"tenant-api"}),
)  # fmt: skip

#: Process ids: one producer, one harness, two workers that live to the end; every other one comes and goes.
PRODUCER, HARNESS, FIRST, SECOND = 1, 2, 11, 12


class Teller:
    """Writes the ledgers of several processes at once, and the census that goes with them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.events: list[Event] = []
        self.now = 100.0
        self.totals: Counter[str] = Counter()
        self.dead: list[Item] = []
        self.broken: list[str] = []
        self.batches: dict[str, BatchSeen] = {}
        self.workflows: dict[str, str] = {}
        self.jobs = 0
        self.tokens: Counter[str] = Counter()
        self.next_pid = 20

    def say(self, pid: int, kind: str, at: float, **facts: Any) -> Event:
        event = Event(kind, at, pid, 0, **facts)
        self.events.append(event)
        return event

    def process(self) -> int:
        """A new process, with a pool that has started."""
        self.next_pid += 1
        self.say(self.next_pid, "up", self.now - 0.5, how=f"group{self.next_pid}")
        return self.next_pid

    def pool(self, pid: int) -> str:
        return f"pool{pid}"

    def enqueue(self, name: str, plan: str = "ok", answer: str = "stored", **facts: Any) -> dict[str, Any]:
        """A call and its answer; what its runs have in common."""
        self.jobs += 1
        serial = f"1/{self.jobs}"
        digest, job = f"digest{self.jobs}", f"job{self.jobs}"
        self.step()
        self.say(
            PRODUCER,
            "asked",
            self.now,
            serial=serial,
            name=name,
            plan=plan,
            digest=digest,
            unique=facts.get("unique", ""),
            group=facts.get("group", ""),
        )
        self.step()
        if answer == "stored":
            self.say(PRODUCER, "stored", self.now, serial=serial, job=job, due=facts.get("due", 0.0))
        else:
            self.say(PRODUCER, answer, self.now, serial=serial)
        return {"serial": serial, "name": name, "job": job, "digest": digest}

    def pend(self, pid: int, name: str, plan: str = "ok", **facts: Any) -> dict[str, Any]:
        """A job that will exist if something else happens; what its runs would have in common."""
        self.jobs += 1
        serial, digest = facts.pop("serial", f"1/{self.jobs}"), f"digest{self.jobs}"
        self.step()
        self.say(pid, "pending", self.now, serial=serial, name=name, plan=plan, digest=digest, **facts)
        return {"serial": serial, "name": name, "job": f"job{self.jobs}", "digest": digest}

    def group(self, group: str, **facts: Any) -> None:
        self.step()
        self.say(PRODUCER, "group", self.now, job=group, **facts)

    def grouped(self, group: str, how: str = "stored") -> None:
        self.step()
        self.say(PRODUCER, "grouped", self.now, job=group, how=how)

    def step(self, seconds: float = 0.01) -> None:
        self.now += seconds * self.rng.uniform(1.0, 2.0)

    def start(self, pid: int, job: dict[str, Any], **counts: Any) -> dict[str, Any]:
        """A run begins; what its end has in common with it."""
        self.step()
        pool = self.pool(pid)
        self.tokens[pool] += 1
        key = counts.pop("key", "")
        token = f"{self.tokens[pool]}:{job['name']}" + (f"|{key}" if key else "")
        self.say(pid, "start", self.now, **job, pool=pool, token=token, **counts)
        return {"serial": job["serial"], "name": job["name"], "job": job["job"], "pool": pool, "token": token}

    def end(self, pid: int, run: dict[str, Any], how: str = "ok", seconds: float = 0.0) -> None:
        self.step()
        self.say(pid, "end", self.now, **run, how=how, seconds=seconds)

    def run(self, pid: int, job: dict[str, Any], end: str = "ok", seconds: float = 0.0, **counts: Any) -> str:
        """A whole run; the answer names the attempt."""
        run = self.start(pid, job, **counts)
        self.end(pid, run, end, seconds)
        return f"{run['pool']}/{run['token']}"

    def count(self, *labels: str) -> None:
        self.totals.update(labels)


def _ok(tell: Teller) -> None:
    tell.run(tell.rng.choice((FIRST, SECOND)), tell.enqueue("note"))
    tell.count("done:note")


def _fails(tell: Teller) -> None:
    job, count = tell.enqueue("note", "fail 2"), 0
    after = ""
    for count in range(2):
        after = tell.run(FIRST, job, "fail", 0.3, fails=count, after=after)
        tell.now += 0.35
        tell.count("failed:note")
    tell.run(SECOND, job, fails=2, after=after)
    tell.count("done:note")


def _fails_for_good(tell: Teller) -> None:
    job = tell.enqueue("note", "fail 4")
    after = ""
    for count in range(4):
        after = tell.run(SECOND, job, "fail", 0.3, fails=count, after=after)
        tell.now += 0.35
        tell.count("failed:note")
    tell.dead.append(Item(job["serial"], job["job"], "note", fails=4))
    tell.count("dead:note")


def _snoozes(tell: Teller) -> None:
    job = tell.enqueue("note", "snooze 1")
    after = tell.run(FIRST, job, "snooze", 0.2)
    tell.now += 0.25
    tell.run(SECOND, job, snoozes=1, after=after)
    tell.count("done:note")


def _discards(tell: Teller) -> None:
    tell.run(FIRST, tell.enqueue("note", "discard"), "discard")
    tell.count("discarded:note")


def _dies_at_will(tell: Teller) -> None:
    job = tell.enqueue("note", "dead")
    tell.run(SECOND, job, "dead")
    tell.dead.append(Item(job["serial"], job["job"], "note", fails=1))
    tell.count("dead:note", "failed:note")


def _is_killed(tell: Teller) -> None:
    pid = tell.process()
    job = tell.enqueue("note")
    run = tell.start(pid, job)
    tell.step()
    tell.say(HARNESS, "fault", tell.now, how="kill -9 of a child", target=pid)
    tell.say(HARNESS, "gone", tell.now + 0.001, target=pid)
    tell.run(FIRST, job, deaths=1, after=f"{run['pool']}/{run['token']}")
    tell.count("done:note")


def _sleeps(tell: Teller) -> None:
    """Suspended for longer than its lease; its late outcome changes nothing."""
    pid = tell.process()
    job = tell.enqueue("note")
    run = tell.start(pid, job)
    tell.step()
    tell.say(HARNESS, "fault", tell.now, how="SIGSTOP for longer than the lease", target=pid)
    tell.now += 3
    tell.run(SECOND, job, deaths=1, after=f"{run['pool']}/{run['token']}")
    tell.end(pid, run)
    tell.say(pid, "reaped", tell.now + 0.001, pool=run["pool"])
    tell.count("done:note", "late:note")
    tell.now += 0.01


def _is_given_back(tell: Teller) -> None:
    pid = tell.process()
    job = tell.enqueue("note")
    run = tell.start(pid, job)
    tell.step()
    tell.say(HARNESS, "stop", tell.now, target=pid, seconds=1.0)
    tell.now += 1.0
    tell.end(pid, run, "abandoned")
    tell.say(pid, "down", tell.now + 0.02)
    tell.now += 0.1
    tell.say(HARNESS, "stopped", tell.now, target=pid, seconds=1.1)
    tell.run(FIRST, job)
    tell.count("done:note", "given_back:note")


def _is_poison(tell: Teller) -> None:
    job = tell.enqueue("note", "poison 3")
    after = ""
    for deaths in range(3):
        pid = tell.process()
        run = tell.start(pid, job, deaths=deaths, after=after)
        after = f"{run['pool']}/{run['token']}"
        tell.step()
        tell.say(HARNESS, "gone", tell.now, target=pid)
    tell.dead.append(Item(job["serial"], job["job"], "note", deaths=3))
    tell.count("dead:note")


def _overruns(tell: Teller) -> None:
    pid = tell.process()
    job, neighbour = tell.enqueue("note", "overrun 1"), tell.enqueue("note")
    run = tell.start(pid, job)
    beside = tell.start(pid, neighbour)
    tell.now += 1
    tell.say(HARNESS, "gone", tell.now, target=pid)
    tell.run(FIRST, job, fails=1, after=f"{run['pool']}/{run['token']}")
    assert beside
    tell.run(SECOND, neighbour)
    tell.count("done:note", "failed:note", "done:note")


def _is_unique(tell: Teller) -> None:
    key = f"key{tell.jobs}"
    first = tell.enqueue("once", unique=key)
    tell.enqueue("once", answer="duplicate", unique=key)
    # For long enough that a second one could not have slipped in.
    tell.now += 15
    tell.run(FIRST, first, unique=key)
    tell.run(SECOND, tell.enqueue("once", unique=key), unique=key)
    tell.count("done:once", "done:once")


def _is_limited(tell: Teller) -> None:
    jobs = [tell.enqueue("narrow") for _ in range(4)]
    for one, other in (jobs[:2], jobs[2:]):
        a, b = tell.start(FIRST, one), tell.start(SECOND, other)
        tell.now += 0.1
        tell.end(FIRST, a)
        tell.end(SECOND, b)
        tell.count("done:narrow", "done:narrow")


def _is_rated(tell: Teller) -> None:
    for _ in range(3):
        # Most of its cost was taken back.
        run = tell.start(FIRST, tell.enqueue("metered"), fetched=1_000_000 + tell.now)
        tell.step()
        tell.say(FIRST, "end", tell.now, **run, how="ok", units=0.02)
        tell.count("done:metered")


def _is_limited_by_key(tell: Teller) -> None:
    runs = [
        (pid, tell.start(pid, tell.enqueue("tenant_work"), key=key))
        for pid, key in ((FIRST, "a"), (SECOND, "b"))
    ]
    for pid, run in runs:
        tell.end(pid, run)
        tell.count("done:tenant_work")
    at = 1_000_000 + tell.now
    for key in ("a", "b"):
        tell.run(FIRST, tell.enqueue("tenant_call"), key=key, fetched=at)
        tell.count("done:tenant_call")
    tell.now += 2


def _is_atomic(tell: Teller) -> None:
    parent = tell.enqueue("parent", "fail 1")
    after = ""
    for fails, how in enumerate(("fail", "ok")):
        run = tell.start(FIRST, parent, fails=fails, after=after)
        place = {one: run[one] for one in ("pool", "token")}
        children = [tell.pend(FIRST, "note", parent=parent["serial"], **place) for _ in range(2)]
        tell.end(FIRST, run, how, 0.3 if how == "fail" else 0.0)
        after = f"{run['pool']}/{run['token']}"
        tell.now += 0.35
    for child in children:
        tell.run(SECOND, child)
        tell.count("done:note")
    tell.count("done:parent", "failed:parent")


def _is_a_batch(tell: Teller) -> None:
    """One member completes, one is dead, is retried and completes; the batch inside has a dead member."""
    batch, inside = f"batch{tell.jobs}", f"inside{tell.jobs}"
    callbacks = {}
    for one, above in ((batch, ""), (inside, batch)):
        tell.group(one, how="success complete dead", above=above)
        for event in ("success", "complete", "dead"):
            callbacks[one, event] = tell.pend(PRODUCER, "called", group=one, serial=f"{one}-{event}")
    good, mortal, dead = (
        tell.enqueue("note", plan, group=one)
        for plan, one in (("ok", batch), ("mortal", batch), ("dead", inside))
    )
    tell.grouped(inside)
    tell.grouped(batch)
    tell.run(FIRST, good)
    tell.run(SECOND, dead, "dead")
    tell.dead.append(Item(dead["serial"], dead["job"], "note", fails=1, groups=[inside, batch]))
    tell.run(SECOND, mortal, "dead")
    for one, event in ((inside, "dead"), (inside, "complete"), (batch, "dead"), (batch, "complete")):
        tell.run(FIRST, callbacks[one, event])
        tell.count("done:called")
    tell.step()
    tell.say(HARNESS, "revived", tell.now, serial=mortal["serial"], fails=1)
    tell.run(SECOND, mortal)
    tell.count("done:note", "dead:note", "failed:note", "dead:note", "failed:note", "done:note")
    tell.batches[inside] = BatchSeen(1, 1, 1, closed=True, sent=["dead", "complete"])
    tell.batches[batch] = BatchSeen(3, 3, 1, closed=True, sent=["dead", "complete"])


def _is_a_batch_that_succeeds(tell: Teller) -> None:
    batch = f"batch{tell.jobs}"
    tell.group(batch, how="success complete dead")
    callbacks = [
        tell.pend(PRODUCER, "called", group=batch, serial=f"{batch}-{event}")
        for event in ("success", "complete", "dead")
    ]
    members = [tell.enqueue("note", plan, group=batch) for plan in ("ok", "discard")]
    tell.grouped(batch)
    for member, how in zip(members, ("ok", "discard"), strict=True):
        tell.run(FIRST, member, how)
    for callback in callbacks[:2]:
        tell.run(SECOND, callback)
    tell.count("done:note", "discarded:note", "done:called", "done:called")
    tell.batches[batch] = BatchSeen(2, 2, closed=True, sent=["success", "complete"])


def _is_a_workflow(tell: Teller) -> None:
    """One of two parts is dead and does not matter, the other adds a node. What waits for a failure runs, the last node waits."""
    flow = f"w{tell.jobs}"
    plans = (
        ("ok", [], []),
        ("ok", [0], []),
        ("dead", [0], []),
        ("ok", [1, 2], []),
        ("ok", [], [1, 2]),
        ("dead", [3], []),
        ("ok", [5], []),
    )
    jobs = [tell.pend(PRODUCER, "note", plan, group=flow) for plan, _, _ in plans]
    policies = ["continue" if n == 2 else "stop" for n in range(len(plans))]
    graph = [
        NodePlan(job["serial"], needs, watches, policy)
        for job, (_, needs, watches), policy in zip(jobs, plans, policies, strict=True)
    ]  # fmt: skip
    tell.group(flow, graph=graph)
    tell.grouped(flow)
    root, first, second, join, watcher, last, _ = jobs
    tell.run(FIRST, root)
    run = tell.start(SECOND, first, how=f'["{root["serial"]}"]')
    place = {one: run[one] for one in ("pool", "token")}
    added = tell.pend(SECOND, "note", group=flow, parent=first["serial"], **place)
    tell.end(SECOND, run)
    tell.run(FIRST, second, "dead", how=f'["{root["serial"]}"]')
    tell.run(FIRST, join, how=f'["{first["serial"]}",null]')
    tell.run(FIRST, watcher)
    tell.run(SECOND, added)
    tell.run(SECOND, last, "dead", how=f'["{join["serial"]}"]')
    for job in (second, last):
        tell.dead.append(Item(job["serial"], job["job"], "note", fails=1, groups=[flow]))
        tell.count("dead:note", "failed:note")
    tell.totals["done:note"] += 5
    tell.workflows[flow] = "ccnccdwc"


def _is_scheduled(tell: Teller) -> None:
    job = tell.enqueue("note", due=tell.now + 1_000_001.0)
    tell.now += 1.1
    tell.run(FIRST, job)
    tell.count("done:note")


def _is_refused(tell: Teller) -> None:
    tell.enqueue("note", answer="refused")


def _is_unknown(tell: Teller) -> None:
    tell.run(FIRST, tell.enqueue("note", answer="unknown"))
    tell.count("done:note")


def _is_no_job(tell: Teller) -> None:
    entry = f"ff{len(tell.broken):02x}"
    tell.step()
    tell.say(HARNESS, "injected", tell.now, how=entry)
    tell.broken.append(entry)


def _outage(tell: Teller) -> None:
    # Long after anything else went wrong.
    tell.now += 12
    tell.say(HARNESS, "fault", tell.now, how="server: restart")
    tell.now += 2
    tell.say(HARNESS, "healed", tell.now, how="server: restart")
    _ok(tell)


PARTS = (
    _ok, _fails, _fails_for_good, _snoozes, _discards, _dies_at_will, _is_killed, _sleeps, _is_given_back, _is_poison, _overruns,
    _is_unique, _is_limited, _is_rated, _is_limited_by_key, _is_atomic, _is_a_batch, _is_a_batch_that_succeeds, _is_a_workflow, _is_scheduled, _is_refused, _is_unknown, _is_no_job, _outage,
)  # fmt: skip


def good(seed: int = 0, *, extra: int = 4) -> list[Event]:
    """A ledger without fault: every part at least once, in some order, and a few more."""
    rng = random.Random(seed)
    tell = Teller(rng)
    tell.say(HARNESS, "clock", 90.0, seconds=1_000_090.0)
    for pid in (FIRST, SECOND):
        tell.say(pid, "up", 95.0, how="near")
    tell.say(HARNESS, "census", 96.0, census=Census(pools=["pool11", "pool12"], periodic={"tick": 1_000_096}))
    parts = [*PARTS, *rng.choices(PARTS, k=extra)]
    rng.shuffle(parts)
    for part in parts:
        part(tell)
        tell.step()
    last_tick = 1_000_000 + int(tell.now)
    for moment in range(last_tick - 2, last_tick + 1):
        tell.run(FIRST, {"serial": f"tick/{moment}", "name": "tick", "job": f"tick{moment}", "digest": ""})
        tell.count("done:tick", "ticked:tick")
    tell.totals["missed:tick"] = last_tick - 1_000_096 - 3
    tell.now += 1
    last = Census(
        places={"queue": [], "held": [], "retry": [], "scheduled": [], "dead": tell.dead}, totals=dict(tell.totals),
        pools=["pool11", "pool12"], limits={"narrow": 2}, periodic={"tick": last_tick}, broken=tell.broken, rest=True,
        batches=tell.batches, workflows=tell.workflows,
    )  # fmt: skip
    tell.say(HARNESS, "census", tell.now, census=last)
    return number(tell.events)


def number(events: list[Event]) -> list[Event]:
    """Copies in the order of time, numbered as each process would have."""
    counts: Counter[int] = Counter()
    found: list[Event] = []
    for event in sorted(events, key=lambda one: one.at):
        counts[event.pid] += 1
        found.append(msgspec.structs.replace(event, seq=counts[event.pid]))
    return found

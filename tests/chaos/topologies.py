"""Failovers by a sentinel and a slot that moves through a cluster, with supervised workers and a ledger.

A failover may lose what the old master acknowledged and its replica had not: a job counts as stored here once the replica
has it. What Redis forgot besides may run again; nothing else may.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from redis.crc import key_slot

from chaos import look
from chaos.jobs import RULES, digest
from chaos.world import Workers
from dayjob import Enqueuer
from dayjob.errors import StoreError, Unknown
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from faults.checker import check, repeats
from faults.ledger import Ledger, read
from faults.story import Story
from integration.test_topologies import Cluster, Sentinels, role, tell
from server import wait_until

logger = logging.getLogger("chaos")

#: Seconds before a failover from which on an exchange may have been lost with the old master.
LATELY = 10.0
#: Seconds within which work must go on.
RESUME = 5.0


@dataclass
class Outcome:
    """What a scenario came to."""

    scenario: str
    seed: int
    jobs: int = 0
    confirmed: int = 0
    starts: int = 0
    #: How often it happened, and the longest time until a job ran that was enqueued after it.
    faults: dict[str, int] = field(default_factory=dict)
    resumed: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    unexplained: int = 0
    repeats: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Field:
    """What workers of these scenarios need of a world: a folder, a ledger, a namespace."""

    def __init__(self, folder: Path, namespace: str, url: str) -> None:
        self.folder, self.namespace, self.url = folder, namespace, url
        self.ledgers = folder / "ledger"
        self.ledgers.mkdir(parents=True)
        self.ledger = Ledger(self.ledgers, "harness")
        self.keys = Keys(namespace)
        self.enqueuer = Enqueuer(namespace, redis=url, timeout=1.0)
        self.count = 0
        self.workers = [
            Workers(self, "near", url, processes=1),  # type: ignore[arg-type]  # all that it needs of a world
            Workers(self, "embedded", url, processes=0),  # type: ignore[arg-type]
        ]

    def start(self) -> None:
        self.ledger.write("clock")
        for group in self.workers:
            group.start()

    def enqueue(self, *, until: float = float("inf")) -> str | None:
        """Enqueue one job, insisting; its serial, or None when that did not work in time."""
        self.count += 1
        serial = f"h/{self.count}"
        name = ("note", "anote")[self.count % 2]
        seconds = (0.0, 0.0, 0.02, 0.2)[self.count % 4]
        self.ledger.write("asked", serial=serial, name=name, plan="ok", digest=digest(None))
        args = {"serial": serial, "plan": "ok", "seconds": seconds}
        send: Callable[[], Any] = partial(self.enqueuer.enqueue, name, **args)
        while time.monotonic() < until:
            try:
                job = send()
            except Unknown as error:
                send = error.repeat
                time.sleep(0.05)
            except StoreError:
                time.sleep(0.05)
            else:
                self.ledger.write("stored", serial=serial, job=job.id)
                return serial
        self.ledger.write("unknown", serial=serial)
        return None

    def ended(self, serial: str) -> bool:
        """Whether a job has ended well."""
        needle = f'"serial":"{serial}"'.encode()
        for path in self.ledgers.glob("*.jsonl"):
            for line in path.read_bytes().splitlines():
                if needle in line and b'"kind":"end"' in line and b'"how":"ok"' in line:
                    return True
        return False

    def resume(self, outcome: Outcome, how: str, began: float, promised: float = RESUME) -> None:
        """Measure until a job that is enqueued now has run, and compare with the seconds that are promised."""
        serial = self.enqueue()
        assert serial is not None
        wait_until(lambda: self.ended(serial), step=0.02)
        took = time.monotonic() - began
        outcome.resumed[how] = round(max(took, outcome.resumed.get(how, 0.0)), 3)
        if took > promised:
            outcome.violations.append(f"{how}: {took:.2f} s until work went on")

    def close(self) -> None:
        for group in self.workers:
            group.close()
        self.enqueuer.close()
        self.ledger.close()


@contextlib.contextmanager
def _load(field_: Field) -> Iterator[None]:
    """Jobs are enqueued all the time, by a thread of its own."""
    over = threading.Event()
    rng = random.Random(1)

    def work() -> None:
        other = Field.__new__(Field)
        other.__dict__.update(field_.__dict__)
        other.ledger = Ledger(field_.ledgers, "producer")
        other.count = 1_000_000
        while not over.wait(rng.expovariate(30.0)):
            other.enqueue()
        other.ledger.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def failovers(
    folder: Path, seed: int, count: int, *, resume: float = RESUME, down_after: float = 0.4
) -> Outcome:
    """Have the replica take over again and again: asked, or because the master was killed.

    A master that is silent for `down_after` seconds is replaced as well, at a moment that the judgement does not know.
    """
    outcome = Outcome("sentinel", seed)
    rng = random.Random(seed)
    sentinels = Sentinels(folder)
    sentinels.start()
    # Far more often than anybody's would.
    tell(sentinels.port, "SENTINEL", "SET", "shop", "failover-timeout", "1000")
    tell(sentinels.port, "SENTINEL", "SET", "shop", "down-after-milliseconds", str(int(down_after * 1000)))
    field_ = Field(folder, "chaos", sentinels.url)
    confirmed: set[str] = set()
    #: When each failover began, and when its old master had become a replica, or was dead.
    spans: list[tuple[float, float]] = []
    try:
        field_.start()
        master, replica = sentinels.master, sentinels.replica
        field_.resume(outcome, "start", time.monotonic())
        outcome.resumed.clear()
        outcome.violations.clear()
        for number in range(count):
            how = rng.choice(("failover, asked for", "failover, master killed"))
            logger.info("%s %d", how, number)
            for _ in range(rng.randrange(5, 30)):
                serial = field_.enqueue()
                if serial is not None and _replicated(master.port, replica.port):
                    confirmed.add(serial)
            asked = time.monotonic()
            if how.endswith("asked for"):
                wait_until(sentinels.failover, step=0.1)
            else:
                master.kill()
            wait_until(lambda replica=replica: role(replica) == b"master", step=0.02)
            began = time.monotonic()
            if how.endswith("asked for"):
                wait_until(lambda master=master: role(master) == b"slave", step=0.02)
                began = time.monotonic()
            spans.append((asked, began))
            field_.resume(outcome, how, began, resume)
            outcome.faults[how] = outcome.faults.get(how, 0) + 1
            if how.endswith("killed"):
                master.start()
            master, replica = replica, master
            wait_until(lambda master=master, replica=replica: _follows(replica.port, master.port), step=0.05)
            wait_until(lambda master=master: sentinels.current() == master.port, step=0.05)
        wait_until(lambda: all(field_.ended(serial) for serial in sorted(confirmed)[-20:]), step=0.2)
        _quiet(field_)
    finally:
        field_.close()
        sentinels.stop()
    _judge_failovers(field_, outcome, confirmed, spans)
    return outcome


def _follows(replica: int, master: int) -> bool:
    """Whether the replica is connected to that master, by its own word, and has all of it."""
    with contextlib.suppress(StoreError):
        info = tell(replica, "INFO", "replication")
        return (
            b"role:slave" in info
            and b"master_link_status:up" in info
            and f"master_port:{master}".encode() in info
        )
    return False


def _replicated(master: int, replica: int) -> bool:
    """Whether all that the master has written by now has reached the replica, within a moment."""
    try:
        wanted = _offset(tell(master, "INFO", "replication"), b"master_repl_offset:")
        wait_until(
            lambda: _offset(tell(replica, "INFO", "replication"), b"slave_repl_offset:") >= wanted,
            step=0.002,
        )
    except (StoreError, AssertionError):
        return False
    return True


def _offset(info: bytes, label: bytes) -> int:
    return int(info.partition(label)[2].split(b"\r\n")[0] or -1)


def _quiet(field_: Field) -> None:
    """Wait until no queue and no pool holds anything."""
    link = Link(addresses.parse_url(field_.url), tag=field_.keys.known_jobs)

    def quiet() -> bool:
        try:
            found = look.take(link, field_.keys)
            return look.is_at_rest(found, time.time()) or not any(
                item.name != "tick"
                for place in ("queue", "held", "retry")
                for item in found.places.get(place, [])
            )
        except StoreError:
            return False

    try:
        wait_until(quiet, step=0.1)
    finally:
        link.close()


def _judge_failovers(
    field_: Field, outcome: Outcome, confirmed: set[str], spans: Sequence[tuple[float, float]]
) -> None:
    story = Story(read(field_.ledgers), RULES)
    lives = [life for life in story.lives.values() if life.name in ("note", "anote")]
    outcome.jobs, outcome.confirmed = len(lives), len(confirmed)
    outcome.starts = sum(len(life.attempts) for life in lives)
    for serial in sorted(confirmed):
        if not any(one.how == "ok" for one in story.lives[serial].attempts):
            outcome.lost += 1
            outcome.violations.append(f"{serial}: was on the replica, and is lost")
    for life, before, after, cause in repeats(story):
        if life.name == "tick":
            continue
        known = cause or ("failover" if forgotten(before.start.at, after.start.at, spans) else "")
        outcome.repeats[known or "none"] = outcome.repeats.get(known or "none", 0) + 1
        outcome.doubled += 1
        if not known:
            outcome.unexplained += 1
            outcome.violations.append(f"{life.serial}: ran again, and no failover was near")


def forgotten(first: float, second: float, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether a failover between two starts could make Redis forget the end of the first. On a busy machine it takes long."""
    return any(
        first - 1.0 <= end and second + 1.0 >= began and first >= began - LATELY for began, end in spans
    )


def reshards(folder: Path, seed: int, count: int, *, resume: float = RESUME) -> Outcome:
    """Move the slot of a namespace from node to node, under load. Nothing may be lost or run twice."""
    outcome = Outcome("cluster", seed)
    rng = random.Random(seed)
    cluster = Cluster(folder)
    cluster.start()
    field_ = Field(folder, "{chaos}", cluster.url)
    slot = key_slot(field_.keys.known_jobs.encode())
    try:
        field_.start()
        field_.resume(outcome, "start", time.monotonic())
        outcome.resumed.clear()
        outcome.violations.clear()
        with _load(field_):
            owner = cluster.owner(slot)
            for number in range(count):
                target = rng.choice([node for node in cluster.nodes if node is not owner])
                logger.info("reshard %d", number)
                cluster.move(slot, owner, target)
                wait_until(lambda target=target: cluster.owner(slot) is target, step=0.02)
                field_.resume(outcome, "reshard", time.monotonic(), resume)
                outcome.faults["reshard"] = number + 1
                owner = target
                time.sleep(rng.uniform(0, 0.5))
        _settle(field_, outcome)
    finally:
        field_.close()
        cluster.stop()
    return outcome


def _settle(field_: Field, outcome: Outcome) -> None:
    """Take a census at rest and have the checker judge everything."""
    from dayjob import Admin

    admin = Admin(field_.namespace, redis=field_.url)
    admin.pause_schedule("tick")
    link = Link(addresses.parse_url(field_.url), tag=field_.keys.known_jobs)

    def rest() -> bool:
        found = look.take(link, field_.keys)
        if not look.is_at_rest(found, time.time()):
            return False
        found.rest = True
        # The first census of a run says where the ticks began; here it is not known.
        found.periodic = {}
        field_.ledger.write("census", census=found)
        return True

    try:
        wait_until(rest, step=0.05)
    finally:
        link.close()
        admin.close()
    report = check(read(field_.ledgers), RULES)
    outcome.jobs, outcome.confirmed, outcome.starts = report.jobs, report.jobs, report.starts
    outcome.lost, outcome.doubled, outcome.unexplained = report.lost, report.doubled, report.unexplained
    outcome.repeats = dict(report.repeats)
    outcome.violations += report.violations

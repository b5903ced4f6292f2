"""The run itself: rounds of faults, two at a time, each followed by a rest with a census; and the verdict."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos import children, faults, tally
from chaos.faults import Kind
from chaos.jobs import CANARY, LEASE, RULES
from chaos.world import DEADLINE, Workers, World, rng_for
from dayjob.errors import StoreError
from faults.checker import (
    check,
    each_repeat_has_a_cause,
    heard_at,
    limits,
    no_double_enqueue,
    no_loss,
    one_end,
    rate_limits,
)
from faults.groups import atomic, batches, workflows
from faults.ledger import Event, read
from faults.story import Rules, Story

logger = logging.getLogger("chaos")

#: Seconds of faults between two rests.
ROUND = 20.0
#: Seconds of work on a server that came back empty.
EMPTY = 8.0
#: Seconds within which everything must have ended once nothing is enqueued any more.
REST = 240.0
#: Faults that are under way at the same time.
AT_ONCE = 2


@dataclass
class Result:
    """What a run came to; kept as JSON."""

    scenario: str
    seed: int
    seconds: float = 0.0
    jobs: int = 0
    bulk: int = 0
    #: Batches, workflows and the children of atomic jobs that were stored; those that never ended; dead jobs retried.
    batches: int = 0
    workflows: int = 0
    children: int = 0
    stuck: int = 0
    #: Callbacks and nodes that ran, and broken promises of batches, workflows and atomic jobs: something is stuck, doubled,
    #: missing or too early (I21 to I23).
    callbacks: int = 0
    nodes: int = 0
    broken_groups: int = 0
    #: Starts of names with limits, those of them that a key limits, and broken promises about them (I12 and I20).
    limited: int = 0
    keyed: int = 0
    over_limit: int = 0
    retried: int = 0
    starts: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    rests: int = 0
    censuses: int = 0
    lost: int = 0
    doubled: int = 0
    unexplained: int = 0
    repeats: dict[str, int] = field(default_factory=dict)
    late: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    #: Worst seconds until work went on, by fault.
    resumed: dict[str, float] = field(default_factory=dict)
    #: Seconds from the fault to the next start of what it had interrupted, by fault: how many, median, worst.
    rescued: dict[str, list[float]] = field(default_factory=dict)
    #: Seconds that stops took beyond their deadline: how many, worst.
    stops: int = 0
    worst_stop: float | None = None
    worst_rest: float = 0.0
    violations: list[str] = field(default_factory=list)


class Injector(threading.Thread):
    """One of those that do harm, one fault after another."""

    def __init__(self, world: World, number: int, kinds: list[Kind], counts: Counter[str]) -> None:
        super().__init__(name=f"injector{number}", daemon=True)
        self._world = world
        self._rng = rng_for(world.seed, f"injector{number}")
        self._kinds = kinds
        self._counts = counts
        self._working = threading.Event()
        self._idle = threading.Event()
        self.problems: list[str] = []
        self.ended = False

    def go(self) -> None:
        self._idle.clear()
        self._working.set()

    def halt(self) -> None:
        """Stop once the fault that is under way is healed."""
        self._working.clear()
        self._idle.wait(120)

    def run(self) -> None:
        while not self.ended:
            if not self._working.is_set():
                self._idle.set()
                self._working.wait(0.1)
                continue
            kind = self._rng.choices(self._kinds, [one.weight for one in self._kinds])[0]
            seed = self._rng.random()
            try:
                self._strike(kind, random.Random(seed))
            except Exception:  # a harness that fails must not look like a product that holds
                self.problems.append(f"{kind.name}: {traceback.format_exc()}")
                logger.exception("%s", kind.name)
            time.sleep(self._rng.uniform(0.0, 0.4))

    def _strike(self, kind: Kind, rng: random.Random) -> None:
        world = self._world
        if kind.area == "server":
            lock: threading.Lock | None = world.server_lock
            args: tuple[Workers, ...] = ()
        elif kind.area in ("workers", "network"):
            group = rng.choice([one for one in world.groups if fits(kind, one)])
            lock = group.lock if kind.area == "workers" else group.network
            args = (group,)
        else:
            lock, args = None, ()
        if lock is not None and not lock.acquire(blocking=False):
            return
        try:
            logger.info("%s %s", kind.name, args[0].name if args else "")
            self._counts[kind.name] += 1
            for seconds in kind.harm(world, rng, *args):
                time.sleep(seconds)
        finally:
            for group in args:
                if kind.area == "workers" and not group.alive:
                    group.start()
            if lock is not None:
                lock.release()


def fits(kind: Kind, group: Workers) -> bool:
    return {
        "any": True, "supervised": group.supervised, "embedded": not group.supervised, "proxied": group.proxy is not None,
    }[kind.where]  # fmt: skip


class Watcher(threading.Thread):
    """Takes a census and reads the clock again and again."""

    def __init__(self, world: World, every: float) -> None:
        super().__init__(name="watcher", daemon=True)
        self._world, self._every = world, every
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every):
            self._world.clock()
            self._world.census()

    def end(self) -> None:
        self._over.set()
        self.join()


def run(
    folder: Path,
    seed: int,
    minutes: float,
    *,
    small: bool = False,
    bulk: int = 0,
    only: set[str] | None = None,
    empty: bool = True,
    rules: Rules = RULES,
) -> Result:
    """Make a run of so many minutes and judge it by these rules."""
    result = Result("chaos", seed)
    world = World(folder, seed, small=small, bulk=bulk)
    kinds = [
        kind
        for kind in faults.KINDS.values()
        if not (small and kind.slow) and (only is None or kind.name in only)
    ]
    counts: Counter[str] = Counter()
    began = time.monotonic()
    injectors = [Injector(world, number, kinds, counts) for number in range(AT_ONCE)]
    watcher, operator = Watcher(world, 1.0), rng_for(seed, "operator")
    try:
        world.start()
        watcher.start()
        for injector in injectors:
            injector.start()
        while time.monotonic() - began < minutes * 60:
            world.go()
            for injector in injectors:
                injector.go()
            time.sleep(min(ROUND, max(5.0, began + minutes * 60 - time.monotonic())))
            for injector in injectors:
                injector.halt()
            refresh(world)
            rested = time.monotonic()
            result.retried += world.retry_dead(world.rest(REST), operator)
            result.worst_rest = max(result.worst_rest, time.monotonic() - rested)
            result.rests += 1
        for injector in injectors:
            injector.ended = True
        watcher.end()
        world.insist(lambda: world.admin.pause_schedule("tick"))
        world.rest(REST)
        world.bury()
        if empty:
            empty_server(world)
        result.seconds = time.monotonic() - began
    except (AssertionError, StoreError, RuntimeError) as error:
        result.violations.append(f"the run did not end well: {error}")
        world.bury()
    finally:
        for injector in injectors:
            result.violations += [f"the harness failed: {problem}" for problem in injector.problems]
        world.close()
    result.faults = dict(sorted(counts.items()))
    judge(world, result, rules)
    return result


def empty_server(world: World) -> None:
    """Have the server forget everything while nothing waits or runs, and go on under live pools and producers."""
    world.ledger.write("emptied")
    world.insist(lambda: world.tell("FLUSHALL"))
    world.go()
    # More at once than their limit lets run.
    for _ in range(20):
        world.enqueue("narrow", "ok", seconds=0.3)
    time.sleep(EMPTY)
    world.rest(REST)
    world.bury()


def refresh(world: World) -> None:
    """Replace parents: one whose children were killed again and again waits longer each time before it starts another."""
    for group in world.groups:
        if group.supervised:
            for seconds in faults.stop(world, group):
                time.sleep(seconds)


def judge(world: World, result: Result, rules: Rules = RULES) -> None:
    """Read the ledger and say what became of every job."""
    everything = read(world.ledgers)
    emptied = next((event.at for event in everything if event.kind == "emptied"), math.inf)
    events = [event for event in everything if event.at < emptied]
    report = check(events, rules)
    story = Story(events, rules)
    result.violations += after_emptying([event for event in everything if event.at > emptied], world.ledgers)
    bulk = tally.count(world.ledgers, story)
    young = children.count(world.ledgers, story)
    asked_for = {event.serial for event in everything if event.kind == "asked"}
    result.violations += young.violations + children.unknown_parents(world.ledgers, asked_for)
    if story.rest is not None:
        result.batches, result.workflows = len(story.rest.batches), len(story.rest.workflows)
    result.children = young.stored
    result.stuck = sum("stuck" in problem for problem in report.violations)
    count_starts(story, rules, result)
    result.jobs, result.bulk, result.starts = report.jobs, bulk.stored, report.starts
    result.lost, result.late = report.lost + bulk.lost, report.late
    result.doubled = report.doubled + bulk.doubled + young.doubled
    result.unexplained = report.unexplained + bulk.unexplained + young.unexplained
    result.repeats = dict(sorted((cause or "none", count) for cause, count in report.repeats.items()))
    result.repeats["bulk, with a cause"] = bulk.doubled - bulk.unexplained
    result.repeats["children, with a cause"] = young.doubled - young.unexplained
    result.censuses = len(story.censuses)
    result.resumed = {how: round(took, 3) for how, took in sorted(report.resumed.items())}
    result.rescued = rescues(story)
    if story.rest is not None:
        sums: Counter[str] = Counter()
        for label, number in story.rest.totals.items():
            sums[label.partition(":")[0]] += number
        result.totals = dict(sorted(sums.items()))
    asked = {event.target: event for event in events if event.kind == "stop"}
    for event in events:
        if event.kind == "stopped" and event.target in asked:
            result.stops += 1
            over = event.at - heard_at(story, asked[event.target]) - asked[event.target].seconds
            result.worst_stop = max(over, result.worst_stop if result.worst_stop is not None else over)
    result.violations += report.violations + bulk.violations + leaks(world.folder)
    result.broken_groups = count_broken(result.violations, "I21", "I22", "I23")
    result.over_limit = count_broken(result.violations, "I12", "I20")


def count_broken(violations: list[str], *promises: str) -> int:
    """How many violations are of these promises, on the first server or on the emptied one."""
    return sum(any(f"{promise}: " in one for promise in promises) for one in violations)


def count_starts(story: Story, rules: Rules, result: Result) -> None:
    """Count the starts of callbacks, of nodes, and of names with limits."""
    limited = {*rules.limits, *(name for _, costs in rules.rates.values() for name in costs)}
    keyed = {*rules.key_limits, *(name for limit in rules.rates_by_key for name in rules.rates[limit][1])}
    starts = Counter(attempt.start.name for life in story.lives.values() for attempt in life.attempts)
    result.callbacks = sum(life.name == "called" and bool(life.attempts) for life in story.lives.values())
    result.nodes = sum(
        life.name in ("node", "anode") and bool(life.attempts) for life in story.lives.values()
    )
    result.limited = sum(starts[name] for name in limited | keyed)
    result.keyed = sum(starts[name] for name in keyed)


def after_emptying(events: list[Event], folder: Path) -> list[str]:
    """What is promised of jobs that were enqueued on a server that came back empty: no loss, no repeat, no limit broken.

    Totals and ticks began anew while pools were at work, so they are not compared.
    """
    if not events:
        return []
    story = Story(events, RULES)
    asked = {serial for serial, life in story.lives.items() if life.asked is not None}
    story.lives = {serial: life for serial, life in story.lives.items() if serial in asked}
    checks = {
        "I1": no_loss,
        "I4": no_double_enqueue,
        "I5": each_repeat_has_a_cause,
        "I7": one_end,
        "I12": limits,
        "I20": rate_limits,
        "I21": atomic,
        "I22": batches,
        "I23": workflows,
    }
    found = [f"{name}: {problem}" for name, one in checks.items() for problem in one(story)]
    found += children.count(folder, story, totals=False).violations
    return [f"after it was emptied: {problem}" for problem in found]


def rescues(story: Story) -> dict[str, list[float]]:
    """Seconds from a kill to the next start of each job that it interrupted, by kind of fault."""
    found: dict[str, list[float]] = {}
    for life in story.lives.values():
        chain = life.chain
        for before, after in zip(chain, chain[1:], strict=False):
            if before.end is not None:
                continue
            process = story.processes.get(before.start.pid)
            for fault in process.faults if process is not None else ():
                if fault.how.startswith("kill") and before.start.at <= fault.at <= after.start.at:
                    found.setdefault(fault.how, []).append(after.start.at - fault.at)
                    break
    return {
        how: [len(took), round(sorted(took)[len(took) // 2], 3), round(max(took), 3)]
        for how, took in sorted(found.items())
    }


def leaks(folder: Path) -> list[str]:
    """I19: where the secret shows that no log may show."""
    return [
        f"I19: {path.name} shows a redacted argument"
        for path in [*folder.glob("*.log"), *folder.glob("ledger/*.jsonl")]
        if CANARY.encode() in path.read_bytes()
    ]


def as_json(result: Result) -> dict[str, object]:
    return {**asdict(result), "lease": LEASE, "deadline": DEADLINE}

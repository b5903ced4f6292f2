"""The story of a run: the events of a ledger, by what they are about."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dayjob.limits import RateKind
from faults.ledger import Census, Event, Item

#: Seconds that a pool may take, once it gave back what it held, to say that it is down.
GIVING_BACK = 5.0
#: Faults in which nothing passes, and seconds until a client gives up connections that stay dead after them.
CUT_OFF = ("net: black hole", "net: half-open connections")
NOTICE = 6.0


@dataclass(frozen=True)
class Rules:
    """What the jobs of a run were told to do, and what the run promised."""

    #: Job name to its limit, for names whose limit never changes.
    limits: dict[str, int] = field(default_factory=dict)
    #: Rate limit to what it allows, and to the cost of a job of each of its names.
    rates: dict[str, tuple[RateKind, dict[str, float]]] = field(default_factory=dict)
    #: Job name to its limit for each key; and the rate limits that count by key.
    key_limits: dict[str, int] = field(default_factory=dict)
    rates_by_key: frozenset[str] = frozenset()
    #: Job name to how many fails make it dead.
    max_fails: dict[str, int] = field(default_factory=dict)
    #: Job name to the seconds between two of its ticks.
    ticks: dict[str, int] = field(default_factory=dict)
    #: Seconds within which work goes on once a fault of the server or the network is over.
    resume: float | None = None
    #: Seconds after which a pool that cannot be heard is taken for dead.
    lease: float | None = None
    #: Seconds that a stop may take beyond its deadline.
    stop: float = 1.0
    #: Names whose handlers keep the interpreter to themselves: a process without a parent hears nothing while one runs.
    deafening: frozenset[str] = frozenset()
    #: Names that are counted, not listed: left out of totals.
    counted_apart: frozenset[str] = frozenset()


@dataclass
class Attempt:
    """One run of a handler, as it said itself."""

    start: Event
    end: Event | None = None

    @property
    def place(self) -> str:
        return f"{self.start.pool}/{self.start.token}"

    @property
    def key(self) -> str:
        """The key of the job, if its name has keys: its token ends with it."""
        return self.start.token.partition("|")[2]

    @property
    def counts(self) -> int:
        return self.start.fails + self.start.deaths + self.start.snoozes

    @property
    def how(self) -> str:
        return "" if self.end is None else self.end.how


@dataclass
class Life:
    """All that is known of one job."""

    serial: str
    asked: Event | None = None
    answers: list[Event] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    deleted: Event | None = None
    #: When an operator retried it after it was dead.
    revivals: list[Event] = field(default_factory=list)

    @property
    def pending(self) -> bool:
        """Whether it exists only if something else happens, such as the end of the attempt that enqueued it."""
        return self.asked is not None and self.asked.kind == "pending"

    @property
    def group(self) -> str:
        """The id of its batch or workflow."""
        return "" if self.asked is None else self.asked.group

    @property
    def answer(self) -> Event | None:
        return self.answers[-1] if self.answers else None

    @property
    def stored(self) -> Event | None:
        return next((one for one in self.answers if one.kind == "stored"), None)

    @property
    def name(self) -> str:
        known = self.asked or (self.attempts[0].start if self.attempts else None)
        return "" if known is None else known.name

    @property
    def plan(self) -> str:
        return "ok" if self.asked is None else self.asked.plan

    @property
    def exists(self) -> bool:
        """Whether Redis took it, as far as anybody can tell."""
        return self.stored is not None or bool(self.attempts)

    def revived(self, attempt: Attempt) -> int:
        """How often it had been retried from dead when an attempt started. Its counts begin anew each time."""
        return sum(one.at <= attempt.start.at for one in self.revivals)

    @property
    def chain(self) -> list[Attempt]:
        """Its attempts in the order of what was counted, and then of time."""
        return sorted(self.attempts, key=lambda one: (self.revived(one), one.counts, one.start.at))

    @property
    def lives(self) -> list[list[Attempt]]:
        """The same, split where it was retried from dead."""
        found: list[list[Attempt]] = [[] for _ in range(len(self.revivals) + 1)]
        for one in self.chain:
            found[self.revived(one)].append(one)
        return found


@dataclass
class Process:
    """The life of one process of the product."""

    pid: int
    up: Event | None = None
    down: Event | None = None
    gone: Event | None = None
    #: What the harness did to it.
    faults: list[Event] = field(default_factory=list)
    #: When Redis answered it and renewed its lease.
    heard: list[float] = field(default_factory=list)
    last: float = 0.0

    @property
    def over(self) -> bool:
        return self.down is not None or self.gone is not None


@dataclass
class Group:
    """A batch or a workflow."""

    asked: Event
    answer: Event | None = None
    members: list[Life] = field(default_factory=list)
    #: Batches inside it.
    nested: list[Group] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.asked.job


class Story:
    """The events of a run, by what they are about."""

    def __init__(self, events: Sequence[Event], rules: Rules) -> None:
        self.events = events
        self.rules = rules
        self.lives: dict[str, Life] = {}
        self.processes: dict[int, Process] = {}
        self.groups: dict[str, Group] = {}
        self.reaped: set[str] = set()
        self.pool_of: dict[str, int] = {}
        self.censuses: list[Event] = []
        self.faults: list[Event] = []
        self.late: list[Event] = []
        self.stray_ends: list[Event] = []
        self._open: dict[tuple[int, str, str, str], Attempt] = {}
        #: Process to the times in which a handler of its kept the interpreter to itself.
        self.deaf: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._clock: list[tuple[float, float]] = []
        for event in events:
            self._add(event)
        for life in self.lives.values():
            if life.group in self.groups:
                self.groups[life.group].members.append(life)
            for attempt in life.attempts:
                if attempt.start.name in rules.deafening:
                    end = attempt.end.at if attempt.end is not None else float("inf")
                    self.deaf[attempt.start.pid].append((attempt.start.at, end))

    def _life(self, serial: str) -> Life:
        if serial not in self.lives:
            self.lives[serial] = Life(serial)
        return self.lives[serial]

    def _process(self, pid: int) -> Process:
        if pid not in self.processes:
            self.processes[pid] = Process(pid)
        return self.processes[pid]

    def _add(self, event: Event) -> None:
        kind = event.kind
        self._process(event.pid).last = event.at
        if kind in ("asked", "pending"):
            life = self._life(event.serial)
            if life.asked is None:
                life.asked = event
        elif kind in ("stored", "refused", "unknown", "duplicate"):
            self._life(event.serial).answers.append(event)
        elif kind == "start":
            attempt = Attempt(event)
            self._life(event.serial).attempts.append(attempt)
            self._open[event.pid, event.pool, event.token, event.serial] = attempt
            self.pool_of[event.pool] = event.pid
        elif kind == "end":
            found = self._open.get((event.pid, event.pool, event.token, event.serial))
            if found is None or found.end is not None:
                self.stray_ends.append(event)
            else:
                found.end = event
        elif kind in ("up", "down"):
            setattr(self._process(event.pid), kind, event)
        elif kind == "heard":
            self._process(event.pid).heard.append(event.at)
        elif kind == "reaped":
            self.reaped.add(event.pool)
            self.pool_of.setdefault(event.pool, event.pid)
        elif kind in ("fault", "healed"):
            self.faults.append(event)
            if event.target:
                self._process(event.target).faults.append(event)
        elif kind == "gone":
            self._process(event.target).gone = event
        elif kind == "deleted":
            self._life(event.serial).deleted = event
        elif kind == "revived":
            self._life(event.serial).revivals.append(event)
        elif kind == "group":
            self.groups[event.job] = group = Group(event)
            if event.above in self.groups:
                self.groups[event.above].nested.append(group)
        elif kind == "grouped" and event.job in self.groups:
            self.groups[event.job].answer = event
        elif kind == "late":
            self.late.append(event)
        elif kind == "census":
            self.censuses.append(event)
        elif kind == "clock":
            self._clock.append((event.at, event.seconds))

    @property
    def rest(self) -> Census | None:
        """The last census, if nothing was going on."""
        last = self.censuses[-1].census if self.censuses else None
        return last if last is not None and last.rest else None

    @cached_property
    def places(self) -> dict[str, list[tuple[str, Item]]]:
        """Serial to where the last census found it."""
        found: dict[str, list[tuple[str, Item]]] = defaultdict(list)
        last = self.censuses[-1].census if self.censuses else None
        for place, items in last.places.items() if last is not None else ():
            for item in items:
                found[item.serial].append((place, item))
        return found

    def exists(self, life: Life) -> bool:
        """Whether Redis took a job, as far as anybody can tell: it was answered so, it started, or it is somewhere."""
        return life.exists or bool(self.places.get(life.serial))

    def completed(self, life: Life) -> bool:
        """Whether a job has completed, and so is in no other place."""
        elsewhere = any(place != "done" for place, _ in self.places.get(life.serial, []))
        return not elsewhere and any(one.how == "ok" for one in life.attempts)

    def was_skipped(self, life: Life) -> bool:
        """Whether a dead node was retried and then skipped, because none of the nodes whose failure it waits for is dead any more."""
        group = self.groups.get(life.group)
        if group is None or self.rest is None or not life.revivals:
            return False
        numbers = [n for n, plan in enumerate(group.asked.graph) if plan.serial == life.serial]
        letters = self.rest.workflows.get(group.id, "")
        since = life.revivals[-1].at
        return [letters[n : n + 1] for n in numbers] == ["s"] and all(
            one.start.at < since for one in life.attempts
        )

    def is_dead(self, life: Life) -> bool:
        return any(place == "dead" for place, _ in self.places.get(life.serial, []))

    def server_time(self, at: float) -> float:
        """What the clock of the machine, and so of the server, showed at a monotonic moment."""
        if not self._clock:
            return at
        index = max(0, bisect_right(self._clock, (at, float("inf"))) - 1)
        before, shown = self._clock[index]
        return shown + at - before

    def lost_its_pool(self, attempt: Attempt, by: float = float("inf")) -> bool:
        """Whether there is evidence that somebody else could have this attempt's job at that moment."""
        return attempt.start.lost or self.pool_over(attempt.start.pool, attempt.start.pid, by)

    def pool_over(self, pool: str, pid: int | None = None, by: float = float("inf")) -> bool:
        """Whether this pool was taken away, or its process was over at that moment."""
        if pool in self.reaped:
            return True
        owner = self.pool_of.get(pool, pid)
        if owner is None:
            # A pool that never started a job left no trace of its process.
            return True
        process = self.processes.get(owner)
        if process is None:
            return False
        # It gives back first, and says that it is down after that.
        stopped = process.down is not None and process.down.at <= by + GIVING_BACK
        killed = process.gone is not None and process.last <= by
        return stopped or killed or (process.over and self._unheard(process, by))

    def _unheard(self, process: Process, by: float) -> bool:
        """Whether nothing of this process had reached the server for a lease: it lost its pool, and was over before it knew."""
        if process.up is None or self.rules.lease is None:
            return False
        last = bisect_right(process.heard, by) - 1
        if last >= 0 and process.heard[last] + self.rules.lease <= by:
            # Whatever held it up, such as a machine that gave it no processor.
            return True
        for start, end in self.deaf.get(process.pid, ()):
            if start + self.rules.lease <= by <= end:
                return True
        for fault in process.faults:
            suspended = fault.how.startswith("SIGSTOP") and fault.seconds > self.rules.lease
            if suspended and fault.at + self.rules.lease <= by <= fault.at + fault.seconds + NOTICE:
                return True
        since = until = float("-inf")
        for event in self.faults:
            if event.at > by:
                break
            if event.how in CUT_OFF and event.name == process.up.how:
                if event.kind == "fault":
                    since, until = (event.at if event.at > until else since), float("inf")
                else:
                    until = event.at + NOTICE
        return since + self.rules.lease <= by <= until

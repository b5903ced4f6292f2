"""Every operation on a namespace in any order, against a plain dictionary that says where each job must be.

After each step the census of a real server equals the model: every job in exactly one place with its fails and deaths,
every total, unique key, limit, rate and bell, and one record in the history for each attempt that ended.
DAYJOB_PROOF=full walks a hundred times as far.
"""

from __future__ import annotations

import copy
import json
import os
import random
import secrets
from collections import Counter
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from census import Census, census, dump
from dayjob.job import Job, new_id
from dayjob.limits import Limit, Rate, Window
from dayjob.options import JobOptions
from dayjob.outcome import (
    Died,
    Done,
    Dropped,
    GivenBack,
    HeldBack,
    Kept,
    NameSuspect,
    Recharge,
    Release,
    Retried,
    Rewound,
    Snoozed,
    Unreadable,
)
from dayjob.retry import MAX_DEATHS, SUSPECT
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import bin, broken, consume, maintain, membership, operate, produce, rates
from dayjob.store.ops.children import Children
from dayjob.store.ops.consume import Entry, Want, name_in, number_in
from dayjob.store.ops.history import HistoryCaps, StoredRecord, new_records, stream
from dayjob.store.ops.produce import NewJob, Slot, When
from dayjob.store.ops.rates import RateRule, Spent
from dayjob.worker.chores import requeuer
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.requeuer import Requeuer
from pools import Pool, jobs_of
from rates import ModelLimit
from records import all_records
from server import running

FULL = os.environ.get("DAYJOB_PROOF") == "full"
NAMES = ("a", "b")
#: Not due before a history ends, in milliseconds.
HOUR = 3_600_000
SIDES = ("scheduled", "retry", "dead")
#: Limits that names may share. A unit of the rate takes a day to fill up.
KINDS = {"r": Rate(5, per=5 * 86_400, burst=5), "w": Window(4, per=86_400)}
#: How an attempt may end: the place it goes to, and the totals that count it.
ENDS = {
    "retry": ("retry", ("failed", "retried")),
    "retry later": ("retry", ("failed", "retried")),
    "snooze": ("scheduled", ("snoozed",)),
    "dead": ("dead", ("failed", "dead")),
    "drop": ("", ("discarded",)),
    "done": ("", ("done",)),
    "plain": ("", ("done",)),
    "atomic": ("", ("done",)),
    "keep": ("done", ("done",)),
    "broken": ("broken", ("broken",)),
    "back": ("queue", ("given_back",)),
    "throttle": ("queue", ("held_back",)),
}
#: Those after which a job would run again: refused once an operator has cancelled it.
RUNS_AGAIN = {"retry", "retry later", "snooze", "back", "throttle"}
#: The outcomes of those kinds that always have the same.
OUTCOMES = {
    "snooze": Snoozed(HOUR / 1000),
    "dead": Died(counts_failure=True),
    "keep": Kept(HOUR / 1000),
    "done": Done(),
    "atomic": Done(),
    "drop": Dropped(counts_failure=False),
    "back": GivenBack(),
}
#: How the history names the outcomes that are recorded with the entry that settles them.
ENDINGS = {
    "retry": "retried", "retry later": "retried", "snooze": "snoozed", "dead": "dead", "drop": "discarded", "done": "completed", "atomic": "completed",
    "keep": "completed", "broken": "unreadable", "back": "given_back", "throttle": "given_back",
}  # fmt: skip
#: Those that end a job for good, so that its unique key goes with it.
FOR_GOOD = {"dead", "drop", "done", "atomic", "keep", "broken"}


@dataclass
class Known:
    """What the model knows of one job."""

    name: str
    #: queue, held, scheduled, retry, dead, done, broken, bin, or "" when it is gone.
    place: str = "queue"
    fails: int = 0
    deaths: int = 0
    #: Its unique key, if it has one.
    key: str = ""
    #: For scheduled and retry: whether it is due.
    due: bool = False
    #: Not a job at all, but bytes that somebody put there.
    junk: bool = False
    #: Where it is held.
    pool: str = ""
    token: str = ""
    #: It let go of its unique key in this attempt.
    released: bool = False
    #: What an operator asked of this attempt: "", "cancel" or "kill".
    cancel: str = ""
    #: In the bin: where it was, and whether it had its unique key.
    was: str = ""
    owned: bool = False
    #: What this attempt was charged: units; each limit to its epoch and mark in the model, and to its mark in Redis.
    cost: int = 0
    charge: dict[str, tuple[int, float]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)


@dataclass
class Model:
    """A namespace as plain dictionaries."""

    jobs: dict[str, Known] = field(default_factory=dict)
    #: The order of each queue, the next one first.
    order: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in NAMES})
    totals: Counter[str] = field(default_factory=Counter)
    #: Unique key to the id of its owner.
    owners: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    #: Job name to its rate limits, and what each of them has used.
    rules: dict[str, RateRule] = field(default_factory=dict)
    rates: dict[str, ModelLimit] = field(
        default_factory=lambda: {limit: ModelLimit(kind) for limit, kind in KINDS.items()}
    )
    paused: set[str] = field(default_factory=set)
    condemned: set[str] = field(default_factory=set)
    suspects: dict[str, str] = field(default_factory=dict)
    ticks: int = 0
    #: What the history must have: name, id and ending of each attempt that ended.
    history: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: Deletions that can be undone: the ids of their jobs, in the order in which they were deleted.
    deletions: list[list[str]] = field(default_factory=list)

    def at(self, place: str) -> list[str]:
        return [job_id for job_id, job in self.jobs.items() if job.place == place]

    def held_by(self, pool_id: str) -> list[str]:
        """Ids of what a pool holds, the oldest token first."""
        found = [job_id for job_id, job in self.jobs.items() if job.pool == pool_id]
        return sorted(found, key=lambda job_id: number_in(self.jobs[job_id].token))

    def move(self, job_id: str, place: str, *, head: bool = False, due: bool = False) -> None:
        job = self.jobs[job_id]
        if job.place == "queue":
            self.order[job.name].remove(job_id)
        job.place, job.due, job.pool, job.token, job.released, job.cancel = place, due, "", "", False, ""
        job.cost, job.charge, job.marks = 0, {}, {}
        if place == "queue":
            self.order[job.name].insert(0 if head else len(self.order[job.name]), job_id)

    def release(self, job_id: str) -> None:
        key = self.jobs[job_id].key
        if key and self.owners.get(key) == job_id:
            del self.owners[key]

    def delete(self, ids: list[str], *, binned: bool) -> None:
        for job_id in ids:
            job = self.jobs[job_id]
            job.was, job.owned = job.place, bool(job.key) and self.owners.get(job.key) == job_id
            self.release(job_id)
            self.move(job_id, "bin" if binned else "", due=job.due)
        if binned and ids:
            self.deletions.append(list(ids))

    def undo(self, ids: list[str]) -> list[str]:
        """Put back what can be; the answer is what stays in the bin."""
        stays = []
        for job_id in reversed(ids):
            job = self.jobs[job_id]
            if job.owned and job.key in self.owners:
                stays.insert(0, job_id)
                continue
            if job.owned:
                self.owners[job.key] = job_id
            self.totals[
                f"restored:{'' if job.was == 'broken' or (job.junk and job.was != 'queue') else job.name}"
            ] += 1
            self.move(job_id, job.was, head=True, due=job.due)
        return stays

    def fetchable(self, name: str) -> int:
        if name in self.paused:
            return 0
        waiting = len(self.order[name])
        if name in self.limits:
            held = sum(job.place == "held" and job.name == name for job in self.jobs.values())
            waiting = min(waiting, max(0, self.limits[name] - held))
        rule = self.rules.get(name)
        return min([waiting, *(self.rates[one].spare(rule.cost) for one in rule.limits)]) if rule else waiting

    def correct(self, member: str, job: Known, spent: Spent) -> None:
        """Apply a correction of what an attempt was charged. There is one for each attempt."""
        for limit in spent.marks:
            self.rates[limit].correct(member, spent, job.charge[limit])
        job.charge = {}

    def charge(self, job: Known, marks: dict[str, str]) -> None:
        """Charge the limits for an attempt that was fetched. What the limits' marks are is known after the exchange."""
        rule = self.rules.get(job.name)
        if rule is not None:
            for limit in rule.limits:
                self.rates[limit].charge(f"{job.pool}/{job.token}", rule.cost)
            job.cost, job.marks = rule.cost, {limit: marks.get(limit, "") for limit in rule.limits}


class Machine(RuleBasedStateMachine):
    """The rules: all that pools, producers, chores, operators and accidents can do."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys("m" + secrets.token_hex(6))
        self.link = Link(addresses.parse_url(self.url), tag=self.keys.known_jobs)
        self.model = Model()
        #: How many pools there were. Their ids, like the scores below, say nothing of chance or time: the same draws must
        #: lead to the same state, or a history cannot be played again.
        self.joined = 0
        for limit, kind in KINDS.items():
            self.link.run(rates.declare(self.keys, Limit(limit, kind)))
        self.pools = [self.new_pool(), self.new_pool()]
        self.made = 0
        #: Pools whose numbers are ahead of what Redis knows.
        self.ahead: set[str] = set()
        self.answers: dict[str, consume.Reply] = {}
        self.sends: list[tuple[Slot, object]] = []
        #: Token to what the atomic job enqueued that completes in the exchange under way: id and name.
        self.born: dict[str, list[tuple[str, str]]] = {}

    def teardown(self) -> None:
        names = [self.keys.prefix + key for key in dump(self.keys, self.link)]
        if names:
            self.link.run(plain("DEL", *names))
        self.link.close()

    def new_pool(self) -> Pool:
        self.joined += 1
        pool = Pool(self.keys, self.link, pool_id=f"pool{self.joined:04}", names=NAMES)
        pool.rules, pool.kinds = (
            self.model.rules,
            {limit: rates.definition_kind(Limit(limit, kind)) for limit, kind in KINDS.items()},
        )
        return pool

    def now(self) -> float:
        return int(self.link.run(plain("TIME"))[0])

    def add(self, name: str, place: str, **what: object) -> str:
        job_id = f"j{self.made}"
        self.made += 1
        self.model.jobs[job_id] = Known(name, place="", **what)
        self.model.move(job_id, place, due=bool(what.get("due")))
        return job_id

    def payload(self, job_id: str, name: str, key: str = "") -> bytes:
        extras = {"unique": True, "unique_key": key} if key else None
        return codec.write(codec.quoted(name), job_id, 1.0, b"{}", extras)

    def pick(self, ids: list[str], n: int) -> str:
        return sorted(ids, key=lambda job_id: int(job_id[1:]))[n % len(ids)]

    def member(self, job_id: str) -> bytes:
        """The bytes of a job, wherever it is."""
        return self.raw()[job_id]

    def raw(self) -> dict[str, bytes]:
        found = census(self.keys, self.link)
        return {id_of(payload): payload for payload in found.places}

    def put_in_order(self, side: str) -> None:
        """Give what is due, or dead, scores by its number: else the order depends on which millisecond it was."""
        source, raw = getattr(self.keys, side), self.raw()
        for job_id in self.model.at(side):
            if side == "dead" or self.model.jobs[job_id].due:
                self.link.run(plain("ZADD", source, "XX", 1 + int(job_id[1:]), raw[job_id]))

    # Producers.

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), again=st.booleans())
    def enqueue(self, name, count, again):
        ids = [self.add(name, "queue") for _ in range(count)]
        slot = Slot(new_id(), 1)
        op = produce.enqueue(self.keys, slot, name, [self.payload(one, name) for one in ids], introduce=True)
        for _ in range(1 + again):
            self.link.run(op)
        self.sends.append((slot, op))

    @rule(name=st.sampled_from(NAMES), due=st.booleans(), again=st.booleans())
    def schedule(self, name, due, again):
        job_id = self.add(name, "scheduled", due=due)
        when = When("at", 1000) if due else When("in", HOUR)
        op = produce.schedule(
            self.keys, Slot(new_id(), 1), name, [self.payload(job_id, name)], when, introduce=True
        )
        for _ in range(1 + again):
            self.link.run(op)

    @rule(
        name=st.sampled_from(NAMES), which=st.integers(0, 1), later=st.booleans(), again=st.booleans(),
        chosen=st.booleans(),
    )  # fmt: skip
    def admit(self, name, which, later, again, chosen):
        """A unique job: stored unless one like it waits, and a resend answers as the first time."""
        key = self.keys.unique(name, str(which))
        holder = self.model.owners.get(key)
        job_id = f"j{self.made}"
        op = produce.admit(
            self.keys, Slot(new_id(), 1), name, self.payload(job_id, name, key),
            When("in", HOUR) if later else When(),
            job_id=job_id, chosen=chosen, unique_key=key, unique_for=None, introduce=True,
        )  # fmt: skip
        for _ in range(1 + again):
            answer = self.link.run(op)
            assert answer.stored == (holder is None)
            assert answer.holder == (holder or "")
        if holder is None:
            assert self.add(name, "scheduled" if later else "queue", key=key) == job_id
            self.model.owners[key] = job_id
        if holder is None and chosen:
            # A repeat with the same id, from another connection.
            repeat = produce.admit(
                self.keys, Slot(new_id(), 1), name, self.payload(job_id, name), When(),
                job_id=job_id, chosen=True, unique_key=None, unique_for=None, introduce=True,
            )  # fmt: skip
            assert self.link.run(repeat).stored

    @rule(n=st.integers(0, 1000))
    def send_again(self, n):
        """A copy of an earlier enqueue that took its time."""
        if self.sends:
            self.link.run(self.sends[n % len(self.sends)][1])

    @rule(missed=st.integers(0, 2), stale=st.booleans())
    def tick(self, missed, stale):
        seen = self.model.ticks or None
        if seen is None:
            answer = self.link.run(produce.tick(self.keys, "s", "a", seen=None, newest=None))
            self.model.ticks = 100
            self.link.run(plain("HSET", self.keys.periodic, "s", 100))
            assert answer.enqueued == 0
            return
        newest = seen + 1
        job_id = f"j{self.made}"
        jobs = [(newest, self.payload(job_id, "a"))]
        wrong = seen - 1 if stale else seen
        op = produce.tick(self.keys, "s", "a", seen=wrong, newest=newest, missed=missed, jobs=jobs)
        assert self.link.run(op).enqueued == (not stale)
        assert self.link.run(op).enqueued == 0
        if not stale:
            self.add("a", "queue")
            self.model.ticks = newest
            self.model.totals["ticked:a"] += 1
            self.model.totals["missed:a"] += missed

    # Pools.

    @rule(turns=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2**20)), min_size=1, max_size=4))
    def exchange(self, turns):
        """Several in a row: it is what happens most."""
        for which, seed in turns:
            self._exchange(which, random.Random(seed))
            self.the_server_agrees_with_the_model()

    def _exchange(self, which: int, rng: random.Random) -> None:
        pool = self.pools[which]
        outcomes = self._outcomes(pool, rng)
        entries, done = self._entries(outcomes, rng)
        wants = [
            Want(name, rng.choice((1, 5)), fetch=rng.random() < 0.8) for name in rng.sample(NAMES, len(NAMES))
        ]
        room = rng.randint(0, 4)
        reply = pool.exchange(*wants, room=room, entries=entries, done=done, u=rng.random())
        if pool.id in self.model.condemned:
            assert (reply.status, jobs_of(reply)) == ("refused", [])
            self.pools[which] = self.new_pool()
            return
        assert reply.status == ("rewound" if pool.id in self.ahead else "ok")
        self.answers[pool.id] = reply
        self._settled(pool, outcomes, entries, reply)
        self._fetched(pool, wants, room, reply)
        if pool.id in self.ahead:
            self.ahead.discard(pool.id)

    def _outcomes(self, pool: Pool, rng: random.Random) -> list[tuple[str, str]]:
        """Ends for some of what it holds, the newest first as give-backs must be."""
        kinds = [kind for kind in ENDS if kind not in ("broken", "throttle")]
        found = []
        for job_id in reversed(self.model.held_by(pool.id)):
            if self.model.jobs[job_id].junk:
                found.append((job_id, "broken"))
            elif rng.random() < 0.5:
                throttled = self.model.jobs[job_id].charge and rng.random() < 0.1
                found.append((job_id, "throttle" if throttled else rng.choice(kinds)))
        return found

    def _entries(self, outcomes, rng: random.Random) -> tuple[list[Entry], dict[str, list[str]]]:
        raw = self.raw()
        entries: list[Entry] = []
        done: dict[str, list[str]] = {}
        for job_id, kind in outcomes:
            job = self.model.jobs[job_id]

            def own(*what, job=job, of=job_id, kind=kind, **more) -> Entry:
                return recorded(Entry(job.name, job.token, *what, **more), of, ENDINGS[kind])

            payload, attempt = raw.get(job_id, b""), f"{job.pool}/{job.token}"
            spent = self._spent(job, kind, rng)
            if job.key and kind in FOR_GOOD | {"plain"}:
                entries.append(Entry(job.name, job.token, Release(job.key, first_run=False), job_id=job_id))
            if kind == "plain":
                done.setdefault(job.name, []).append(job.token)
            elif kind.startswith("retry"):
                changed = codec.rewrite(payload, {"fails": job.fails + 1, "attempt": attempt})
                wait = HOUR / 1000 if kind == "retry later" else 0.0
                entries.append(own(Retried(wait), changed, spent=spent))
            elif kind in ("snooze", "dead", "keep"):
                changes = {"fails": job.fails + 1} if kind == "dead" else {}
                changed = codec.rewrite(payload, {**changes, "attempt": attempt})
                entries.append(own(OUTCOMES[kind], changed, spent=spent))
            elif kind == "broken":
                entry = codec.broken_entry(payload, at=1.0, where="here", why="no job")
                entries.append(own(Unreadable(), entry))
            elif kind == "back" and job.released:
                entries.append(own(GivenBack(job.key), job_id=job_id, spent=spent))
            else:
                outcome = HeldBack(tuple(job.charge), 3600.0) if kind == "throttle" else OUTCOMES[kind]
                children = self._children(job.token, rng) if kind == "atomic" else None
                entries.append(own(outcome, spent=spent, children=children))
        if rng.random() < 0.2:
            # The outcome of an attempt that nobody holds. It is not recorded.
            born = self._children("99999:a", rng)
            outcome = rng.choice((OUTCOMES["dead"], OUTCOMES["keep"]))
            late = Entry("a", "99999:a", outcome, b'{"name":"a","id":"late"}', children=born)
            entries.append(recorded(late, "late", "dead"))
        return entries, done

    def _children(self, token: str, rng: random.Random) -> Children:
        """What an atomic job enqueued: one to three jobs of any name."""
        found, self.born[token] = Children(), []
        for _ in range(rng.randint(1, 3)):
            job_id, name = f"j{self.made}", rng.choice(NAMES)
            self.made += 1
            self.born[token].append((job_id, name))
            found.add([NewJob(Job(name, id=job_id), self.payload(job_id, name), When(), False, None)])
        return found

    def _spent(self, job: Known, kind: str, rng: random.Random) -> Spent | None:
        """The correction that goes with an outcome: the attempt never started, or used other units than it was charged."""
        if not job.charge or kind in ("plain", "broken"):
            return None
        if kind == "back" and rng.random() < 0.7:
            return Spent(-job.cost, job.marks, undone=True)
        units = rng.choice((-job.cost, 0, 0, 1))
        return Spent(units, job.marks) if units else None

    def _settled(self, pool: Pool, outcomes, entries: list[Entry], reply: consume.Reply) -> None:
        model = self.model
        late = sum(entry.token == "99999:a" for entry in entries)
        if late:
            model.totals["late:a"] += 1
        assert (reply.late, reply.stuck) == (late, [])
        by_token = {model.jobs[job_id].token: model.jobs[job_id] for job_id, _ in outcomes}
        for entry in entries:
            if entry.spent is not None:
                model.correct(f"{pool.id}/{entry.token}", by_token[entry.token], entry.spent)
            if isinstance(entry.outcome, HeldBack) and not by_token[entry.token].cancel:
                for limit in entry.outcome.limits:
                    model.rates[limit].held = True
        # Plain completions are settled after the entries.
        for job_id, kind in sorted(outcomes, key=lambda one: one[1] == "plain"):
            job = model.jobs[job_id]
            if job.cancel and kind in RUNS_AGAIN:
                assert reply.cancelled[job.token] == (job.cancel == "kill")
                continue
            place, counters = ENDS[kind]
            model.totals.update(f"{counter}:{job.name}" for counter in counters)
            if model.suspects.get(pool.id) == job.token:
                del model.suspects[pool.id]
            if kind in FOR_GOOD | {"plain"}:
                model.release(job_id)
            if kind.startswith("retry") or kind == "dead":
                job.fails += 1
            if kind in ENDINGS:
                model.history[job.name, job_id, ENDINGS[kind]] += 1
            if kind == "back" and job.released:
                model.owners.setdefault(job.key, job_id)
            if kind == "atomic":
                for child, name in self.born[job.token]:
                    model.jobs[child] = Known(name, place="")
                    model.move(child, "queue")
            model.move(job_id, place, head=True, due=kind == "retry")

    def _fetched(self, pool: Pool, wants: list[Want], room: int, reply: consume.Reply) -> None:
        model = self.model
        fetched = []
        for token, name, payload in jobs_of(reply):
            job_id = model.order[name][0]
            assert id_of(payload) == job_id
            assert model.fetchable(name) > 0
            model.move(job_id, "held")
            job = model.jobs[job_id]
            job.pool, job.token = pool.id, token
            model.charge(job, reply.marks)
            fetched.append(job)
        for job in fetched:
            job.charge = {
                limit: (model.rates[limit].epoch, model.rates[limit].charged) for limit in job.marks
            }
        left = {want.name: model.fetchable(want.name) for want in wants}
        assert len(jobs_of(reply)) <= room
        if len(jobs_of(reply)) < room:
            assert not any(left[want.name] for want in wants if want.fetch)
        assert set(reply.live) == {name for name, more in left.items() if more}
        assert reply.held == len(model.held_by(pool.id))

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), count=st.integers(2, 5))
    def crowd(self, which, name, count):
        """A pool takes several jobs of one name at once, so that there is an order to keep."""
        self.enqueue(name, count, again=False)
        pool = self.pools[which]
        if pool.id in self.model.condemned | self.ahead:
            return
        wants = [Want(name, 1, fetch=True)]
        reply = pool.exchange(*wants, room=count)
        self.answers[pool.id] = reply
        self._fetched(pool, wants, count, reply)

    @rule(which=st.integers(0, 1), n=st.integers(0, 100))
    def start_guarded(self, which, n):
        """Let go of a unique key, or name a suspect, before an attempt starts."""
        pool = self.pools[which]
        held = [one for one in self.model.held_by(pool.id) if not self.model.jobs[one].junk]
        if not held or pool.id in self.model.condemned | self.ahead:
            return
        job_id = held[n % len(held)]
        job = self.model.jobs[job_id]
        if job.deaths >= SUSPECT:
            pool.settle(Entry(job.name, job.token, NameSuspect()))
            self.model.suspects[pool.id] = job.token
        elif job.key:
            reply = pool.settle(Entry(job.name, job.token, Release(job.key, first_run=True), job_id=job_id))
            assert id_of(reply.released[job.token]) == job_id
            self.model.release(job_id)
            job.released = True
        self.answers.pop(pool.id, None)

    @rule(which=st.integers(0, 1), seed=st.integers(0, 2**20))
    def strange_outcome(self, which, seed):
        """An outcome under the token of another pool's attempt changes nothing."""
        pool, other = self.pools[which], self.pools[1 - which]
        mine = {self.model.jobs[one].token for one in self.model.held_by(pool.id)}
        theirs = [self.model.jobs[one].token for one in self.model.held_by(other.id)]
        foreign = [token for token in theirs if token not in mine]
        if not foreign or pool.id in self.model.condemned | self.ahead:
            return
        token = foreign[seed % len(foreign)]
        self.answers[pool.id] = reply = pool.exchange(done={name_in(token): [token]})
        assert reply.late == 1
        self.model.totals[f"late:{name_in(token)}"] += 1

    @rule(which=st.integers(0, 1))
    def resend(self, which):
        pool = self.pools[which]
        first = self.answers.get(pool.id)
        if first is None or pool.id in self.model.condemned | self.ahead:
            return
        again = pool.resend()
        there = {self.model.jobs[one].token for one in self.model.held_by(pool.id)}
        assert (again.status, again.late) == ("again", 0)
        assert jobs_of(again) == [job for job in jobs_of(first) if job[0] in there]
        if again.unknown:
            # The limits of these names changed since the first send: the pool reads them, and asks again.
            self.answers[pool.id] = pool.exchange(*(Want(name, 1, fetch=False) for name in again.unknown))

    @rule(which=st.integers(0, 1))
    def late_copy(self, which):
        pool = self.pools[which]
        if pool.last is None or pool.id in self.model.condemned | self.ahead:
            return
        old = pool.last
        self.answers[pool.id] = pool.exchange()
        assert self.link.run(old).status == "late"

    @rule(which=st.integers(0, 1), seed=st.integers(0, 2**20))
    def rewind(self, which, seed):
        """Redis forgets an exchange that it answered; the pool learns it from the next."""
        pool = self.pools[which]
        if pool.id in self.model.condemned | self.ahead:
            return
        before, kept = copy.deepcopy(self.model), self._keep()
        self._exchange(which, random.Random(seed))
        believed = {self.model.jobs[one].token for one in self.model.held_by(pool.id)}
        charged = {self.model.jobs[one].token: self.model.jobs[one] for one in self.model.held_by(pool.id)}
        self._restore(kept)
        self.model = before
        self.ahead.add(pool.id)
        self.answers.pop(pool.id, None)
        reply = pool.exchange()
        assert reply.status == "rewound"
        self.ahead.discard(pool.id)
        # It reads what Redis holds, gives back what it does not know, and forgets what Redis does not.
        found = set(self.link.run(membership.held_tokens(self.keys, pool.id)))
        by_token = {self.model.jobs[one].token: one for one in self.model.held_by(pool.id)}
        assert found == set(by_token)
        strange = sorted(found - believed, key=number_in, reverse=True)
        pool.settle(*(Entry(name_in(token), token, Rewound()) for token in strange))
        # What Redis lost runs on, and is charged again.
        for token in sorted(believed - found, key=number_in):
            job = charged[token]
            if job.marks:
                again = Spent(job.cost, dict.fromkeys(job.marks, ""))
                pool.settle(Entry(job.name, token, Recharge(), spent=again))
                for limit in job.marks:
                    self.model.rates[limit].charge(f"{pool.id}/{token}", job.cost)
        for token in strange:
            if self.model.jobs[by_token[token]].cancel:
                continue
            if self.model.suspects.get(pool.id) == token:
                del self.model.suspects[pool.id]
            self.model.totals[f"rewound:{name_in(token)}"] += 1
            self.model.move(by_token[token], "queue", head=True)

    def _keep(self) -> dict[bytes, bytes]:
        keys = [(self.keys.prefix + key).encode() for key in dump(self.keys, self.link)]
        return dict(zip(keys, self.link.run_many([plain("DUMP", key) for key in keys]), strict=True))

    def _restore(self, kept: dict[bytes, bytes]) -> None:
        now = [self.keys.prefix + key for key in dump(self.keys, self.link)]
        self.link.run_many(
            [plain("DEL", *now), *(plain("RESTORE", key, 0, value) for key, value in kept.items())]
        )

    @rule(which=st.integers(0, 1))
    def beat(self, which):
        pool = self.pools[which]
        alive = self.link.run(membership.beat(self.keys, pool.id, lease=15.0)).alive
        assert alive == (pool.id not in self.model.condemned)

    @rule(which=st.integers(0, 1), n=st.integers(0, 100), kill=st.booleans())
    def cancel(self, which, n, kill):
        """An operator ends a job that runs: it never runs again, whatever becomes of its pool."""
        pool = self.pools[which]
        held = self.model.held_by(pool.id)
        if not held:
            return
        job = self.model.jobs[held[n % len(held)]]
        live = pool.id not in self.model.condemned
        assert self.link.run(operate.cancel(self.keys, pool.id, job.token, kill=kill)) == live
        if live:
            assert job.token in self.link.run(membership.beat(self.keys, pool.id, lease=15.0)).cancel
            job.cancel = "kill" if kill or job.cancel == "kill" else "cancel"

    # Death.

    @rule(which=st.integers(0, 1), how=st.sampled_from(["proof", "lease", "leave"]))
    def die(self, which, how):
        pool = self.pools[which]
        if pool.id in self.model.condemned:
            return
        held = self.model.held_by(pool.id)
        if how == "leave":
            assert self.link.run(membership.leave(self.keys, pool.id)) == len(held)
            if not held:
                self.pools[which] = self.new_pool()
                return
        elif how == "proof":
            found = self.link.run(maintain.condemn(self.keys, lease=15.0, proven=[pool.id], judge=False))
            assert pool.id in found
        else:
            # However long this history takes: the last check of leases was just now, and the other pool has renewed its own.
            self.link.run(plain("DEL", self.keys.watch))
            self.link.run(membership.beat(self.keys, self.pools[1 - which].id, lease=15.0))
            self.link.run(membership.beat(self.keys, pool.id, lease=-1.0))
            assert pool.id in self.link.run(maintain.condemn(self.keys, lease=15.0))
        self.model.condemned.add(pool.id)

    @precondition(lambda self: self.model.condemned)
    @rule(n=st.integers(0, 10), known=st.booleans())
    def sweep(self, n, known):
        """A reaper with or without the right to bury: what it may not judge stays where it is."""
        model = self.model
        pool_id = sorted(model.condemned)[n % len(model.condemned)]
        reaper = Reaper(
            self.keys, self.link, lease=15.0, options=lambda name: JobOptions(),
            on_dead=(lambda job, error: None) if known else None, rng=random.Random(0),
        )  # fmt: skip
        left = 0
        moved = reaper.sweep(pool_id)
        for job_id in reversed(model.held_by(pool_id)):
            job = model.jobs[job_id]
            counted = job.deaths < SUSPECT or model.suspects.get(pool_id) == job.token
            if job.junk:
                # Its id cannot be read.
                model.history[job.name, "", "unreadable"] += 1
                model.totals[f"broken:{job.name}"] += 1
                model.move(job_id, "broken")
            elif job.cancel:
                killed = job.cancel == "kill"
                model.history[job.name, job_id, "dead" if killed else "cancelled"] += 1
                model.totals[f"{'dead' if killed else 'cancelled'}:{job.name}"] += 1
                model.release(job_id)
                model.move(job_id, "dead" if killed else "")
            elif counted and job.deaths + 1 >= MAX_DEATHS:
                if not known:
                    left += 1
                    continue
                job.deaths += 1
                model.history[job.name, job_id, "dead"] += 1
                model.totals[f"dead:{job.name}"] += 1
                model.release(job_id)
                model.move(job_id, "dead")
            else:
                job.deaths += counted
                model.history[job.name, job_id, "crashed"] += 1
                model.totals[f"reaped:{job.name}"] += 1
                model.move(job_id, "queue", head=True)
            moved -= 1
        assert moved == 0
        if not left:
            model.condemned.discard(pool_id)
            model.suspects.pop(pool_id, None)
            self.pools = [self.new_pool() if pool.id == pool_id else pool for pool in self.pools]

    # Chores.

    @rule()
    def requeue(self):
        for side in ("scheduled", "retry"):
            self.put_in_order(side)
        # All of it in one turn, however long that takes.
        with patch.object(requeuer, "TURN_SECONDS", 600.0):
            Requeuer(self.keys, self.link).step()
        for source in ("scheduled", "retry"):
            # By score, then by bytes; what was scheduled in the past has the lowest score.
            due = [job_id for job_id in self.model.at(source) if self.model.jobs[job_id].due]
            for job_id in due:
                if self.model.jobs[job_id].junk:
                    self.model.totals["broken:"] += 1
                    self.model.move(job_id, "broken")
                else:
                    self.model.move(job_id, "queue")
        self._reorder()

    def _reorder(self) -> None:
        """Take the order of what joined a queue together from Redis; that it is the same jobs is checked after."""
        found = census(self.keys, self.link)
        for name in NAMES:
            seen = [id_of(payload) for payload in found.queues.get(name, [])]
            assert sorted(seen) == sorted(self.model.order[name])
            self.model.order[name] = seen

    @rule(count=st.integers(1, 3))
    def trim(self, count):
        self.put_in_order("dead")
        members = [member for member, _ in self.link.run(maintain.oldest(self.keys.dead, count))]
        entries = []
        for member in members:
            job = self.model.jobs[id_of(member)]
            entries.append((member, job.key, id_of(member)))
        dropped = self.link.run(maintain.trim(self.keys, self.keys.dead, "trimmed:dead", entries))
        assert dropped == len(members)
        for member in members:
            self.model.release(id_of(member))
            self.model.move(id_of(member), "")
        if dropped:
            self.model.totals["trimmed:dead"] += dropped

    # Operators.

    @rule(name=st.sampled_from(NAMES))
    def pause_or_resume(self, name):
        if name in self.model.paused:
            assert walk(self.link, operate.resume(self.keys, name))
            self.model.paused.discard(name)
        else:
            assert self.link.run(operate.pause(self.keys, name))
            self.model.paused.add(name)

    @rule(name=st.sampled_from(NAMES), limit=st.sampled_from([None, 0, 1, 2, 4]))
    def limit(self, name, limit):
        walk(self.link, operate.set_concurrency_limit(self.keys, name, limit))
        self.model.limits.pop(name, None)
        if limit is not None:
            self.model.limits[name] = limit

    @rule(
        name=st.sampled_from(NAMES),
        limits=st.sampled_from([(), ("r",), ("w",), ("r", "w")]),
        cost=st.integers(1, 2),
    )
    def rate_limits(self, name, limits, cost):
        """A deploy changes which rate limits a name has."""
        found = RateRule(cost, limits) if limits else None
        self.link.run(rates.change_rule(self.keys, name, found))
        self.model.rules.pop(name, None)
        if found is not None:
            self.model.rules[name] = found
        for pool in self.pools:
            pool.rules = self.model.rules

    @rule(limit=st.sampled_from(list(KINDS)), hold=st.booleans())
    def hold_or_reset(self, limit, hold):
        users = [name for name, found in self.model.rules.items() if limit in found.limits]
        if hold:
            assert self.link.run(rates.hold(self.keys, limit, 3600.0, users))
            self.model.rates[limit].held = True
        else:
            assert self.link.run(rates.reset(self.keys, limit, users))
            self.model.rates[limit].reset()

    @precondition(lambda self: any(self.model.at(side) for side in SIDES))
    @rule(side=st.sampled_from(SIDES), n=st.integers(0, 100), twice=st.booleans(), binned=st.booleans())
    def delete(self, side, n, twice, binned):
        ids = self.model.at(side)
        if not ids:
            return
        job_id = self.pick(ids, n)
        job, member = self.model.jobs[job_id], self.member(job_id)
        op = operate.delete(self.keys, getattr(self.keys, side), member, deletion=self.deletion(binned))
        assert self.link.run(op)
        if twice:
            assert not self.link.run(op)
        self.model.totals[f"deleted:{'' if job.junk else job.name}"] += 1
        self.model.delete([job_id], binned=binned)

    def deletion(self, binned: bool) -> bin.Deletion | None:
        return bin.Deletion(self.keys, actor="ada", action="delete", subject="it") if binned else None

    @precondition(lambda self: self.model.deletions)
    @rule(n=st.integers(0, 100))
    def undo(self, n):
        ids = self.model.deletions[n % len(self.model.deletions)]
        stored = walk(self.link, bin.deletions(self.keys))
        assert len(stored) == len(self.model.deletions)
        (found,) = [one for one in stored if self.ids_in(one) == ids]
        stays = self.model.undo(ids)
        answer = walk(self.link, bin.undo_all(self.keys, found))
        assert answer.count == len(ids) - len(stays)
        assert (answer.holder is None) == (not stays)
        self.model.deletions.remove(ids)
        if stays:
            self.model.deletions.append(stays)

    def ids_in(self, deletion: bin.StoredDeletion) -> list[str]:
        (part, _), *_ = deletion.parts
        entries = self.link.run(bin.read_part(self.keys, part, skip=0, size=100))
        return [id_of(entry.payload) for entry in reversed(entries)]

    @precondition(lambda self: self.model.at("scheduled") or self.model.at("retry"))
    @rule(side=st.sampled_from(SIDES[:2]), n=st.integers(0, 100), kill=st.booleans())
    def run_now_or_kill(self, side, n, kill):
        ids = self.model.at(side)
        if not ids:
            return
        job_id = self.pick(ids, n)
        job, member, source = self.model.jobs[job_id], self.member(job_id), getattr(self.keys, side)
        if kill and not job.junk:
            op = operate.kill(self.keys, source, member, now=self.now())
            assert self.link.run(op)
            assert not self.link.run(op)
            self.model.totals[f"dead:{job.name}"] += 1
            self.model.release(job_id)
            self.model.move(job_id, "dead")
            return
        op = operate.run_now(self.keys, source, [member], now=self.now())
        assert (self.link.run(op), self.link.run(op)) == (1, 0)
        if job.junk:
            self.model.totals["broken:"] += 1
        self.model.move(job_id, "broken" if job.junk else "queue")

    @precondition(lambda self: self.model.at("dead"))
    @rule(n=st.integers(0, 100))
    def revive(self, n):
        job_id = self.pick(self.model.at("dead"), n)
        job, member = self.model.jobs[job_id], self.member(job_id)
        op = operate.revive(self.keys, member, now=self.now())
        answer = self.link.run(op)
        holder = self.model.owners.get(job.key, job_id) if job.key else job_id
        if holder != job_id:
            assert (answer.fate, answer.holder) == ("taken", holder)
            return
        assert answer.fate == "moved"
        assert self.link.run(op).fate == "gone"
        if job.key:
            self.model.owners[job.key] = job_id
        job.fails = job.deaths = 0
        self.model.totals[f"revived:{job.name}"] += 1
        self.model.move(job_id, "queue")

    @rule(name=st.sampled_from(NAMES), n=st.integers(0, 100), kill=st.booleans(), binned=st.booleans())
    def unqueue(self, name, n, kill, binned):
        waiting = self.model.order[name]
        if not waiting:
            return
        place = n % len(waiting)
        job_id = waiting[place]
        job = self.model.jobs[job_id]
        kill = kill and not job.junk
        op = operate.unqueue(
            self.keys, name, self.member(job_id), place, now=self.now(), kill=kill, deletion=self.deletion(binned)
        )  # fmt: skip
        assert self.link.run(op)
        assert not self.link.run(op)
        self.model.totals[f"{'dead' if kill else 'deleted'}:{name}"] += 1
        if kill:
            self.model.release(job_id)
            self.model.move(job_id, "dead")
        else:
            self.model.delete([job_id], binned=binned)

    @rule(name=st.sampled_from(NAMES), most=st.integers(1, 3), binned=st.booleans())
    def purge(self, name, most, binned):
        ids = self.model.order[name][:most]
        steps = operate.purge(self.keys, name, most=most, deletion=self.deletion(binned))
        assert walk(self.link, steps) == len(ids)
        self.model.delete(ids, binned=binned)
        if ids:
            self.model.totals[f"deleted:{name}"] += len(ids)

    @precondition(lambda self: self.model.at("broken"))
    @rule(n=st.integers(0, 100), drop=st.booleans(), binned=st.booleans())
    def repair(self, n, drop, binned):
        entries = self.link.run(broken.page(self.keys)).entries
        entry = entries[n % len(entries)]
        old = id_of(entry.entry)
        if drop:
            op = operate.delete_broken(self.keys, entry, deletion=self.deletion(binned))
            self.model.totals["deleted:"] += 1
        else:
            fresh = self.add("b", "queue")
            op = operate.repair(self.keys, entry, self.payload(fresh, "b"))
            self.model.totals["repaired:b"] += 1
        assert self.link.run(op)
        assert not self.link.run(op)
        if drop:
            self.model.delete([old], binned=binned)
        else:
            self.model.move(old, "")

    # Accidents.

    @rule()
    def script_flush(self):
        self.link.run(plain("SCRIPT", "FLUSH"))

    @rule(name=st.sampled_from(NAMES), where=st.sampled_from(["queue", "scheduled", "retry"]))
    def corrupt(self, name, where):
        """Somebody puts bytes in that are no job."""
        job_id = self.add(name, where, junk=True, due=where != "queue")
        junk = f"\x00 no job {job_id}".encode()
        if where == "queue":
            self.link.run(plain("LPUSH", self.keys.queue(name), junk))
            self.link.run(maintain.ring(self.keys, [name]))
        else:
            self.link.run(plain("ZADD", getattr(self.keys, where), 1, junk))

    @rule(name=st.sampled_from(NAMES), n=st.integers(0, 100))
    def spoil(self, name, n):
        """A job that waits becomes unreadable where it is."""
        waiting = self.model.order[name]
        if not waiting:
            return
        place = n % len(waiting)
        job = self.model.jobs[waiting[place]]
        if job.key:
            return
        self.link.run(plain("LSET", self.keys.queue(name), -1 - place, f"{{ spoiled {waiting[place]}"))
        job.junk, job.fails, job.deaths = True, 0, 0

    # What must hold at any instant.

    @invariant()
    def the_server_agrees_with_the_model(self):
        found, model = census(self.keys, self.link), self.model
        assert max(found.places.values(), default=1) == 1
        there = {job_id: job for job_id, job in model.jobs.items() if job.place}
        assert places_in(found) == {job_id: place_of(job) for job_id, job in there.items()}
        for name in NAMES:
            assert [id_of(payload) for payload in found.queues.get(name, [])] == model.order[name]
        for payload in found.places:
            job = model.jobs[id_of(payload)]
            if "broken" not in (job.place, job.was if job.place == "bin" else "") and not job.junk:
                wire = codec.read(payload)
                assert (wire.fails, wire.deaths) == (job.fails, job.deaths)
        assert {key: value.decode() for key, value in found.unique.items()} == model.owners
        attempts: dict[str, set[str]] = {name: set() for name in model.limits}
        for job in there.values():
            if job.place == "held" and job.name in attempts:
                attempts[job.name].add(f"{job.pool}/{job.token}")
        # A name with rate limits and without a concurrency limit counts from when it got them.
        counted = {
            name: members
            for name, members in found.held_sets.items()
            if name not in model.rules or name in model.limits
        }
        assert counted == {name: members for name, members in attempts.items() if members}
        assert not found.wrong

    @invariant()
    def the_history_has_every_attempt_that_ended_once(self):
        found: Counter[tuple[str, str, str]] = Counter()
        for name in NAMES:
            for completed in (True, False):
                for one in all_records(self.link, stream(self.keys, name, completed=completed)):
                    assert completed == (one.record.ending == "completed")
                    found[name, one.record.id, one.record.ending] += 1
        assert found == self.model.history

    @invariant()
    def totals_and_bells_are_right(self):
        flat = self.link.run(plain("HGETALL", self.keys.totals))
        totals = {key.decode(): int(n) for key, n in zip(flat[::2], flat[1::2], strict=True)}
        assert totals == {key: n for key, n in self.model.totals.items() if n}
        for name in NAMES:
            if self.model.fetchable(name):
                assert self.link.run(plain("ZCARD", self.keys.bell(name))) == 1, f"bell of {name}"


def recorded(entry: Entry, job_id: str, ending: str) -> Entry:
    """An entry with the record of its attempt, as a pool sends it."""
    record = StoredRecord(job_id, ending, 1)
    records = new_records(entry.name, [record], HistoryCaps(), completed=ending == "completed")
    return msgspec.structs.replace(entry, records=records)


def id_of(payload: bytes) -> str:
    """The id in a payload, or in bytes that are none."""
    body = payload.rpartition(b"\n")[2]
    try:
        return json.loads(body)["id"]
    except ValueError:
        return body.split()[-1].decode()


def places_in(found: Census) -> dict[str, tuple[str, ...]]:
    """Each id to where it is."""
    places: dict[str, tuple[str, ...]] = {}
    for name, queue in found.queues.items():
        places |= {id_of(payload): ("queue", name) for payload in queue}
    for pool_id, held in found.held.items():
        places |= {id_of(payload): ("held", pool_id, token) for token, payload in held.items()}
    for part in found.bin.values():
        places |= {id_of(payload): ("bin",) for payload in part}
    for place in (*SIDES, "done", "broken"):
        places |= {id_of(payload): (place,) for payload in getattr(found, place)}
    return places


def place_of(job: Known) -> tuple[str, ...]:
    if job.place == "queue":
        return ("queue", job.name)
    return ("held", job.pool, job.token) if job.place == "held" else (job.place,)


@pytest.mark.timeout(6 * 3600 if FULL else 900)
def test_any_history_of_operations_leaves_every_job_in_exactly_one_place(tmp_path):
    """A failure is shrunk to the fewest steps, and printed as a program."""
    with running(tmp_path) as server:
        Machine.url = server.url
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=5000 if FULL else 200, stateful_step_count=80 if FULL else 50, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip

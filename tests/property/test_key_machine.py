"""Limits by key and turns, in any order of operations, against plain dictionaries.

Two job names share a rate and a window that count by key. After each step every job is in exactly one place, the jobs of a key
are in their order, a key with jobs is in turns or blocked, what may start is in turns, and the attempts that count for a key are
those that pools hold. Requests are built by the code that pools build them with. DAYJOB_PROOF=full walks much farther.
"""

from __future__ import annotations

import copy
import os
import random
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from census import dump
from dayjob import WorkerPool
from dayjob.job import new_id
from dayjob.limits import KeyRule, Limit, Rate, RateKind, Window
from dayjob.options import JobOptions
from dayjob.outcome import Done, GivenBack, HeldBack, Recharge, Retried, Rewound
from dayjob.retry import SUSPECT
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import consume, key_changes, maintain, operate, produce, rates
from dayjob.store.ops.consume import Entry, Want, key_in, name_in, number_in
from dayjob.store.ops.partitions import KeyChange
from dayjob.store.ops.produce import Keyed, Slot
from dayjob.store.ops.rates import RateRule, Spent
from dayjob.worker.chores import requeuer
from dayjob.worker.chores.keys import KeyRepairer
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.requeuer import Requeuer
from dayjob.worker.fetching.keys_with_jobs import KeysWithJobs
from dayjob.worker.fetching.rules import RuleBook
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.state import PoolState
from pools import Pool, jobs_of
from rates import ModelLimit
from server import running

FULL = os.environ.get("DAYJOB_PROOF") == "full"
NAMES, KEYS, BY = ("a", "b"), ("x", "y", "z"), ("key",)
DAY = 86_400
#: What the code declares, and what operators may set: nothing fills up and nothing is forgotten within a history.
KINDS: dict[str, RateKind] = {"r": Rate(4, per=4 * DAY, burst=4), "w": Window(3, per=DAY)}
OTHERS: dict[str, RateKind] = {"r": Rate(4, per=2 * DAY, burst=2), "w": Window(5, per=DAY)}
HOUR_MS = 3_600_000


@dataclass
class Known:
    """What the model knows of one job."""

    name: str
    key: str
    #: waiting, held, retry, or "" when it is gone.
    place: str = "waiting"
    fails: int = 0
    deaths: int = 0
    pool: str = ""
    token: str = ""
    #: Each limit, for the key, to the epoch and the mark in the model; and to the mark in Redis.
    charge: dict[str, tuple[int, float]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)


@dataclass
class KeyLimit(ModelLimit):
    """A limit for one key. Units that were charged under another interval begin a new epoch."""

    stored: float = 0.0

    @property
    def interval(self) -> float:
        return self.kind.seconds / self.kind.n if isinstance(self.kind, Rate) else 0.0

    def touch(self) -> None:
        """Note that a script reads and stores the state under the kind in force."""
        if self.used and self.stored != self.interval:
            self.charged = 0
            self.epoch += 1
        self.stored = self.interval


@dataclass
class Model:
    """A namespace with keys as plain dictionaries."""

    jobs: dict[str, Known] = field(default_factory=dict)
    #: Name and key to ids, the next first; jobs that are not sorted yet are behind those that are.
    order: dict[tuple[str, str], list[str]] = field(
        default_factory=lambda: {(name, key): [] for name in NAMES for key in KEYS}
    )
    rules: dict[str, RateRule] = field(default_factory=dict)
    #: The limit of a whole name.
    limits: dict[str, int] = field(default_factory=dict)
    #: Name and key to a limit that an operator set.
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[tuple[str, str]] = field(default_factory=set)
    #: Limit to its kind for all keys, and limit|key to what it counts.
    kinds: dict[str, RateKind | None] = field(default_factory=lambda: dict(KINDS))
    overrides: dict[str, RateKind | None] = field(default_factory=dict)
    rates: dict[str, KeyLimit] = field(
        default_factory=lambda: {f"{one}|{key}": KeyLimit(KINDS[one]) for one in KINDS for key in KEYS}
    )
    condemned: set[str] = field(default_factory=set)

    def held(self, name: str, key: str | None = None, pool: str | None = None) -> list[Known]:
        found = [
            job
            for job in self.jobs.values()
            if job.place == "held" and job.name == name and key in (None, job.key)
        ]
        return [job for job in found if pool in (None, job.pool)]

    def held_by(self, pool_id: str) -> list[str]:
        found = [one for one, job in self.jobs.items() if job.pool == pool_id]
        return sorted(found, key=lambda one: number_in(self.jobs[one].token))

    def allowed(self, name: str, key: str) -> int:
        """How many attempts of a key may be held at once; 0 for no limit."""
        rule = self.rules[name]
        assert rule.key is not None
        return self.places.get((name, key), rule.key.places)

    def of(self, limit: str) -> KeyLimit:
        """A limit for one key, under the kind in force."""
        one, found = limit.partition("|")[0], self.rates[limit]
        kind = self.overrides.get(limit, self.kinds[one]) if limit in self.overrides else self.kinds[one]
        if kind is not None:
            found.kind = kind
        return found

    def lifted(self, limit: str) -> bool:
        one = limit.partition("|")[0]
        return (self.overrides[limit] if limit in self.overrides else self.kinds[one]) is None

    def free(self, name: str, key: str) -> int:
        """How many more jobs of a key its limits let start."""
        rule, most = self.rules[name], 1000
        if (name, key) in self.paused:
            return 0
        allowed = self.allowed(name, key)
        if allowed:
            most = max(0, allowed - len(self.held(name, key)))
        for limit in rule.of_key(key):
            found = self.of(limit)
            if self.lifted(limit):
                most = 0 if found.held else most
            else:
                most = min(most, found.spare(rule.cost))
        return most

    def fetchable(self, name: str, key: str) -> int:
        most = min(len(self.order[name, key]), self.free(name, key))
        if name in self.limits:
            most = min(most, max(0, self.limits[name] - len(self.held(name))))
        return most

    def start(self, job_id: str, pool_id: str, token: str, marks: dict[str, str]) -> None:
        job = self.jobs[job_id]
        self.order[job.name, job.key].remove(job_id)
        job.place, job.pool, job.token = "held", pool_id, token
        job.marks = {limit: marks.get(limit, "") for limit in self.rules[job.name].of_key(job.key)}
        for limit in job.marks:
            if not self.lifted(limit):
                found = self.of(limit)
                found.touch()
                found.charge(f"{pool_id}/{token}", self.rules[job.name].cost)

    def end(self, job_id: str, place: str) -> None:
        job = self.jobs[job_id]
        job.place, job.pool, job.token, job.charge, job.marks = place, "", "", {}, {}
        if place == "waiting":
            self.order[job.name, job.key].insert(0, job_id)

    def correct(self, job: Known, spent: Spent) -> None:
        for limit in spent.marks:
            found = self.of(limit)
            if self.lifted(limit):
                continue
            found.touch()
            found.correct(f"{job.pool}/{job.token}", spent, job.charge.get(limit, (-1, 0.0)))


class MachinePool(Pool):
    """A pool that builds its requests with the rule book and the keys of a worker."""

    def __init__(self, keys: Keys, link: Link, pool_id: str) -> None:
        super().__init__(keys, link, pool_id=pool_id, names=NAMES)
        declared = WorkerPool(namespace="machine")
        for name in NAMES:
            declared.register(name, _handler, fair_by="key")
        types = {name: PoolJobType(declared.registry.get(name), _call, PoolState()) for name in NAMES}
        self.book = RuleBook(keys, link, types)
        self.book.read_again(NAMES)
        self.with_jobs = KeysWithJobs(keys, link, types)

    def prepare(
        self, *wants: Any, entries: Any = (), done: Any = None, room: int = 0, extra: int = 0, **what: Any
    ) -> Any:
        asked = {want.name for want in wants} | {entry.name for entry in entries} | set(done or {})
        freed = sorted(self.book.freed_by(entries) - asked)
        wants = (*wants, *(Want(name, 1, fetch=False) for name in freed))
        self.rules = self.book.of(sorted(asked | set(freed)))
        self.keyed = self.with_jobs.of(self.rules, entries, done or {}, room, extra)
        self.kinds = self.book.kinds(self.rules, entries, self.keyed)
        return super().prepare(*wants, entries=entries, done=done, room=room, extra=extra, **what)

    def note(self, reply: consume.Reply) -> None:
        super().note(reply)
        if reply.unknown:
            self.book.read_again(reply.unknown)
        self.with_jobs.learn(reply.next_keys, reply.counted)
        for name in reply.unsorted:
            rule = self.book.key(name)
            if rule is not None:
                self.with_jobs.sort(name, rule.by)


def _handler(key: str) -> None:
    """A job type of the machine."""


def _call(context: Any, job: Any) -> None:
    """No job of the machine runs."""


class KeyMachine(RuleBasedStateMachine):
    """What producers, pools, operators, chores and accidents do to names with keys."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys("k" + secrets.token_hex(6))
        self.link = Link(addresses.parse_url(self.url), tag=self.keys.known_jobs)
        self.model = Model()
        self.joined = self.made = 0
        self.answers: dict[str, consume.Reply] = {}
        for limit, kind in KINDS.items():
            self.link.run(rates.declare(self.keys, Limit(limit, kind)))
        for name in NAMES:
            self.set_rule(name, 2, ("r", "w"))
        self.repairer = KeyRepairer(self.keys, self.link)
        self.pools = [self.new_pool(), self.new_pool()]

    def teardown(self) -> None:
        names = [self.keys.prefix + key for key in dump(self.keys, self.link)]
        if names:
            self.link.run(plain("DEL", *names))
        self.link.close()

    def new_pool(self) -> MachinePool:
        self.joined += 1
        return MachinePool(self.keys, self.link, f"pool{self.joined:04}")

    def new_job(self, name: str, key: str) -> tuple[str, bytes]:
        job_id = f"j{self.made}"
        self.made += 1
        self.model.jobs[job_id] = Known(name, key)
        self.model.order[name, key].append(job_id)
        return job_id, codec.write(codec.quoted(name), job_id, 1.0, b'{"key":"%s"}' % key.encode(), None)

    # Producers.

    @rule(
        name=st.sampled_from(NAMES),
        of=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        again=st.booleans(),
    )
    def enqueue(self, name, of, again):
        """Code that knows the job type."""
        payloads = [self.new_job(name, key)[1] for key in of]
        keyed = Keyed(BY, tuple(of))
        op = produce.enqueue(self.keys, Slot(new_id(), 1), name, payloads, introduce=True, keyed=keyed)
        for _ in range(1 + again):
            self.link.run(op)

    @rule(name=st.sampled_from(NAMES), of=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def push(self, name, of):
        """A program that knows nothing of keys."""
        payloads = [self.new_job(name, key)[1] for key in of]
        self.link.run(produce.enqueue(self.keys, Slot(new_id(), 1), name, payloads, introduce=True))

    # Pools.

    @rule(turns=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2**20)), min_size=1, max_size=5))
    def exchange(self, turns):
        for which, seed in turns:
            self._exchange(which, random.Random(seed))
            self.the_server_agrees_with_the_model()

    def _exchange(self, which: int, rng: random.Random, room: int | None = None) -> int:
        pool, model = self.pools[which], self.model
        outcomes = [
            (one, rng) for one in reversed(model.held_by(pool.id)) if room is None and rng.random() < 0.5
        ]
        entries, done = self._entries([one for one, _ in outcomes], rng)
        wants = [
            Want(name, rng.choice((1, 5)), fetch=room is not None or rng.random() < 0.8)
            for name in rng.sample(NAMES, len(NAMES))
        ]
        room = rng.randint(0, 4) if room is None else room
        kinds = dict(self.kind_of)
        reply = pool.exchange(*wants, entries=entries, done=done, room=room, u=rng.random())
        if pool.id in model.condemned:
            assert (reply.status, jobs_of(reply)) == ("refused", [])
            self.pools[which] = self.new_pool()
            return 0
        assert (reply.status, reply.late) == ("ok", 0)
        self.answers[pool.id] = reply
        if reply.stuck:
            # Attempts are counted by key now, and the pool did not know it.
            plain = {token: name for name, tokens in done.items() for token in tokens}
            again = pool.exchange(entries=[Entry(plain[token], token, Done()) for token in reply.stuck])
            assert (again.late, again.stuck) == (0, [])
            self.answers[pool.id] = again
            reply.held = again.held
        self._settled(entries, done, kinds)
        fetched = self._fetched(pool, room, reply)
        self._ask_again(pool, reply)
        return fetched

    def _ask_again(self, pool: MachinePool, reply: consume.Reply) -> None:
        """A pool that knows other rules than Redis reads them, and asks again."""
        if reply.unknown:
            pool.book.read_again(reply.unknown)
            self.answers[pool.id] = pool.exchange(*(Want(name, 1, fetch=False) for name in reply.unknown))

    def _entries(self, ended: list[str], rng: random.Random) -> tuple[list[Entry], dict[str, list[str]]]:
        entries: list[Entry] = []
        done: dict[str, list[str]] = {}
        self.kind_of: dict[str, str] = {}
        for job_id in ended:
            job = self.model.jobs[job_id]
            kind = rng.choice(("plain", "done", "back", "back", "retry", "throttle"))
            self.kind_of[job_id] = kind
            spent = None
            if job.charge and kind != "plain":
                units = -self.cost(job) if kind == "back" else rng.choice((0, -1, 1))
                spent = Spent(units, job.marks, undone=kind == "back") if units else None
            if kind == "plain":
                done.setdefault(job.name, []).append(job.token)
            elif kind == "done":
                entries.append(Entry(job.name, job.token, Done(), spent=spent))
            elif kind == "back":
                entries.append(Entry(job.name, job.token, GivenBack(), spent=spent))
            elif kind == "throttle" and job.charge:
                limits = tuple({limit.partition("|")[0] for limit in job.charge})
                entries.append(Entry(job.name, job.token, HeldBack(limits, HOUR_MS / 1000), spent=spent))
            else:
                self.kind_of[job_id] = "retry"
                (payload,) = self.link.run(maintain.read_held(self.keys, job.pool, [job.token]))
                changed = codec.rewrite(payload, {"fails": job.fails + 1})
                entries.append(Entry(job.name, job.token, Retried(0.0), changed, spent=spent))
        return entries, done

    def cost(self, job: Known) -> int:
        return self.model.rules[job.name].cost

    def _settled(self, entries: list[Entry], done: dict[str, list[str]], _: dict[str, str]) -> None:
        model = self.model
        by_token = {(job.pool, job.token): one for one, job in model.jobs.items() if job.token}
        pool_id = next((model.jobs[one].pool for one in self.kind_of), "")
        for entry in entries:
            job_id = by_token[pool_id, entry.token]
            job = model.jobs[job_id]
            if entry.spent is not None:
                model.correct(job, entry.spent)
            if isinstance(entry.outcome, HeldBack):
                for limit in entry.outcome.limits:
                    model.rates[f"{limit}|{job.key}"].held = True
            kind = self.kind_of[job_id]
            if kind == "retry":
                job.fails += 1
            model.end(job_id, {"retry": "retry", "done": ""}.get(kind, "waiting"))
        for tokens in done.values():
            for token in tokens:
                model.end(by_token[pool_id, token], "")

    def _fetched(self, pool: Pool, room: int, reply: consume.Reply) -> int:
        model, fetched = self.model, []
        for token, name, payload in jobs_of(reply):
            key = key_in(token)
            job_id = model.order[name, key][0]
            assert codec.read(payload).id == job_id, "the jobs of a key start in their order"
            assert model.fetchable(name, key) > 0, f"{name} of {key} started over a limit"
            model.start(job_id, pool.id, token, reply.marks)
            fetched.append(model.jobs[job_id])
        for job in fetched:
            job.charge = {
                one: (model.rates[one].epoch, model.rates[one].charged)
                for one in job.marks
                if not model.lifted(one)
            }
            job.marks = {one: job.marks[one] for one in job.charge}
        assert len(fetched) <= room
        assert reply.held == len(model.held_by(pool.id))
        return len(fetched)

    @rule(which=st.integers(0, 1), seed=st.integers(0, 2**20))
    def drain(self, which, seed):
        """A pool with free workers: nothing that every limit allows is left waiting."""
        rng, quiet = random.Random(seed), 0
        for _ in range(60):
            taken = self._exchange(which, rng, room=6)
            self.the_server_agrees_with_the_model()
            quiet = 0 if taken else quiet + 1
            if quiet == 4:
                break
        left = {(name, key): self.model.fetchable(name, key) for name in NAMES for key in KEYS}
        assert not any(left.values()), f"not started though allowed: {left}"

    @rule(which=st.integers(0, 1))
    def resend(self, which):
        pool = self.pools[which]
        first = self.answers.pop(pool.id, None)
        if first is None or pool.id in self.model.condemned:
            return
        again = pool.resend()
        # A pool handles this answer like a first one: it sorts what is in a queue.
        pool.note(again)
        there = {self.model.jobs[one].token for one in self.model.held_by(pool.id)}
        assert (again.status, again.late) == ("again", 0)
        assert jobs_of(again) == [job for job in jobs_of(first) if job[0] in there]
        self._ask_again(pool, again)

    @rule(which=st.integers(0, 1), seed=st.integers(0, 2**20))
    def rewind(self, which, seed):
        """Redis forgets an exchange that it answered."""
        pool, model = self.pools[which], self.model
        if pool.id in model.condemned:
            return
        before, kept = copy.deepcopy(model), self._keep()
        self._exchange(which, random.Random(seed))
        believed = {self.model.jobs[one].token: self.model.jobs[one] for one in self.model.held_by(pool.id)}
        self._restore(kept)
        self.model = model = before
        self.answers.pop(pool.id, None)
        assert pool.exchange().status == "rewound"
        there = {model.jobs[one].token: one for one in model.held_by(pool.id)}
        for token in sorted(believed.keys() - there.keys(), key=number_in):
            job = believed[token]
            again = Spent(self.cost(job), dict.fromkeys(job.marks, ""))
            if job.marks:
                self._ask_again(pool, pool.settle(Entry(job.name, token, Recharge(), spent=again)))
            for limit in job.marks:
                if not model.lifted(limit):
                    model.of(limit).touch()
                    model.of(limit).charge(f"{pool.id}/{token}", self.cost(job))
        strange = sorted(there.keys() - believed.keys(), key=number_in, reverse=True)
        self._ask_again(pool, pool.settle(*(Entry(name_in(token), token, Rewound()) for token in strange)))
        for token in strange:
            model.end(there[token], "waiting")

    def _keep(self) -> dict[bytes, bytes]:
        keys = [(self.keys.prefix + key).encode() for key in dump(self.keys, self.link)]
        return dict(zip(keys, self.link.run_many([plain("DUMP", key) for key in keys]), strict=True))

    def _restore(self, kept: dict[bytes, bytes]) -> None:
        now = [self.keys.prefix + key for key in dump(self.keys, self.link)]
        self.link.run_many(
            [plain("DEL", *now), *(plain("RESTORE", key, 0, value) for key, value in kept.items())]
        )

    # Death and chores.

    @rule(which=st.integers(0, 1), sweep=st.booleans())
    def die(self, which, sweep):
        pool = self.pools[which]
        if pool.id not in self.model.condemned:
            self.link.run(maintain.condemn(self.keys, lease=15.0, proven=[pool.id], judge=False))
            self.model.condemned.add(pool.id)
        if sweep:
            self.sweep(which)

    @rule(which=st.integers(0, 1))
    def sweep(self, which):
        pool_id, model = self.pools[which].id, self.model
        if pool_id not in model.condemned:
            return
        reaper = Reaper(
            self.keys,
            self.link,
            lease=15.0,
            options=lambda name: JobOptions(),
            on_dead=None,
            rng=random.Random(0),
        )
        held = model.held_by(pool_id)
        assert reaper.sweep(pool_id) == len(held)
        for job_id in reversed(held):
            job = model.jobs[job_id]
            job.deaths += job.deaths < SUSPECT
            model.end(job_id, "waiting")
        model.condemned.discard(pool_id)
        self.pools[which] = self.new_pool()

    @rule()
    def requeue(self):
        """What is due goes to the end of its queue, from where a pool sorts it."""
        due = [one for one, job in self.model.jobs.items() if job.place == "retry"]
        due.sort(key=lambda one: int(one[1:]))
        raw = {codec.read(one).id: one for one in self.link.run(plain("ZRANGE", self.keys.retry, 0, -1))}
        for job_id in due:
            self.link.run(plain("ZADD", self.keys.retry, "XX", 1 + int(job_id[1:]), raw[job_id]))
        # All of it in one turn, however long that takes.
        with patch.object(requeuer, "TURN_SECONDS", 600.0):
            Requeuer(self.keys, self.link).step()
        for job_id in due:
            job = self.model.jobs[job_id]
            job.place = "waiting"
            self.model.order[job.name, job.key].append(job_id)

    @rule(
        name=st.sampled_from(NAMES),
        key=st.sampled_from(KEYS),
        what=st.sampled_from(["turns", "blocked", "debts", "held"]),
    )
    def lose(self, name, key, what):
        """A key that is deleted by hand is put right from what is held and what waits."""
        self.repairer.repair(NAMES)
        lost = {"held": self.keys.held_of(f"{name}|{key}")}.get(what) or getattr(self.keys, what)(name)
        self.link.run(plain("DEL", lost))
        self.repairer.repair(NAMES)

    # Operators and deploys.

    def set_rule(self, name: str, places: int, limits: tuple[str, ...], cost: int = 1) -> None:
        rule = RateRule(cost, limits, KeyRule(BY, places), frozenset(limits))
        walk(self.link, key_changes.put_rule(self.keys, name, rule))
        self.model.rules[name] = rule

    @rule(
        name=st.sampled_from(NAMES), places=st.integers(0, 2), cost=st.integers(1, 2),
        limits=st.sampled_from([(), ("r",), ("w",), ("r", "w")]),
    )  # fmt: skip
    def deploy(self, name, places, cost, limits):
        self.set_rule(name, places, limits, cost)

    @rule(name=st.sampled_from(NAMES), limit=st.sampled_from([None, 0, 1, 3]))
    def limit_name(self, name, limit):
        walk(self.link, operate.set_concurrency_limit(self.keys, name, limit))
        self.model.limits.pop(name, None)
        if limit is not None:
            self.model.limits[name] = limit

    @rule(name=st.sampled_from(NAMES), key=st.sampled_from(KEYS), limit=st.sampled_from([None, 1, 3]))
    def limit_key(self, name, key, limit):
        clear = () if limit else ("limit",)
        walk(
            self.link,
            key_changes.change_key(self.keys, name, key, KeyChange(limit=limit, clear=clear)),
        )
        self.model.places.pop((name, key), None)
        if limit is not None:
            self.model.places[name, key] = limit

    @rule(name=st.sampled_from(NAMES), key=st.sampled_from(KEYS), weight=st.sampled_from([0.5, 1, 4]))
    def weigh(self, name, key, weight):
        walk(self.link, key_changes.change_key(self.keys, name, key, KeyChange(weight)))

    @rule(name=st.sampled_from(NAMES), key=st.sampled_from(KEYS))
    def pause_or_resume(self, name, key):
        paused = (name, key) in self.model.paused
        walk(self.link, key_changes.change_key(self.keys, name, key, KeyChange(paused=not paused)))
        (self.model.paused.discard if paused else self.model.paused.add)((name, key))

    @rule(
        limit=st.sampled_from(list(KINDS)),
        key=st.sampled_from(KEYS),
        what=st.sampled_from(["set", "lift", "restore", "reset", "hold"]),
    )
    def change_one_key(self, limit, key, what):
        value = {"set": OTHERS[limit].definition(), "hold": HOUR_MS}.get(what, "")
        assert self.link.run(
            rates.change_key_rate(self.keys, limit, key, what, self.users(limit), value=value)
        )
        own = f"{limit}|{key}"
        if what == "set":
            self.model.overrides[own] = OTHERS[limit]
        elif what == "lift":
            self.model.overrides[own] = None
        elif what == "restore":
            self.model.overrides.pop(own, None)
        elif what == "hold":
            self.model.rates[own].held = True
        else:
            self.model.rates[own].reset()

    @rule(limit=st.sampled_from(list(KINDS)), what=st.sampled_from(["set", "lift", "restore"]))
    def change_all_keys(self, limit, what):
        users = self.users(limit)
        change = {
            "set": lambda: rates.set_limit(self.keys, limit, OTHERS[limit], users),
            "lift": lambda: rates.lift(self.keys, limit, users),
            "restore": lambda: rates.restore_declared(self.keys, limit, users),
        }[what]
        assert self.link.run(change())
        for name in users:
            walk(self.link, key_changes.try_blocked(self.keys, name))
        self.model.kinds[limit] = {"set": OTHERS[limit], "restore": KINDS[limit]}.get(what)

    def users(self, limit: str) -> list[str]:
        return [name for name in NAMES if limit in self.model.rules[name].limits]

    # What must hold at any instant.

    @invariant()
    def the_server_agrees_with_the_model(self):
        found, model = dump(self.keys, self.link), self.model
        there = Counter[str]()
        for name in NAMES:
            unsorted = [codec.read(one) for one in reversed(found.get(f"jobs:{name}", ("", []))[1])]
            there.update(one.id for one in unsorted)
            turns = {key.decode() for key in found.get(f"turns:{name}", ("", {}))[1]}
            blocked = {key.decode(): at for key, at in found.get(f"blocked:{name}", ("", {}))[1].items()}
            assert not turns & blocked.keys()
            sorted_keys = set()
            for key in KEYS:
                waiting = [
                    codec.read(one).id for one in reversed(found.get(f"partition:{name}|{key}", ("", []))[1])
                ]
                there.update(waiting)
                if waiting:
                    sorted_keys.add(key)
                late = [one.id for one in unsorted if one.args and f'"{key}"'.encode() in bytes(one.args)]
                assert waiting + late == model.order[name, key], "the order of a key"
                if waiting and model.free(name, key):
                    # The next exchange puts a blocked key whose time has come into turns.
                    assert key in turns or blocked.get(key) == 0, f"{name} of {key} may start, and is blocked"
                held = {f"{job.pool}/{job.token}" for job in model.held(name, key)}
                members = {one.decode() for one in found.get(f"held:{name}|{key}", ("", set()))[1]}
                if model.allowed(name, key):
                    assert members == held, f"what counts for {name} of {key}"
            assert sorted_keys <= turns | blocked.keys(), "a key with jobs that no pool would visit"
        assert max(there.values(), default=1) == 1
        assert set(there) == {one for one, job in model.jobs.items() if job.place == "waiting"}

    @invariant()
    def bells_ring(self):
        """A pool that sleeps is woken for what may start."""
        for name in NAMES:
            if any(self.model.fetchable(name, key) for key in KEYS):
                assert self.link.run(plain("ZCARD", self.keys.bell(name))) == 1, f"bell of {name}"


@pytest.mark.timeout(6 * 3600 if FULL else 900)
def test_any_history_keeps_the_limits_and_the_order_of_every_key(tmp_path):
    """A failure is shrunk to the fewest steps, and printed as a program."""
    with running(tmp_path) as server:
        KeyMachine.url = server.url
        run_state_machine_as_test(
            KeyMachine,
            settings=settings(
                max_examples=5000 if FULL else 60, stateful_step_count=80 if FULL else 40, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip

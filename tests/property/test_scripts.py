"""Two pools, a sweeper and some operators at random: every accepted job is in exactly one place, in order.

A plain model is told what each script answered, and must then agree with Redis on every queue, every held attempt,
every side set, every place of a limit, every total and every bell.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from census import census
from dayjob.job import new_id
from dayjob.outcome import Died, Done, Dropped, GivenBack, Kept, Reaped, Retried, Rewound, Snoozed, Unreadable
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import consume, maintain, membership, operate, produce
from dayjob.store.ops.consume import Entry, Want, name_in, number_in
from dayjob.store.ops.maintain import Move
from dayjob.store.ops.produce import Slot, When
from pools import Pool, jobs_of

NAMES = ("a", "b")
#: Nothing is due before a history ends, in milliseconds.
HOUR = 3_600_000
KINDS = ("retry", "snooze", "dead", "drop", "done", "keep", "back", "rewound", "broken", "plain")
RESCUES = ("queue", "queue", "dead", "retry", "broken", "drop")
OUTCOMES = {
    "retry": Retried(HOUR / 1000),
    "snooze": Snoozed(HOUR / 1000),
    "dead": Died(counts_failure=False),
    "drop": Dropped(counts_failure=False),
    "done": Done(),
    "keep": Kept(HOUR / 1000),
    "back": GivenBack(),
    "rewound": Rewound(),
    "broken": Unreadable(),
    "queue": Reaped(),
}
#: Kind to the place it sends a job to, and the totals it adds to.
ENDS = {
    "retry": ("retry", ("failed", "retried")),
    "snooze": ("scheduled", ("snoozed",)),
    "dead": ("dead", ("dead",)),
    "drop": (None, ("discarded",)),
    "done": (None, ("done",)),
    "plain": (None, ("done",)),
    "keep": ("done", ("done",)),
    "broken": ("broken", ("broken",)),
    "back": ("queue", ("given_back",)),
    "rewound": ("queue", ("rewound",)),
}


class World:
    """Redis, and what we think is in it."""

    def __init__(self, url: str) -> None:
        self.keys = Keys("m" + secrets.token_hex(6))
        self.link = Link(addresses.parse_url(url), tag=self.keys.known_jobs)
        self.queues: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.held: dict[str, dict[str, bytes]] = {}
        self.places: dict[str, list[bytes]] = {
            place: [] for place in ("scheduled", "retry", "dead", "done", "broken")
        }
        self.totals: Counter[str] = Counter()
        self.limits: dict[str, int] = {}
        self.paused: set[str] = set()
        self.condemned: list[str] = []
        self.made = 0
        self.pools = [self.new_pool(), self.new_pool()]
        self.replies: dict[str, consume.Reply] = {}

    def new_pool(self) -> Pool:
        pool = Pool(self.keys, self.link, names=NAMES)
        self.held[pool.id] = {}
        return pool

    # What can happen.

    def enqueue(self, rng) -> None:
        name, count = rng.choice(NAMES), rng.randint(1, 6)
        payloads = [b"%s-%d" % (name.encode(), self.made + i) for i in range(count)]
        self.made += count
        slot = Slot(new_id(), 1)
        later = rng.random() < 0.5 and rng.random() < 0.5
        if later:
            op = produce.schedule(self.keys, slot, name, payloads, When("in", HOUR), introduce=True)
        else:
            op = produce.enqueue(self.keys, slot, name, payloads, introduce=True)
        for _ in range(rng.randint(1, 2)):
            self.link.run(op)
        (self.places["scheduled"] if later else self.queues[name]).extend(payloads)

    def exchange(self, rng) -> None:
        which = rng.randint(0, 1)
        pool = self.pools[which]
        alive = pool.id not in self.condemned
        gap = rng.randint(0, 9) == 0
        pool.number += gap
        outcomes = self._outcomes(rng, pool)
        entries = [
            Entry(name_in(token), token, OUTCOMES[kind], payload)
            for token, payload, kind in outcomes
            if kind != "plain"
        ]
        done: dict[str, list[str]] = {}
        for token, _, kind in outcomes:
            if kind == "plain":
                done.setdefault(name_in(token), []).append(token)
        fast = rng.choice(NAMES)
        wants = [
            Want(
                name,
                rng.choice((1, 1, 3, 100)),
                fetch=rng.randint(0, 5) > 0,
                fast=name == fast,
            )
            for name in rng.sample(NAMES, len(NAMES))
        ]
        room, extra = rng.randint(0, 5), rng.randint(0, 3)
        u = rng.random()
        reply = pool.exchange(*wants, room=room, extra=extra, entries=entries, done=done, u=u)
        if not alive:
            assert (reply.status, jobs_of(reply)) == ("refused", [])
            self.pools[which] = self.new_pool()
            return
        assert reply.status == ("rewound" if gap else "ok")
        assert not reply.stuck
        late = self._settle(pool, [one for one in outcomes if one[2] != "plain"])
        late += self._settle(pool, [one for one in outcomes if one[2] == "plain"])
        assert reply.late == late
        self._fetched(pool, reply, wants, room, extra)
        self.replies[pool.id] = reply

    def _outcomes(self, rng, pool: Pool) -> list[tuple[str, bytes, str]]:
        """Ends for some of what it holds, the newest first, and now and then for what nobody holds."""
        held = self.held[pool.id]
        tokens = sorted(held, key=number_in, reverse=True)
        kinds = rng.choices((*KINDS, *(None,) * 10), k=len(tokens))
        outcomes = [(token, held[token], kind) for token, kind in zip(tokens, kinds, strict=True) if kind]
        if rng.randint(0, 4) == 0:
            name = rng.choice(NAMES)
            outcomes.append((f"{pool.token + 1000}:{name}", b"nobody's", rng.choice(KINDS)))
        return outcomes

    def _settle(self, pool: Pool, outcomes: list[tuple[str, bytes, str]]) -> int:
        late = 0
        for token, _, kind in outcomes:
            name = name_in(token)
            payload = self.held[pool.id].pop(token, None)
            if payload is None:
                self.totals[f"late:{name}"] += 1
                late += 1
                continue
            place, counters = ENDS[kind]
            self.totals.update(f"{counter}:{name}" for counter in counters)
            self._send(place, name, payload)
        return late

    def _send(self, place: str | None, name: str, payload: bytes) -> None:
        if place == "queue":
            self.queues[name].insert(0, payload)
        elif place is not None:
            self.places[place].append(payload)

    def _fetched(self, pool: Pool, reply: consume.Reply, wants: list[Want], room: int, extra: int) -> None:
        left = {want.name: self.fetchable(want.name) for want in wants}
        for token, name, payload in jobs_of(reply):
            assert self.queues[name].pop(0) == payload
            assert token not in self.held[pool.id]
            self.held[pool.id][token] = payload
            left[name] -= 1
            assert left[name] >= 0
        count = len(jobs_of(reply))
        assert count <= room + extra
        if count < room:
            assert not any(left[want.name] for want in wants if want.fetch)
        slow = any(left[want.name] for want in wants if want.fetch and not want.fast)
        if slow:
            assert count <= room
        elif count < room + extra:
            assert not any(left[want.name] for want in wants if want.fetch)
        assert {name for _, name, _ in jobs_of(reply)} <= {want.name for want in wants if want.fetch}
        assert set(reply.live) == {name for name, more in left.items() if more}
        assert reply.held == len(self.held[pool.id])

    def fetchable(self, name: str) -> int:
        """How many jobs of a name may be handed out now."""
        if name in self.paused:
            return 0
        room = len(self.queues[name])
        if name in self.limits:
            running = sum(name_in(token) == name for held in self.held.values() for token in held)
            room = min(room, max(0, self.limits[name] - running))
        return room

    def resend(self, rng) -> None:
        pool = rng.choice(self.pools)
        first = self.replies.get(pool.id)
        if first is None or pool.id in self.condemned:
            return
        again = pool.resend()
        assert (again.status, jobs_of(again), again.late) == ("again", jobs_of(first), 0)

    def copy(self, rng) -> None:
        """A copy that was on its way while a later exchange was answered."""
        pool = rng.choice(self.pools)
        if pool.last is None or pool.id in self.condemned:
            return
        old, pool.last = pool.last, None
        reply = pool.exchange()
        assert reply.status == "ok"
        self.replies[pool.id] = reply
        assert self.link.run(old).status == "late"

    def condemn(self, rng) -> None:
        pool = rng.choice(self.pools)
        if rng.random() < 0.5:
            self.link.run(maintain.condemn(self.keys, lease=15.0, proven=[pool.id], judge=False))
            known = True
        else:
            known = bool(self.link.run(membership.leave(self.keys, pool.id)))
        if pool.id not in self.condemned:
            if known:
                self.condemned.append(pool.id)
            else:
                del self.held[pool.id]
                self.pools[self.pools.index(pool)] = self.new_pool()

    def sweep(self, rng) -> None:
        if not self.condemned:
            return
        pool_id = rng.choice(self.condemned)
        held = self.held[pool_id]
        tokens = sorted(held, key=number_in, reverse=True)
        tokens = tokens[: rng.randint(0, len(tokens))]
        kinds = [rng.choice(RESCUES) for _ in tokens]
        rescues = [
            Entry(name_in(token), token, OUTCOMES[kind], held[token])
            for token, kind in zip(tokens, kinds, strict=True)
        ]
        nobody = Entry("a", "5000:a", Reaped(), b"nobody's")
        answer = self.link.run(maintain.sweep(self.keys, pool_id, [*rescues, nobody]))
        for rescue, kind in zip(rescues, kinds, strict=True):
            payload = held.pop(rescue.token)
            place, counters = {"queue": ("queue", ("reaped",))}.get(kind) or ENDS[kind]
            self.totals.update(f"{counter}:{rescue.name}" for counter in counters)
            self._send(place, rescue.name, payload)
        assert answer == maintain.Swept(True, len(rescues), len(held))
        if not held:
            self.condemned.remove(pool_id)
            del self.held[pool_id]
            self.pools = [self.new_pool() if pool.id == pool_id else pool for pool in self.pools]

    def requeue(self, rng) -> None:
        source = rng.choice(("scheduled", "retry"))
        waiting = self.places[source]
        if not waiting:
            return
        members = rng.choices(waiting, k=rng.randint(0, 5))
        moves = [Move(member[:1].decode(), member, member) for member in members]
        due = rng.randint(0, 3) == 0
        moved = self.link.run(maintain.requeue(self.keys, getattr(self.keys, source), moves, due=due))
        if due:
            assert moved == 0
            return
        for member in dict.fromkeys(members):
            waiting.remove(member)
            self.queues[member[:1].decode()].append(member)
        assert moved == len(set(members))

    def limit(self, rng) -> None:
        name, value = rng.choice(NAMES), rng.choice((None, 0, 1, 2, 4))
        walk(self.link, operate.set_concurrency_limit(self.keys, name, value))
        self.limits.pop(name, None)
        if value is not None:
            self.limits[name] = value

    def pause(self, rng) -> None:
        name = rng.choice(NAMES)
        if name in self.paused:
            self.paused.remove(name)
            self.link.run(plain("DEL", self.keys.paused(name)))
            self.link.run(maintain.ring(self.keys, [name]))
        else:
            self.paused.add(name)
            self.link.run(plain("SET", self.keys.paused(name), "1"))

    def repair(self, rng) -> None:
        """Places that no attempt holds, as a bug or a hand might leave them, are found and freed."""
        name = rng.choice(NAMES)
        if name not in self.limits:
            return
        self.link.run(plain("SADD", self.keys.held_of(name), f"gone/1:{name}"))
        members = self.link.run(maintain.held_members(self.keys, name))
        assert self.link.run(maintain.recount(self.keys, name, members)) == 1

    # What must hold at any instant.

    def check(self) -> None:
        found = census(self.keys, self.link)
        assert {name: found.queues.get(name, []) for name in NAMES} == self.queues
        assert found.held == {pool_id: held for pool_id, held in self.held.items() if held}
        for place in ("scheduled", "retry", "dead", "done"):
            assert set(getattr(found, place)) == set(self.places[place])
        assert found.broken == self.places["broken"]
        assert max(found.places.values(), default=1) == 1
        attempts = {name: set() for name in self.limits}
        for pool_id, held in self.held.items():
            for token in held:
                if name_in(token) in attempts:
                    attempts[name_in(token)].add(f"{pool_id}/{token}")
        assert found.held_sets == {name: members for name, members in attempts.items() if members}
        assert not found.wrong
        self._check_totals()
        self._check_bells()

    def _check_totals(self) -> None:
        flat = self.link.run(plain("HGETALL", self.keys.totals))
        assert {key.decode(): int(n) for key, n in zip(flat[::2], flat[1::2], strict=True)} == dict(
            self.totals
        )

    def _check_bells(self) -> None:
        for name in NAMES:
            if self.fetchable(name):
                assert self.link.run(plain("ZCARD", self.keys.bell(name))) == 1, (
                    f"the bell of {name} is silent"
                )


ACTIONS = (
    *(("exchange",) * 8), *(("enqueue",) * 3), "resend", "copy", "condemn", "sweep", "sweep", "requeue", "limit", "limit",
    "pause", "repair",
)  # fmt: skip


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 300))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_accepted_job_is_in_exactly_one_place(server, seed, steps):
    """A failure is shrunk to the fewest steps of one history."""
    rng = random.Random(seed)
    world = World(server.url)
    try:
        for _ in range(steps):
            getattr(world, rng.choice(ACTIONS))(rng)
            world.check()
    finally:
        world.link.close()

"""KeyedPool: a pool as Redis sees it, whose job name has keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dayjob.job import new_id
from dayjob.limits import KeyRule, Limit, RateKind
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import Op
from dayjob.store.ops import consume, produce, rates
from dayjob.store.ops.consume import Entry, KeyedName, Reply
from dayjob.store.ops.produce import Keyed, Slot
from dayjob.store.ops.rates import RateRule
from pools import Pool, jobs_of

BY = ("key",)


def key_name(
    keys: Keys, link: Link, name: str, *, places: int = 0, kinds: Mapping[str, RateKind] | None = None
) -> RateRule:
    """Give a job name keys, as a pool does at its start; `kinds` are limits that count by key."""
    for limit, kind in (kinds or {}).items():
        link.run(rates.declare(keys, Limit(limit, kind)))
    rule = RateRule(1, tuple(kinds or ()), KeyRule(BY, places), frozenset(kinds or ()))
    link.run(rates.change_rule(keys, name, rule))
    return rule


def fill_keys(keys: Keys, link: Link, name: str, *jobs: tuple[str, str]) -> None:
    """Enqueue jobs, each given as key and payload, as code that knows the job type does."""
    for first in range(0, len(jobs), produce.MAX_JOBS):
        some = jobs[first : first + produce.MAX_JOBS]
        link.run(enqueue_by_key(keys, name, *some))


def enqueue_by_key(keys: Keys, name: str, *jobs: tuple[str, str], by: tuple[str, ...] = BY) -> Op[Any]:
    """The request that stores jobs under their keys."""
    keyed = Keyed(by, tuple(key for key, _ in jobs))
    payloads = [payload.encode() for _, payload in jobs]
    return produce.enqueue(keys, Slot(new_id(), 1), name, payloads, introduce=True, keyed=keyed)


class KeyedPool(Pool):
    """Passes the keys that the last answer named, and those of what it settles."""

    def __init__(self, keys: Keys, link: Link, rule: RateRule, name: str = "a", *, pool_id: str = "") -> None:
        super().__init__(keys, link, names=[name], pool_id=pool_id)
        self.rules[name] = rule
        self.name = name
        table = link.run(rates.rate_table(keys))
        self.kind_of = {one: rates.kind_of(table.definitions[one]) for one in rule.limits}
        self.next: list[str] = []
        #: Whether its requests pass the held sets of keys.
        self.counted = True
        self.reply: Reply | None = None

    def prepare(self, *wants: Any, entries: Sequence[Entry] = (), **what: Any) -> Op[Reply]:
        """The next exchange, not sent."""
        rule = self.rules[self.name]
        tokens = [entry.token for entry in entries] + [
            one for some in (what.get("done") or {}).values() for one in some
        ]
        ended = {consume.key_in(token) for token in tokens} - {None, *self.next}
        self.keyed = {self.name: KeyedName(self.next, sorted(filter(None, ended)), counted=self.counted)}
        self.kinds = {}
        for limit in rule.limits:
            self.kinds[limit] = "keyed"
            self.kinds |= {f"{limit}|{key}": self.kind_of[limit] for key in self.next}
        return super().prepare(*wants, entries=entries, **what)

    def note(self, reply: Reply) -> None:
        """Remember which keys are next."""
        super().note(reply)
        self.reply = reply
        self.next = reply.next_keys.get(self.name, self.next)

    def take(self, room: int = 500) -> list[tuple[str, str]]:
        """Fetch jobs: what a pool does after a bell. Returns key and payload of each."""
        if not self.next:
            self.exchange(self.name, room=room)
        reply = self.exchange(self.name, room=room)
        return [(consume.key_in(token) or "", payload.decode()) for token, _, payload in jobs_of(reply)]

    def tokens(self, room: int = 500) -> list[str]:
        """Fetch jobs; the answer is their tokens."""
        if not self.next:
            self.exchange(self.name, room=room)
        return [token for token, _, _ in jobs_of(self.exchange(self.name, room=room))]

"""Pool: a worker pool as Redis sees it. It numbers its requests and tokens, and does nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dayjob.job import new_id
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import Op
from dayjob.store.ops import consume, membership, operate, produce
from dayjob.store.ops.consume import Entry, KeyedName, Reply, Request, Want
from dayjob.store.ops.history import Records
from dayjob.store.ops.member_groups import MemberGroup
from dayjob.store.ops.produce import Slot
from dayjob.store.ops.rates import RateRule

LEASE = 15.0
#: Seconds for which a pool that joins leads, if no other does: longer than a test, so that no key expires during one.
TERM = 300.0


class Pool:
    """Makes exchanges under one id; `last` is the op it sent last, to be sent again."""

    def __init__(self, keys: Keys, link: Link, *, pool_id: str = "", names: Sequence[str] = ()) -> None:
        self.keys = keys
        self.link = link
        self.id = pool_id or new_id()
        self.number = 0
        self.token = 1
        self.last: Op[Reply] | None = None
        #: The rate limits of job names, and the kind of each limit, as this pool knows them.
        self.rules: dict[str, RateRule] = {}
        self.kinds: dict[str, str] = {}
        #: The keys that its requests pass, by job name.
        self.keyed: dict[str, KeyedName] = {}
        assert link.run(membership.join(keys, self.id, names, lease=LEASE, term=TERM)).registered

    def exchange(self, *wants: str | Want, **what: Any) -> Reply:
        """One exchange under the next number; `what` is what prepare takes."""
        reply = self.link.run(self.prepare(*wants, **what))
        self.note(reply)
        return reply

    def prepare(
        self,
        *wants: str | Want,
        room: int = 0,
        extra: int = 0,
        entries: Sequence[Entry] = (),
        done: Mapping[str, Sequence[str]] | None = None,
        figures: Mapping[str, int] | None = None,
        minute: int = 0,
        records: Sequence[Records] = (),
        members: Sequence[MemberGroup] = (),
        u: float = 0.5,
    ) -> Op[Reply]:
        """The next exchange, not sent. A bare name is wanted with weight 1, names of what is settled are added."""
        self.number += 1
        listed = [Want(want, 1, fetch=True) if isinstance(want, str) else want for want in wants]
        asked = {want.name for want in listed}
        ended = (name for group in members for name in group.tokens)
        for name in (*(entry.name for entry in entries), *(done or {}), *ended):
            if name not in asked:
                asked.add(name)
                listed.append(Want(name, 1, fetch=False))
        request = Request(
            self.id, self.number, self.token, listed,
            room=room, extra=extra, entries=entries, done=done or {}, minute=minute, figures=figures or {},
            records=records, members=members,
            rules={want.name: self.rules[want.name] for want in listed if want.name in self.rules}, limits=self.kinds,
            keyed={want.name: self.keyed[want.name] for want in listed if want.name in self.keyed},
        )  # fmt: skip
        self.last = consume.exchange(self.keys, request, lease=LEASE, u=u)
        return self.last

    def note(self, reply: Reply) -> None:
        """Number on from what was fetched."""
        if reply.batches:
            self.token = max(self.token, consume.number_in(reply.batches[-1].tokens[-1]) + 1)

    def resend(self) -> Reply:
        """The last exchange again, byte for byte."""
        assert self.last is not None
        return self.link.run(self.last)

    def fetch(self, *wants: str | Want, room: int = 500, u: float = 0.5) -> list[str]:
        """Take jobs; the answer is their tokens."""
        return [token for token, _, _ in jobs_of(self.exchange(*wants, room=room, u=u))]

    def settle(self, *entries: Entry) -> Reply:
        """Settle and fetch nothing."""
        return self.exchange(entries=entries)


def fill(keys: Keys, link: Link, name: str, *payloads: bytes | str) -> None:
    """Put payloads into a queue by the enqueue script, from a connection of their own."""
    raw = [payload.encode() if isinstance(payload, str) else payload for payload in payloads]
    for first in range(0, len(raw), produce.MAX_JOBS):
        batch = raw[first : first + produce.MAX_JOBS]
        link.run(produce.enqueue(keys, Slot(new_id(), 1), name, batch, introduce=True))


def jobs_of(reply: Reply) -> list[tuple[str, str, bytes]]:
    """Token, job name and payload of each fetched job, read batch by batch as the fetcher reads them."""
    assert all(batch.tokens for batch in reply.batches), "an exchange answered with a batch without jobs"
    return [
        (token, batch.name, payload)
        for batch in reply.batches
        for token, payload in zip(batch.tokens, batch.payloads, strict=True)
    ]


def payloads_of(reply: Reply) -> list[bytes]:
    """What was fetched, in order."""
    return [payload for _, _, payload in jobs_of(reply)]


def set_limit(keys: Keys, link: Link, name: str, limit: int | None, *, by: str = "code") -> None:
    """Set or lift the limit of a job name, as pools and operators do."""
    walk(link, operate.set_concurrency_limit(keys, name, limit, by=by))

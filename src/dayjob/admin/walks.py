"""Walks: every job of a queue, of a sorted set, and of the pools, in bounded reads. What comes in meanwhile may be seen twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.ops import inspect, maintain, membership, partitions
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.steps import Steps, ask, ask_all

#: How many bytes one read of a queue should bring, and how many jobs at most.
AIM_BYTES = 1 << 20
MAX_JOBS_READ = 1000

Put = Callable[[bytes], Any]


def next_size(size: int, found: list[bytes]) -> int:
    """How many jobs the next read should bring, after one of `size` that brought these.

    Each read deep in a long list walks to its offset, so that few large reads are cheaper than many small ones.
    """
    mean = max(1, sum(map(len, found)) // len(found))
    return max(1, min(MAX_JOBS_READ, size * 4, AIM_BYTES // mean))


def over_queue(keys: Keys, name: str, put: Put) -> Steps[int]:
    """The jobs that wait under a name, with those of its keys. Returns how many.

    The newest come first, because the places of jobs count from that end: none is missed while others come in or are fetched.
    """
    count = 0
    for place in (yield from partitions.lists_of(keys, name)):
        first, size = 0, 8
        while found := (yield from ask(inspect.queue_slice(keys, place, first, first + size - 1))):
            for payload in found:
                put(payload)
            first += len(found)
            size = next_size(size, found)
        count += first
    return count


def over_set(source: str, put: Callable[[StoredEntry], Any]) -> Steps[int]:
    """The jobs of a sorted set, in its order. Returns how many."""
    count = 0
    seen = yield from ask(inspect.page(source, size=inspect.MAX_ENTRIES))
    while True:
        for entry in seen.entries:
            put(entry)
        count += len(seen.entries)
        if seen.next is None:
            return count
        seen = yield from ask(inspect.page(source, after=seen.next, size=inspect.MAX_ENTRIES))


def over_held(keys: Keys, put: Put) -> Steps[int]:
    """The jobs that pools hold, dead pools included. Returns how many."""
    count = 0
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    for pool_id in dict.fromkeys(holders[0] + holders[1]):
        tokens = yield from ask(membership.held_tokens(keys, pool_id))
        for first in range(0, len(tokens), maintain.BATCH):
            some = tokens[first : first + maintain.BATCH]
            for payload in (yield from ask(maintain.read_held(keys, pool_id, some))):
                if payload is not None:
                    put(payload)
                    count += 1
    return count


def over_live(keys: Keys, put: Put) -> Steps[int]:
    """Every job that has not ended. Returns how many.

    Jobs move from sets to queues to pools, and back to sets: in this order a job that moves once is seen.
    """
    count = 0
    for source in (keys.scheduled, keys.retry):
        count += yield from over_set(source, lambda entry: put(entry.member))
    for name in (yield from ask(maintain.known_jobs(keys))):
        count += yield from over_queue(keys, name, put)
    count += yield from over_held(keys, put)
    for source in (keys.retry, keys.scheduled):
        count += yield from over_set(source, lambda entry: put(entry.member))
    return count

"""Partitions: where the jobs of a name with keys wait, and what pools and operators do to its keys.

A partition is used like a queue whose name is `<name>|<key>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dayjob.errors import BadOption
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.ops.rates import read_table
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: How many jobs, and bytes, one request sorts at most.
MAX_SORTED = 200
MAX_SORTED_BYTES = 1 << 20
#: How many keys one request reads.
KEYS_AT_ONCE = 500
#: The highest weight of a key.
MAX_WEIGHT = 1000
#: The highest limit of a key; and one that restricts nothing, under which exchanges count the attempts of the key.
MAX_PLACES = 1_000_000
COUNTING = 1_000_001


def place(name: str, key: str) -> str:
    """The name of a partition, by which it is used like a queue."""
    return f"{name}|{key}"


def oldest_unsorted(keys: Keys, name: str) -> Op[list[bytes]]:
    """The oldest jobs in the queue of a name with keys, the oldest first."""
    return Op("LRANGE", (keys.queue(name),), (-MAX_SORTED, -1), lambda reply: list(reversed(reply)))


def sort_jobs(keys: Keys, name: str, by: Sequence[str], jobs: Sequence[tuple[str, bytes]]) -> Op[int]:
    """Move jobs, each given with its key, from their queue to their partitions. Returns how many were still there."""
    index = {key: k for k, key in enumerate(dict.fromkeys(key for key, _ in jobs), 1)}
    key_list: list[Arg] = [keys.limits, keys.queue(name), *_order_keys(keys, name), keys.bell(name)]
    key_list += [keys.partition(name, key) for key in index]
    args: list[Arg] = [name, ",".join(by), len(index), *index]
    for key, payload in jobs:
        args += (index[key], payload)
    return Op(load("sort_jobs"), key_list, args, int)


def _order_keys(keys: Keys, name: str) -> tuple[str, str, str]:
    return keys.turns(name), keys.blocked(name), keys.debts(name)


# Reading.


def key_page(source: str, first: int) -> Op[list[str]]:
    """Keys in turns or blocked, from a place on."""
    return Op("ZRANGE", (source,), (first, first + KEYS_AT_ONCE - 1), texts)


def keys_of(keys: Keys, name: str, *, most: int | None = None) -> Steps[list[str]]:
    """The keys of a name that have waiting jobs, in the order of their turns; the blocked ones behind them."""
    found: dict[str, None] = {}
    for source in (keys.turns(name), keys.blocked(name)):
        first = 0
        while most is None or len(found) < most:
            page: list[str] = yield from ask(key_page(source, first))
            found.update(dict.fromkeys(page))
            if len(page) < KEYS_AT_ONCE:
                break
            first += KEYS_AT_ONCE
    return list(found)[:most]


def lists_of(keys: Keys, name: str, *, most: int | None = None) -> Steps[list[str]]:
    """Where jobs of a name wait, as names of queues: the name itself, then its partitions.

    A name without keys costs one read more than its queue does.
    """
    found: list[str] = yield from keys_of(keys, name, most=most)
    return [name, *(place(name, key) for key in found)]


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key of a job name."""

    key: str
    waiting: int
    #: The payload of its oldest job, only the end if it is long; None if none waits.
    oldest: bytes | None
    running: int
    weight: float
    #: Its own concurrency limit; None if it has that of the job type.
    limit: int | None
    paused: bool
    #: When it is tried again, in seconds; inf while it waits for a place or is paused; None if it is not blocked.
    blocked_until: float | None


def key_states(keys: Keys, name: str, of: Sequence[str]) -> Op[list[KeyState]]:
    """The state of these keys of a name, KEYS_AT_ONCE at most."""
    key_list: list[Arg] = [keys.blocked(name), keys.key_settings(name)]
    for key in of:
        key_list += (keys.partition(name, key), keys.held_of(place(name, key)))
    return Op(load("key_states"), key_list, list(of), lambda reply: _read_states(reply, of))


def _read_states(reply: Any, of: Sequence[str]) -> list[KeyState]:
    found = []
    for key, (waiting, oldest, running, settings, blocked) in zip(of, reply, strict=True):
        weight, limit, paused = read_settings(settings)
        until = None if blocked is None else float(blocked) / 1000
        found.append(KeyState(key, waiting, oldest, running, weight, limit, paused, until))
    return found


def read_settings(raw: bytes | None) -> tuple[float, int | None, bool]:
    """The weight of a key, its own limit, and whether it is paused."""
    words = (raw or b"").decode("ascii", "replace").split()
    if len(words) != 3:
        return 1.0, None, False
    weight, limit, paused = words
    number = float(weight) if weight.replace(".", "", 1).isdecimal() else 1.0
    return number or 1.0, int(limit) if limit.isdecimal() else None, paused == "1"


def limited_keys(keys: Keys, name: str) -> Op[set[str]]:
    """The keys of a name whose concurrency limit an operator set."""
    return Op(
        "HGETALL",
        (keys.key_settings(name),),
        (),
        lambda reply: {
            key.decode()
            for key, raw in zip(reply[::2], reply[1::2], strict=True)
            if read_settings(raw)[1] is not None
        },
    )


def all_key_states(keys: Keys, name: str, *, most: int | None = None) -> Steps[list[KeyState]]:
    """The state of all keys of a name that have waiting jobs, or of the first `most`."""
    found: list[str] = yield from keys_of(keys, name, most=most)
    looks = [key_states(keys, name, found[i : i + KEYS_AT_ONCE]) for i in range(0, len(found), KEYS_AT_ONCE)]
    parts: list[list[KeyState]] = (yield from ask_all(looks)) if looks else []
    return [one for part in parts for one in part]


def count_keys(keys: Keys, name: str) -> Op[int]:
    """How many keys of a name have jobs that can be fetched."""
    return Op("ZCARD", (keys.turns(name),), (), int)


def count_blocked(keys: Keys, name: str) -> Op[int]:
    """How many keys of a name have jobs and must wait."""
    return Op("ZCARD", (keys.blocked(name),), (), int)


def partition_sizes(keys: Keys, name: str, of: Sequence[str]) -> Op[tuple[int, list[bytes]]]:
    """How many jobs wait under these keys of a name, 1,000 at most, and the oldest of them."""
    return Op(
        load("partition_sizes"),
        [keys.partition(name, key) for key in of],
        (),
        lambda reply: (reply[0], [] if reply[1] is None else [reply[1]]),
    )


def waiting_by_key(keys: Keys, name: str) -> Steps[tuple[int, list[bytes]]]:
    """How many jobs of a name wait in partitions, and some payloads, among them the oldest."""
    found: list[str] = yield from keys_of(keys, name)
    looks = [
        partition_sizes(keys, name, found[i : i + KEYS_AT_ONCE]) for i in range(0, len(found), KEYS_AT_ONCE)
    ]
    parts: list[tuple[int, list[bytes]]] = yield from ask_all(looks)
    return sum(size for size, _ in parts), [one for _, some in parts for one in some]


def unsort(keys: Keys, name: str) -> Steps[int]:
    """Put the jobs of a name that has no keys any more back into its queue, ahead of newer ones. Returns how many."""
    moved = 0
    for key in (yield from keys_of(keys, name)):
        size: int = yield from ask(Op("LLEN", (keys.partition(name, key),), (), int))
        # The newest first, so that the oldest ends up at the head of the queue.
        move: Op[Any] = Op("LMOVE", (keys.partition(name, key), keys.queue(name)), ("LEFT", "RIGHT"), _same)
        for first in range(0, size, KEYS_AT_ONCE):
            yield from ask_all([move] * min(KEYS_AT_ONCE, size - first))
        moved += size
        yield from ask(Op("ZADD", (keys.bell(name),), (0, "1"), int))
        yield from ask_all([Op("ZREM", (one,), (key,), int) for one in _order_keys(keys, name)])
    return moved


def have_keys(keys: Keys, names: Sequence[str]) -> Op[bool]:
    """Whether one of these names has waiting jobs under a key."""
    return Op("EXISTS", [key for name in names for key in (keys.turns(name), keys.blocked(name))], (), bool)


def _same(reply: Any) -> Any:
    return reply


def keyed_names(keys: Keys) -> Op[dict[str, tuple[str, ...]]]:
    """The names that have keys, with the arguments of their key."""
    return Op("HGETALL", (keys.limits,), (), _read_keyed)


def _read_keyed(reply: Any) -> dict[str, tuple[str, ...]]:
    return {name: rule.key.by for name, rule in read_table(reply).rules.items() if rule.key is not None}


# What operators set.


class KeyChange(NamedTuple):
    """What an operator changes for one key; None leaves a setting as it is."""

    weight: float | None = None
    limit: int | None = None
    paused: bool | None = None
    #: The settings that get the value of the code again.
    clear: Sequence[str] = ()


def set_key(keys: Keys, name: str, key: str, change: KeyChange) -> Op[bool]:
    """Change what is given for one key of a name, and put it into turns. Raises BadOption."""
    weight, limit, paused, clear = change
    if weight is not None and not 0.001 <= weight <= MAX_WEIGHT:
        raise BadOption(f"weight={weight!r}: give a number from 0.001 to {MAX_WEIGHT}")
    if limit is not None and not 1 <= limit <= MAX_PLACES and limit != COUNTING:
        raise BadOption(f"limit={limit!r}: give a whole number from 1 to 1,000,000")
    given = {"weight": weight, "limit": limit, "paused": paused}
    args: list[Arg] = [key]
    for field, value in given.items():
        args.append("-" if field in clear else "" if value is None else f"{value:.7g}")
    key_list = (keys.key_settings(name), *_order_keys(keys, name), keys.partition(name, key), keys.bell(name))
    return Op(load("set_key"), key_list, args, bool)


# Healing.


def heal_keys(keys: Keys, name: str, of: Sequence[str], *, places: int) -> Op[int]:
    """Put those of these keys into turns that have jobs and are in no order, or are blocked with a free place."""
    key_list: list[Arg] = [
        *_order_keys(keys, name),
        keys.key_settings(name),
        keys.bell(name),
        keys.parked,
        keys.due,
    ]
    for key in of:
        key_list += (keys.partition(name, key), keys.held_of(place(name, key)))
    return Op(load("heal_keys"), key_list, (name, places, *of), int)


def waiting_for_a_place(keys: Keys, name: str, first: int) -> Op[list[str]]:
    """Blocked keys that wait for a place or for an operator, not for a time."""
    return Op("ZRANGEBYSCORE", (keys.blocked(name),), ("inf", "inf", "LIMIT", first, KEYS_AT_ONCE), texts)

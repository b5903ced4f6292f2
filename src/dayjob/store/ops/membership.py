"""What a pool publishes about itself: that it joins, lives, leads and leaves, its status and its stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask

#: What a pool understands; published when it joins. 2: keys of job names.
PROTOCOL = 2


#: Seconds for which stack traces are kept.
KEEP_STACKS_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to join."""

    registered: bool
    now: float
    leads: bool


def join(
    keys: Keys, pool_id: str, names: Sequence[str], *, lease: float, term: float, about: bytes = b"{}"
) -> Op[Joined]:
    """Register a pool under an id that was never used before. `about` is what the timeline shows of it, as JSON."""
    return Op(
        load("join"),
        (
            keys.pools, keys.condemned, keys.state(pool_id), keys.known_jobs, keys.leader, keys.members,
            keys.events("started"), keys.events("leader"),
        ),
        (pool_id, int(lease * 1000), int(term * 1000), about, *names),
        lambda reply: Joined(bool(reply[0]), reply[1] / 1000, bool(reply[2])),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer to beat."""

    alive: bool
    now: float
    leads: bool
    cancel: tuple[str, ...]
    #: Requests of operators: quiet, resume, stop, stacks.
    requests: tuple[str, ...] = ()
    #: Those of `cancel` whose jobs go to dead.
    kill: tuple[str, ...] = ()


def beat(keys: Keys, pool_id: str, *, lease: float, term: float = 0.0, status: bytes = b"") -> Op[Beaten]:
    """Renew a pool's lease, and publish its status if one is given. With a `term`, also lead if there is no leader."""
    return Op(
        load("beat"),
        (
            keys.pools, keys.state(pool_id), keys.leader, keys.held(pool_id), keys.events("leader"), keys.pool(pool_id),
        ),
        (pool_id, int(lease * 1000), int(term * 1000), status),
        _read_beaten,
    )  # fmt: skip


def _read_beaten(reply: Any) -> Beaten:
    alive, moment, leads, requests, kill, *cancel = reply
    return Beaten(
        bool(alive), moment / 1000, bool(leads), tuple(token.decode() for token in cancel),
        tuple(request.decode() for request in requests), tuple(token.decode() for token in kill),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeaderRound:
    """The answer to lead. Only `leads` is meaningful if it is False."""

    leads: bool
    #: Condemned pools that must be swept.
    condemned: list[str]
    #: Seconds until the next job of scheduled or retry is due, and until a rate limit lets a queue go on; None for never.
    due_in: float | None
    parked_in: float | None
    #: How many job names are known.
    names: int
    #: Size and lowest score of dead, and of done.
    dead: tuple[int, float | None]
    done: tuple[int, float | None]
    #: How many bells were rung.
    rung: int
    #: How many staged lists wait to be moved to their queues.
    released: int


def lead(
    keys: Keys, pool_id: str, *, term: float, lease: float = 15.0, names: Sequence[str] = ()
) -> Op[LeaderRound]:
    """Take or renew the leadership, condemn pools whose lease has expired, and report what is due.

    Rings the bells of the queues among `names` that can be fetched from; 200 names at most. With a term of 0, only gives the
    leadership up.
    """
    key_list: list[Arg] = [
        keys.leader, keys.events("leader"), keys.pools, keys.condemned, keys.watch, keys.members, keys.events("died"),
        keys.scheduled, keys.retry, keys.parked, keys.dead, keys.done, keys.known_jobs, keys.released, keys.limits,
    ]  # fmt: skip
    for name in names:
        key_list += (*keys.of_name(name), keys.turns(name), keys.blocked(name))
    return Op(load("lead"), key_list, (pool_id, int(term * 1000), int(lease * 1000), *names), _read_round)


def _read_round(reply: Any) -> LeaderRound:
    leads, condemned, waits, names, sizes, rung, released = reply
    if not leads:
        return LeaderRound(False, [], None, None, 0, (0, None), (0, None), 0, 0)
    scheduled, retry, parked = (None if wait < 0 else wait / 1000 for wait in waits)
    dead, oldest_dead, done, oldest_done = sizes
    return LeaderRound(
        True, texts(condemned), min((one for one in (scheduled, retry) if one is not None), default=None), parked, names,
        (dead, float(oldest_dead) if oldest_dead else None), (done, float(oldest_done) if oldest_done else None),
        rung, released,
    )  # fmt: skip


def status(keys: Keys, pool_id: str, text: bytes) -> Op[bool]:
    """Publish the pool's status, for the console and the command line."""
    return Op(load("status"), (keys.pools, keys.pool(pool_id)), (pool_id, text), bool)


def stacks(keys: Keys, pool_id: str, text: bytes) -> Op[bool]:
    """Publish the stack traces of the busy workers, and remove the request for them."""
    return Op(
        load("stacks"),
        (keys.pools, keys.state(pool_id), keys.stacks(pool_id)),
        (pool_id, text, KEEP_STACKS_SECONDS),
        bool,
    )


def leave(keys: Keys, pool_id: str) -> Op[int]:
    """Unregister the pool. Returns how many attempts it still held; the leader sweeps these."""
    return Op(
        load("leave"),
        (
            keys.pools,
            keys.condemned,
            keys.state(pool_id),
            keys.held(pool_id),
            keys.pool(pool_id),
            keys.leader,
            keys.members,
            keys.events("stopped"),
        ),
        (pool_id,),
        int,
    )


def drop_request(keys: Keys, pool_id: str, request: str) -> Op[int]:
    """Remove a request of an operator that the pool has carried out."""
    return Op("HDEL", (keys.state(pool_id),), (f"wish:{request}",), int)


def held_tokens(keys: Keys, pool_id: str) -> Op[list[str]]:
    """The tokens of the attempts that a pool holds, according to Redis."""
    return Op("HKEYS", (keys.held(pool_id),), (), texts)


def set_cause(keys: Keys, pool_id: str, token: str, why: str) -> Op[int]:
    """Record why a pool is about to be killed, and which attempt caused it."""
    return Op(load("set_cause"), (keys.state(pool_id), keys.held(pool_id)), (token, why), int)


class _About(msgspec.Struct):
    protocol: int = 1


def protocols(keys: Keys) -> Steps[dict[str, int]]:
    """The protocol of each registered pool. Pools of versions that publish none have 1."""
    ids = yield from ask(pool_ids(keys))
    if not ids:
        return {}
    texts_of: list[bytes | None] = yield from ask(Op("HMGET", (keys.members,), ids, list))
    found = {}
    for pool_id, text in zip(ids, texts_of, strict=True):
        try:
            found[pool_id] = msgspec.json.decode(text or b"{}", type=_About).protocol
        except msgspec.MsgspecError:
            found[pool_id] = 1
    return found


def pool_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all registered pools."""
    return Op("ZRANGE", (keys.pools,), (0, -1), texts)


def condemned_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all condemned pools that are not swept yet."""
    return Op("ZRANGE", (keys.condemned,), (0, -1), texts)

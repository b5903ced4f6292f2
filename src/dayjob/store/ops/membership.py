"""What a pool publishes about itself: that it joins, lives, leads and leaves, its status and its stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op, texts
from dayjob.store.scripts import load

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


def beat(keys: Keys, pool_id: str, *, lease: float, term: float = 0.0) -> Op[Beaten]:
    """Renew a pool's lease. With a `term`, also take the leadership if there is no leader."""
    return Op(
        load("beat"),
        (keys.pools, keys.state(pool_id), keys.leader, keys.held(pool_id), keys.events("leader")),
        (pool_id, int(lease * 1000), int(term * 1000)),
        _read_beaten,
    )


def _read_beaten(reply: Any) -> Beaten:
    alive, moment, leads, requests, kill, *cancel = reply
    return Beaten(
        bool(alive), moment / 1000, bool(leads), tuple(token.decode() for token in cancel),
        tuple(request.decode() for request in requests), tuple(token.decode() for token in kill),
    )  # fmt: skip


def lead(keys: Keys, pool_id: str, *, term: float) -> Op[bool]:
    """Take or renew the leadership; with a term of 0, give it up."""
    return Op(load("lead"), (keys.leader, keys.events("leader")), (pool_id, int(term * 1000)), bool)


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


def pool_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all registered pools."""
    return Op("ZRANGE", (keys.pools,), (0, -1), texts)


def condemned_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all condemned pools that are not swept yet."""
    return Op("ZRANGE", (keys.condemned,), (0, -1), texts)

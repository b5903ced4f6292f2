"""The leader's chores: requeue due jobs, condemn and sweep dead pools, ring bells, trim, correct limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, add_key, texts
from dayjob.store.ops.consume import Entry, encode, key_in
from dayjob.store.ops.move import JobMove, counted, move
from dayjob.store.scripts import load

#: How many jobs one step of a chore handles at most.
BATCH = 100


@dataclass(frozen=True, slots=True)
class DueJobs:
    """The due jobs of scheduled or retry."""

    now: float
    #: Seconds until the next job becomes due; None if there is none.
    wait: float | None
    #: Member, and the time in seconds at which it was due.
    members: list[tuple[bytes, float]]


def read_due(source: str, *, skip: int = 0, most: int = BATCH) -> Op[DueJobs]:
    """Read the due jobs of `scheduled` or `retry`."""
    return Op(load("read_due"), (source,), (most, skip), _read_due)


def _read_due(reply: Any) -> DueJobs:
    wait = None if reply[1] < 0 else reply[1] / 1000
    return DueJobs(reply[0] / 1000, wait, list(zip(reply[2::2], map(float, reply[3::2]), strict=True)))


@dataclass(frozen=True, slots=True)
class Move:
    """A member to move to its queue, or to broken if it has no name."""

    name: str | None
    member: bytes
    payload: bytes


def requeue(keys: Keys, source: str, moves: Sequence[Move], *, due: bool = True) -> Op[int]:
    """Move members that are still there. `due=False` moves them before they are due. Returns how many were moved."""
    names = sorted({move.name for move in moves if move.name is not None})
    index = {name: i for i, name in enumerate(names, 1)}
    key_list: list[Arg] = [source, keys.known_jobs, keys.broken, keys.totals, keys.scheduled, keys.due]
    for name in names:
        key_list += (keys.queue(name), keys.bell(name))
    args: list[Arg] = [len(names), int(due), *names]
    for one in moves:
        if one.name is None:
            # What cannot be read may still name the batch that it is a member of.
            member_of = JobMove(one.member, membership=codec.membership_in(one.member))
            args += (0, one.member, one.payload, *member_of.add_keys(keys, key_list))
        else:
            args += (index[one.name], one.member, one.payload, 0, "")
    return Op(load("requeue"), key_list, args, int)


def condemn(keys: Keys, *, lease: float, proven: Sequence[str] = (), judge: bool = True) -> Op[list[str]]:
    """Condemn the pools in `proven` and, with `judge`, those with an expired lease. Returns all condemned pools."""
    return Op(
        load("condemn"),
        (keys.pools, keys.condemned, keys.watch, keys.leader, keys.members, keys.events("died")),
        (int(lease * 1000), int(judge), *proven),
        texts,
    )


def defer(keys: Keys, pool_id: str) -> Op[int]:
    """Move a condemned pool behind the others, because it cannot be swept now."""
    return Op("ZINCRBY", (keys.condemned,), (60, pool_id), float_to_int)


def float_to_int(reply: Any) -> int:
    """Convert a score to an integer."""
    return int(float(reply))


def read_state(keys: Keys, pool_id: str) -> Op[tuple[str | None, str | None, str | None]]:
    """The fields `suspect`, `culprit` and `cause` of a pool's state."""
    return Op(
        "HMGET",
        (keys.state(pool_id),),
        ("suspect", "culprit", "cause"),
        lambda reply: (_text(reply[0]), _text(reply[1]), _text(reply[2])),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def read_held(keys: Keys, pool_id: str, tokens: Sequence[str]) -> Op[list[bytes | None]]:
    """The payloads of these tokens; None for those that are no longer held."""
    return Op("HMGET", (keys.held(pool_id),), tokens, list)


def held_bytes(keys: Keys, pool_id: str, token: str) -> Op[int]:
    """How many bytes the payload of this token has; 0 where it is gone."""
    return Op("HSTRLEN", (keys.held(pool_id),), (token,), int)


def read_cancels(keys: Keys, pool_id: str, tokens: Sequence[str]) -> Op[list[bytes | None]]:
    """For each token: None if its job was not cancelled, `kill` if the job goes to dead."""
    return Op("HMGET", (keys.state(pool_id),), [f"cancel:{token}" for token in tokens], list)


@dataclass(frozen=True, slots=True)
class Swept:
    """The answer to sweep."""

    condemned: bool
    moved: int
    left: int


def sweep(keys: Keys, pool_id: str, entries: Sequence[Entry]) -> Op[Swept]:
    """Move attempts of a condemned pool: Reaped, Retried, Died, Dropped, Cancelled or Unreadable.

    Deletes the pool when it holds no more.
    """
    places = [_place_of(entry) for entry in entries]
    names = sorted(set(places))
    index = {name: i for i, name in enumerate(names, 1)}
    key_list: list[Arg] = [
        keys.condemned, keys.held(pool_id), keys.state(pool_id), keys.pool(pool_id), keys.dead, keys.retry, keys.broken,
        keys.totals, keys.due, keys.events("rescued"),
        keys.scheduled if any(entry.member for entry in entries) else keys.due,
    ]  # fmt: skip
    for place in names:
        name = place.partition("|")[0]
        key_list += (keys.queue(place), keys.held_of(place), keys.bell(name), keys.held_of(name))
        key_list += (keys.turns(name), keys.blocked(name), keys.debts(name))
    args: list[Arg] = [pool_id, len(names), *names]

    for entry, place in zip(entries, places, strict=True):
        kind, number, result_key, result = encode(keys, entry)
        args += (
            kind,
            index[place],
            entry.token,
            entry.payload,
            number,
            add_key(key_list, entry.releases),
            entry.job_id,
        )
        args += (add_key(key_list, result_key), result)
        records = entry.records
        if records is None:
            args += (0, b"", 0, 0)
        else:
            args += (
                add_key(key_list, records.key(keys)),
                records.lines,
                records.caps.count,
                records.caps.milliseconds,
            )
        member = entry.member
        args += (0, "", "") if member is None else (member.add_keys(keys, key_list), member.text, member.fate)
    return Op(load("sweep"), key_list, args, lambda reply: Swept(bool(reply[0]), reply[1], reply[2]))


def _place_of(entry: Entry) -> str:
    """The queue or partition that an attempt came from. Its token has its key."""
    key = key_in(entry.token)
    return entry.name if key is None else f"{entry.name}|{key}"


def known_jobs(keys: Keys) -> Op[list[str]]:
    """All names in known_jobs: those that were enqueued or registered."""
    return Op(
        "SMEMBERS",
        (keys.known_jobs,),
        (),
        lambda reply: sorted(name.decode("utf-8", "replace") for name in reply),
    )


def forget_names(keys: Keys, names: Sequence[str], *, remove: bool) -> Op[list[str]]:
    """Those of these names that no queue, pause, limit or job type uses. `remove` removes them. 200 names at most."""
    key_list: list[Arg] = [keys.known_jobs, keys.limits, keys.job_types]
    for name in names:
        key_list += (keys.queue(name), keys.paused(name), keys.turns(name), keys.blocked(name))
    return Op(
        load("forget_names"), key_list, (int(remove), *names), lambda reply: [names[i - 1] for i in reply]
    )


def ring(keys: Keys, names: Sequence[str]) -> Op[int]:
    """Ring the bells of the queues among `names` that can be fetched from; 200 names at most."""
    key_list: list[Arg] = [keys.limits, keys.parked]
    for name in names:
        key_list += (*keys.of_name(name), keys.turns(name), keys.blocked(name))
    return Op(load("ring"), key_list, list(names), int)


def sample(
    keys: Keys, minute: int, names: Sequence[str], *, last: bool, by_key: Mapping[str, int] | None = None
) -> Op[int]:
    """Record how many jobs of these names are waiting at the start of a minute; 200 names at most.

    `last` marks the last request of the minute. `by_key` has how many more wait under the keys of names.
    """
    args: list[Arg] = [int(last)]
    for name in names:
        args += (name, (by_key or {}).get(name, 0))
    return Op(load("sample"), (keys.minute(minute), *(keys.queue(name) for name in names)), args, int)


@dataclass(frozen=True, slots=True)
class QueuesWatched:
    """The answer to watch_queues."""

    starving: int
    #: Queues with a key of a wrong type.
    wrong: tuple[str, ...]


def watch_queues(
    keys: Keys, names: Sequence[str], *, most: int, by_key: Mapping[str, tuple[int, float]] | None = None
) -> Op[QueuesWatched]:
    """Log queues whose oldest job has begun to wait more than `most` seconds, and those that are served again; 200 at most.

    `by_key` has how many jobs wait under the keys of names, and since when the oldest does.
    """
    key_list: list[Arg] = [keys.starved, keys.events("starved")]
    args: list[Arg] = [most, *names]
    for name in names:
        key_list += (keys.queue(name), keys.paused(name), keys.held_of(name))
        size, since = (by_key or {}).get(name, (0, 0.0))
        args += (size, int(since))
    return Op(
        load("watch_queues"), key_list, args,
        lambda reply: QueuesWatched(reply[0], tuple(key.decode("utf-8", "replace") for key in reply[1:])),
    )  # fmt: skip


def record_first_seen(keys: Keys, states: Sequence[str]) -> Op[int]:
    """Store since when these states hold, since when the server evicts keys, and since when sets have a wrong type.

    `states` are `memory_only` and the keys of queues of a wrong type, 200 at most. Returns how many began or are over.
    """
    sets = (keys.scheduled, keys.retry, keys.dead, keys.done, keys.broken)
    return Op(load("record_first_seen"), (keys.first_seen, *sets), states, int)


def first_seen(keys: Keys) -> Op[dict[str, float]]:
    """The Redis second at which the leader first noticed each state that `record_first_seen` stores."""
    return Op("HGETALL", (keys.first_seen,), (), _read_first_seen)


def _read_first_seen(reply: Any) -> dict[str, float]:
    return {
        state.decode("utf-8", "replace"): float(at) for state, at in zip(reply[::2], reply[1::2], strict=True)
    }


def check_server(keys: Keys, seen: str) -> Op[str]:
    """Log a restart of the server. `seen` is the run id that the caller saw last, or "". Returns the run id, or ""."""
    return Op(
        load("check_server"), (keys.watch, keys.events("redis")), (seen,), lambda reply: reply.decode("ascii")
    )


def size(source: str) -> Op[int]:
    """How many members a sorted set has."""
    return Op("ZCARD", (source,), (), int)


def oldest(source: str, count: int) -> Op[list[tuple[bytes, float]]]:
    """The members with the lowest scores."""
    return Op("ZRANGE", (source,), (0, count - 1, "WITHSCORES"), _read_scored)


def _read_scored(reply: Any) -> list[tuple[bytes, float]]:
    return list(zip(reply[::2], map(float, reply[1::2]), strict=True))


def trim(keys: Keys, source: str, label: str, members: Sequence[tuple[bytes, str, str]]) -> Op[int]:
    """Drop members (each with its unique key or "", and its id) and count them under `label`."""
    moves = [JobMove(member, unique_key=key, job_id=job_id) for member, key, job_id in members]
    return counted(move(keys, source, moves, total=label))


def held_members(keys: Keys, name: str, *, most: int = 1000) -> Op[list[str]]:
    """Some random members of a limit's held set."""
    return Op(
        "SRANDMEMBER", (keys.held_of(name),), (most,),
        lambda reply: [member.decode("utf-8", "surrogateescape") for member in reply],
    )  # fmt: skip


def recount(keys: Keys, name: str, members: Sequence[str]) -> Op[int]:
    """Count those of these attempts that pools hold against the limit, and no others. Returns how many were removed.

    `<name>|<key>` is the limit of one key.
    """
    own, _, _ = name.partition("|")
    key_list: list[Arg] = [keys.limits, keys.held_of(name), keys.bell(own)]
    places: dict[str, int] = {}
    args: list[Arg] = [own]
    for member in members:
        pool_id, _, token = member.partition("/")
        if pool_id not in places:
            # An id that is not UTF-8 belongs to no pool, so no pool holds this attempt.
            key_list.append(keys.held(pool_id if pool_id.isprintable() else ""))
            places[pool_id] = len(key_list)
        args += (_raw(member), places[pool_id], _raw(token))
    return Op(load("recount"), key_list, args, int)


def _raw(text: str) -> bytes:
    """The original bytes of a member, even if they are not UTF-8, because such members count for the limit too."""
    return text.encode("utf-8", "surrogateescape")

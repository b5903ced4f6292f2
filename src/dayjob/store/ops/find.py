"""Where is this job? Looks a job up by its id. Writes nothing.

The search covers the next 10,000 entries of each queue and side set; a job further back is found only if its job type
has `deep_lookup`. A quick search covers fewer, so that it is fast however long the queues are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import inspect, job_types, maintain, membership, partitions
from dayjob.store.ops.results import read_result
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: A job that finished is in the history alone.
State = Literal["waiting", "running", "scheduled", "retry", "dead", "done", "finished"]

#: How many entries of one key are searched, in all and in one request.
MAX_SEARCHED = 10_000
AT_ONCE = 1000
#: In a quick look: of one key, and of all queues together.
QUICK, QUICK_IN_ALL = 1000, 10_000
#: The first entries of many keys are searched in one round trip, then more of fewer: a few milliseconds for each.
FIRST, KEYS_AT_FIRST, KEYS_AT_ONCE = 100, 50, 10


@dataclass(frozen=True, slots=True)
class Found:
    """A job and where it is."""

    state: State
    name: str
    #: The bytes as they are, and the job in them; b"" and None when only its result is kept.
    payload: bytes
    job: codec.Wire | None
    #: How many jobs are ahead of it in its queue, or in its sorted set.
    place: int = 0
    #: When it is due, died, or is dropped if it is done.
    at: float | None = None
    #: The attempt that runs.
    pool_id: str = ""
    token: str = ""
    #: The result or error that is kept, JSON.
    result: bytes | None = None
    #: Where it waits: the name of its queue, or `<name>|<key>`; "" if it does not wait.
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Sought:
    """One look for a text in a list, sorted set or hash."""

    total: int
    #: How many entries are behind us.
    searched: int
    #: Place, payload, and the score or token that goes with it.
    candidates: tuple[tuple[int, bytes, str], ...]


#: Place, payload, the score or token that goes with it, and the job.
Match = tuple[int, bytes, str, codec.Wire]


def seek(
    key: str, texts: Sequence[bytes], *, offset: int = 0, most: int = AT_ONCE, reverse: bool = False
) -> Op[Sought]:
    """Look for payloads that contain one of the texts."""
    return Op(
        load("seek"),
        (key,),
        (int(reverse), offset, most, inspect.MAX_BYTES, *texts),
        _read_sought,
    )


def _read_sought(reply: Any) -> Sought:
    found = reply[2:]
    triples = zip(found[::3], found[1::3], found[2::3], strict=True)
    return Sought(
        reply[0],
        reply[1],
        tuple((place, payload, other.decode("utf-8", "replace")) for place, payload, other in triples),
    )


def _texts(job_id: str) -> list[bytes]:
    """An id as the encoders of this world write it in JSON."""
    return list(
        dict.fromkeys((codec.quoted(job_id), codec.go_json(job_id).encode(), json.dumps(job_id).encode()))
    )


def _match(sought: Sought, job_id: str) -> Match | None:
    for place, payload, other in sought.candidates:
        try:
            wire = codec.read(payload)
        except codec.Broken:
            continue
        if wire.id == job_id:
            return place, payload, other, wire
    return None


@dataclass(frozen=True, slots=True)
class Depth:
    """How far to look: how many entries of one key, and of several together; and from which end of a queue."""

    most: float
    in_all: float = math.inf
    #: From the right, where the next one is; or from the left, where those arrive that move while one looks.
    from_next: bool = True
    #: Whether a set is searched from its end: what is removed at its beginning then moves no entry past the search.
    from_last: bool = False


#: All entries, from the ends where entries are added, so that a job is missed only if it moves.
WHOLE = Depth(math.inf, from_next=False, from_last=True)


def find_at(source: str, job_id: str, at: float) -> Steps[tuple[bytes, codec.Wire] | None]:
    """The payload and the job with this id and score in a sorted set of any size; None if it is not there."""
    rank = yield from ask(inspect.count_below(source, at))
    match = _match((yield from ask(seek(source, _texts(job_id), offset=rank))), job_id)
    if match is None or float(match[2]) != at:
        return None
    return match[1], match[3]


def _search(
    keys: Sequence[str], job_id: str, depth: Depth, *, reverse: bool = False
) -> Steps[tuple[int, Match] | None]:
    """The first match in some keys, and in which of them: the beginning of each, then a stretch of each in turn."""
    texts = _texts(job_id)
    #: Number of the key to how many of its entries are behind us.
    behind = dict.fromkeys(range(len(keys)), 0)
    left, stretch, trip = depth.in_all, FIRST, KEYS_AT_FIRST
    while behind and left > 0:
        for some in _slices(list(behind), trip):
            looks = yield from ask_all(
                [seek(keys[i], texts, offset=behind[i], most=stretch, reverse=reverse) for i in some]
            )
            for i, sought in zip(some, looks, strict=True):
                match = _match(sought, job_id)
                if match is not None:
                    return i, match
                left -= sought.searched - behind[i]
                if sought.searched == behind[i] or sought.searched >= min(sought.total, depth.most):
                    del behind[i]
                else:
                    behind[i] = sought.searched
            if left <= 0:
                break
        stretch, trip = AT_ONCE, KEYS_AT_ONCE
    return None


def _slices(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def find_job(keys: Keys, job_id: str, name: str | None = None, *, quick: bool = False) -> Steps[Found | None]:
    """Where the job with this id is, or None. With its name only that queue is looked through.

    A job moves while one looks: the places are visited in the order in which jobs pass them; and then once more, unless
    it is a quick look, those ends where jobs arrive that went the other way.
    """
    depths = [Depth(MAX_SEARCHED), Depth(AT_ONCE, QUICK_IN_ALL, from_next=False)]
    if quick and name is None:
        depths = [Depth(QUICK, QUICK_IN_ALL)]
    for depth in depths:
        for place in (_find_scheduled, _find_waiting, _find_running, _find_ended):
            found = yield from place(keys, job_id, name, depth)
            if found is not None:
                return found
    return None if quick else (yield from _find_anywhere(keys, job_id, name))


def _find_anywhere(keys: Keys, job_id: str, name: str | None) -> Steps[Found | None]:
    """A job of a name with `deep_lookup`: the whole queues of those names, then the sets, which all names share."""
    names = yield from job_types.searched_whole(keys, name)
    for one in names:
        found = yield from _find_waiting(keys, job_id, one, WHOLE)
        if found is not None:
            return found
    for place in (_find_scheduled, _find_ended) if names else ():
        found = yield from place(keys, job_id, None, WHOLE)
        if found is not None:
            return found
    return None


def _find_scheduled(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    return (yield from _in_set(keys.scheduled, "scheduled", job_id, depth))


def _find_waiting(keys: Keys, job_id: str, name: str | None, depth: Depth) -> Steps[Found | None]:
    names = [name] if name is not None else (yield from ask(maintain.known_jobs(keys)))
    keyed = yield from ask(partitions.keyed_names(keys))
    queues = list(names)
    for one in keyed.keys() & set(names):
        queues += (yield from partitions.lists_of(keys, one))[1:]
    found = yield from _search([keys.queue(one) for one in queues], job_id, depth, reverse=depth.from_next)
    if found is None:
        return None
    number, (place, payload, _, wire) = found
    queue = queues[number]
    if not depth.from_next:
        size = yield from ask(inspect.queue_size(keys, queue))
        place = max(0, size - 1 - place)
    return Found("waiting", queue.partition("|")[0], payload, wire, place, queue=queue)


def _find_running(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    ids = holders[0] + holders[1]
    found = yield from _search([keys.held(pool_id) for pool_id in ids], job_id, depth)
    if found is None:
        return None
    number, (_, payload, token, wire) = found
    return Found("running", wire.name, payload, wire, pool_id=ids[number], token=token)


def _find_ended(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    sets: tuple[tuple[str, State], ...] = ((keys.retry, "retry"), (keys.dead, "dead"), (keys.done, "done"))
    result = yield from ask(read_result(keys, job_id))
    for source, state in sets:
        found = yield from _in_set(source, state, job_id, depth, result=result)
        if found is not None:
            return found
    if result is None:
        return None
    return Found("dead" if result.startswith(b'{"error"') else "done", "", b"", None, result=result)


def _in_set(
    source: str, state: State, job_id: str, depth: Depth, *, result: bytes | None = None
) -> Steps[Found | None]:
    found = yield from _search([source], job_id, depth, reverse=depth.from_last or state in ("dead", "done"))
    if found is None:
        return None
    _, (place, payload, score, wire) = found
    return Found(state, wire.name, payload, wire, place, float(score), result=result)

"""Where is this job, and why is it not running? Looks a job up by its id, and explains what it waits for.

Of each queue and side set the 10,000 entries that come next are looked at; beyond that a job is not found. A quick look
takes a moment however many queues are long, and sees less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from dayjob import text
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import consume, inspect, maintain, pools
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

State = Literal["waiting", "running", "scheduled", "retry", "dead", "done"]

#: How many entries of one key are looked at, in all and in one request.
MAX_LOOKED = 10_000
AT_ONCE = 1000
#: In a quick look: of one key, and of all queues together.
QUICK, QUICK_IN_ALL = 1000, 10_000
#: The first entries of many keys are looked at in one round trip, then more of fewer: a few milliseconds for each.
FIRST, KEYS_AT_FIRST, KEYS_AT_ONCE = 100, 50, 10

#: What is said of a job that is not found.
NOWHERE = (
    "No job {!r} waits, runs or is kept: it completed, was deleted or never was"
    f" (of each queue the first {MAX_LOOKED:,} were looked at)."
)


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


@dataclass(frozen=True, slots=True)
class Sought:
    """One look for a text in a list, sorted set or hash."""

    total: int
    #: How many entries are behind us.
    looked: int
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

    most: int
    in_all: float = math.inf
    #: From the right, where the next one is; or from the left, where those arrive that move while one looks.
    from_next: bool = True


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
                left -= sought.looked - behind[i]
                if sought.looked == behind[i] or sought.looked >= min(sought.total, depth.most):
                    del behind[i]
                else:
                    behind[i] = sought.looked
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
    depths = [Depth(MAX_LOOKED), Depth(AT_ONCE, QUICK_IN_ALL, from_next=False)]
    if quick and name is None:
        depths = [Depth(QUICK, QUICK_IN_ALL)]
    for depth in depths:
        for place in (_find_scheduled, _find_waiting, _find_running, _find_ended):
            found = yield from place(keys, job_id, name, depth)
            if found is not None:
                return found
    return None


def _find_scheduled(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    return (yield from _in_set(keys.scheduled, "scheduled", job_id, depth))


def _find_waiting(keys: Keys, job_id: str, name: str | None, depth: Depth) -> Steps[Found | None]:
    names = [name] if name is not None else (yield from ask(maintain.known_jobs(keys)))
    found = yield from _search([keys.queue(one) for one in names], job_id, depth, reverse=depth.from_next)
    if found is None:
        return None
    number, (place, payload, _, wire) = found
    if not depth.from_next:
        size = yield from ask(Op("LLEN", (keys.queue(names[number]),), (), int))
        place = max(0, size - 1 - place)
    return Found("waiting", names[number], payload, wire, place)


def _find_running(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    holders = yield from ask_all([consume.pool_ids(keys), consume.condemned_ids(keys)])
    ids = holders[0] + holders[1]
    found = yield from _search([keys.held(pool_id) for pool_id in ids], job_id, depth)
    if found is None:
        return None
    number, (_, payload, token, wire) = found
    return Found("running", wire.name, payload, wire, pool_id=ids[number], token=token)


def _find_ended(keys: Keys, job_id: str, _name: str | None, depth: Depth) -> Steps[Found | None]:
    sets: tuple[tuple[str, State], ...] = ((keys.retry, "retry"), (keys.dead, "dead"), (keys.done, "done"))
    result: bytes | None = yield from ask(Op("GET", (keys.result(job_id),), (), lambda reply: reply))
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
    found = yield from _search([source], job_id, depth, reverse=state in ("dead", "done"))
    if found is None:
        return None
    _, (place, payload, score, wire) = found
    return Found(state, wire.name, payload, wire, place, float(score), result=result)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is not running, and where it is."""

    #: One sentence; where an operator can do something about it, a second line gives the next step.
    sentence: str
    found: Found | None


def explain(keys: Keys, job_id: str, name: str | None = None) -> Steps[Explanation]:
    """Why the job is not running, in one sentence, and what to do about it on a second line."""
    found = yield from find_job(keys, job_id, name)
    if found is None:
        return Explanation(NOWHERE.format(job_id), None)
    return Explanation((yield from tell(keys, found)), found)


def tell(keys: Keys, found: Found, error: str | None = None) -> Steps[str]:
    """Why this job is not running, in one sentence; `error` is its error as it may be shown."""
    if error is not None and found.job is not None:
        found = replace(found, job=msgspec.structs.replace(found.job, err=error))
    tellers = {
        "waiting": _tell_waiting, "running": _tell_running, "scheduled": _tell_due, "retry": _tell_due,
        "dead": _tell_dead, "done": _tell_done,
    }  # fmt: skip
    return (yield from tellers[found.state](keys, found))


def _tell_waiting(keys: Keys, found: Found) -> Steps[str]:
    name = found.name
    look = yield from ask(inspect.queues(keys, [name]))
    queue = look.queues[0]
    workers = yield from pools.pools(keys)
    ahead = "it is the next" if found.place == 0 else f"{found.place:,} ahead of it"
    obstacle, step = _obstacle(look.now, queue, found, workers)
    return f"Waits in the queue {name!r} ({ahead}): {obstacle}." + _next_step(step)


def _next_step(step: str) -> str:
    return f"\n    {step}" if step else ""


def _obstacle(
    now: float, queue: inspect.Queue, found: Found, registered: Sequence[pools.Pool]
) -> tuple[str, str]:
    """What keeps a waiting job from running, and what an operator can do about it."""
    if found.job is not None and found.job.expires and found.job.expires < now * 1000:
        return "it has expired and is discarded when its turn comes", ""
    if queue.paused:
        return "its queue is paused", ""
    if queue.limit is not None and queue.held >= queue.limit:
        return f"its limit is reached, {queue.held} of {queue.limit} run", ""
    live = [pool for pool in registered if pool.lease > 0]
    if not live:
        return "no pool is running", ""
    able = [pool.status for pool in live if pool.status is not None and queue.name in pool.status.names]
    if not able:
        silent = sum(pool.status is None for pool in live)
        count = text.counted(len(live), "pool") + (f", {silent} not reporting yet" if silent else "")
        return f"no live pool knows this name ({count})", ""
    if all(status.quiet for status in able):
        return f"every pool that knows it has gone quiet ({len(able)})", ""
    why = _occupied([status for status in able if not status.quiet], queue.name, now)
    return why or ("it is about to be fetched", "")


def _occupied(able: Sequence[pools.Status], name: str, now: float) -> tuple[str, str] | None:
    """Why none of these pools can start a job of this name, and what to do about it; None when one can."""
    blocked: list[pools.Status] = []
    full: list[pools.Status] = []
    threadless: list[pools.Status] = []
    for status in able:
        if status.loop_blocked is not None and name in status.async_names:
            blocked.append(status)
        elif status.in_use >= status.concurrency:
            full.append(status)
        elif status.threads_busy >= status.workers_for(name):
            threadless.append(status)
        else:
            return None
    why = [
        *(_blocked_loop(status, now) for status in blocked[:3]),
        *([_busy_workers(full)] if full else []),
        *([_busy_threads(threadless)] if threadless else []),
    ]
    return "; ".join(why), _what_to_do(blocked, full, threadless)


def _where(status: pools.Status) -> str:
    return f"{status.host}/{status.pid}" if status.host else f"pool {status.id}"


def _of(some: Sequence[pools.Status]) -> str:
    return _where(some[0]) if len(some) == 1 else text.counted(len(some), "pool")


def _blocked_loop(status: pools.Status, now: float) -> str:
    block = status.loop_blocked or pools.LoopBlock(since=now)
    by = f'by "{block.name}" (id {block.id})' if block.name else "by something that a handler started"
    return (
        f"the event loop of {_where(status)} has been blocked for {text.span(now - block.since)} {by[:300]}"
    )


def _busy_workers(full: Sequence[pools.Status]) -> str:
    workers = sum(status.concurrency for status in full)
    stuck = sum(status.stuck for status in full)
    if workers == 1:
        return f"the only worker of {_of(full)} is busy" + (", stuck past its timeout" if stuck else "")
    return f"all {workers:,} workers of {_of(full)} are busy{_stuck(stuck)}"


def _busy_threads(some: Sequence[pools.Status]) -> str:
    threads = sum(status.threads for status in some)
    settings = (
        f"threads={some[0].threads}, concurrency={some[0].concurrency}" if len(some) == 1 else _of(some)
    )
    words = (
        "the only thread for plain functions is busy"
        if threads == 1
        else f"all {threads:,} threads for plain functions are busy"
    )
    return f"{words} ({settings}){_stuck(sum(status.stuck for status in some))}"


def _stuck(number: int) -> str:
    if number == 0:
        return ""
    return f"; {number:,} of them {'is stuck past its' if number == 1 else 'are stuck past their'} timeout"


def _what_to_do(
    blocked: Sequence[pools.Status], full: Sequence[pools.Status], threadless: Sequence[pools.Status]
) -> str:
    stuck = next((status for status in (*full, *threadless) if status.stuck), None)
    if stuck is not None:
        # A thread cannot be ended from outside, a process can.
        return (
            f"`dayjob pools stacks {stuck.id}` shows where the stuck jobs are in their code;"
            f" restarting that process frees its workers."
        )
    if blocked:
        name = blocked[0].loop_blocked.name if blocked[0].loop_blocked else ""
        where = f'"{name}"' if name else "that handler"
        return f"Await what takes long in {where}, or make it a plain `def`."
    if threadless:
        return "Raise threads=, or make these jobs `async def`."
    return "See `dayjob jobs ls --state running`, or start more workers."


def _tell_running(keys: Keys, found: Found) -> Steps[str]:
    registered = yield from pools.pools(keys)
    moment = yield from ask(inspect.now())
    pool = next((one for one in registered if one.id == found.pool_id), None)
    if pool is None:
        return f"Was running on pool {found.pool_id}, which died; its attempts are being rescued."
    status = pool.status
    where = _where(status) if status else f"pool {found.pool_id}"
    worker = next((one for one in status.workers if one.token == found.token), None) if status else None
    (cancel,) = yield from ask(maintain.read_cancels(keys, found.pool_id, [found.token]))
    asked = "" if cancel is None else " An operator asked it to end; it will not run again."
    if worker is None:
        why = _not_started(status, found.name, moment) if status else None
        if why is not None:
            return f"Fetched by {where}, but not started: {why[0]}.{asked}" + _next_step(why[1])
        return f"Fetched by {where}: about to start, or started less than 0.5 s ago.{asked}"
    said = f": {worker.checkin}" if worker.checkin else ""
    block = status.loop_blocked if status else None
    blocks = " and blocks its event loop" if block and block.id == worker.id else ""
    return f"Running for {text.span(moment - worker.started_at)} on {where}{blocks}{said}.{asked}"


def _not_started(status: pools.Status, name: str, now: float) -> tuple[str, str] | None:
    """Why a job that a pool holds has not started; None when it may have started a moment ago."""
    blocked = status.loop_blocked is not None and name in status.async_names
    return _occupied([status], name, now) if blocked or name not in status.running else None


def _tell_due(keys: Keys, found: Found) -> Steps[str]:
    moment = yield from ask(inspect.now())
    wait = (found.at or 0) - moment
    error = (
        f" after {text.counted(found.job.fails, 'fail')}, the last: {_line(found.job.err)}"
        if found.job and found.job.fails
        else ""
    )
    if wait > 0:
        return f"Due in {text.span(wait)}{error}."
    who = yield from ask(pools.leader(keys))
    why = (
        "no pool is the leader, so nothing moves it to its queue"
        if who is None
        else f"pool {who} is about to move it to its queue"
    )
    return f"Was due {text.span(-wait)} ago{error}: {why}."


def _tell_dead(keys: Keys, found: Found) -> Steps[str]:
    if found.job is None:
        return "Dead; only its error is kept."
    moment = yield from ask(inspect.now())
    told = (
        f"Died {text.span(moment - (found.at or moment))} ago: {_line(found.job.err) or 'no error is noted'}"
    )
    if found.job.unique_key.startswith(keys.unique_prefix):
        holder = yield from ask(Op("GET", (found.job.unique_key,), (), lambda reply: reply))
        if holder is not None and holder.decode("utf-8", "replace") != found.job.id:
            told += f" (job {holder.decode('utf-8', 'replace')[:80]} has its unique key)"
    return told if told.endswith(".") else told + "."


def _tell_done(keys: Keys, found: Found) -> Steps[str]:  # noqa: ARG001 - one shape for all tellers
    moment = yield from ask(inspect.now())
    # Completed jobs are scored by when they are dropped.
    return "Completed" + (f", and kept for another {text.span(found.at - moment)}." if found.at else ".")


def _line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 200 else first[:197] + "..."

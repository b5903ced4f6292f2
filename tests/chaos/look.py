"""A census of a running system: one read-only script sees every place at one instant."""

from __future__ import annotations

import json
from typing import Any

from dayjob.retry import MAX_DEATHS
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from faults.ledger import BatchSeen, Census, Item

#: Queues longer than this are counted, not listed.
MOST = 2000

_SCRIPT = """#!lua flags=no-writes
local p, most = ARGV[1], tonumber(ARGV[2])
local out = {queues = {}, held = {}, members = {}, unique = {}}
local names = redis.call('SMEMBERS', p .. 'known_jobs')
local queues = {}
for _, name in ipairs(names) do
  local n = redis.call('LLEN', p .. 'jobs:' .. name)
  queues[#queues + 1] = name
  queues[#queues + 1] = n
  queues[#queues + 1] = n <= most and redis.call('LRANGE', p .. 'jobs:' .. name, 0, -1) or {}
  queues[#queues + 1] = redis.call('SMEMBERS', p .. 'held:' .. name)
end
local partitions, by_key = {}, {}
for _, key in ipairs(redis.call('KEYS', p .. 'partition:*')) do
  partitions[#partitions + 1] = key
  partitions[#partitions + 1] = redis.call('LRANGE', key, 0, -1)
end
for _, key in ipairs(redis.call('KEYS', p .. 'held:*|*')) do
  by_key[#by_key + 1] = key
  by_key[#by_key + 1] = redis.call('SMEMBERS', key)
end
local pools, condemned = redis.call('ZRANGE', p .. 'pools', 0, -1), redis.call('ZRANGE', p .. 'condemned', 0, -1)
local held = {}
for _, key in ipairs(redis.call('KEYS', p .. 'pool:*:held')) do
  held[#held + 1] = key
  held[#held + 1] = redis.call('HGETALL', key)
end
local unique = {}
for _, key in ipairs(redis.call('KEYS', p .. 'unique:*')) do
  unique[#unique + 1] = key
  unique[#unique + 1] = redis.call('GET', key)
end
return {queues, pools, condemned, held, unique,
  redis.call('ZRANGE', p .. 'scheduled', 0, -1), redis.call('ZRANGE', p .. 'retry', 0, -1),
  redis.call('ZRANGE', p .. 'dead', 0, -1), redis.call('ZRANGE', p .. 'done', 0, -1),
  redis.call('LRANGE', p .. 'broken', 0, -1), redis.call('HGETALL', p .. 'stats:totals'),
  redis.call('HGETALL', p .. 'periodic'), redis.call('HGETALL', p .. 'limits'),
  redis.call('ZRANGE', p .. 'scheduled', 0, 0, 'WITHSCORES')[2] or '', partitions, by_key,
  redis.call('ZCARD', p .. 'released')}
"""

#: All batches and workflows, in one step: thousands of them, so only at rest.
_GROUPS = """#!lua flags=no-writes
local p, batches, workflows = ARGV[1], {}, {}
for _, id in ipairs(redis.call('ZRANGE', p .. 'batches', 0, -1)) do
  local key = p .. 'batch:' .. id
  batches[#batches + 1] = id
  batches[#batches + 1] = redis.call('HMGET', key, 'total', 'closed', 'sent:success', 'sent:complete', 'sent:dead')
  batches[#batches + 1] = {redis.call('BITCOUNT', key .. ':ended'), redis.call('BITCOUNT', key .. ':dead'),
    redis.call('BITCOUNT', key .. ':failed')}
end
for _, id in ipairs(redis.call('ZRANGE', p .. 'workflows', 0, -1)) do
  workflows[#workflows + 1] = id
  workflows[#workflows + 1] = redis.call('GET', p .. 'workflow:' .. id .. ':states') or ''
end
return {batches, workflows}
"""


def take(link: Link, keys: Keys) -> Census:
    """Look at everything, in one step. Raises StoreError."""
    reply = link.run(plain("EVAL", _SCRIPT, 1, keys.known_jobs, keys.prefix, MOST))
    queues, pools, condemned, held, unique, scheduled, retry, dead, done = reply[:9]
    broken, totals, periodic, limits, soonest, partitions, by_key, released = reply[9:]
    census = Census(pools=_texts(pools), condemned=_texts(condemned))
    places: dict[str, list[Item]] = {"queue": [], "held": []}
    for i in range(0, len(queues), 4):
        name = queues[i].decode()
        census.waiting[name] = queues[i + 1]
        places["queue"] += [item for raw in queues[i + 2] if (item := _item(raw)) is not None]
        if queues[i + 3]:
            census.members[name] = _texts(queues[i + 3])
    for key, payloads in zip(partitions[::2], partitions[1::2], strict=True):
        name = key.decode().removeprefix(keys.prefix + "partition:").partition("|")[0]
        census.waiting[name] = census.waiting.get(name, 0) + len(payloads)
        places["queue"] += [item for raw in payloads if (item := _item(raw)) is not None]
    for key, members in zip(by_key[::2], by_key[1::2], strict=True):
        census.key_members[key.decode().removeprefix(keys.prefix + "held:")] = _texts(members)
    census.released = released
    for key, fields in zip(held[::2], held[1::2], strict=True):
        pool = key.decode().removeprefix(keys.prefix + "pool:").removesuffix(":held")
        census.held[pool] = _texts(fields[::2])
        places["held"] += [item for raw in fields[1::2] if (item := _item(raw)) is not None]
    for place, members in (("scheduled", scheduled), ("retry", retry), ("dead", dead), ("done", done)):
        places[place] = [item for raw in members if (item := _item(raw)) is not None]
    census.places = places
    census.soonest = float(soonest) if soonest else None
    census.crashed_bulk = sum(_is_crashed(raw, "bulk") for raw in dead)
    census.crashed_children = sum(_is_crashed(raw, "child") for raw in dead)
    census.unique = {
        key.decode().removeprefix(keys.unique_prefix): value.decode()
        for key, value in zip(unique[::2], unique[1::2], strict=True)
    }
    census.totals = _numbers(totals)
    census.periodic = _numbers(periodic)
    # A rule of rate limits may stand behind the number.
    census.limits = _numbers([one.split(b" ")[0] for one in limits])
    census.broken = [raw.partition(b"\n")[2].hex() for raw in broken]
    return census


def add_groups(link: Link, keys: Keys, census: Census) -> None:
    """Look at all batches and workflows, too. Raises StoreError."""
    batches, workflows = link.run(plain("EVAL", _GROUPS, 1, keys.batches, keys.prefix))
    for at in range(0, len(batches), 3):
        total, closed, *sent = batches[at + 1]
        if total is None:
            continue
        events = zip(("success", "complete", "dead"), sent, strict=True)
        census.batches[batches[at].decode()] = BatchSeen(
            int(total),
            *batches[at + 2],
            closed == b"1",
            [event for event, when in events if when is not None],
        )
    for one, letters in zip(workflows[::2], workflows[1::2], strict=True):
        if letters:
            census.workflows[one.decode()] = letters.decode()


def _texts(raw: Any) -> list[str]:
    return [one.decode() for one in raw]


def _numbers(raw: Any) -> dict[str, int]:
    pairs = zip(raw[::2], raw[1::2], strict=True)
    return {key.decode(): int(value) for key, value in pairs if value.lstrip(b"-").isdigit()}


def _item(raw: bytes) -> Item | None:
    """A job as the ledger knows it; None for bulk jobs, which have no serial, and for what is no job."""
    try:
        job = json.loads(raw)
        args = job["args"] or {}
    except (ValueError, KeyError, TypeError):
        return None
    serial = args.get("serial")
    if job.get("name") == "tick":
        serial = f"tick/{job.get('t')}"
    if job.get("name") == "called":
        # The callback of a batch.
        serial = job["id"]
    if serial is None:
        return None
    return Item(
        serial, job["id"], job["name"], job.get("fails", 0), job.get("deaths", 0), job.get("snoozes", 0),
        job.get("unique_key", "").partition(":unique:")[2], (job.get("membership") or [])[::2],
    )  # fmt: skip


def _is_crashed(raw: bytes, name: str) -> bool:
    """Whether this is a job of that name that is dead because its processes were killed too often while it ran."""
    try:
        job = json.loads(raw)
    except ValueError:
        return False
    return isinstance(job, dict) and job.get("name") == name and job.get("deaths", 0) >= MAX_DEATHS


def is_at_rest(census: Census, now: float) -> bool:
    """Whether nothing waited, ran or was due soon when the census was taken."""
    return not (
        any(census.waiting.values())
        or any(census.held.values())
        or census.condemned
        or census.released
        or census.places.get("retry")
        or (census.soonest is not None and census.soonest < now + 60)
    )

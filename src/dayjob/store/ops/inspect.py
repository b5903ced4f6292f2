"""Reads for operators: queues, pages of scheduled, retry, dead and done, limits and schedules. Writes nothing.

Every read is bounded in entries and bytes, and none uses KEYS or SCAN.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dayjob.errors import BadOption, Rejected
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.ops import maintain, partitions
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: How many names one overview reads, and how many entries and bytes a page has.
MAX_NAMES = 200
MAX_ENTRIES = 500
MAX_BYTES = 1 << 20
#: How many bytes of a member a cursor contains. The id of a job comes earlier in its payload.
MAX_CURSOR = 1500


def now() -> Op[float]:
    """Redis TIME, in seconds."""
    return Op("TIME", (), (), lambda reply: int(reply[0]) + int(reply[1]) / 1e6)


def unique_owner(key: str) -> Op[str | None]:
    """The id of the job that owns a unique key; None if the key is free."""
    return Op("GET", (key,), (), lambda reply: None if reply is None else reply.decode("utf-8", "replace"))


# Queues.


@dataclass(frozen=True, slots=True)
class Queue:
    """The current state of one queue."""

    name: str
    size: int
    #: Seconds since its oldest job was enqueued or became due; None if the queue is empty or the job has no such time.
    age: float | None
    paused: bool
    #: How many of its jobs may run at once over all pools, and how many attempts count against that limit.
    limit: int | None
    held: int
    #: Whether its bell rings: it has jobs that no pool has come to fetch yet.
    rung: bool
    #: Whether its key is not a list, so that nothing can be enqueued or fetched.
    wrong: bool = False
    #: Who paused it and when; "" and None if that was not recorded.
    paused_by: str = ""
    paused_at: float | None = None
    #: Whether the name has keys, so that its jobs wait in partitions.
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of several queues at the Redis time `now`."""

    now: float
    queues: tuple[Queue, ...]


def queues(keys: Keys, names: Sequence[str]) -> Op[Overview]:
    """The state of these queues, in one round trip. Raises BadOption for more than MAX_NAMES names."""
    if len(names) > MAX_NAMES:
        raise BadOption(f"{len(names)} queues: one request reads at most {MAX_NAMES}; use all_queues()")
    key_list: list[Arg] = [keys.limits]
    for name in names:
        key_list += keys.of_name(name)
    own = list(names)
    return Op(load("queues"), key_list, own, lambda reply: _read_overview(reply, own))


def all_queues(keys: Keys) -> Steps[Overview]:
    """The state of every known queue, sorted by name."""
    names = yield from ask(maintain.known_jobs(keys))
    return (yield from overview(keys, names))


def overview(keys: Keys, names: Sequence[str]) -> Steps[Overview]:
    """The state of these queues, with the jobs that wait under their keys."""
    looks = [queues(keys, names[i : i + MAX_NAMES]) for i in range(0, len(names), MAX_NAMES)] or [
        queues(keys, ())
    ]
    parts = yield from ask_all(looks)
    now = parts[-1].now
    found = [queue for part in parts for queue in part.queues]
    for i, queue in enumerate(found):
        if queue.by_key:
            found[i] = yield from _with_partitions(keys, queue, now)
    return Overview(now, tuple(found))


def _with_partitions(keys: Keys, queue: Queue, now: float) -> Steps[Queue]:
    waiting, oldest = yield from partitions.waiting_by_key(keys, queue.name)
    moments = [at for at in map(enqueued_at, oldest) if at is not None]
    ages = [now - at for at in moments] + ([] if queue.age is None else [queue.age])
    return replace(queue, size=queue.size + waiting, age=max(0.0, *ages) if ages else None)


def _read_overview(reply: Any, names: list[str]) -> Overview:
    moment = reply[0] / 1000
    found = []
    for name, (size, oldest, paused, limit, held, rung, by_key) in zip(names, reply[1:], strict=True):
        at = None if oldest is None else enqueued_at(oldest)
        age = None if at is None else max(0.0, moment - at)
        found.append(
            Queue(
                name, max(size, 0), age, paused is not None, None if limit is None or limit < 0 else limit, max(held, 0),
                bool(rung), size < 0 or held < 0, *read_pause(paused), bool(by_key),
            )
        )  # fmt: skip
    return Overview(moment, tuple(found))


def pause_text(now: float, actor: str) -> str:
    """The value of a pause key. Any value pauses; this one records when and by whom."""
    return f"{int(now)} {actor}"


def read_pause(raw: bytes | None) -> tuple[str, float | None]:
    """Who paused something and when; "" and None if that was not recorded."""
    moment, _, who = (raw or b"").decode("utf-8", "replace").partition(" ")
    return (who, float(moment)) if who and moment.isdecimal() else ("", None)


def enqueued_at(payload: bytes) -> float | None:
    """When a job was enqueued or became due; None if the payload has no such time. The end of a long payload is enough."""
    try:
        wire = codec.read(payload)
    except codec.Broken:
        last = re.search(rb'"at":(\d{1,16})\}$', payload)
        return int(last[1]) / 1000 if last else None
    return codec.enqueued_at(wire) or None


def queue_size(keys: Keys, name: str) -> Op[int]:
    """How many jobs wait in a queue."""
    return Op("LLEN", (keys.queue(name),), (), int)


def queue_entry(keys: Keys, name: str, place: int) -> Op[bytes | None]:
    """One entry of a queue; place 0 is the newest."""
    return Op("LINDEX", (keys.queue(name),), (place,), lambda reply: reply)


def wait(keys: Keys, seconds: float) -> Op[None]:
    """Wait for some seconds, 5 at most, between two looks."""
    return Op("BLPOP", (keys.never,), (f"{min(seconds, 5.0):.3f}",), lambda _: None)


def queue_slice(keys: Keys, name: str, first: int, last: int) -> Op[list[bytes]]:
    """Entries of a queue, from one place to another; negative places count from the next job to be fetched."""
    return Op("LRANGE", (keys.queue(name),), (first, last), list)


def held_count(keys: Keys, pool_id: str) -> Op[int]:
    """How many attempts a pool holds."""
    return Op("HLEN", (keys.held(pool_id),), (), int)


def ever_used(keys: Keys) -> Op[bool]:
    """Whether a pool ever started in this namespace, or a job was ever stored; figures and totals outlast both."""
    sets = (keys.scheduled, keys.retry, keys.dead, keys.done, keys.broken)
    return Op("EXISTS", (keys.job_types, keys.totals, *sets), (), bool)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of scheduled, retry, dead, done and broken; -1 if the key has a wrong type."""

    scheduled: int
    retry: int
    dead: int
    done: int
    broken: int


def sizes(keys: Keys) -> Steps[Sizes]:
    """Read the sizes of scheduled, retry, dead, done and broken."""
    looks = [maintain.size(key) for key in (keys.scheduled, keys.retry, keys.dead, keys.done)]
    found = yield from known_sizes([*looks, Op("LLEN", (keys.broken,), (), int)])
    return Sizes(*found)


def known_sizes(looks: Sequence[Op[int]]) -> Steps[list[int]]:
    """The answers of these reads, -1 for a key of a wrong type."""
    try:
        return (yield from ask_all(looks))
    except Rejected:
        found = []
        for look in looks:
            try:
                found.append((yield from ask(look)))
            except Rejected:
                found.append(-1)
        return found


# Pages.


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a sorted set: after this member, which may have been removed."""

    score: float
    #: The member, or the beginning of a long one.
    member: bytes

    @property
    def text(self) -> str:
        """The cursor for a URL."""
        return f"{self.score!r}~{urlsafe_b64encode(self.member[:MAX_CURSOR]).decode().rstrip('=')}"

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Parse a cursor from its text. Raises BadOption."""
        score, _, member = text.partition("~")
        try:
            return cls(float(score), urlsafe_b64decode(member + "=" * (-len(member) % 4)))
        except ValueError:
            raise BadOption(
                f"{text[:80]!r} is not a cursor: use the cursor that the page before returned"
            ) from None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of scheduled, retry, dead, done or a queue."""

    #: The stored bytes. An action must send them to identify the entry.
    member: bytes
    #: When it is due, died or completed, in seconds since the epoch; None in a queue.
    at: float | None
    #: The job, or None if the bytes cannot be parsed; then `problem` is the reason.
    job: codec.Wire | None
    problem: str = ""
    #: Under which key it waits, and how many are ahead of it there; None for a name without keys.
    key: str | None = None
    place: int | None = None

    @property
    def moment(self) -> float:
        """When it died. In milliseconds if the payload has them, because scores in dead are whole seconds."""
        fields = self.job.at / 1000 if self.job is not None else 0.0
        score = self.at or 0.0
        return fields if 0 <= fields - score < 1 else score


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries of a queue or sorted set, in order."""

    now: float
    #: How many there are in all.
    total: int
    #: How many come before the first of this page.
    offset: int
    entries: tuple[StoredEntry, ...]
    #: Where the next page begins; None if this is the last.
    next: Cursor | None = None


def page(
    source: str, *, after: Cursor | None = None, offset: int = 0, size: int = 50, newest_first: bool = False
) -> Op[Page]:
    """Entries of scheduled, retry, dead or done, after a cursor or from an offset.

    May return fewer than `size` entries, because a page is limited in bytes too.
    """
    rank: Arg = offset if after is None else ""
    score, member = ("0", b"") if after is None else (repr(after.score), after.member)
    size = max(1, min(size, MAX_ENTRIES))
    return Op(
        load("page"), (source,), ("set", int(newest_first), size, MAX_BYTES, rank, score, member), _read_page
    )


def count_below(source: str, score: float) -> Op[int]:
    """How many entries of a sorted set have a smaller score."""
    return Op("ZCOUNT", (source,), ("-inf", f"({score!r}"), int)


def count_above(source: str, score: float) -> Op[int]:
    """How many entries of a sorted set have a larger score."""
    return Op("ZCOUNT", (source,), (f"({score!r}", "+inf"), int)


def _read_page(reply: Any) -> Page:
    total, first = reply[1], reply[2]
    entries = tuple(
        kept(member, float(score)) for member, score in zip(reply[3::2], reply[4::2], strict=True)
    )
    more = entries and first + len(entries) < total
    last = Cursor(float(reply[-1]), reply[-2]) if more else None
    return Page(reply[0] / 1000, total, first, entries, last)


def kept(member: bytes, at: float | None) -> StoredEntry:
    """Decode a stored entry."""
    try:
        return StoredEntry(member, at, codec.read(member))
    except codec.Broken as why:
        return StoredEntry(member, at, None, str(why))


def peek(keys: Keys, name: str, *, offset: int = 0, size: int = 50, newest_first: bool = False) -> Op[Page]:
    """Waiting jobs of a queue: the next to be fetched first, or the newest first."""
    size = max(1, min(size, MAX_ENTRIES))
    return Op(
        load("page"),
        (keys.queue(name),),
        ("list", int(not newest_first), size, MAX_BYTES, offset, 0, ""),
        lambda reply: Page(
            reply[0] / 1000, reply[1], offset, tuple(kept(entry, None) for entry in reply[3:])
        ),
    )


def peek_all(
    keys: Keys, name: str, *, offset: int = 0, size: int = 50, newest_first: bool = False
) -> Steps[Page]:
    """Waiting jobs of a name wherever they wait: those of its queue, then those of its keys, one after the other."""
    seen: Page
    first: Any = [
        peek(keys, name, offset=offset, size=size, newest_first=newest_first),
        partitions.key_page(keys.turns(name), 0),
        partitions.key_page(keys.blocked(name), 0),
    ]
    seen, turning, blocked = yield first
    if not turning and not blocked:
        return seen
    places: list[str] = yield from partitions.lists_of(keys, name)
    sizes: list[int] = []
    for start in range(0, len(places), MAX_ENTRIES):
        looks = [queue_size(keys, place) for place in places[start : start + MAX_ENTRIES]]
        sizes += yield from ask_all(looks)
    entries: list[StoredEntry] = []
    skip = offset
    for place, count in zip(places, sizes, strict=True):
        if skip >= count:
            skip -= count
            continue
        part = yield from ask(
            peek(keys, place, offset=skip, size=size - len(entries), newest_first=newest_first)
        )
        _, bar, key = place.partition("|")
        for number, entry in enumerate(part.entries, skip):
            ahead = count - 1 - number if newest_first else number
            entries.append(replace(entry, key=key, place=ahead) if bar else entry)
        # A page is limited in bytes too.
        if len(entries) >= size or len(part.entries) < count - skip:
            break
        skip = 0
    return Page(seen.now, sum(sizes), offset, tuple(entries))


# Schedules.


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A periodic schedule, as it is stored in Redis."""

    name: str
    #: The last processed tick, or when the schedule was first registered, in seconds since the epoch.
    last: int
    paused: bool
    #: What its pools announced; "" and None if no pool has.
    job: str = ""
    spec: str = ""
    timezone: str | None = None
    missed: str = ""
    args: bytes | None = None
    #: Who paused it and when; "" and None if that was not recorded.
    paused_by: str = ""
    paused_at: float | None = None
    #: The last tick that enqueued a job; None if no tick has.
    ticked: int | None = None


class Announced(msgspec.Struct):
    """A pool's description of a schedule that it registered."""

    job: str
    spec: str
    timezone: str | None = None
    missed: str = "skip"
    args: msgspec.Raw = msgspec.Raw(b"{}")


def schedules(keys: Keys) -> Op[list[StoredSchedule]]:
    """All periodic schedules that pools have registered, sorted by name."""
    return Op("HGETALL", (keys.periodic,), (), _read_schedules)


def announced(keys: Keys, names: Sequence[str]) -> Op[list[bool]]:
    """Whether pools have announced descriptions of these schedules, in the same order; at least one name."""
    fields = [f"{name}|is" for name in names]
    return Op("HMGET", (keys.periodic,), fields, lambda reply: [one is not None for one in reply])


def _read_schedules(reply: Any) -> list[StoredSchedule]:
    fields = {raw.decode("utf-8", "replace"): value for raw, value in _pairs(reply)}
    found = []
    for name, value in sorted(fields.items()):
        if name.endswith(("|off", "|is", "|ticked", "|run", "|ahead")) or not value.isdigit():
            continue
        who, since = read_pause(fields.get(f"{name}|off"))
        # Schedules of older releases have no such field; their last tick is the closest value.
        ticked = fields.get(f"{name}|ticked", value)
        schedule = StoredSchedule(
            name, int(value), f"{name}|off" in fields, paused_by=who, paused_at=since,
            ticked=int(ticked) if ticked.isdigit() else None,
        )  # fmt: skip
        try:
            known = msgspec.json.decode(fields.get(f"{name}|is", b""), type=Announced)
        except codec.UNREADABLE:
            found.append(schedule)
            continue
        found.append(
            StoredSchedule(
                name, schedule.last, schedule.paused, known.job, known.spec, known.timezone, known.missed, bytes(known.args),
                who, since, schedule.ticked,
            )
        )  # fmt: skip
    return found


def _pairs(reply: Any) -> Iterable[tuple[Any, Any]]:
    return zip(reply[::2], reply[1::2], strict=True)

"""Requests that store jobs: enqueue, schedule, unique, bulk, periodic ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

import msgspec

from dayjob.job import Job
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.scripts import load

#: The maximum number of jobs and bytes of one request.
MAX_JOBS = 500
MAX_BYTES = 1 << 20
#: Larger payloads are not kept under a chosen id, only their digest.
MAX_KEPT_PAYLOAD_BYTES = 16 << 10


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Identifies a request of one enqueuer connection. Redis stores the last number of a slot to recognise resends."""

    id: str
    number: int
    #: Whether the request asks for Redis time and keeps the slot for another hour; set every few seconds.
    fresh: bool = True


class When(msgspec.Struct, frozen=True, gc=False):
    """When a job is to run: now, in some milliseconds, or at a time in milliseconds since the epoch."""

    mode: Literal["now", "in", "at"] = "now"
    milliseconds: int = 0


class NewJob(msgspec.Struct, frozen=True):
    """A job that is ready to be sent."""

    job: Job
    payload: bytes
    when: When
    #: Whether the caller chose its id.
    chosen: bool
    unique_for: float | None
    expires: float | None = None
    #: The key of the job, if this process knows its job type and that has keys.
    key: str | None = None
    #: The id of the batch that it joins, or "".
    batch: str = ""

    @property
    def alone(self) -> bool:
        """Whether it must be stored by itself, because it may have been stored before or have to wait for another."""
        return self.chosen or self.job.unique_key is not None


def digest_to_keep(new_job: NewJob) -> bytes:
    """The digest to keep under the chosen id of a job whose payload is too large for that; empty for other jobs."""
    too_large = new_job.chosen and len(new_job.payload) > MAX_KEPT_PAYLOAD_BYTES
    return digest_of(new_job.job) if too_large else b""


def digest_of(job: Job) -> bytes:
    """The digest of a job's name and arguments."""
    # The order of the arguments does not matter, as in unique keys.
    return b"sha256:" + sha256(f"{job.name}\n{codec.go_json(job.args)}".encode()).hexdigest().encode()


class Keyed(msgspec.Struct, frozen=True, gc=False):
    """The keys of jobs of one name, in the order of the jobs, and the arguments by which they were computed."""

    by: tuple[str, ...]
    keys: tuple[str, ...]


class FirstJob(msgspec.Struct, frozen=True, gc=False):
    """The job that was stored first under a chosen id."""

    #: When it was to run, in seconds; None for at once.
    due: float | None
    #: Its payload; or the digest of a job whose payload is too large to be kept for a day.
    kept: bytes


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an enqueue."""

    #: False for a duplicate of a unique job, which was not stored.
    stored: bool
    #: Redis time, or 0 if it was not asked for, and when the job is due, in seconds.
    now: float
    due: float | None = None
    #: Id of the job that holds the unique key of a duplicate.
    holder: str = ""
    #: Whether this request stored the job; False for a resend, too.
    new: bool = True
    #: Whether another request stored a job with the same chosen id before, and what is known about that job.
    existed: bool = False
    first: FirstJob | None = None


def enqueue(
    keys: Keys,
    slot: Slot,
    name: str,
    payloads: Sequence[bytes],
    *,
    introduce: bool,
    expires: float | None = None,
    keyed: Keyed | None = None,
) -> Op[Stored]:
    """Store jobs of one name in its queue and ring its bell. `introduce` adds the name to known_jobs.

    `expires` is in how many seconds the jobs expire. The script replaces the time in the payloads by Redis time plus it.
    `keyed` has the keys of the jobs, if the name has keys.
    """
    if keyed is not None:
        return enqueue_by_key(keys, slot, name, payloads, keyed, introduce=introduce, expires=expires)
    return Op(
        load("enqueue"),
        (_sent_key(keys.namespace, slot.id), *_queue_keys(keys.namespace, name)),
        (
            slot.number,
            name if introduce else "",
            int(slot.fresh),
            0 if expires is None else span(expires),
            *payloads,
        ),
        _read_enqueue,
    )


def enqueue_by_key(
    keys: Keys,
    slot: Slot,
    name: str,
    payloads: Sequence[bytes],
    keyed: Keyed,
    *,
    introduce: bool,
    expires: float | None = None,
) -> Op[Stored]:
    """Store jobs of one name in the partitions of their keys, or in its queue if Redis has another key for the name."""
    index = {key: k for k, key in enumerate(dict.fromkeys(keyed.keys), 1)}
    key_list: list[Arg] = [_sent_key(keys.namespace, slot.id), *_queue_keys(keys.namespace, name)]
    key_list += (keys.limits, keys.turns(name), keys.blocked(name), keys.debts(name))
    key_list += [keys.partition(name, key) for key in index]
    args: list[Arg] = [slot.number, name if introduce else "", int(slot.fresh), span(expires)]
    args += (name, ",".join(keyed.by), len(index), *index)
    for key, payload in zip(keyed.keys, payloads, strict=True):
        args += (index[key], payload)
    return Op(load("enqueue_by_key"), key_list, args, _read_enqueue)


def schedule(
    keys: Keys,
    slot: Slot,
    name: str,
    payloads: Sequence[bytes],
    when: When,
    *,
    introduce: bool,
    expires: float | None = None,
) -> Op[Stored]:
    """Store jobs of one name until they are due."""
    return Op(
        load("schedule"),
        (keys.sent(slot.id), keys.scheduled, keys.known_jobs, keys.due),
        (slot.number, name if introduce else "", when.mode, when.milliseconds, span(expires), *payloads),
        _read_schedule,
    )


def _place(keys: Keys, name: str, keyed: Keyed | None) -> tuple[Sequence[str], Sequence[str]]:
    """The keys and arguments of admit for a job that goes to the partition of its key."""
    if keyed is None:
        return (), ()
    (key,) = keyed.keys
    order = (keys.limits, keys.turns(name), keys.blocked(name), keys.debts(name))
    return (*order, keys.partition(name, key)), (name, ",".join(keyed.by), key)


def admit(
    keys: Keys,
    slot: Slot,
    name: str,
    payload: bytes,
    when: When,
    *,
    job_id: str,
    chosen: bool,
    unique_key: str | None,
    unique_for: float | None,
    introduce: bool,
    expires: float | None = None,
    digest: bytes = b"",
    keyed: Keyed | None = None,
) -> Op[Stored]:
    """Store one job unless its unique key is taken, or its caller-chosen id was stored before.

    Under a chosen id, Redis keeps the payload for a day, or the digest if there is one.
    """
    now = when.mode == "now"
    id_key = keys.job_id(job_id)
    place, place_args = _place(keys, name, keyed if now else None)
    return Op(
        load("admit"),
        (
            keys.sent(slot.id),
            keys.queue(name) if now else keys.scheduled,
            keys.known_jobs,
            keys.bell(name) if now else keys.due,
            unique_key or id_key,
            id_key if chosen else unique_key or id_key,
            *place,
        ),
        (
            slot.number,
            name if introduce else "",
            when.mode,
            when.milliseconds,
            payload,
            job_id,
            int(unique_key is not None),
            int(chosen),
            span(unique_for),
            span(expires),
            digest,
            *place_args,
        ),
        _read_admit,
    )


# An enqueuer uses the same few slots and names again and again.


@lru_cache(maxsize=256)
def _sent_key(namespace: str, slot_id: str) -> str:
    return Keys(namespace).sent(slot_id)


@lru_cache(maxsize=4096)
def _queue_keys(namespace: str, name: str) -> tuple[str, str, str]:
    keys = Keys(namespace)
    return keys.queue(name), keys.known_jobs, keys.bell(name)


def span(seconds: float | None) -> int:
    """Milliseconds as scripts take them; 0 for None."""
    return 0 if seconds is None else max(1, int(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Ticked:
    """The outcome of a tick."""

    enqueued: int
    last: int
    now: float
    paused: bool
    #: Why Redis time replaced the last tick: "junk" (no number), "ahead" (in the future), or "" if it did not.
    replaced: str = ""


def tick(
    keys: Keys,
    schedule_id: str,
    name: str,
    *,
    seen: int | None,
    newest: int | None,
    missed: int = 0,
    jobs: Sequence[tuple[int, bytes]] = (),
) -> Op[Ticked]:
    """Enqueue the ticks of a schedule if its last tick is still `seen`. With `newest=None`, only read the last tick."""
    flat: list[Arg] = []
    for moment, payload in jobs:
        flat += (moment, payload)
    return Op(
        load("tick"),
        (
            keys.periodic,
            keys.queue(name),
            keys.known_jobs,
            keys.bell(name),
            keys.totals,
            keys.ticks(schedule_id),
        ),
        (
            schedule_id,
            name,
            "" if seen is None else seen,
            "" if newest is None else newest,
            missed,
            *flat,
        ),
        lambda reply: Ticked(reply[0], reply[1], reply[2] / 1000, bool(reply[3]), reply[4].decode()),
    )


def _read_enqueue(reply: Any) -> Stored:
    return Stored(True, reply[1] / 1000, new=bool(reply[0]))


def _read_schedule(reply: Any) -> Stored:
    return Stored(True, reply[1] / 1000, reply[2] / 1000, new=bool(reply[0]))


def _read_admit(reply: Any) -> Stored:
    return Stored(
        reply[0] != b"duplicate",
        reply[1] / 1000,
        reply[2] / 1000,
        reply[3].decode("utf-8", "replace"),
        new=reply[0] == b"stored",
        existed=reply[0] == b"existed",
        first=_read_first(reply[4]),
    )


def _read_first(value: bytes) -> FirstJob | None:
    """Decode the value of `id:<id>`. None for the `1` of other clients and earlier versions."""
    due, _, kept = value.partition(b" ")
    return FirstJob(int(due) / 1000 or None, kept) if kept and due.lstrip(b"-").isdigit() else None

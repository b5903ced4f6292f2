"""Batches: jobs that join one, what became of its members, and what operators do with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dayjob.outcome import Cancelled, Died, Done, Dropped, Kept, Outcome, Retried, StartRequest, Unreadable
from dayjob.store.codec import WORKFLOW, BatchMembership
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.ops.children import runs
from dayjob.store.ops.produce import NewJob, Slot, Stored, digest_to_keep, span
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: What becomes of a member: it ended, it ended as a failure, it runs again after a failure, or it is open again. A node of a
#: workflow may also be skipped, because it discarded itself, or cancelled.
Fate = Literal["completed", "dead", "failed", "reopened", "skipped", "cancelled"]
#: How many batches one page lists.
PAGE = 100


class Member(msgspec.Struct, frozen=True, gc=False):
    """What became of a member of a batch, or of a node of a workflow."""

    ids: tuple[str, ...]
    numbers: tuple[int, ...]
    fate: Fate
    #: The result of a node, as JSON, and the nodes that it added, as scripts read them.
    result: bytes = b""
    added: tuple[bytes | str, ...] = ()

    @property
    def is_node(self) -> bool:
        """Whether it is a node of a workflow."""
        return self.ids[0].startswith(WORKFLOW)

    def add_keys(self, keys: Keys, key_list: list[Arg]) -> int:
        """Append the keys that scripts need. Returns the index of the first."""
        first = len(key_list) + 1
        key_list += above_keys(keys, self.ids)
        return first

    @property
    def text(self) -> str:
        """The numbers as scripts read them."""
        return f"w{self.numbers[0]}" if self.is_node else " ".join(map(str, self.numbers))


def above_keys(keys: Keys, ids: Sequence[str]) -> Iterator[str]:
    """The four keys of each batch, or of a workflow."""
    for one in ids:
        if one.startswith(WORKFLOW):
            yield from workflow_keys(keys, one)
            return
        yield from (keys.batch(one), keys.batch_ended(one), keys.batch_dead(one), keys.batch_failed(one))


def workflow_keys(keys: Keys, workflow_id: str) -> tuple[str, str, str, str]:
    """The four keys of a workflow."""
    return (
        keys.workflow(workflow_id), keys.workflow_states(workflow_id), keys.workflow_results(workflow_id),
        keys.workflow_nodes(workflow_id),
    )  # fmt: skip


def member_of(found: BatchMembership | None, outcome: Outcome | StartRequest) -> Member | None:
    """What an outcome makes of a member; None if nothing, or if it is no member."""
    if found is None or found[1][0] < 0:
        return None
    if found[0][0].startswith(WORKFLOW):
        match outcome:
            case Cancelled():
                return Member(*found, "cancelled")
            case Dropped(counts_failure=False):
                return Member(*found, "skipped")
    match outcome:
        case Done() | Kept() | Cancelled() | Dropped(counts_failure=False):
            return Member(*found, "completed")
        case Died() | Dropped() | Unreadable():
            return Member(*found, "dead")
        case Retried():
            return Member(*found, "failed")
        case _:
            return None


@dataclass(slots=True)
class NewBatch:
    """The content of a batch that does not exist yet."""

    description: str = ""
    #: `success`, `complete` and `dead` to the payload of the callback.
    callbacks: dict[str, bytes] = field(default_factory=dict)

    @property
    def fields(self) -> list[Arg]:
        """The fields of its hash."""
        found: list[Arg] = ["description", self.description]
        for event, payload in self.callbacks.items():
            found += (event, payload)
        return found


class MemberChunk(list[NewJob]):
    """Jobs that join one batch in one request, of any name and time."""

    def __init__(
        self,
        new_jobs: Sequence[NewJob],
        ids: tuple[str, ...],
        new: NewBatch | None = None,
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(new_jobs)
        #: The id of the batch and of those above it.
        self.ids = ids
        #: What to create if the batch does not exist; None if it must exist.
        self.new = new
        self.closes = closes


def add_members(keys: Keys, slot: Slot, chunk: MemberChunk) -> Op[Stored]:
    """Store jobs that join a batch, and create or close the batch. Raises Rejected if the batch has ended."""
    batch_id, *above = chunk.ids
    key_list: list[Arg] = [
        keys.sent(slot.id), keys.batch(batch_id), keys.batch_ended(batch_id), keys.batch_dead(batch_id), keys.batches,
        keys.scheduled, keys.due, *above_keys(keys, above),
    ]  # fmt: skip
    fields = [] if chunk.new is None else chunk.new.fields
    args: list[Arg] = [slot.number, batch_id, int(chunk.closes), len(fields) // 2, " ".join(above), *fields]
    places: dict[str, int] = {}

    def place_of(key: str | None) -> int:
        if key is None:
            return 0
        if key not in places:
            key_list.append(key)
            places[key] = len(key_list)
        return places[key]

    for target, new_jobs in runs(chunk):
        first, name = new_jobs[0], target.name
        more: list[Arg] = [new_job.payload for new_job in new_jobs]
        if first.alone:
            digest = digest_to_keep(first).decode() or "-"
            more.append(f"{span(first.unique_for)} {digest} {first.job.id}")
        args += (
            "admitted" if first.alone else "children",
            place_of(keys.queue(name)), place_of(keys.bell(name)), place_of(keys.known_jobs),
            place_of(first.job.unique_key), place_of(keys.job_id(first.job.id) if first.chosen else None),
            f"{target.text} 2 {batch_id}", name, len(more), *more,
        )  # fmt: skip
    return Op(load("add_members"), key_list, args, _read_added)


def _read_added(reply: Any) -> Stored:
    return Stored(reply[0] != b"ended", reply[1] / 1000, new=reply[0] == b"stored")


BatchChange = Literal["cancel", "close", "check", "completed", "dead", "reopened"]


def change_batch(keys: Keys, about: StoredBatch, what: BatchChange, numbers: Sequence[int] = ()) -> Op[bool]:
    """Cancel or close a batch, let it check whether it has ended, or correct which of its members have ended."""
    one = about.id
    return Op(
        load("change_batch"),
        (
            keys.batch(one), keys.batch_ended(one), keys.batch_dead(one), keys.batch_failed(one),
            keys.cancelled_batches, keys.scheduled, keys.due, *above_keys(keys, about.above[0]),
        ),
        (one, what, " ".join(map(str, about.above[1])), *numbers),
        bool,
    )  # fmt: skip


def cancelled(keys: Keys) -> Op[set[str]]:
    """The ids of batches that were cancelled."""
    return Op("ZRANGE", (keys.cancelled_batches,), (0, -1), lambda reply: set(texts(reply)))


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as Redis has it. Times are seconds since the epoch, or None."""

    id: str
    description: str
    created_at: float
    closed: bool
    cancelled_at: float | None
    #: When its last member ended; None while some have not.
    ended_at: float | None
    total: int
    #: How many members ended, dead ones included; are dead; failed and run again.
    ended: int
    dead: int
    failed: int
    #: The ids of the batches above it and its numbers in them.
    above: BatchMembership
    #: Event to the name of its callback, and to when that was enqueued.
    callbacks: Mapping[str, str]
    sent: Mapping[str, float]

    @property
    def left(self) -> int:
        """How many members have not ended."""
        return max(0, self.total - self.ended)

    def eta(self, now: float) -> float | None:
        """Seconds until it ends, if its members go on to end as fast as so far; None if that is not known."""
        if self.left == 0:
            return 0.0
        return (
            self.left * (now - self.created_at) / self.ended if self.ended and now > self.created_at else None
        )

    @property
    def state(self) -> Literal["open", "running", "cancelled", "failed", "succeeded"]:
        """What became of it."""
        if self.cancelled_at is not None:
            return "cancelled"
        if self.ended_at is None:
            return "running" if self.closed else "open"
        return "failed" if self.dead else "succeeded"


def read(keys: Keys, batch_id: str) -> Steps[StoredBatch | None]:
    """A batch with what became of its members; None if there is none."""
    (found,) = yield from read_many(keys, [batch_id])
    return found


def read_many(keys: Keys, ids: Sequence[str]) -> Steps[list[StoredBatch | None]]:
    """Batches with what became of their members; None for those that are gone."""
    ops: list[Op[Any]] = []
    for one in ids:
        batch, *bitmaps = above_keys(keys, [one])
        ops += [Op("HMGET", (batch,), _FIELDS, _known), *(Op("BITCOUNT", (key,), (), int) for key in bitmaps)]
    answers = yield from ask_all(ops)
    return [_stored_batch(one, *answers[i * 4 : i * 4 + 4]) for i, one in enumerate(ids)]


#: What is read of the hash. A batch with many nested ones has more fields than are worth reading each time.
_FIELDS = (
    "total", "created", "closed", "cancelled", "ended_at", "description", "above",
    "success", "complete", "dead", "sent:success", "sent:complete", "sent:dead",
)  # fmt: skip


def _known(reply: Any) -> dict[bytes, bytes]:
    return {name.encode(): value for name, value in zip(_FIELDS, reply, strict=True) if value is not None}


def _stored_batch(
    batch_id: str, fields: Mapping[bytes, bytes], ended: int, dead: int, failed: int
) -> StoredBatch | None:
    if b"total" not in fields:
        return None

    def at(name: bytes) -> float | None:
        return int(fields[name]) / 1000 if name in fields else None

    path = msgspec.json.decode(b"[%b]" % fields.get(b"above", b"").removeprefix(b","))
    events = [event for event in ("success", "complete", "dead") if event.encode() in fields]
    return StoredBatch(
        batch_id, fields.get(b"description", b"").decode("utf-8", "replace"), at(b"created") or 0.0,
        fields.get(b"closed") == b"1", at(b"cancelled"), at(b"ended_at"), int(fields[b"total"]), ended, dead, failed,
        (tuple(path[::2]), tuple(path[1::2])),
        {event: msgspec.json.decode(fields[event.encode()])["name"] for event in events},
        {event: sent for event in events if (sent := at(b"sent:" + event.encode())) is not None},
    )  # fmt: skip


def page(keys: Keys, *, skip: int = 0, size: int = PAGE) -> Steps[list[StoredBatch]]:
    """Batches, the newest first. Those that are gone are left out."""
    ids = yield from ask(Op("ZRANGE", (keys.batches,), (skip, skip + size - 1, "REV"), texts))
    found = yield from read_many(keys, ids)
    return [one for one in found if one is not None]


def count(keys: Keys) -> Op[int]:
    """How many batches were created within the time for which batches are kept."""
    return Op("ZCARD", (keys.batches,), (), int)


def bitmap(key: str) -> Op[bytes]:
    """A bitmap of members: `keys.batch_ended`, `batch_dead` or `batch_failed`."""
    return Op("GET", (key,), (), lambda reply: reply or b"")


def has_bit(bits: bytes, number: int) -> bool:
    """Whether a bitmap has a member."""
    place = number >> 3
    return place < len(bits) and bool(bits[place] & (128 >> (number & 7)))


def nested(keys: Keys, batch_id: str, cursor: str = "0") -> Op[tuple[str, dict[int, str]]]:
    """Some batches that are members of this one: where to go on, "0" at the end; and number to id."""

    def read_scan(reply: Any) -> tuple[str, dict[int, str]]:
        pairs = zip(texts(reply[1][::2]), texts(reply[1][1::2]), strict=True)
        return reply[0].decode(), {int(name.partition(":")[2]): one for name, one in pairs}

    return Op("HSCAN", (keys.batch(batch_id),), (cursor, "MATCH", "nested:*", "COUNT", 500), read_scan)

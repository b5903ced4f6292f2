"""The bin: keeps deleted jobs for ten minutes, so that a deletion can be undone.

A deletion is one action of an operator. Its jobs are in parts, so that no key of the bin grows large: Redis frees a key that
expires in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dayjob.errors import Full
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, add_key
from dayjob.store.ops.batches import Fate
from dayjob.store.ops.inspect import MAX_BYTES
from dayjob.store.ops.move import JobMove, callback_keys, unique_key_of
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: Seconds for which the bin keeps a job.
KEEP_SECONDS = 600
#: How many jobs one key of the bin has at most.
PART_SIZE = 10_000
#: How many jobs one step puts back.
_STEP = 100
#: How many parts of deletions are read.
MAX_PARTS = 2000
_THIRTY_DAYS = 30 * 86_400_000

Source = Literal["queue", "set", "broken"]


class DeletionPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a deletion, as `bin` describes it."""

    id: str
    part: int
    actor: str
    action: str
    subject: str


class Deletion:
    """One action that deletes jobs: which part of the bin the next ones go to."""

    def __init__(self, keys: Keys, *, actor: str, action: str, subject: str) -> None:
        self.id = new_id()
        self._keys = keys
        self._about = DeletionPart(self.id, 0, actor[:200], action, subject[:500])
        self._sent = 0

    def part_for(self, jobs: int) -> DeletionPart:
        """The part to which so many more jobs go."""
        number = self._sent // PART_SIZE
        self._sent += jobs
        return msgspec.structs.replace(self._about, part=number)

    def renew(self) -> Steps[None]:
        """Begin the ten minutes of all parts anew, when the action has ended."""
        parts = [
            msgspec.structs.replace(self._about, part=number) for number in range(self._sent // PART_SIZE)
        ]
        for first in range(0, len(parts), 100):
            touches = [to_bin(self._keys, self._keys.broken, [], part=part, total="", source_is="broken") for part in parts[first : first + 100]]  # fmt: skip
            yield from ask_all(touches)


def to_bin(
    keys: Keys,
    source: str,
    moves: Sequence[JobMove],
    *,
    part: DeletionPart,
    total: str,
    source_is: Source = "set",
    fate: Fate | None = None,
) -> Op[int]:
    """Take the jobs that are still there to the bin, and release their unique keys; count them under `total`.

    In a list each place counts what is ahead after those before it in `moves` have left.
    """
    key_list: list[Arg] = [
        source, keys.bin, keys.bin_part(part.id, part.part), keys.totals, *callback_keys(keys, source, moves),
    ]  # fmt: skip
    origin = msgspec.json.encode(source.removeprefix(keys.prefix))
    args: list[Arg] = [source_is, origin, msgspec.json.encode(part), KEEP_SECONDS * 1000, total, fate or ""]
    for one in moves:
        unique = add_key(key_list, one.unique_key)
        args += (one.place, one.entry, unique, one.job_id, *one.add_keys(keys, key_list))
    return Op(load("to_bin"), key_list, args, int)


def ask_bin(op: Op[Any]) -> Steps[Any]:
    """Send a request that puts jobs into the bin. Raises Full with what to do: on a full server nothing goes to the bin."""
    try:
        return (yield from ask(op))
    except Full as error:
        raise Full(
            "Redis has no memory left, so these jobs cannot go to the bin and were not deleted. To free memory, delete"
            " them for good: --no-undo, or undo=false in the API."
        ) from error


# What is in the bin.


@dataclass(frozen=True, slots=True)
class StoredDeletion:
    """A deletion that can be undone."""

    about: DeletionPart
    #: Redis seconds, of the part that expires first.
    expires_at: float
    #: Its parts, and how many jobs each has.
    parts: tuple[tuple[DeletionPart, int], ...]

    @property
    def jobs(self) -> int:
        """How many jobs it has."""
        return sum(size for _, size in self.parts)


def deletions(keys: Keys) -> Steps[list[StoredDeletion]]:
    """What can be undone, the newest first."""
    found = yield from ask(_parts(keys))
    sizes = yield from ask_all([_size(keys, part) for part, _ in found])
    by_id: dict[str, list[tuple[DeletionPart, int, float]]] = {}
    for (part, expires), size in zip(found, sizes, strict=True):
        if size:
            by_id.setdefault(part.id, []).append((part, size, expires))
    return [
        StoredDeletion(
            parts[0][0],
            min(expires for _, _, expires in parts),
            tuple(sorted(((part, size) for part, size, _ in parts), key=lambda one: one[0].part)),
        )
        for parts in by_id.values()
    ]


def _parts(keys: Keys) -> Op[list[tuple[DeletionPart, float]]]:
    return Op(
        "ZRANGE", (keys.bin,), (0, MAX_PARTS - 1, "REV", "WITHSCORES"), lambda reply: list(_read(reply))
    )


def _read(reply: Any) -> Iterator[tuple[DeletionPart, float]]:
    for raw, score in zip(reply[::2], reply[1::2], strict=True):
        try:
            yield msgspec.json.decode(raw, type=DeletionPart), float(score) / 1000
        except codec.UNREADABLE:
            continue


def _size(keys: Keys, part: DeletionPart) -> Op[int]:
    return Op("LLEN", (keys.bin_part(part.id, part.part),), (), int)


class _Header(msgspec.Struct):
    """The first line of an entry of the bin."""

    from_: str = msgspec.field(name="from")
    score: str = ""
    life: float = 0
    holder: int = 0


@dataclass(frozen=True, slots=True)
class BinEntry:
    """One deleted job, as it is in the bin."""

    entry: bytes
    #: How many entries are ahead of it, from the right end of its part.
    place: int
    #: The key where it was, without the namespace.
    origin: str
    score: str
    payload: bytes
    #: Its job name and id; "" where the job cannot be read.
    name: str
    id: str
    #: Its unique key, the value that the key had, and milliseconds to hold it; "" where it held none.
    unique_key: str = ""
    holder: bytes = b""
    life: int = 0
    #: Its batches and its numbers in them, if it is a member.
    membership: codec.BatchMembership | None = None


def read_part(keys: Keys, part: DeletionPart, *, skip: int, size: int) -> Op[list[BinEntry]]:
    """Some entries of a part, the last deleted first."""
    key = keys.bin_part(part.id, part.part)
    return Op(
        load("page"), (key,), ("list", 1, size, MAX_BYTES, skip, 0, ""),
        lambda reply: [_entry(keys, skip + i, raw) for i, raw in enumerate(reply[3:])],
    )  # fmt: skip


def _entry(keys: Keys, place: int, raw: bytes) -> BinEntry:
    head, _, rest = raw.partition(b"\n")
    header = msgspec.json.decode(head, type=_Header)
    holder, payload = rest[: header.holder], rest[header.holder :]
    name = job_id = key = ""
    member = None
    try:
        wire = codec.read(payload)
    except codec.Broken:
        pass
    else:
        name, job_id = wire.name, wire.id
        key = unique_key_of(keys, wire) if holder else ""
        member = codec.membership(wire)
    life = int(header.life) if header.life > 0 else _THIRTY_DAYS
    return BinEntry(raw, place, header.from_, header.score, payload, name, job_id, key, holder, life, member)


@dataclass(frozen=True, slots=True)
class Undone:
    """The answer to undo."""

    count: int
    #: Id of a job that holds the unique key of one that stays in the bin.
    holder: str | None
    #: How many stay because a sorted set has the same bytes.
    same: int


_SETS = {"scheduled": "later", "retry": "later", "dead": "set", "done": "set"}


def undo(keys: Keys, part: DeletionPart, entries: Sequence[BinEntry]) -> Op[Undone]:
    """Put jobs of one origin and name back, the last deleted first."""
    origin = entries[0].origin
    if origin.startswith("partition:"):
        # Jobs of a key go back to the queue of their name, from which pools sort them.
        origin = "jobs:" + origin.removeprefix("partition:").partition("|")[0]
    target = keys.prefix + origin
    queue = origin.removeprefix("jobs:") if origin.startswith("jobs:") else ""
    kind = "queue" if queue else _SETS.get(origin, "broken")
    bell = keys.bell(queue) if queue else keys.due if kind == "later" else target
    key_list: list[Arg] = [
        keys.bin_part(part.id, part.part), keys.bin, target if queue or origin in _SETS else keys.broken, bell, keys.known_jobs,
        keys.totals,
    ]  # fmt: skip
    reopens = "reopened" if kind in ("queue", "later") else ""
    args: list[Arg] = [
        kind,
        queue,
        msgspec.json.encode(part),
        f"restored:{queue or entries[0].name}",
        reopens,
    ]
    for before, one in enumerate(entries):
        index = add_key(key_list, one.unique_key)
        batch = JobMove(one.entry, membership=one.membership).add_keys(keys, key_list)
        args += (
            max(0, one.place - before), one.entry, one.payload, one.score, index, one.holder, one.life, *batch,
        )  # fmt: skip
    return Op(load("undo"), key_list, args, _read_undone)


def _read_undone(reply: Any) -> Undone:
    return Undone(reply[0], None if reply[1] is None else reply[1].decode("utf-8", "replace"), reply[2])


def undo_all(
    keys: Keys, deletion: StoredDeletion, report: Callable[[int], bool] = lambda _: True
) -> Steps[Undone]:
    """Put the jobs of a deletion back, the last deleted first, in steps of 100. `report` gets how many were looked at."""
    back, holder, same, looked = 0, None, 0, 0
    for part, _ in reversed(deletion.parts):
        stayed = 0
        while entries := (yield from ask(read_part(keys, part, skip=stayed, size=_STEP))):
            groups: dict[tuple[str, str], list[BinEntry]] = {}
            for entry in entries:
                # A list is put back in one go, so that it keeps its order; a set by name, so that each is counted.
                groups.setdefault((entry.origin, entry.name if entry.score else ""), []).append(entry)
            answers = yield from ask_all([undo(keys, part, group) for group in groups.values()])
            moved = sum(answer.count for answer in answers)
            back, stayed, looked = back + moved, stayed + len(entries) - moved, looked + len(entries)
            same += sum(answer.same for answer in answers)
            holder = holder or next((answer.holder for answer in answers if answer.holder is not None), None)
            if not report(looked):
                return Undone(back, holder, same)
    return Undone(back, holder, same)

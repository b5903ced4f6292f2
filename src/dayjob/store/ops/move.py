"""Move: takes jobs out of a queue, a sorted set or broken, and puts them into a queue, into dead or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, add_key
from dayjob.store.ops.batches import Fate, Member
from dayjob.store.scripts import load


@dataclass(frozen=True, slots=True)
class JobMove:
    """One job to move, as the client read it, and what is stored at the target."""

    entry: bytes
    payload: bytes = b""
    #: How many entries were ahead of it in its list; a sorted set has no use for it.
    place: int = 0
    #: Released when the job is deleted or goes to dead, taken when it goes into a queue.
    unique_key: str = ""
    job_id: str = ""
    #: Deleted when the job goes into a queue, set to the error when it goes to dead. Empty where no result is kept.
    result_key: str = ""
    #: The batches of a member, and its numbers in them.
    membership: codec.BatchMembership | None = None

    def add_keys(self, keys: Keys, key_list: list[Arg]) -> tuple[int, str]:
        """Append the keys of its batches. Returns the index of the first, or 0, and its numbers as scripts read them."""
        if self.membership is None:
            return 0, ""
        member = Member(*self.membership, "completed")
        return member.add_keys(keys, key_list), member.text


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """The answer to move."""

    count: int
    #: Id of the job that holds the unique key, if a job was not moved for that reason.
    holder: str | None


def move(
    keys: Keys,
    source: str,
    moves: Sequence[JobMove],
    *,
    total: str,
    source_is: Literal["queue", "set", "broken"] = "set",
    to: Literal["queue", "dead", ""] = "",
    name: str = "",
    failure: bytes = b"",
    fate: Fate | None = None,
) -> Op[MoveAnswer]:
    """Move the jobs that are still there to the queue of `name` or to dead, or delete them; count them under `total`.

    `failure` is stored as the result of jobs that go to dead. `fate` is what becomes of members of batches.
    """
    target, bell = keys.dead if to == "dead" else source, source
    if to == "queue":
        target, bell = keys.queue(name), keys.bell(name)
    key_list: list[Arg] = [
        source,
        target,
        keys.totals,
        keys.known_jobs,
        bell,
        *callback_keys(keys, source, moves),
    ]
    args: list[Arg] = [source_is, to, name, total, failure, fate or ""]

    for one in moves:
        unique, result = add_key(key_list, one.unique_key), add_key(key_list, one.result_key)
        batch, numbers = one.add_keys(keys, key_list)
        args += (one.place, one.entry, one.payload, unique, one.job_id, result, batch, numbers)
    return Op(load("move"), key_list, args, _read_moved)


def callback_keys(keys: Keys, source: str, moves: Sequence[JobMove]) -> tuple[str, str]:
    """Where callbacks of batches go, if there are members among the jobs; otherwise the source again."""
    return (keys.scheduled, keys.due) if any(one.membership for one in moves) else (source, source)


def _read_moved(reply: Any) -> MoveAnswer:
    return MoveAnswer(reply[0], None if reply[1] is None else reply[1].decode("utf-8", "replace"))


def counted(op: Op[MoveAnswer]) -> Op[int]:
    """The same request, answered with how many jobs were moved."""
    return Op(op.command, op.keys, op.args, lambda reply: int(reply[0]))


def done(op: Op[MoveAnswer]) -> Op[bool]:
    """The same request, answered with whether a job was moved."""
    return Op(op.command, op.keys, op.args, lambda reply: bool(reply[0]))


def unique_key_of(keys: Keys, wire: codec.Wire) -> str:
    """The unique key that a job may own; "" where it has none of this namespace."""
    key = wire.unique_key
    if wire.unique and not key and (rest := codec.unique_rest(wire.args)) is not None:
        key = keys.unique(wire.name, rest)
    return key if key.startswith(keys.unique_prefix) else ""

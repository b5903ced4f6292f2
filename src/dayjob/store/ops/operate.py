"""The actions of operators. Each names the entry that the operator saw, and reports whether it was still there.

New payload bytes are written here; scripts only move them. Large actions are steps of bounded work.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from dayjob.errors import BadOption, Rejected
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.ops import concurrency, consume, inspect, maintain, membership, partitions, produce
from dayjob.store.ops.batches import Fate
from dayjob.store.ops.bin import Deletion, Source, ask_bin, to_bin
from dayjob.store.ops.broken import BrokenEntry
from dayjob.store.ops.maintain import BATCH, Move
from dayjob.store.ops.move import JobMove, MoveAnswer, counted, done, move, unique_key_of
from dayjob.store.scripts import load
from dayjob.store.steps import Steps, ask, ask_all

#: How far from the end of a list an entry may be that is to be taken out of it.
MAX_DEEP = 10_000
#: How often a change of a limit begins anew because others changed that limit at the same time.
LIMIT_TRIES = 20
#: The error of a job that an operator killed before it ran.
KILLED_WAITING = "killed by an operator"


def _job_move(
    keys: Keys, entry: bytes, wire: codec.Wire | None, payload: bytes = b"", place: int = 0
) -> JobMove:
    """Move this entry, together with the unique key that its job may own."""
    if wire is None:
        return JobMove(entry, payload, place)
    member = codec.membership(wire)
    return JobMove(entry, payload, place, unique_key_of(keys, wire), wire.id, membership=member)


def _ends_members(keys: Keys, source: str) -> Fate | None:
    """What becomes of members of batches that are deleted from here. In dead, done and broken they have ended already."""
    return None if source in (keys.dead, keys.done, keys.broken) else "completed"


def _read(payload: bytes) -> codec.Wire | None:
    try:
        return codec.read(payload)
    except codec.Broken:
        return None


# Jobs in scheduled, retry, dead and done.


#: Which total counts a job that was taken out.
Counter = Literal["deleted", "cancelled"]


def _remove(
    keys: Keys,
    source: str,
    moves: Sequence[JobMove],
    *,
    total: str,
    source_is: Source = "set",
    deletion: Deletion | None,
) -> Op[int]:
    """Take jobs out: to the bin, or without a deletion for good. The answer is how many were still there."""
    fate = _ends_members(keys, source)
    if deletion is None:
        return counted(move(keys, source, moves, total=total, source_is=source_is, fate=fate))
    part = deletion.part_for(len(moves))
    return to_bin(keys, source, moves, part=part, total=total, source_is=source_is, fate=fate)


def _one(op: Op[int]) -> Op[bool]:
    return Op(op.command, op.keys, op.args, lambda reply: bool(op.read(reply)))


def delete(
    keys: Keys, source: str, member: bytes, *, count: Counter = "deleted", deletion: Deletion | None = None
) -> Op[bool]:
    """Delete one entry of a sorted set and release its unique key if it owns it; false when it was not there.

    With a deletion it goes to the bin.
    """
    wire = _read(member)
    moves = [_job_move(keys, member, wire)]
    return _one(_remove(keys, source, moves, total=f"{count}:{wire.name if wire else ''}", deletion=deletion))


def delete_many(
    keys: Keys,
    source: str,
    members: Sequence[bytes],
    *,
    count: Counter = "deleted",
    deletion: Deletion | None = None,
) -> Steps[int]:
    """Delete entries of a sorted set; the answer is how many were still there."""
    by_name: dict[str, list[JobMove]] = {}
    for member in members:
        wire = _read(member)
        by_name.setdefault(wire.name if wire else "", []).append(_job_move(keys, member, wire))
    deleted = 0
    for name, moves in by_name.items():
        for first in range(0, len(moves), BATCH):
            batch = moves[first : first + BATCH]
            deleted += yield from ask_bin(
                _remove(keys, source, batch, total=f"{count}:{name}", deletion=deletion)
            )
    return deleted


def run_now(keys: Keys, source: str, members: Sequence[bytes], *, now: float) -> Op[int]:
    """Move jobs from scheduled or retry to their queues before they are due; the answer is how many were there.

    `now` is the Redis time of the page that showed them. Entries that cannot be read go to broken.
    """
    return maintain.requeue(
        keys, source, [_move(source, member, now) for member in members[:BATCH]], due=False
    )


def _move(source: str, member: bytes, now: float) -> Move:
    try:
        wire = codec.read(member)
        return Move(wire.name, member, codec.requeued(member, wire, now))
    except (codec.Broken, *codec.UNREADABLE) as why:
        return Move(None, member, codec.broken_entry(member, at=now, where=source, why=str(why)))


def reschedule(
    keys: Keys, source: str, member: bytes, mode: Literal["in", "at"], seconds: float
) -> Op[float | None]:
    """Change when a job of scheduled or retry is due; the answer is when, or None when it is not there."""
    wire = _read(member)
    unique = unique_key_of(keys, wire) if wire is not None else ""
    return Op(
        load("reschedule"),
        (source, keys.due, unique or keys.due),
        (member, mode, round(seconds * 1000), wire.id if wire is not None else ""),
        lambda reply: reply[1] / 1000 if reply[0] else None,
    )


@dataclass(frozen=True, slots=True)
class Revived:
    """What became of a retry from dead."""

    fate: Literal["moved", "gone", "taken"]
    #: Id of the job that has its unique key, when that is taken.
    holder: str = ""


def revive(keys: Keys, member: bytes, *, now: float) -> Op[Revived]:
    """Put a dead job back into its queue as if it had never failed, with its unique key if it has one.

    Raises BadOption when the entry cannot be read: it can be deleted only.
    """
    wire = _readable(member)
    changes: dict[str, Any] = dict.fromkeys(("fails", "err", "failed_at", "trace", "deaths", "attempt"))
    changes |= {"t": int(now), "at": int(now * 1000), **codec.first_enqueued_field(wire, settled=True)}
    if wire.expires and wire.expires < now * 1000:
        # Or it would be discarded as soon as it is fetched.
        changes["expires"] = None
    back = _job_move(keys, member, wire, codec.rewrite(member, changes))
    back = replace(back, unique_key=back.unique_key if wire.id else "", result_key=keys.result(wire.id))
    op = move(
        keys, keys.dead, [back], total=f"revived:{wire.name}", to="queue", name=wire.name, fate="reopened"
    )
    return Op(op.command, op.keys, op.args, lambda reply: _read_revived(op.read(reply)))


def _read_revived(moved: MoveAnswer) -> Revived:
    if moved.holder is not None:
        return Revived("taken", moved.holder)
    return Revived("moved" if moved.count else "gone")


def kill(
    keys: Keys,
    source: str,
    member: bytes,
    *,
    now: float,
    why: str = KILLED_WAITING,
    keeping: Container[str] = (),
) -> Op[bool]:
    """Move a job from scheduled or retry to dead; false when it was not there. Raises BadOption when unreadable.

    `keeping` are the names of job types that keep results. Callers that wait for such a result get the error.
    """
    wire = _readable(member)
    dead = _with_result(keys, _job_move(keys, member, wire, _corpse(member, now, why)), wire, keeping)
    failure = consume.error_result(why)
    return done(
        move(keys, source, [dead], total=f"dead:{wire.name}", to="dead", failure=failure, fate="dead")
    )


def _with_result(keys: Keys, dead: JobMove, wire: codec.Wire, keeping: Container[str]) -> JobMove:
    keeps = wire.name in keeping or codec.reply_seconds(wire) is not None
    return replace(dead, result_key=keys.result(wire.id)) if wire.id and keeps else dead


def _corpse(payload: bytes, now: float, why: str) -> bytes:
    # An attempt that no other has, so that two jobs with the same bytes stay two in the sorted set.
    return codec.rewrite(
        payload, {"err": codec.cut(why), "failed_at": int(now), "attempt": f"operator/{new_id()}"}
    )


def _readable(member: bytes) -> codec.Wire:
    try:
        return codec.read(member)
    except codec.Broken as why:
        raise BadOption(f"this entry cannot be read ({why}): it can be deleted, not moved") from None


# Queues.


def unqueue(
    keys: Keys,
    name: str,
    payload: bytes,
    place: int,
    *,
    now: float = 0.0,
    kill: bool = False,
    count: Counter = "deleted",
    keeping: Container[str] = (),
    deletion: Deletion | None = None,
) -> Op[bool]:
    """Delete a waiting job, or kill it, seen with `place` jobs ahead of it; false when it is not near there any more.

    `keeping` is as for `kill`, `deletion` as for `delete`. Raises BadOption when it is too deep in its queue to be taken out cheaply.
    """
    if not 0 <= place < MAX_DEEP:
        raise BadOption(
            f"the job is number {place + 1:,} in the queue {name!r}; only the first {MAX_DEEP:,} can be taken out one by one"
        )
    wire = _read(payload)
    if kill and wire is None:
        raise BadOption("this entry cannot be read: it can be deleted, not moved")
    source = keys.queue(name)
    if not kill or wire is None:
        gone = _job_move(keys, payload, wire, place=place)
        return _one(
            _remove(keys, source, [gone], total=f"{count}:{_own(name)}", source_is="queue", deletion=deletion)
        )
    dead = _job_move(keys, payload, wire, _corpse(payload, now, KILLED_WAITING), place)
    dead = _with_result(keys, dead, wire, keeping)
    failure = consume.error_result(KILLED_WAITING)
    return done(
        move(
            keys,
            source,
            [dead],
            total=f"dead:{_own(name)}",
            source_is="queue",
            to="dead",
            failure=failure,
            fate="dead",
        )
    )


def unqueue_many(
    keys: Keys,
    name: str,
    jobs: Sequence[tuple[int, bytes]],
    *,
    count: Counter = "deleted",
    deletion: Deletion | None = None,
) -> Op[int]:
    """Delete waiting jobs, each seen with so many ahead of it, the first of the queue first; 100 at most."""
    # Those before it in this list have left when its turn comes.
    moves = [
        _job_move(keys, payload, _read(payload), place=place - before)
        for before, (place, payload) in enumerate(jobs)
    ]
    total = f"{count}:{_own(name)}"
    return _remove(keys, keys.queue(name), moves, total=total, source_is="queue", deletion=deletion)


def _own(name: str) -> str:
    """The job name of a queue or partition."""
    return name.partition("|")[0]


def rename(keys: Keys, name: str, jobs: Sequence[tuple[int, bytes]], to: str) -> Op[MoveAnswer]:
    """Move waiting jobs to the end of another queue, each seen with so many ahead of it, the first first; 100 at most.

    A unique key stays as it is. Raises BadOption when one cannot be read.
    """
    moves = []
    for before, (place, payload) in enumerate(jobs):
        wire = _readable(payload)
        key = unique_key_of(keys, wire)
        changes: dict[str, Any] = {"name": to} | ({"unique_key": key} if key else {})
        moves.append(JobMove(payload, codec.rewrite(payload, changes), place - before, key, wire.id))
    source = keys.queue(name)
    return move(keys, source, moves, total=f"moved:{to}", source_is="queue", to="queue", name=to)


def pause(keys: Keys, name: str, *, note: str = "1", actor: str = "") -> Op[bool]:
    """Stop fetching from a queue; false when it was paused already. Running jobs continue.

    `note` is stored with the pause: when it began and who began it.
    """
    return Op(load("pause"), (keys.paused(name), keys.events("pause")), ("name", name, 1, note, actor), bool)


def resume(keys: Keys, name: str, *, actor: str = "") -> Steps[bool]:
    """Fetch from a queue again; false when it was not paused. Rings, so that it begins at once."""
    pauses = keys.events("pause")
    lifted = Op(load("pause"), (keys.paused(name), pauses), ("name", name, 0, "", actor), bool)
    # One after the other: a script that the server has forgotten is sent again, and would then come after the ring.
    resumed = yield from ask(lifted)
    yield from ask(maintain.ring(keys, [name]))
    return resumed


def purge(keys: Keys, name: str, *, most: int | None = None, deletion: Deletion | None = None) -> Steps[int]:
    """Delete the jobs that waited in a queue, and under its keys, when it began, `most` at most; the answer is how many.

    `<name>|<key>` deletes those of one key.
    """
    deleted = 0
    for place in [name] if "|" in name else (yield from partitions.lists_of(keys, name)):
        if most is not None and deleted >= most:
            break
        left = None if most is None else most - deleted
        deleted += yield from _purge_list(keys, place, left, deletion)
    return deleted


def _purge_list(keys: Keys, name: str, most: int | None, deletion: Deletion | None) -> Steps[int]:
    seen = yield from ask(inspect.peek(keys, name, size=BATCH))
    left = seen.total if most is None else min(most, seen.total)
    deleted = idle = 0
    while seen.entries and left > 0 and idle < 100:
        jobs = [(place, entry.member) for place, entry in enumerate(seen.entries[:left])]
        dropped: int = yield from ask_bin(unqueue_many(keys, name, jobs, deletion=deletion))
        deleted += dropped
        left -= dropped
        # Workers may take the same jobs at the same time, so that some rounds find nothing.
        idle = 0 if dropped else idle + 1
        seen = yield from ask(inspect.peek(keys, name, size=BATCH))
    return deleted


def set_concurrency_limit(
    keys: Keys, name: str, limit: int | None, *, by: str = "operator", actor: str = ""
) -> Steps[None]:
    """Set or lift the concurrency limit of a job name for all pools. Raises BadOption and Rejected.

    A new limit comes into force in the last step. Interrupted before that, the old one stays in force.
    """
    if limit is None:
        yield from ask(concurrency.lift_limit(keys, name, by=by, actor=actor))
        return
    if not 0 <= limit <= 1_000_000:
        raise BadOption(f"limit {limit}: give a number from 0 to 1,000,000, or none to lift it")
    for _ in range(LIMIT_TRIES):
        table = yield from ask(concurrency.limit_table(keys))
        mark = ""
        if name in table.counting or not table.in_force.get(name):
            mark = yield from _count_held(keys, name)
        finished = concurrency.finish_limit(keys, name, limit, by=by, mark=mark, actor=actor)
        if (yield from ask(finished)):
            return
    raise Rejected(
        f"the limit of {name!r} was not changed: others changed it at the same time, {LIMIT_TRIES} times. Try again."
    )


def _count_held(keys: Keys, name: str) -> Steps[str]:
    """Count the attempts that are held already for a limit that is to come; the answer is the mark of the count."""
    mark = yield from ask(concurrency.begin_limit(keys, name, new_id()))
    holders = yield from ask_all([membership.pool_ids(keys), membership.condemned_ids(keys)])
    for pool_id in holders[0] + holders[1]:
        tokens = yield from ask(membership.held_tokens(keys, pool_id))
        own = [f"{pool_id}/{token}" for token in tokens if consume.name_in(token) == name]
        for first in range(0, len(own), 500):
            yield from ask(maintain.recount(keys, name, own[first : first + 500]))
    return mark


# Attempts, schedules, broken entries.


PoolRequest = Literal["quiet", "resume", "stop", "stacks"]
AskAnswer = Literal["new", "already", "gone"]


def ask_pool(keys: Keys, pool_id: str, request: PoolRequest) -> Op[AskAnswer]:
    """Ask a pool to go quiet, to resume, to stop, or to publish the stack traces of its workers. The pool reads the request with its next heartbeat."""
    return Op(load("ask_pool"), _asked_keys(keys, pool_id), (pool_id, request, ""), _read_asked)


def cancel(keys: Keys, pool_id: str, token: str, *, kill: bool = False) -> Op[bool]:
    """Ask a pool to end an attempt; the pool reads the request with its next heartbeat. False when the pool does not hold it.

    The job never runs again, even if the pool dies first; with `kill` it goes to dead.
    """
    args = (pool_id, "kill" if kill else "cancel", token)
    return Op(load("ask_pool"), _asked_keys(keys, pool_id), args, lambda reply: bool(reply >= 0))


def _asked_keys(keys: Keys, pool_id: str) -> tuple[str, ...]:
    return keys.pools, keys.state(pool_id), keys.held(pool_id), keys.stacks(pool_id)


def _read_asked(reply: Any) -> AskAnswer:
    return "gone" if reply < 0 else "new" if reply else "already"


Switched = Literal["changed", "same", "unknown"]


def pause_schedule(keys: Keys, schedule: str, *, note: str = "1", actor: str = "") -> Op[Switched]:
    """Let a periodic schedule tick without enqueueing; its ticks are counted as missed. `note`: when and by whom."""
    pauses = keys.events("pause")
    return Op(load("pause"), (keys.periodic, pauses), ("schedule", schedule, 1, note, actor), _read_switched)


def resume_schedule(keys: Keys, schedule: str, *, actor: str = "") -> Op[Switched]:
    """Let a paused schedule enqueue again, from its next tick on."""
    pauses = keys.events("pause")
    return Op(load("pause"), (keys.periodic, pauses), ("schedule", schedule, 0, "", actor), _read_switched)


def _read_switched(reply: Any) -> Switched:
    return "unknown" if reply < 0 else "changed" if reply else "same"


def run_schedule(
    keys: Keys, schedule: inspect.StoredSchedule, *, now: float
) -> tuple[str, Op[produce.Stored]]:
    """Enqueue a schedule's job now, beside its ticks: the id of the job, and the request. Raises BadOption.

    The request may be repeated after a lost answer: the job is stored once.
    """
    if not schedule.job or schedule.args is None:
        raise BadOption(
            f"no pool has announced what the schedule {schedule.name!r} enqueues: start one that has it"
        )
    job_id = new_id()
    payload = codec.write(
        codec.quoted(schedule.job), job_id, now, schedule.args, {"periodic": schedule.name, "tick": int(now)}
    )
    return job_id, produce.enqueue(keys, produce.Slot(new_id(), 1), schedule.job, [payload], introduce=True)


def announce_schedules(keys: Keys, schedules: Sequence[inspect.StoredSchedule]) -> Op[int]:
    """Store what schedules enqueue and when, for consoles. Pools do this for their own schedules, at least one."""
    fields: list[Arg] = []
    for one in schedules:
        announced = inspect.Announced(
            one.job, one.spec, one.timezone, one.missed, msgspec.Raw(one.args or b"{}")
        )
        fields += (f"{one.name}|is", msgspec.json.encode(announced))
    return Op("HSET", (keys.periodic,), fields, int)


def repair(keys: Keys, entry: BrokenEntry, payload: bytes) -> Op[bool]:
    """Put a broken entry into a queue as `payload`, which is what it should have been; false when it is gone.

    Raises BadOption when that cannot be read either.
    """
    wire = _readable(payload)
    moves = [replace(_broken(entry, payload), membership=codec.membership(wire))]
    return done(
        move(
            keys, keys.broken, moves, total=f"repaired:{wire.name}", source_is="broken", to="queue", name=wire.name,
            fate="reopened",
        )
    )  # fmt: skip


def delete_broken(keys: Keys, entry: BrokenEntry, *, deletion: Deletion | None = None) -> Op[bool]:
    """Delete a broken entry; false when it is gone."""
    return _one(
        _remove(keys, keys.broken, [_broken(entry)], total="deleted:", source_is="broken", deletion=deletion)
    )


def _broken(entry: BrokenEntry, payload: bytes = b"") -> JobMove:
    if entry.index >= MAX_DEEP:
        raise BadOption(f"only the first {MAX_DEEP:,} broken entries can be taken out: begin with the oldest")
    return JobMove(entry.entry, payload, entry.index)

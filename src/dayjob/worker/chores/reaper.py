"""Reaper: puts the attempts of dead pools back into their queues, in two steps: condemn the pool, then sweep it.

A job counts the crashes of its pools (`deaths`) apart from its failures. A job with `retry.SUSPECT` deaths is a suspect:
its pool stores its token in Redis before it starts it, and a further crash counts only for the stored suspect. So jobs
that run beside a crashing job are not moved to dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dayjob import retry
from dayjob.errors import DayjobError, JobTimeout, Rejected
from dayjob.job import Job
from dayjob.options import JobOptions
from dayjob.outcome import Cancelled, Died, Dropped, Reaped, Retried, StartRequest, Unreadable
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import consume, inspect, job_types, maintain, membership
from dayjob.store.ops.batches import member_of
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.history import UNKNOWN_CAPS, HistoryCaps, StoredRecord, ending_of, new_records
from dayjob.store.steps import Runs
from dayjob.worker.running.attempt import KILLED_RUNNING, killed_payload

logger = SafeLogger("dayjob.worker.chores.reaper")

#: Attempts that one call of the sweep script moves.
MAX_SWEPT = 20
#: Bytes of payloads that one call moves, so that it does not block the server for long. A larger attempt is moved alone.
MAX_SWEEP_BYTES = 1 << 20


class CrashedPool(NamedTuple):
    """What Redis has about a condemned pool, and the Redis time of the sweep."""

    pool_id: str
    suspect: str | None
    #: The attempt because of which the parent killed the process, and the reason.
    culprit: str | None
    cause: str | None
    now: float
    #: What the history keeps of the names of its attempts; without the names that no pool has announced.
    caps: Mapping[str, HistoryCaps]


class HeldJob(NamedTuple):
    """One attempt of a condemned pool."""

    token: str
    payload: bytes
    wire: codec.Wire


class Rescued(NamedTuple):
    """What becomes of an attempt, and the error to report if its job moves to dead."""

    entry: Entry
    error: DayjobError | None = None
    job: Job | None = None


def _token_number(token: str) -> int:
    """The number in a token; -1 for a field that is not a token."""
    number = token.partition(":")[0]
    return int(number) if number.isdecimal() else -1


def _history_fields(wire: codec.Wire, now: float, error: str, *, died_in: str = "") -> dict[str, Any]:
    """The payload fields that record this attempt and when the job was first enqueued."""
    number = 1 + wire.fails + wire.deaths + wire.snoozes
    past = codec.remember(wire, attempt=number, at=now, ran=0, error=error, died_in=died_in)
    return {"past": past, **codec.first_enqueued_field(wire)}


def _with_record(entry: Entry, held: HeldJob, crash: CrashedPool) -> Entry:
    """`entry` with what the history keeps of its attempt, and what becomes of a member of a batch.

    When the attempt started is not known.
    """
    if not isinstance(entry.outcome, Reaped):
        found = codec.membership(held.wire) or codec.membership_in(held.payload)
        entry = msgspec.structs.replace(entry, member=member_of(found, entry.outcome))
    caps = crash.caps.get(entry.name, UNKNOWN_CAPS)
    ending = ending_of(entry.outcome) if not isinstance(entry.outcome, StartRequest) else None
    if ending is None or (caps.count == 0 and caps is not UNKNOWN_CAPS):
        return entry
    wire, first = held.wire, codec.first_enqueued(held.wire)
    record = StoredRecord(
        wire.id, ending, int(crash.now * 1000), age=max(0, int((crash.now - first) * 1000)) if first else -1,
        attempt=1 + wire.fails + wire.deaths + wire.snoozes, pool=crash.pool_id, source=wire.source,
        error=entry.error, parent=codec.origin_text(wire.parent), schedule=wire.periodic,
    )  # fmt: skip
    return msgspec.structs.replace(entry, records=new_records(entry.name, [record], caps, completed=False))


class Reaper:
    """Condemns pools whose lease has ended or whose process has exited, and sweeps their attempts."""

    def __init__(
        self,
        keys: Keys,
        link: Runs,
        *,
        lease: float,
        options: Callable[[str], JobOptions | None],
        on_dead: Callable[[Job, BaseException], None] | None,
        rng: random.Random,
    ) -> None:
        self._keys = keys
        self._link = link
        self._lease = lease
        self._options = options
        #: None in the parent process, which runs no user code. Jobs that would go to dead are then left to a pool.
        self._on_dead = on_dead
        self._rng = rng

    def sweep_all(self, condemned: Sequence[str]) -> int:
        """Sweep condemned pools. Returns how many attempts were moved."""
        return sum(map(self._sweep_if_sound, condemned))

    def _sweep_if_sound(self, pool_id: str) -> int:
        try:
            return self.sweep(pool_id)
        except Rejected as error:
            # A key has a wrong type. The other dead pools must still be swept. This one is tried last next time.
            logger.error("pool=%s cannot be swept: %s", pool_id, error)  # noqa: TRY400
            self._link.run(maintain.defer(self._keys, pool_id))
            return 0

    def reap(self, pool_ids: Sequence[str]) -> int:
        """Condemn and sweep pools whose process has exited."""
        self._link.run(maintain.condemn(self._keys, lease=self._lease, proven=pool_ids, judge=False))
        return sum(self.sweep(pool_id) for pool_id in pool_ids)

    def sweep(self, pool_id: str) -> int:
        """Move all attempts of a condemned pool, in batches. Returns how many were moved.

        The highest tokens are moved first, so that the oldest job ends up at the head of its queue.
        """
        held = self._link.run(membership.held_tokens(self._keys, pool_id))
        tokens = sorted(held, key=_token_number, reverse=True)
        state = self._link.run(maintain.read_state(self._keys, pool_id))
        # The time is only needed if there are payloads to write.
        now = self._link.run(inspect.now()) if tokens else 0.0
        caps = walk(self._link, job_types.history_caps(self._keys, map(consume.name_in, tokens)))
        crash = CrashedPool(pool_id, *state, now=now, caps=caps)
        moved = 0
        for batch in self._batches(pool_id, tokens):
            rescued = self._rescue_batch(batch, crash) if batch else []
            answer = self._link.run(maintain.sweep(self._keys, pool_id, [one.entry for one in rescued]))
            if not answer.condemned:
                return moved
            moved += answer.moved
            if answer.moved:
                self._report_dead(rescued)
        if moved:
            why = crash.cause or "its process crashed or lost its lease"
            names = ", ".join(sorted({consume.name_in(token) for token in tokens})[:10])
            logger.warning("pool=%s: %s; attempts rescued: %d (%s)", pool_id, why, moved, names)
        return moved

    def _rescue_batch(self, tokens: list[str], crash: CrashedPool) -> list[Rescued]:
        """What becomes of these attempts; without those that are gone, and those left to a pool."""
        payloads = self._link.run(maintain.read_held(self._keys, crash.pool_id, tokens))
        cancels = self._link.run(maintain.read_cancels(self._keys, crash.pool_id, tokens))
        found = zip(tokens, payloads, cancels, strict=True)
        rescued = [
            self._rescue(token, payload, cancel, crash)
            for token, payload, cancel in found
            if payload is not None
        ]
        return [one for one in rescued if one is not None]

    def _report_dead(self, rescued: list[Rescued]) -> None:
        """Log the jobs that moved to dead, and call their hooks."""
        for _, error, job in rescued:
            if job is not None and error is not None:
                fields = {"job_name": job.name, "job_id": job.id, "attempt": job.attempt}
                logger.error("job=%s id=%s is dead (%s)", job.name, job.id, error, extra=fields)
                if self._on_dead is not None:
                    self._on_dead(job, error)

    def _batches(self, pool_id: str, tokens: list[str]) -> Iterator[list[str]]:
        """The tokens of each sweep, in order. A pool that holds nothing gets one empty sweep, which deletes it."""
        if not tokens:
            yield []
        for first in range(0, len(tokens), MAX_SWEPT):
            step = tokens[first : first + MAX_SWEPT]
            sizes = self._link.run_many([maintain.held_bytes(self._keys, pool_id, token) for token in step])
            batch: list[str] = []
            total = 0
            for token, size in zip(step, sizes, strict=True):
                if batch and total + size > MAX_SWEEP_BYTES:
                    yield batch
                    batch, total = [], 0
                batch.append(token)
                total += size
            yield batch

    def _rescue(self, token: str, payload: bytes, cancel: bytes | None, crash: CrashedPool) -> Rescued | None:
        """What becomes of one attempt; None if it is left to a pool, because only a pool knows its job type."""
        name = consume.name_in(token) or "unknown"
        try:
            held = HeldJob(token, payload, codec.read(payload, name))
            if cancel is not None:
                rescued: Rescued | None = Rescued(self._end_cancelled(held, killed=cancel == b"kill"))
            else:
                rescued = self._judge(held, crash)
        except codec.Broken as why:
            entry = codec.broken_entry(payload, at=0, where=f"held by pool {crash.pool_id}", why=str(why))
            held = HeldJob(token, payload, codec.Wire(name))
            rescued = Rescued(Entry(name, token, Unreadable(), entry))
        return None if rescued is None else rescued._replace(entry=_with_record(rescued.entry, held, crash))

    def _end_cancelled(self, held: HeldJob, *, killed: bool) -> Entry:
        """End a job that an operator cancelled or killed while it ran. It never runs again."""
        wire = held.wire
        logger.info("job=%s id=%s %s", wire.name, wire.id, KILLED_RUNNING if killed else "cancelled")
        if killed:
            payload = killed_payload(held.payload, self._link.run(inspect.now()))
            return self._end(held, Died(counts_failure=False, why=KILLED_RUNNING), payload)
        return self._end(held, Cancelled())

    def _judge(self, held: HeldJob, crash: CrashedPool) -> Rescued | None:
        token, payload, wire = held
        unchanged = Rescued(Entry(wire.name, token, Reaped(), payload, wire.id))
        if crash.culprit is not None:
            # The parent killed the process because of one attempt. The others are not to blame.
            return self._rescue_culprit(held, crash) if token == crash.culprit else unchanged
        if wire.deaths >= retry.SUSPECT and token != crash.suspect:
            return unchanged
        deaths = wire.deaths + 1
        fields = _history_fields(wire, crash.now, "its process died", died_in=crash.pool_id)
        fields |= {"deaths": deaths, "attempt": f"{crash.pool_id}/{token}"}
        if deaths < retry.MAX_DEATHS:
            return Rescued(Entry(wire.name, token, Reaped(), codec.rewrite(payload, fields), wire.id))
        message = f"its process died {deaths} times while it ran, last in pool {crash.pool_id}"
        fields["failed_at"] = int(crash.now)
        return self._rescue_as_dead(held, Died(counts_failure=False, why=message), fields)

    def _rescue_culprit(self, held: HeldJob, crash: CrashedPool) -> Rescued | None:
        """The attempt because of which the parent killed the process has failed, like one that raised JobTimeout."""
        wire, cause = held.wire, crash.cause or "killed"
        options = self._options(wire.name)
        if options is None and self._on_dead is None:
            # The parent does not know the job's options. A pool that knows them rescues this attempt.
            return None
        outcome = retry.decide(options or JobOptions(), JobTimeout(cause), wire.fails, self._rng)
        fields: dict[str, Any] = {"attempt": f"{crash.pool_id}/{held.token}", "fails": wire.fails + 1}
        fields |= {"err": cause, "trace": cause, "failed_at": int(crash.now)}
        fields |= _history_fields(wire, crash.now, cause)
        match outcome:
            case Retried():
                payload = codec.rewrite(held.payload, fields)
                return Rescued(
                    Entry(wire.name, held.token, outcome, payload, wire.id, error=JobTimeout.__name__)
                )
            case Dropped():
                return Rescued(self._end(held, outcome))
            case Died():
                return self._rescue_as_dead(held, Died(outcome.counts_failure, cause), fields)
            case _:
                raise AssertionError(f"a JobTimeout is not a signal, and cannot lead to {outcome!r}")

    def _rescue_as_dead(self, held: HeldJob, outcome: Died, fields: dict[str, Any]) -> Rescued | None:
        if self._on_dead is None:
            return None
        message = outcome.why
        payload = codec.rewrite(held.payload, fields | {"err": message, "trace": message})
        return Rescued(self._end(held, outcome, payload), DayjobError(message), codec.job_of(held.wire))

    def _end(self, held: HeldJob, outcome: Died | Dropped | Cancelled, payload: bytes = b"") -> Entry:
        """The entry that ends a job and releases its unique key."""
        wire = held.wire
        own = wire.unique_key.startswith(self._keys.unique_prefix)
        releases = wire.unique_key if own else ""
        awaited = wire.reply is not codec.NULL
        kept = isinstance(outcome, Died) and not awaited and self._keeps_results(wire.name)
        result = consume.ended_result(outcome, kept=kept, awaited=awaited)
        return Entry(wire.name, held.token, outcome, payload, wire.id, result, releases)

    def _keeps_results(self, name: str) -> bool:
        options = self._options(name)
        if options is not None:
            return options.keep is not None
        # The job type belongs to another program.
        return name in walk(self._link, job_types.keeping(self._keys, [name]))

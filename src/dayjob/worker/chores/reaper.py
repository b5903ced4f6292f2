"""Reaper: puts the attempts of dead pools back into their queues, in two steps: condemn the pool, then sweep it.

A job counts the crashes of its pools (`deaths`) apart from its failures. A job with `retry.SUSPECT` deaths is a suspect:
its pool stores its token in Redis before it starts it, and a further crash counts only for the stored suspect. So jobs
that run beside a crashing job are not moved to dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dayjob import retry
from dayjob.errors import DayjobError, JobTimeout, Rejected
from dayjob.job import Job
from dayjob.options import JobOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import consume, inspect, maintain
from dayjob.store.ops.maintain import Rescue
from dayjob.store.steps import Runs
from dayjob.worker.running.attempt import KILLED, killed_payload

logger = SafeLogger("dayjob.worker.chores.reaper")

#: Attempts that one call of the sweep script moves.
MAX_SWEPT = 20
#: Bytes of payloads that one call moves, so that it does not block the server for long. A larger attempt is moved alone.
MAX_SWEEP_BYTES = 1 << 20


def _token_number(token: str) -> int:
    """The number in a token; -1 for a field that is not a token."""
    number = token.partition(":")[0]
    return int(number) if number.isdecimal() else -1


def _history_fields(wire: codec.Wire, now: float, error: str, *, died_in: str = "") -> dict[str, Any]:
    """The payload fields that record this attempt and when the job was first enqueued."""
    number = 1 + wire.fails + wire.deaths + wire.snoozes
    past = codec.remember(wire, attempt=number, at=now, ran=0, error=error, died_in=died_in)
    return {"past": past, **codec.first_enqueued_field(wire)}


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

    def step(self) -> int:
        """Condemn pools whose lease has ended, and sweep them. Returns how many attempts were moved."""
        condemned = self._link.run(maintain.condemn(self._keys, lease=self._lease))
        return sum(map(self._sweep_if_sound, condemned))

    def _sweep_if_sound(self, pool_id: str) -> int:
        try:
            return self.sweep(pool_id)
        except Rejected as error:
            # A key has a wrong type. The other dead pools must still be swept. This one is tried last next time.
            logger.error("pool=%s cannot be swept: %s", pool_id, error)  # noqa: TRY400
            self._link.run(maintain.defer(self._keys, pool_id))
            return 0

    def bury(self, pool_ids: Sequence[str]) -> int:
        """Condemn and sweep pools whose process has exited."""
        self._link.run(maintain.condemn(self._keys, lease=self._lease, proven=pool_ids, judge=False))
        return sum(self.sweep(pool_id) for pool_id in pool_ids)

    def sweep(self, pool_id: str) -> int:
        """Move all attempts of a condemned pool, in batches. Returns how many were moved.

        The highest tokens are moved first, so that the oldest job ends up at the head of its queue.
        """
        held = self._link.run(consume.held_tokens(self._keys, pool_id))
        tokens = sorted(held, key=_token_number, reverse=True)
        suspect, culprit, cause = self._link.run(maintain.read_state(self._keys, pool_id))
        # The time is only needed if there are payloads to write.
        now = self._link.run(inspect.now()) if tokens else 0.0
        moved = 0
        for batch in self._batches(pool_id, tokens):
            payloads = self._link.run(maintain.read_held(self._keys, pool_id, batch)) if batch else []
            cancels = self._link.run(maintain.read_cancels(self._keys, pool_id, batch)) if batch else []
            rescues: list[Rescue] = []
            dead: list[tuple[Job, BaseException]] = []
            for token, payload, cancel in zip(batch, payloads, cancels, strict=True):
                if payload is not None:
                    state = (suspect, culprit, cause)
                    rescue = self._rescue(token, payload, pool_id, now, state, dead, cancel)
                    if rescue is not None:
                        rescues.append(rescue)
            answer = self._link.run(maintain.sweep(self._keys, pool_id, rescues))
            if not answer.condemned:
                return moved
            moved += answer.moved
            for job, error in dead if answer.moved else ():
                logger.error("job=%s id=%s is dead (%s)", job.name, job.id, error)
                if self._on_dead is not None:
                    self._on_dead(job, error)
        if moved:
            why = cause or "its process crashed or lost its lease"
            names = ", ".join(sorted({consume.name_in(token) for token in tokens})[:10])
            logger.warning("pool=%s: %s; attempts rescued: %d (%s)", pool_id, why, moved, names)
        return moved

    def _batches(self, pool_id: str, tokens: list[str]) -> Iterator[list[str]]:
        """The tokens of each sweep, in order. A pool that holds nothing gets one empty sweep, which forgets it."""
        if not tokens:
            yield []
        for first in range(0, len(tokens), MAX_SWEPT):
            step = tokens[first : first + MAX_SWEPT]
            sizes = self._link.run_many([maintain.held_size(self._keys, pool_id, token) for token in step])
            batch: list[str] = []
            total = 0
            for token, size in zip(step, sizes, strict=True):
                if batch and total + size > MAX_SWEEP_BYTES:
                    yield batch
                    batch, total = [], 0
                batch.append(token)
                total += size
            yield batch

    def _rescue(
        self,
        token: str,
        payload: bytes,
        pool_id: str,
        now: float,
        state: tuple[str | None, str | None, str | None],
        dead: list[tuple[Job, BaseException]],
        cancel: bytes | None,
    ) -> Rescue | None:
        name = consume.name_in(token) or "unknown"
        try:
            wire = codec.read(payload, name)
            if cancel is not None:
                return self._end_cancelled(token, payload, wire, killed=cancel == b"kill")
            return self._judge(token, payload, wire, pool_id, now, state, dead)
        except codec.Broken as why:
            entry = codec.broken_entry(payload, at=0, where=f"held by pool {pool_id}", why=str(why))
            return Rescue("broken", name, token, entry)

    def _end_cancelled(self, token: str, payload: bytes, wire: codec.Wire, *, killed: bool) -> Rescue:
        """End a job that an operator cancelled or killed while it ran. It never runs again."""
        logger.info("job=%s id=%s %s", wire.name, wire.id, KILLED if killed else "cancelled")
        if killed:
            now = self._link.run(inspect.now())
            return Rescue("dead", wire.name, token, killed_payload(payload, now), 0, *self._key(wire))
        return Rescue("drop", wire.name, token, b"", 2, *self._key(wire))

    def _judge(
        self,
        token: str,
        payload: bytes,
        wire: codec.Wire,
        pool_id: str,
        now: float,
        state: tuple[str | None, str | None, str | None],
        dead: list[tuple[Job, BaseException]],
    ) -> Rescue | None:
        suspect, culprit, cause = state
        name = wire.name
        if culprit is not None:
            if token != culprit:
                # The parent killed the process because of another attempt.
                return Rescue("queue", name, token, payload)
            return self._rescue_culprit(
                token, payload, wire, cause or "killed", f"{pool_id}/{token}", now, dead
            )
        if wire.deaths >= retry.SUSPECT and token != suspect:
            return Rescue("queue", name, token, payload)
        deaths = wire.deaths + 1
        changes: dict[str, Any] = {"deaths": deaths, "attempt": f"{pool_id}/{token}"}
        changes |= _history_fields(wire, now, "its process died", died_in=pool_id)
        if deaths < retry.MAX_DEATHS:
            return Rescue("queue", name, token, codec.rewrite(payload, changes))
        message = f"its process died {deaths} times while it ran, last in pool {pool_id}"
        changes["failed_at"] = int(now)
        return self._rescue_as_dead(token, payload, wire, message, changes, dead)

    def _rescue_culprit(
        self,
        token: str,
        payload: bytes,
        wire: codec.Wire,
        cause: str,
        place: str,
        now: float,
        dead: list[tuple[Job, BaseException]],
    ) -> Rescue | None:
        options = self._options(wire.name)
        if options is None and self._on_dead is None:
            # The parent does not know the job's options. A pool that knows them rescues this attempt.
            return None
        options = options or JobOptions()
        changes: dict[str, Any] = {"attempt": place, "fails": wire.fails + 1, "err": cause, "trace": cause}
        changes |= {"failed_at": int(now), **_history_fields(wire, now, cause)}
        decision = retry.decide(options, JobTimeout(cause), wire.fails, self._rng)
        if decision.kind == "retry":
            delay = max(0, round((decision.after or 0) * 1000))
            return Rescue("retry", wire.name, token, codec.rewrite(payload, changes), delay)
        if decision.kind in ("discard", "drop"):
            return Rescue("drop", wire.name, token, b"", 1, *self._key(wire))
        return self._rescue_as_dead(token, payload, wire, cause, changes, dead, fail=1)

    def _rescue_as_dead(
        self,
        token: str,
        payload: bytes,
        wire: codec.Wire,
        message: str,
        changes: dict[str, Any],
        dead: list[tuple[Job, BaseException]],
        *,
        fail: int = 0,
    ) -> Rescue | None:
        if self._on_dead is None:
            return None
        dead.append((codec.job_of(wire), DayjobError(message)))
        changes |= {"err": message, "trace": message}
        return Rescue("dead", wire.name, token, codec.rewrite(payload, changes), fail, *self._key(wire))

    def _key(self, wire: codec.Wire) -> tuple[str, str]:
        own = wire.unique_key.startswith(self._keys.unique_prefix)
        return (wire.unique_key, wire.id) if own else ("", "")

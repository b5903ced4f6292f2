"""Gate: attempts that may not start before Redis knows something.

A unique job first lets go of its key, and only when a worker is free for it. A suspect, which was held by two pools that
died, is first named in the pool's state, one at a time, so that a further death can be laid at its door.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from dayjob.retry import SUSPECT
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import MAX_SETTLED, Entry, Reply
from dayjob.worker.fetching.budget import GIVE_BACK_AFTER_SECONDS
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt

#: How many suspects may wait without taking up room for others.
MAX_WAITING_SUSPECTS = 200


class StartGate:
    """Holds attempts back, asks for what they need, and lets them through."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._guarded: deque[Attempt] = deque()
        self._asked: dict[str, Attempt] = {}
        self._suspects: deque[Attempt] = deque()
        self._suspect: Attempt | None = None

    def stops(self, attempt: Attempt) -> bool:
        """Hold an attempt back if there is something to be done before it starts; false when it may go on."""
        wire, job_type = attempt.wire, attempt.job_type
        if wire.unique and not wire.unique_key:
            self._name_key(wire)
        if wire.unique_key and self._must_release(wire, job_type):
            attempt.given_at = time.monotonic()
            job_type.unique = True
            self._guarded.append(attempt)
        elif wire.deaths >= SUSPECT:
            self._suspects.append(attempt)
        else:
            return False
        return True

    @property
    def suspecting(self) -> bool:
        """Whether a suspect was let through, or is about to be."""
        return self._suspect is not None

    @property
    def guarding(self) -> bool:
        """Whether an attempt waits for a worker before it lets go of its key; it does not wait for long."""
        return bool(self._guarded)

    @property
    def waiting(self) -> bool:
        """Whether anything is held back that has not been asked for."""
        return bool(self._guarded or self._suspects)

    def due(self, idle: int) -> bool:
        """Whether there is something to ask for or to give back, with so many idle slots."""
        if self._suspects and self._suspect is None:
            return True
        if not self._guarded:
            return False
        return (
            idle > len(self._asked) or time.monotonic() - self._guarded[0].given_at > GIVE_BACK_AFTER_SECONDS
        )

    @property
    def coming(self) -> int:
        """How many attempts will want a slot soon."""
        named = self._suspect is not None and not self._suspect.given_at
        return (
            len(self._guarded) + len(self._asked) + max(0, len(self._suspects) - MAX_WAITING_SUSPECTS) + named
        )

    def ask(self, idle: int) -> list[Entry]:
        """What is to be asked of Redis now, with so many idle slots."""
        entries: list[Entry] = []
        for _ in range(min(max(0, idle - len(self._asked)), len(self._guarded), MAX_SETTLED)):
            attempt = self._guarded.popleft()
            if attempt.lost:
                continue
            wire = attempt.wire
            first = int(wire.fails == 0 and wire.deaths == 0 and wire.snoozes == 0)
            self._asked[attempt.token] = attempt
            entries.append(
                Entry("free", attempt.name, attempt.token, number=first, key=wire.unique_key, value=wire.id)
            )
        while self._suspects and self._suspects[0].lost:
            self._suspects.popleft()
        if self._suspects and self._suspect is None:
            self._suspect = self._suspects.popleft()
            entries.append(Entry("suspect", self._suspect.name, self._suspect.token))
        return entries

    def turn_back(self, *, everything: bool) -> list[Attempt]:
        """What waited too long for a worker, its key untouched; or everything that was not asked for."""
        now = time.monotonic()
        returned: list[Attempt] = []
        while self._guarded and (everything or now - self._guarded[0].given_at > GIVE_BACK_AFTER_SECONDS):
            returned.append(self._guarded.popleft())
        if everything:
            returned += self._suspects
            self._suspects.clear()
        return returned

    def answered(
        self, entries: Sequence[Entry], reply: Reply
    ) -> tuple[list[Attempt], list[tuple[Attempt, bytes | None]]]:
        """What may start now; and what may not: attempts that are gone (None), or whose new payload is no job."""
        through: list[Attempt] = []
        failed: list[tuple[Attempt, bytes | None]] = []
        for token, payload in reply.released.items():
            attempt = self._asked.pop(token, None)
            if attempt is None or attempt.lost:
                continue
            attempt.released = True
            if payload is None or not self._renew(attempt, payload):
                failed.append((attempt, payload))
            elif attempt.wire.deaths >= SUSPECT:
                self._suspects.append(attempt)
            else:
                through.append(attempt)
        suspect = self._suspect
        if suspect is not None and any(
            one.kind == "suspect" and one.token == suspect.token for one in entries
        ):
            through.append(suspect)
        return through, failed

    def ended(self, attempt: Attempt) -> None:
        """An attempt ended: if it was the suspect, the next one may be named."""
        if attempt is self._suspect:
            self._suspect = None

    def clear(self) -> None:
        """Forget everything: the pool's id is gone."""
        self._guarded.clear()
        self._asked.clear()
        self._suspects.clear()
        self._suspect = None

    @staticmethod
    def _renew(attempt: Attempt, payload: bytes) -> bool:
        """Take over newer arguments that an enqueuer of gocraft left in the key; false when they are no job."""
        if payload != attempt.payload:
            try:
                attempt.wire, attempt.payload = codec.read(payload, attempt.name), payload
            except codec.Broken:
                return False
        return True

    def _must_release(self, wire: codec.Wire, job_type: PoolJobType) -> bool:
        until = wire.unique_until or job_type.options.unique_until
        return until != "done" and wire.unique_key.startswith(self._keys.unique_prefix)

    def _name_key(self, wire: codec.Wire) -> None:
        """Work out the unique key of a job whose enqueuer, of gocraft's last release, did not write it down."""
        rest = codec.unique_rest(wire.args)
        if rest is not None:
            wire.unique_key = self._keys.unique(wire.name, rest)

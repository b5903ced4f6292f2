"""Start gate: holds back attempts that need something from Redis before they start.

A unique job must release its unique key first, and does so only when a worker is free for it. A suspect (a job whose
last two pools crashed) must first be recorded in the pool's state, one at a time, so that the next crash can be
attributed to the right job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dayjob.outcome import NameSuspect, Release
from dayjob.retry import SUSPECT
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import MAX_SETTLED, Entry, Reply
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.awake_clock import AwakeClock
from dayjob.worker.running.ready_queue import GIVE_BACK_AFTER_SECONDS

#: Suspects that may wait here before they count against the fetch budget.
MAX_WAITING_SUSPECTS = 200


class StartGate:
    """Decides whether an attempt may start, and what to ask Redis for if it may not."""

    def __init__(self, keys: Keys, clock: AwakeClock) -> None:
        self._keys = keys
        self._clock = clock
        self._guarded: deque[Attempt] = deque()
        self._asked: dict[str, Attempt] = {}
        self._suspects: deque[Attempt] = deque()
        self._suspect: Attempt | None = None

    def stops(self, attempt: Attempt) -> bool:
        """Hold `attempt` back until its request is answered. Returns False if it may start now."""
        wire, job_type = attempt.wire, attempt.job_type
        if wire.unique and not wire.unique_key:
            self._name_key(wire)
        if wire.unique_key and self._must_release(wire, job_type):
            attempt.given_at = self._clock.now()
            job_type.unique = True
            self._guarded.append(attempt)
        elif wire.deaths >= SUSPECT:
            self._suspects.append(attempt)
        else:
            return False
        return True

    @property
    def suspecting(self) -> bool:
        """Whether a suspect runs, or is about to start."""
        return self._suspect is not None

    @property
    def guarding(self) -> bool:
        """Whether a unique job waits for a free worker. If none is free soon, the job is given back."""
        return bool(self._guarded)

    @property
    def waiting(self) -> bool:
        """Whether attempts are held back whose request has not been sent."""
        return bool(self._guarded or self._suspects)

    def due(self, idle: int) -> bool:
        """Whether a request should be sent or an attempt given back, with this many idle slots."""
        if self._suspects and self._suspect is None:
            return True
        if not self._guarded:
            return False
        return (
            idle > len(self._asked) or self._clock.now() - self._guarded[0].given_at > GIVE_BACK_AFTER_SECONDS
        )

    @property
    def coming(self) -> int:
        """How many attempts will need a slot soon."""
        named = self._suspect is not None and not self._suspect.given_at
        return (
            len(self._guarded) + len(self._asked) + max(0, len(self._suspects) - MAX_WAITING_SUSPECTS) + named
        )

    def ask(self, idle: int) -> list[Entry]:
        """The requests to send to Redis now, with this many idle slots."""
        entries: list[Entry] = []
        for _ in range(min(max(0, idle - len(self._asked)), len(self._guarded), MAX_SETTLED)):
            attempt = self._guarded.popleft()
            if attempt.lost:
                continue
            wire = attempt.wire
            first = wire.fails == 0 and wire.deaths == 0 and wire.snoozes == 0
            self._asked[attempt.token] = attempt
            request = Release(wire.unique_key, first_run=first)
            entries.append(Entry(attempt.name, attempt.token, request, job_id=wire.id))
        while self._suspects and self._suspects[0].lost:
            self._suspects.popleft()
        if self._suspects and self._suspect is None:
            self._suspect = self._suspects.popleft()
            entries.append(Entry(self._suspect.name, self._suspect.token, NameSuspect()))
        return entries

    def turn_back(self, *, everything: bool) -> list[Attempt]:
        """Attempts that waited too long for a worker; with `everything`, all whose request has not been sent."""
        now = self._clock.now()
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
        """Read the answers to the requests.

        Returns the attempts that may start, and those that may not: with None if Redis no longer has the attempt, else
        with the new payload, which is not a readable job.
        """
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
            one.token == suspect.token and isinstance(one.outcome, NameSuspect) for one in entries
        ):
            through.append(suspect)
        return through, failed

    def ended(self, attempt: Attempt) -> None:
        """Note that an attempt ended. If it was the recorded suspect, the next one may be recorded."""
        if attempt is self._suspect:
            self._suspect = None

    def clear(self) -> None:
        """Drop all attempts, because the pool's id was condemned."""
        self._guarded.clear()
        self._asked.clear()
        self._suspects.clear()
        self._suspect = None

    @staticmethod
    def _renew(attempt: Attempt, payload: bytes) -> bool:
        """Use the newer payload that a gocraft enqueuer stored in the unique key. Returns False if it is unreadable."""
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
        """Compute the unique key of a job. The enqueuer of gocraft's last release does not store it in the payload."""
        rest = codec.unique_rest(wire.args)
        if rest is not None:
            wire.unique_key = self._keys.unique(wire.name, rest)

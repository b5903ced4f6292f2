"""Outbox: how attempts ended, until an exchange tells Redis. Executors fill it from their threads, the fetcher empties it."""

from __future__ import annotations

import time
from collections import defaultdict, deque

from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt

#: How many outcomes that were stuck are tried again in one exchange, and how many seconds apart.
MAX_STUCK = 100
RETRY_STUCK_SECONDS = 1.0


class Outbox:
    """What is to be said in the next exchange."""

    def __init__(self, gate: StartGate) -> None:
        self._start_gate = gate
        self.finished: deque[Attempt] = deque()
        #: Attempts that finished and are sent later, in the order of their times.
        self.later: deque[Attempt] = deque()
        #: What is to be done with attempts that no executor had.
        self.entries: deque[Entry] = deque()
        #: Outcomes that Redis cannot store because a key has a wrong type.
        self._stuck: deque[Entry] = deque()
        self._stuck_at = 0.0

    def __len__(self) -> int:
        """How many outcomes wait, those that are stuck left out."""
        return len(self.finished) + len(self.entries)

    @property
    def due(self) -> bool:
        """Whether there is anything to be said now."""
        return bool(self.finished or self.entries or self._again or self._ripe)

    @property
    def stuck(self) -> bool:
        """Whether something could not be stored and is tried again later."""
        return bool(self._stuck)

    @property
    def _again(self) -> bool:
        return bool(self._stuck) and time.monotonic() >= self._stuck_at

    @property
    def _ripe(self) -> bool:
        """Whether the first of those that are sent later is to be sent now."""
        if not self.later:
            return False
        first = self.later[0]
        return first.job_type.stopping or first.hold_until <= time.monotonic()

    def stick(self, entry: Entry) -> None:
        """Redis could not store this one: it is said again, once a second."""
        self._stuck.append(entry)

    def clear(self) -> None:
        """Forget what was to be said under an id that is spent; attempts that finished are marked as lost."""
        self.entries.clear()
        self._stuck.clear()

    def take(self, epoch: float) -> tuple[list[Entry], dict[str, list[str]]]:
        """What is said now: entries, and by job name the tokens of which there is nothing to say but that they are done.

        As much as one exchange may carry. `epoch` is Redis time when the monotonic clock was 0.
        """
        entries: list[Entry] = []
        size = 0
        while self.entries and len(entries) < consume.MAX_SETTLED and size < consume.MAX_BYTES:
            entries.append(self.entries.popleft())
            size += _bytes(entries[-1])
        while self._ripe:
            self.finished.append(self.later.popleft())
        groups: defaultdict[PoolJobType, list[Attempt]] = defaultdict(list)
        finished = self.finished
        for _ in range(min(len(finished), consume.MAX_SETTLED - len(entries))):
            if size >= consume.MAX_BYTES:
                break
            attempt = finished.popleft()
            groups[attempt.job_type].append(attempt)
            if attempt.settlement is not None and not attempt.lost:
                attempt.job_type.fails += attempt.settlement[-1].fails
                entries += attempt.settlement
                size += sum(map(_bytes, attempt.settlement))
        done: dict[str, list[str]] = {}
        for job_type, attempts in groups.items():
            tokens = self._learn(job_type, attempts, epoch)
            if tokens:
                done[job_type.name] = tokens
        if self._again:
            self._stuck_at = time.monotonic() + RETRY_STUCK_SECONDS
            for _ in range(min(len(self._stuck), MAX_STUCK)):
                entries.append(self._stuck.popleft())
                size += _bytes(entries[-1])
                if size >= consume.MAX_BYTES:
                    break
        return entries, done

    def _learn(self, job_type: PoolJobType, attempts: list[Attempt], epoch: float) -> list[str]:
        """Learn from attempts of one lane that ended; the answer is those that simply completed."""
        job_type.learn([attempt for attempt in attempts if attempt.ran is not None], epoch)
        if self._start_gate.suspecting:
            for attempt in attempts:
                self._start_gate.ended(attempt)
        return [attempt.token for attempt in attempts if attempt.settlement is None and not attempt.lost]


def _bytes(entry: Entry) -> int:
    """How much of an exchange one entry takes."""
    return len(entry.payload) + len(entry.value)

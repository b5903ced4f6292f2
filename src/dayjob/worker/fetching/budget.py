"""Fetch budget: how many jobs an exchange may fetch, and of which names."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dayjob.store.ops.consume import MAX_FETCHED
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.executors import Executors

#: Seconds of work that may be prefetched, for job types whose attempts take at most as long.
PREFETCH_SECONDS = 0.02
#: The same by the pace of the pool, which at times is a third of what it was: a thread that decodes many jobs holds up those that log.
#: Jobs that no worker took within GIVE_BACK_AFTER_SECONDS are given back.
PACED_SECONDS = 0.015
#: Seconds without prefetch for a job name after one of its attempts was given back.
PREFETCH_PAUSE_SECONDS = 1.0


class Pace:
    """How fast the pool ends attempts.

    With many threads, the time that an attempt takes does not show that: threads wait for each other, for the interpreter's lock
    or that of a log handler, and those that are asleep end nothing.
    """

    def __init__(self) -> None:
        #: Seconds from one end to the next; 0 until that is known.
        self.seconds = 0.0
        self._since = 0.0
        self._idle = True

    def sent(self, ended: int, ready: int, now: float) -> None:
        """Note a request: how many attempts ended since the one before, and how many wait for workers."""
        if ended:
            sample = (now - self._since) / ended
            self.seconds = (self.seconds + sample) / 2 if self.seconds else sample
        self._since, self._idle = now, not ready

    def answered(self, now: float) -> None:
        """Note its answer. If no attempt waited, the workers had nothing to do until now."""
        if self._idle:
            self._since = now


@dataclass(frozen=True, slots=True)
class FetchBudget:
    """How many jobs an exchange may fetch: `free` of any name, and `extra` of the fast names."""

    free: int = 0
    extra: int = 0
    fast: frozenset[str] = frozenset()
    #: Names that this exchange must not fetch.
    closed: frozenset[str] = frozenset()


def fetch_budget(
    executors: Executors,
    job_types: Mapping[str, PoolJobType],
    live: Collection[str],
    coming: int,
    pace: float = 0.0,
) -> FetchBudget:
    """The budget of the next exchange. `live` names have jobs, `coming` attempts will need a slot soon, and attempts end at `pace`."""
    free = min(max(0, executors.idle - coming), MAX_FETCHED)
    closed = executors.closed()
    threads = executors.threads_free()
    if threads is not None and threads > 0:
        if not executors.sync_names.isdisjoint(live):
            # Fewer threads than slots: fetch no more than the threads can take, and prefetch nothing.
            return FetchBudget(min(threads, free), 0, closed=closed)
        closed |= executors.sync_names
    now = time.monotonic()
    unique = any(job_types[name].unique for name in live)
    fast = _fast(job_types, now, unique=unique)
    # If a slow queue has jobs, prefetched jobs of fast queues would take its share of the slots.
    if not fast or any(name not in fast for name in live):
        return FetchBudget(free, 0, closed=closed)
    # Slots with slow jobs will not become free soon, so they do not count for the prefetch.
    slow = sum(1 for attempt in executors.running() if now - attempt.started_at > PREFETCH_SECONDS)
    extra = prefetch(
        free=free,
        ready=executors.ready + coming,
        usable=executors.concurrency - slow,
        slowest=max(fast.values()),
        pace=pace,
    )
    if unique:
        # They wait at the start gate, with their keys, until a worker is free: one batch for the workers is enough.
        extra = min(extra, max(0, executors.concurrency - max(0, coming - executors.idle)))
    return FetchBudget(free, extra, frozenset(fast), closed)


def prefetch(*, free: int, ready: int, usable: int, slowest: float, pace: float = 0.0) -> int:
    """How many jobs to fetch beyond the `free` slots, with `ready` waiting attempts and `usable` slots that turn over.

    The pool prefetches as many jobs as it finishes within PREFETCH_SECONDS if each takes `slowest` seconds, and within
    PACED_SECONDS if one ends every `pace` seconds.
    """
    ahead = int(usable * PREFETCH_SECONDS / max(2e-6, slowest))
    if pace:
        ahead = min(ahead, int(PACED_SECONDS / pace))
    # At most two batches: one that the workers use up, and one that this exchange fetches.
    return max(0, min(ahead - ready, MAX_FETCHED - free, 2 * MAX_FETCHED - ready))


def _fast(job_types: Mapping[str, PoolJobType], now: float, *, unique: bool) -> dict[str, float]:
    """The job types that may be prefetched, with their estimated seconds. Those with unique jobs only if `unique`."""
    return {
        name: job_type.estimate
        for name, job_type in job_types.items()
        if job_type.estimate is not None
        and job_type.estimate <= PREFETCH_SECONDS
        and job_type.slow_until <= now
        and (unique or not job_type.unique)
        and not job_type.rated
    }

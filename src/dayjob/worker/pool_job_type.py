"""PoolJobType: one job type in a pool, with its handler, its estimated duration and its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dayjob.handlers.registry import JobType
from dayjob.options import Hook, JobOptions
from dayjob.store import fork
from dayjob.store.ops import figures
from dayjob.store.ops.history import HistoryCaps
from dayjob.worker.state import PoolState

if TYPE_CHECKING:
    from dayjob.worker.running.attempt import Attempt

#: The upper bound of the first bucket of a histogram, in seconds. See figures.bucket_limit for the others.
FIRST_BUCKET_SECONDS = figures.bucket_limit(0)


def bucket(seconds: float) -> int:
    """The histogram bucket of a duration."""
    if seconds <= FIRST_BUCKET_SECONDS:
        return 0
    return min(figures.BUCKETS - 1, math.ceil(2 * math.log2(seconds / FIRST_BUCKET_SECONDS)))


class Hooks(NamedTuple):
    """The functions to call when an attempt ends in one of these ways: those of the job type, then those of the pool."""

    done: tuple[Hook, ...] = ()
    fail: tuple[Hook, ...] = ()
    dead: tuple[Hook, ...] = ()
    discard: tuple[Hook, ...] = ()


def hooks_of(options: JobOptions, pool: Mapping[str, Sequence[Hook]]) -> Hooks:
    """The hooks of a job type with these options, in a pool with these hooks by event."""

    def both(own: Hook | None, event: str) -> tuple[Hook, ...]:
        return (*(() if own is None else (own,)), *pool.get(event, ()))

    return Hooks(
        both(options.on_done, "done"), both(options.on_fail, "fail"),
        both(options.on_dead, "dead"), both(options.on_discard, "discard"),
    )  # fmt: skip


class PoolJobType:
    """A job type in one pool."""

    __slots__ = (
        "call",
        "direct",
        "estimate",
        "fails",
        "forks",
        "history",
        "hooks",
        "is_async",
        "name",
        "options",
        "place",
        "plain",
        "pool",
        "quickest",
        "rated",
        "runs",
        "slow_until",
        "taken",
        "type",
        "unique",
        "waits",
    )

    def __init__(
        self,
        job_type: JobType[..., ..., Any],
        call: Callable[[Any, Any], Any],
        pool: PoolState,
        direct: Callable[[Any], Any] | None = None,
        pool_hooks: Mapping[str, Sequence[Hook]] | None = None,
        history: HistoryCaps | None = None,
    ) -> None:
        self.type = job_type
        self.name = job_type.name
        self.options: JobOptions = job_type.options
        self.is_async = job_type.is_async
        #: The handler with its middleware around it: (context, job) to a result.
        self.call = call
        #: The handler as a function of its raw arguments, if it needs neither context nor job and has no middleware.
        self.direct = direct
        self.hooks = hooks_of(job_type.options, pool_hooks or {})
        #: Whether a completion needs no hook, no stored result, no release of a key, no log lines, no correction of charges
        #: and no children.
        options = job_type.options
        self.plain = (
            options.keep is None
            and not self.hooks.done
            and options.unique_until == "start"
            and not options.limits
            and options.keep_logs is None
            and not options.atomic
        )
        #: The namespace and server of the pool, for atomic job types, and the process that runs them.
        self.place: object = None
        self.forks = fork.number
        self.pool = pool
        #: What the history keeps of its attempts.
        self.history = history or HistoryCaps()
        #: Moving average of the seconds of an attempt; None before the first.
        self.estimate: float | None = None
        #: The same for the shortest attempt of each batch: the duration without waiting for the GIL.
        self.quickest = 0.0
        #: Monotonic time until which nothing is prefetched, because an attempt had to be given back.
        self.slow_until = 0.0
        #: The pool fetched unique jobs: few are prefetched, because a job keeps its key until a worker is free.
        self.unique = False
        #: The name has rate limits: nothing is prefetched, because a job counts as started when it is fetched.
        self.rated = False
        #: Histograms since the last flush: bucket to count.
        self.runs: dict[int, int] = {}
        self.waits: dict[int, int] = {}
        #: Since the last flush: attempts that failed, and jobs taken from the queue without those given back.
        self.fails = 0
        self.taken = 0

    @property
    def stopping(self) -> bool:
        """Whether the pool is stopping."""
        return self.pool.stopping

    def learn(self, attempts: Sequence[Attempt], epoch: float) -> None:
        """Add attempts that ran to the estimates and figures. `epoch` is the Redis time at monotonic 0.

        Only the fetcher calls this, once for each attempt, so the figures are exact without a lock.
        """
        times = [attempt.ran or 0.0 for attempt in attempts]
        if not times:
            return
        self._estimate(times)
        _add(self.runs, times)
        _add(
            self.waits,
            [
                # Not max(), which takes longer than the rest of this expression.
                epoch + attempt.started_at - (at if (at := wire.at / 1000) > wire.t else wire.t)
                for attempt in attempts
                if (wire := attempt.wire).at or wire.t
            ],
        )

    def _estimate(self, times: Sequence[float]) -> None:
        count = len(times)
        mean, least = sum(times) / count, min(times)
        if self.estimate is None:
            self.estimate, self.quickest = mean, least
        else:
            # Equal to one small step for each attempt.
            self.estimate += (mean - self.estimate) * (1 - 0.9**count)
            self.quickest += (least - self.quickest) * 0.3


def _add(histogram: dict[int, int], seconds: Sequence[float]) -> None:
    """Count durations. Those of a batch are usually in one bucket, so minimum and maximum are checked first."""
    if not seconds:
        return
    number = bucket(min(seconds))
    if number == bucket(max(seconds)):
        histogram[number] = histogram.get(number, 0) + len(seconds)
        return
    for one in seconds:
        number = bucket(one)
        histogram[number] = histogram.get(number, 0) + 1

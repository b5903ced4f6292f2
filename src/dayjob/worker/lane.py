"""Lane: one job type as a pool runs it, with its composed handler, its estimate and its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dayjob.options import JobOptions
from dayjob.registry import JobType

#: Histogram buckets: bucket b holds times below 2**(b/2) * 0.1 ms; 60 buckets reach a day.
BUCKETS = 60
#: The upper bound of the first bucket, in seconds.
SHORTEST = 0.0001


def bucket(seconds: float) -> int:
    """The histogram bucket of a duration."""
    if seconds <= SHORTEST:
        return 0
    return min(BUCKETS - 1, math.ceil(2 * math.log2(seconds / SHORTEST)))


def bucket_limit(number: int) -> float:
    """The upper bound of a bucket, in seconds."""
    return float(SHORTEST * 2 ** (number / 2))


class Flags:
    """What all attempts of a pool can see."""

    __slots__ = ("stopping",)

    def __init__(self) -> None:
        self.stopping = False


class Lane:
    """A job type in one pool."""

    __slots__ = (
        "_band",
        "call",
        "direct",
        "estimate",
        "flags",
        "is_async",
        "name",
        "options",
        "plain",
        "quickest",
        "runs",
        "slow_until",
        "type",
        "unique",
        "waits",
    )

    def __init__(
        self,
        job_type: JobType[..., ..., Any],
        call: Callable[[Any, Any], Any],
        flags: Flags,
        direct: Callable[[Any], Any] | None = None,
    ) -> None:
        self.type = job_type
        self.name = job_type.name
        self.options: JobOptions = job_type.options
        self.is_async = job_type.is_async
        #: The handler with its middleware around it: (context, job) to a result.
        self.call = call
        #: The handler by its raw arguments alone, where it wants neither context nor job and has no middleware.
        self.direct = direct
        #: Whether a completion needs nothing more than to be counted.
        options = job_type.options
        self.plain = options.keep is None and options.on_done is None and options.unique_until == "start"
        self.flags = flags
        #: Running estimate of an attempt's seconds; None before the first.
        self.estimate: float | None = None
        #: The same of the shortest in each batch: what an attempt takes when it does not wait for its turn.
        self.quickest = 0.0
        #: Monotonic time until which nothing is prefetched, since some of it had to be given back.
        self.slow_until = 0.0
        #: Unique jobs came in: nothing is prefetched, since a job keeps its key until there is a worker for it.
        self.unique = False
        #: Figures since the last flush: bucket to count.
        self.runs: dict[int, int] = {}
        self.waits: dict[int, int] = {}
        #: The bucket that the last wait fell in: its bounds and number. Waits of one batch mostly share it.
        self._band = (0.0, 0.0, 0)

    @property
    def stopping(self) -> bool:
        """Whether the pool stops."""
        return self.flags.stopping

    def waited(self, seconds: float) -> None:
        """Take the wait of a job that was fetched into the figures. Called by the fetcher alone."""
        low, high, number = self._band
        if not low < seconds <= high:
            number = bucket(seconds)
            low = bucket_limit(number - 1) if number else -1.0
            self._band = (low, bucket_limit(number), number)
        self.waits[number] = self.waits.get(number, 0) + 1

    def learn(self, times: Sequence[float]) -> None:
        """Take finished attempts into the estimates and the figures. Called by the fetcher alone, so that they are exact."""
        count = len(times)
        mean, least = sum(times) / count, min(times)
        if self.estimate is None:
            self.estimate, self.quickest = mean, least
        else:
            # As many small steps as there were attempts.
            step = 1 - 0.9**count
            self.estimate += (mean - self.estimate) * step
            self.quickest += (least - self.quickest) * 0.3
        runs = self.runs
        for seconds in times:
            number = 0 if seconds <= SHORTEST else bucket(seconds)
            runs[number] = runs.get(number, 0) + 1

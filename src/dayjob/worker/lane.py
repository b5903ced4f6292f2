"""Lane: one job type as a pool runs it, with its composed handler, its estimate and its figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dayjob.options import JobOptions
from dayjob.registry import JobType

#: Histogram buckets: bucket b holds times below 2**(b/2) * 0.1 ms; 60 buckets reach a day.
BUCKETS = 60


def bucket(seconds: float) -> int:
    """The histogram bucket of a duration."""
    if seconds <= 0.0001:
        return 0
    return min(BUCKETS - 1, math.ceil(2 * math.log2(seconds / 0.0001)))


def bucket_limit(number: int) -> float:
    """The upper bound of a bucket, in seconds."""
    return float(0.0001 * 2 ** (number / 2))


class Flags:
    """What all attempts of a pool can see."""

    __slots__ = ("stopping",)

    def __init__(self) -> None:
        self.stopping = False


class Lane:
    """A job type in one pool."""

    __slots__ = (
        "call",
        "estimate",
        "flags",
        "is_async",
        "name",
        "options",
        "runs",
        "slow_until",
        "type",
        "waits",
    )

    def __init__(
        self, job_type: JobType[..., ..., Any], call: Callable[[Any, Any], Any], flags: Flags
    ) -> None:
        self.type = job_type
        self.name = job_type.name
        self.options: JobOptions = job_type.options
        self.is_async = job_type.is_async
        #: The handler with its middleware around it: (context, job) to a result.
        self.call = call
        self.flags = flags
        #: Running estimate of an attempt's seconds; None before the first.
        self.estimate: float | None = None
        #: Monotonic time until which nothing is prefetched, since some of it had to be given back.
        self.slow_until = 0.0
        #: Figures since the last flush: bucket to count.
        self.runs: dict[int, int] = {}
        self.waits: dict[int, int] = {}

    @property
    def stopping(self) -> bool:
        """Whether the pool stops."""
        return self.flags.stopping

    def learn(self, seconds: float) -> None:
        """Take a finished attempt into the estimate and the figures. Called by many threads: a race costs one count."""
        estimate = self.estimate
        self.estimate = seconds if estimate is None else estimate + (seconds - estimate) * 0.1
        number = bucket(seconds)
        self.runs[number] = self.runs.get(number, 0) + 1

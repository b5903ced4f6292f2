"""Figures over time as consoles show them: by job name, of all jobs, of the server and the fleet. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.admin.findings import Finding
from dayjob.store.ops.figures import Histogram
from dayjob.store.ops.health import Health


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of durations in seconds; None if there are no durations."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, histogram: Histogram) -> Quantiles:
        """The quantiles of a histogram."""
        found = (histogram.quantile(q) for q in (0.5, 0.95, 0.99))
        return cls(histogram.count, *found)


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """The figures of one job name."""

    name: str
    #: Attempts that ended, in each step.
    series: tuple[int, ...]
    runs: Quantiles
    waits: Quantiles
    #: The all-time total.
    totals: dict[str, int]
    #: Attempts that failed in each step, in all, and as a share from 0 to 1 of those that ended; None if none ended.
    fails: tuple[int, ...] = ()
    failed: int = 0
    failing: float | None = None
    #: Jobs that came into the queue in each step, as in QueueView; None if not known, as for the last step.
    incoming: tuple[int | None, ...] = ()
    #: Jobs that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()
    #: How its run and wait times are spread, as JobSpread has it; None unless this name alone was asked for.
    run_times: Histogram | None = None
    wait_times: Histogram | None = None


@dataclass(frozen=True, slots=True)
class JobSpread:
    """How the wait and run times of one job name are spread. Bucket b counts durations up to 0.1 ms * 2**(b/2)."""

    now: float
    name: str
    hours: int
    #: When each minute of the last hour begins.
    starts: tuple[int, ...]
    #: For each of these minutes.
    waits: tuple[Histogram, ...]
    runs: tuple[Histogram, ...]
    #: Over all the hours.
    all_waits: Histogram
    all_runs: Histogram


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures by job name over some hours."""

    now: float
    hours: int
    #: Seconds in one step of a series, and when each step begins.
    step: int
    starts: tuple[int, ...]
    #: Attempts of all jobs that ended in each step, and those of them that failed.
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    #: All known job names, and the figures of the chosen ones.
    names: tuple[str, ...]
    jobs: tuple[JobMetrics, ...]
    #: Round trips of the pools' exchanges.
    trips: Quantiles
    #: Jobs of all names that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Throughput:
    """What ended and what waited over time, of all job names together."""

    now: float
    #: Seconds in one step, and when each begins.
    step: int
    starts: tuple[int, ...]
    #: Attempts that ended in each step, and those of them that failed.
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    #: Jobs that waited when each step began; None where they were not counted.
    waiting: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Vitals:
    """The server and the fleet over time; None where a number was not measured. Of a long step the largest number."""

    now: float
    #: Seconds in one step, and when each begins.
    step: int
    starts: tuple[int, ...]
    #: Memory that the server uses and may use (0 is no limit), in bytes; its connections; the commands it ran per second.
    memory: tuple[int | None, ...]
    max_memory: tuple[int | None, ...]
    clients: tuple[int | None, ...]
    commands: tuple[int | None, ...]
    #: Round trips of the pools' exchanges in the minute before, in seconds.
    trip_p50: tuple[float | None, ...]
    trip_p99: tuple[float | None, ...]
    #: Workers of live pools, and those of them that were busy.
    workers: tuple[int | None, ...]
    busy: tuple[int | None, ...]
    scheduled: tuple[int | None, ...]
    retry: tuple[int | None, ...]
    dead: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RedisView:
    """The state of the server."""

    #: The checks of the server and the namespace.
    findings: tuple[Finding, ...]
    health: Health
    #: Round trips of the pools' exchanges in the last ten minutes.
    trips: Quantiles

"""Figures over time: throughput, wait and run times by job name; how the server itself fares. Reads only."""

from __future__ import annotations

from dayjob import doctor
from dayjob.admin.desk import Desk
from dayjob.admin.views import JobMetrics, Metrics, Quantiles, RedisView
from dayjob.errors import BadOption
from dayjob.store.ops import figures, health, inspect
from dayjob.store.ops.figures import Histogram, Minute
from dayjob.store.steps import Steps, ask

#: Hours that can be asked for, and the minutes in one step of each.
SPANS = {1: 1, 24: 15, 72: 60}
#: Minutes that say how things go at present.
RECENT = 5


def metrics(desk: Desk, hours: int = 1) -> Steps[Metrics]:
    """Throughput, wait and run times of every job name over the last 1, 24 or 72 hours. Raises BadOption."""
    if hours not in SPANS:
        raise BadOption(f"hours={hours}: figures are shown for {', '.join(map(str, SPANS))} hours")
    now = yield from ask(inspect.now())
    step = SPANS[hours]
    last = int(now // 60)
    first = last - last % step + step - hours * 60
    minutes = yield from figures.minutes(desk.keys, first, last)
    totals = yield from ask(figures.totals(desk.keys))
    starts = tuple(range(first * 60, last * 60 + 1, step * 60))
    names = sorted(
        {name for minute in minutes for name in (*minute.runs, *minute.waits)}
        | {name for by_name in totals.values() for name in by_name if name}
    )
    jobs = tuple(_job(name, minutes, first, step, len(starts), totals) for name in names)
    trips = Quantiles.of(sum((minute.exchanges for minute in minutes), Histogram()))
    return Metrics(now, hours, step * 60, starts, jobs, trips)


def _job(
    name: str,
    minutes: list[Minute],
    first: int,
    step: int,
    steps: int,
    totals: dict[str, dict[str, int]],
) -> JobMetrics:
    series = [0] * steps
    runs = waits = Histogram()
    for minute in minutes:
        if name in minute.runs:
            series[(minute.minute - first) // step] += minute.runs[name].count
            runs += minute.runs[name]
        if name in minute.waits:
            waits += minute.waits[name]
    return JobMetrics(name, tuple(series), Quantiles.of(runs), Quantiles.of(waits), totals_of(totals, name))


def totals_of(totals: dict[str, dict[str, int]], name: str) -> dict[str, int]:
    """The exact totals of one job name."""
    return {counter: by_name[name] for counter, by_name in sorted(totals.items()) if name in by_name}


def recent(desk: Desk, now: float, minutes: int = RECENT) -> Steps[list[Minute]]:
    """The figures of the last whole minutes."""
    last = int(now // 60)
    return (yield from figures.minutes(desk.keys, last - minutes, last - 1))


def recent_rate(desk: Desk, name: str) -> Steps[float]:
    """Attempts of a job name that end in a minute, at present."""
    now = yield from ask(inspect.now())
    minutes = yield from recent(desk, now)
    return rate_of(minutes, name)


def rate_of(minutes: list[Minute], name: str) -> float:
    """Attempts of a job name that ended in a minute, on average."""
    return sum(minute.runs[name].count for minute in minutes if name in minute.runs) / max(1, len(minutes))


def redis(desk: Desk) -> Steps[RedisView]:
    """How the server fares: memory, persistence, eviction, connections, slow log, round trips of the pools."""
    now = yield from ask(inspect.now())
    server = yield from health.health()
    findings = (
        doctor.check_version(server.info),
        *doctor.check_persistence(server),
        doctor.check_eviction(server),
        doctor.check_role(server.info),
        doctor.check_memory(server),
        doctor.check_clients(server),
        doctor.check_cluster(server.info, desk.keys),
    )
    minutes = yield from recent(desk, now, 10)
    trips = sum((minute.exchanges for minute in minutes), Histogram())
    return RedisView(findings, server, Quantiles.of(trips))

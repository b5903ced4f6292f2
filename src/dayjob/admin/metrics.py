"""Figures over time: throughput, wait and run times by job name; how the server itself fares. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

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
    parts = yield from figures.spans(desk.keys, first, last, step)
    totals = yield from ask(figures.totals(desk.keys))
    starts = tuple(range(first * 60, last * 60 + 1, step * 60))
    names = sorted(
        {name for part in parts for name in (*part.runs, *part.waits, *part.fails)}
        | {name for by_name in totals.values() for name in by_name if name}
    )
    whole = yield from figures.whole(desk.keys, parts, step)
    jobs = tuple(_job(name, parts, whole, totals) for name in names)
    return Metrics(now, hours, step * 60, starts, jobs, Quantiles.of(whole.exchanges))


def _job(name: str, parts: list[Minute], whole: Minute, totals: dict[str, dict[str, int]]) -> JobMetrics:
    """`parts` are the steps, in order and without gaps, and `whole` is their sum."""
    runs, waits = whole.runs.get(name, Histogram()), whole.waits.get(name, Histogram())
    series = tuple(part.ran(name) for part in parts)
    fails = tuple(part.failed(name) for part in parts)
    return JobMetrics(
        name, series, Quantiles.of(runs), Quantiles.of(waits), totals_of(totals, name),
        fails, sum(fails), _share(sum(fails), sum(series)),
        tuple(figures.came_in(one, following, name) for one, following in pairs(parts)),
    )  # fmt: skip


def pairs(parts: Sequence[Minute]) -> list[tuple[Minute, Minute | None]]:
    """Each part with the one after it."""
    return list(zip(parts, (*parts[1:], None), strict=True))


def failing(parts: Sequence[Minute], name: str) -> float | None:
    """The share of the attempts that failed, from 0 to 1; None where none ended."""
    return _share(sum(part.failed(name) for part in parts), sum(part.ran(name) for part in parts))


def _share(failed: int, ended: int) -> float | None:
    # A run and its fail may be counted in two minutes, of which one is looked at.
    return min(1.0, failed / ended) if ended else None


def incoming(parts: Sequence[Minute], name: str) -> float | None:
    """Jobs that come in within a minute, on average over the parts that have a next one; None where that is not known."""
    known = [figures.came_in(one, following, name) for one, following in pairs(parts)]
    some = [number for number in known if number is not None]
    return sum(some) / len(some) if some else None


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


def rate_of(minutes: Sequence[Minute], name: str) -> float:
    """Attempts of a job name that ended in a minute, on average."""
    return sum(minute.ran(name) for minute in minutes) / max(1, len(minutes))


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

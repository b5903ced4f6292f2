"""Figures over time: throughput, wait and run times by job name; the state of the server. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dayjob.admin import doctor, server_checks, sorting
from dayjob.admin.session import Session
from dayjob.admin.views import JobMetrics, JobSpread, Metrics, Quantiles, RedisView, Throughput, Vitals
from dayjob.errors import BadOption
from dayjob.store.ops import figures, health, inspect, rollups
from dayjob.store.ops.figures import Counts, Times
from dayjob.store.steps import Steps, ask

#: Hours that can be asked for, and the minutes in one step of each.
SPANS = {1: 1, 24: 15, 72: 60}
#: Counts, each with those that follow.
Pairs = list[tuple[Counts, Counts | None]]
#: Totals that are counted by side set (`trimmed:dead`), and not by job name.
NOT_BY_JOB = ("trimmed",)
#: Minutes over which present rates are averaged.
RECENT_MINUTES = 5
#: Seconds over which the growth of a queue is measured, at least: less would show the noise of single seconds.
GROWTH_SECONDS = 45.0


def metrics(
    session: Session, hours: int = 1, *, name: str | None = None, most: int | None = None, sort: str = ""
) -> Steps[Metrics]:
    """Throughput, wait and run times by job name over the last 1, 24 or 72 hours: of one, or of all.

    The busiest first, or sorted by another column: `-run_p95`. `most` names at most, the first in this order. Raises BadOption.
    """
    # Only the busiest can be chosen before their wait and run times are read.
    busiest = sorting.METRICS.read(sort) == sorting.METRICS.read("")
    now, parts = yield from _series(session, hours)
    totals = yield from ask(figures.totals(session.keys))
    names = {one for part in parts for one in (*part.ended, *part.fails, *part.taken)}
    names |= {
        one for counter, by_name in totals.items() if counter not in NOT_BY_JOB for one in by_name if one
    }
    chosen = names & {name} if name is not None else _chosen(names, parts, most if busiest else None)
    first, last = parts[0].minute, int(now // 60)
    read = partial(session.minute_cache.minutes, now=now)
    times = yield from rollups.times(session.keys, first, last, read, chosen)
    steps = pairs(parts)
    flow = _throughput(now, hours, parts)
    jobs = tuple(_job(one, steps, times, totals) for one in sorted(chosen))
    if name is not None:
        jobs = tuple(replace(one, run_times=times.run(name), wait_times=times.wait(name)) for one in jobs)
    return Metrics(
        now, hours, flow.step, flow.starts, flow.ended, flow.failed, tuple(sorted(names)),
        tuple(sorting.METRICS.sorted(jobs, sort)[: None if most is None else max(0, most)]), Quantiles.of(times.exchange()),
        flow.waiting,
    )  # fmt: skip


def _chosen(names: set[str], parts: list[Counts], most: int | None) -> set[str]:
    """The busiest names."""
    if most is None or len(names) <= most:
        return names
    whole = rollups.merged_counts(parts, parts[0].minute)
    return set(sorted(names, key=lambda name: (-whole.ran(name), name))[: max(0, most)])


def throughput(session: Session, hours: int = 1) -> Steps[Throughput]:
    """What ended, failed and waited over the last 1, 24 or 72 hours: a small part of `metrics`. Raises BadOption."""
    now, parts = yield from _series(session, hours)
    return _throughput(now, hours, parts)


def vitals(session: Session, hours: int = 1) -> Steps[Vitals]:
    """Memory, round trips, workers and sets over the last 1, 24 or 72 hours, as the leader measured them. Raises BadOption."""
    now, parts = yield from _series(session, hours)

    def series(name: str) -> tuple[int | None, ...]:
        return tuple(part.measures.get(name) for part in parts)

    def seconds(name: str) -> tuple[float | None, ...]:
        return tuple(None if value is None else value / 1e6 for value in series(name))

    return Vitals(
        now, SPANS[hours] * 60, tuple(part.minute * 60 for part in parts), series("memory"), series("max_memory"),
        series("clients"), series("commands"), seconds("trip_p50"), seconds("trip_p99"), series("workers"), series("busy"),
        series("scheduled"), series("retry"), series("dead"),
    )  # fmt: skip


def _throughput(now: float, hours: int, parts: list[Counts]) -> Throughput:
    return Throughput(
        now, SPANS[hours] * 60, tuple(part.minute * 60 for part in parts),
        tuple(sum(part.ended.values()) for part in parts), tuple(sum(part.fails.values()) for part in parts),
        tuple(None if part.sizes is None else sum(part.sizes.values()) for part in parts),
    )  # fmt: skip


def _series(session: Session, hours: int) -> Steps[tuple[float, list[Counts]]]:
    """Redis time, and the counts of every step of these hours."""
    _check_hours(hours)
    now = yield from ask(inspect.now())
    step = SPANS[hours]
    last = int(now // 60)
    first = last - last % step + step - hours * 60
    read = partial(session.minute_cache.minutes, now=now)
    return now, (yield from rollups.series(session.keys, first, last, step, read))


def _check_hours(hours: int) -> None:
    if hours not in SPANS:
        raise BadOption(f"hours={hours}: figures are shown for {', '.join(map(str, SPANS))} hours")


def _job(name: str, steps: Pairs, times: Times, totals: dict[str, dict[str, int]]) -> JobMetrics:
    """`steps` are the counts, in order and without gaps, and `times` are those of all of them."""
    # With many names and steps these are tens of thousands of numbers: lists are quicker than generators.
    series = tuple([one.ended.get(name, 0) for one, _ in steps])
    fails = tuple([one.fails.get(name, 0) for one, _ in steps])
    incoming = tuple([figures.came_in(one, following, name) for one, following in steps])
    waiting = tuple([one.size(name) for one, _ in steps])
    return JobMetrics(
        name, series, Quantiles.of(times.run(name)), Quantiles.of(times.wait(name)), totals_of(totals, name),
        fails, sum(fails), _share(sum(fails), sum(series)), incoming, waiting,
    )  # fmt: skip


def spread(session: Session, name: str, hours: int = 1) -> Steps[JobSpread]:
    """How long jobs of one name waited and ran: in each minute of the last hour, and in all of 1, 24 or 72 hours. Raises BadOption."""
    _check_hours(hours)
    now = yield from ask(inspect.now())
    last = int(now // 60)
    minutes = yield from figures.minutes(session.keys, range(last - 59, last + 1), name)
    if hours == 1:
        times = rollups.merged_times([minute.times for minute in minutes])
    else:
        read = partial(session.minute_cache.minutes, now=now)
        first = last - last % SPANS[hours] + SPANS[hours] - hours * 60
        times = yield from rollups.times(session.keys, first, last, read, {name})
    return JobSpread(
        now, name, hours, tuple(minute.number * 60 for minute in minutes),
        tuple(minute.times.wait(name) for minute in minutes), tuple(minute.times.run(name) for minute in minutes),
        times.wait(name), times.run(name),
    )  # fmt: skip


def pairs(parts: Sequence[Counts]) -> Pairs:
    """Each part with the one after it."""
    return list(zip(parts, (*parts[1:], None), strict=True))


def failing(parts: Sequence[Counts], name: str) -> float | None:
    """The share of the attempts that failed, from 0 to 1; None where none ended."""
    return _share(sum(part.failed(name) for part in parts), sum(part.ran(name) for part in parts))


def _share(failed: int, ended: int) -> float | None:
    # A run and its fail may be counted in two minutes, of which only one is read.
    return min(1.0, failed / ended) if ended else None


@dataclass(frozen=True, slots=True)
class RecentWindow:
    """The last minutes of which there are figures, the one under way included, and how many seconds they cover."""

    parts: tuple[Counts, ...]
    seconds: float

    def per_minute(self, number: float) -> float:
        """A count over the window as a rate per minute."""
        return number * 60 / self.seconds

    def out(self, name: str) -> float:
        """Attempts of a job name that ended, per minute."""
        return self.per_minute(sum(part.ran(name) for part in self.parts))

    def incoming(self, name: str, size: int) -> float | None:
        """Jobs that came into a queue, per minute: those that went out, plus its growth. None if its size was not counted.

        True to what flows within a second, since that is how often figures are sent; jobs that were deleted are missing.
        """
        before = self.parts[0].size(name) if self.parts else None
        if before is None:
            return None
        return self.per_minute(max(0, sum(part.fetched(name) for part in self.parts) + size - before))


def growth(parts: Sequence[Counts], name: str, size: int, now: float) -> float | None:
    """How many jobs per minute a queue grew, since the newest count of its size that is old enough. None without one."""
    for part in reversed(parts):
        before = part.size(name)
        if part.counted_at is None or before is None:
            continue
        seconds = now - part.counted_at
        if seconds >= GROWTH_SECONDS:
            return (size - before) * 60 / seconds
    return None


def window(parts: Sequence[Counts], now: float) -> RecentWindow:
    """The minutes since the first count of the queues. The last minute is not over.

    Where no count was made, from the first minute with figures on.
    """
    counted = (number for number, part in enumerate(parts) if part.counted_at is not None)
    busy = (number for number, part in enumerate(parts) if part.ended or part.taken)
    first = next(counted, next(busy, 0))
    some = tuple(parts[first:])
    begin = now if not some else some[0].minute * 60 if some[0].counted_at is None else some[0].counted_at
    # Counts carry whole seconds.
    return RecentWindow(some, max(1.0, now - begin))


def totals_of(totals: dict[str, dict[str, int]], name: str) -> dict[str, int]:
    """The exact totals of one job name."""
    return {
        counter: by_name[name]
        for counter, by_name in sorted(totals.items())
        if name in by_name and counter not in NOT_BY_JOB
    }


def recent_rate(session: Session, name: str) -> Steps[float]:
    """Attempts of a job name that end per minute, at present."""
    now = yield from ask(inspect.now())
    last = int(now // 60)
    minutes = yield from session.minute_cache.minutes(range(last - RECENT_MINUTES, last + 1), now)
    return window([minute.counts for minute in minutes], now).out(name)


def redis(session: Session) -> Steps[RedisView]:
    """The state of the server: memory, persistence, eviction, connections, slow log, round trips of the pools."""
    now = yield from ask(inspect.now())
    server = yield from health.health()
    findings = (
        server_checks.check_version(server.info),
        *server_checks.check_persistence(server),
        server_checks.check_eviction(server),
        server_checks.check_role(server.info),
        server_checks.check_memory(server),
        server_checks.check_clients(server),
        server_checks.check_cluster(server.info, session.keys),
        *(yield from doctor.check_outbox(session.keys, now)),
    )
    last = int(now // 60)
    read = partial(session.minute_cache.minutes, now=now)
    times = yield from rollups.times(session.keys, last - 10, last - 1, read, names=())
    return RedisView(findings, server, Quantiles.of(times.exchange()))

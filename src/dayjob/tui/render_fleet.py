"""Renders pools, workers, schedules, metrics, the server and the audit as sheets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dayjob.admin.views import AuditEntry as AuditLine
from dayjob.admin.views import (
    BusyWorker,
    Calendar,
    Coming,
    Metrics,
    Periodic,
    Pool,
    PoolsView,
    RedisView,
    Stacks,
    Status,
    Vitals,
)
from dayjob.cli.console import ago, clean, took, when
from dayjob.text import counted, span
from dayjob.tui.render import BLANK, SIGNS, TONES, arguments, failing, labelled, number, quantiles
from dayjob.tui.sheet import Column, Line, Piece, Row, Sheet, Tone, bar, spark

# Pools and workers.

_POOLS = (
    Column("HOST"), Column("PID", right=True, rank=1), Column("BUSY", right=True), Column("", most=12, rank=2), Column("MEMORY", right=True, rank=1),
    Column("BEAT", right=True, rank=1), Column("TAG", rank=4, most=16), Column("VERSION", rank=5), Column("POOL", rank=3), Column("STATE", most=60),
)  # fmt: skip


def pools(found: PoolsView, now: float) -> Sheet:
    """Every pool, and the dead ones whose attempts are being rescued."""
    rows = [_pool(pool, now, leads=pool.id == found.leader) for pool in found.pools]
    rows += [
        Row(one.id, ("(dead)", "", "", "", "", ago(now - one.since), "", "", clean(one.id), (f"✖ {counted(one.held, 'attempt')} to rescue", "error")), one)
        for one in found.condemned
    ]  # fmt: skip
    statuses = [pool.status for pool in found.pools if pool.status and pool.lease > 0]
    busy, all_workers = (
        sum(sum(one.running.values()) for one in statuses),
        sum(one.concurrency for one in statuses),
    )
    line = f"{counted(len(found.pools), 'pool')}, {busy:,} of {counted(all_workers, 'worker')} busy"
    return Sheet(
        (((line, "dim"),),), _POOLS, tuple(rows), "No pool is running. Start one: dayjob worker app.jobs:pool"
    )


def _pool(pool: Pool, now: float, *, leads: bool) -> Row:
    status = pool.status
    if status is None:
        return Row(
            pool.id,
            ("?", "", "", "", "", "", "", "", clean(pool.id), ("no status reported yet", "dim")),
            pool,
        )
    busy = sum(status.running.values())
    share = busy / max(1, status.concurrency)
    flags = (
        ("stopping", status.stopping),
        ("quiet", status.quiet and not status.stopping),
        ("leader", leads),
    )
    words = [word for word, true in flags if true] + [clean(word) for word in status.troubles]
    tone: Tone = "warning" if status.quiet or status.stuck or status.loop_blocked else "dim"
    if pool.lease <= 0:
        words, tone = ["✖ no heartbeat"], "error"
    return Row(
        pool.id,
        (
            (clean(status.host), "bold"), str(status.pid), f"{busy:,}/{status.concurrency:,}", (bar(share, 10), "ok" if share < 1 else "warning"),
            memory(status.rss), ago(now - status.beat_at), clean(status.tag), clean(status.version), (clean(pool.id), "dim"), (", ".join(words), tone),
        ),
        pool,
    )  # fmt: skip


def pool(found: Pool, now: float) -> Sheet:
    """One pool and its workers."""
    status = found.status or Status(id=found.id)
    running = ", ".join(f'{count:,} "{name}"' for name, count in sorted(status.running.items())) or "nothing"
    slow = {name: seconds for name, seconds in status.loops.items() if seconds > 10}
    lines = [
        labelled("pool", found.id), labelled("process", f"{status.host}, pid {status.pid}, Python {status.python}, dayjob {status.version}"),
        labelled("up", f"{ago(now - status.started_at)}, last heartbeat {ago(now - status.beat_at)} ago, lease {ago(found.lease) if found.lease > 0 else 'expired'}"),
        labelled("memory", memory(status.rss) or "unknown"), labelled("work", f"{counted(status.fetched, 'job')} fetched in {counted(status.exchanges, 'exchange')}; {status.held:,} held"),
        labelled("running", running), labelled("jobs", ", ".join(status.names)),
    ]  # fmt: skip
    if status.quiet:
        lines.append(labelled("quiet", "it has stopped fetching", "warning"))
    if status.troubles:
        lines.append(labelled("workers", ", ".join(status.troubles), "warning"))
    if slow:
        lines.append(
            labelled(
                "loops",
                ", ".join(f"{name} has not run for {seconds:g} s" for name, seconds in slow.items()),
                "error",
            )
        )
    mine = [
        BusyWorker(found.id, status.host, status.pid, one, max(0.0, now - one.started_at))
        for one in status.workers
    ]
    sheet = busy(mine)
    return Sheet(
        (*lines, BLANK),
        sheet.columns,
        sheet.rows,
        "No worker has run a job for more than 0.5 s.",
        subject=found,
    )


def stacks(found: Stacks | None) -> Sheet:
    """The stacks of the busy workers of a pool."""
    if found is None:
        return Sheet(((("The pool has stopped, or did not answer in time.", "warning"),),))
    lines: list[Line] = [((f"at {when(found.at)}", "dim"),)]
    for worker in found.workers:
        lines += [
            BLANK,
            (
                (clean(f"{worker.name} {worker.id}"), "title"),
                (f"  {worker.colour}, for {ago(worker.running_for)}", "dim"),
            ),
        ]
        for frame in worker.frames:
            tone: Tone = "bold" if frame.own else "dim"
            lines.append(((f"  {clean(frame.file)}:{frame.line} in {clean(frame.function)}", tone),))
            if frame.source:
                lines.append(((f"      {clean(frame.source)}", "" if frame.own else "dim"),))
    if not found.workers:
        lines.append((("No worker is busy.", "dim"),))
    return Sheet(tuple(lines))


_BUSY = (
    Column("JOB"), Column("FOR", right=True), Column("PROGRESS", most=16, rank=1), Column("CHECK-IN", most=44, least=18, rank=1), Column("TIMEOUT", right=True, rank=3),
    Column("WORKER", rank=4, most=24), Column("SOURCE", rank=5, most=12), Column("ID", rank=6), Column("ARGUMENTS", most=300, least=14, rank=2),
)  # fmt: skip


def busy(found: Iterable[BusyWorker]) -> Sheet:
    """Workers that have run a job for more than 0.5 s."""
    rows = tuple(_worker(one) for one in found)
    line = f"{counted(len(rows), 'worker')} busy for more than 0.5 s"
    return Sheet((((line, "dim"),),), _BUSY, rows, "No worker has run a job for more than 0.5 s.")


def _worker(one: BusyWorker) -> Row:
    worker = one.worker
    share = one.progress
    shown = "" if share is None else f"{bar(share, 10)} {share:4.0%}"
    left = "" if worker.timeout is None else span(max(0.0, worker.timeout - one.running_for)) + " left"
    remark: Piece = (clean(worker.checkin or ""), "")
    if worker.stuck or worker.lost:
        remark = ("✖ stuck past its timeout" if worker.stuck else "! lost: another pool has it", "error")
    elif one.stale:
        remark = ("✖ no heartbeat from its pool", "error")
    elif worker.cancelled:
        remark = ("! cancelling", "warning")
    source = "" if worker.source is None else clean(worker.source)
    return Row(
        f"{one.pool_id}/{worker.token}",
        (
            (clean(worker.name), "bold"), ago(one.running_for), (shown, "ok"), remark, left, f"{clean(one.host)}/{one.pid}", source,
            (clean(worker.id), "dim"), arguments(worker.args),
        ),
        one,
    )  # fmt: skip


# Schedules.

_PERIODIC = (
    Column("SCHEDULE", most=50, least=16), Column("JOB", rank=5), Column("WHEN", most=60, least=20), Column("NEXT IN", right=True, rank=1), Column("LAST", right=True, rank=2), Column("ZONE", rank=4),
    Column("SPEC", rank=3), Column("STATE"),
)  # fmt: skip


def periodic(found: Iterable[Periodic], now: float) -> Sheet:
    """Every schedule."""
    rows = tuple(
        Row(
            one.name,
            (
                (clean(one.name), "bold"), clean(one.job), clean(one.english or "no pool has described it"),
                "" if one.paused or not one.next else span(one.next[0] - now), ago(now - one.last_at) + " ago" if one.last_at else "never",
                clean(one.timezone or ""), clean(one.spec), _schedule_state(one),
            ),
            one,
        )
        for one in found
    )  # fmt: skip
    return Sheet(
        (((counted(len(rows), "schedule"), "dim"),),),
        _PERIODIC,
        rows,
        "No schedules. Add one with pool.periodic(...).",
    )


def _schedule_state(one: Periodic) -> Piece:
    if not one.live:
        return ("! no live pool has it", "warning")
    return ("! paused", "warning") if one.paused else ("", "")


# Metrics, the server, the audit.

_METRICS = (
    Column("JOB"), Column("RAN", right=True), Column("FAILS", right=True), Column("OVER TIME", most=30, rank=1), Column("RUN P50", right=True, rank=1), Column("RUN P95", right=True, rank=1),
    Column("RUN P99", right=True, rank=3), Column("WAIT P50", right=True, rank=4), Column("WAIT P95", right=True, rank=2), Column("TOTAL DONE", right=True, rank=5),
    Column("TOTAL FAILED", right=True, rank=5),
)  # fmt: skip


def metrics(found: Metrics, names: Sequence[Any]) -> Sheet:
    """Metrics by job name."""
    rows = tuple(
        Row(
            one.name,
            (
                (clean(one.name), "bold"), number(one.runs.count), failing(one.failing), (spark(one.series, 30), "ok"), took(one.runs.p50), took(one.runs.p95), took(one.runs.p99),
                took(one.waits.p50), took(one.waits.p95), number(one.totals.get("done", 0)), number(one.totals.get("failed", 0)),
            ),
            one,
        )
        for one in names
    )  # fmt: skip
    ran = sum(one.runs.count for one in names)
    line = (
        f"last {found.hours} h: {counted(ran, 'attempt')}; round trips of the pools: {quantiles(found.trips)}"
    )
    return Sheet((((line, "dim"),),), _METRICS, rows, "No figures yet.")


def calendar(found: Calendar, entries: Sequence[Coming]) -> Sheet:
    """What will run in the next hours."""
    steps = [sum(some) for some in zip(found.scheduled, found.retry, found.periodic, strict=True)]
    line = f"{counted(sum(steps), 'job')} in the next {found.hours} h"
    rows = tuple(
        Row(
            f"{one.at} {one.kind} {one.id or one.schedule}",
            (
                when(one.at), ago(max(0.0, one.at - found.now)), (clean(one.name), "bold"),
                clean(f"schedule {one.schedule}" if one.kind == "periodic" else one.kind), arguments(one.args),
            ),
            one,
        )
        for one in entries
    )  # fmt: skip
    columns = (
        Column("DUE", rank=2), Column("IN", right=True), Column("JOB"), Column("FROM", rank=1), Column("ARGUMENTS", rank=3, most=100),
    )  # fmt: skip
    lines: tuple[Line, ...] = (((line, "dim"),), ((spark(steps, 60), "ok"),), BLANK)
    return Sheet(lines, columns, rows, "Nothing is due in this time.")


def redis(found: RedisView, past: Vitals) -> Sheet:
    """The state of the Redis server, now and over the last hour."""
    info = found.health.info
    server = info.get("server_name", "redis")
    version = info.get(f"{server}_version", info.get("redis_version", "?"))
    lines = [
        labelled("server", f"{server.title()} {version}, up {span(float(info.get('uptime_in_seconds', 0)))}"),
        labelled("memory", f"{info.get('used_memory_human', '?')} of {info.get('maxmemory_human', '?').replace('0B', 'no limit')}, peak {info.get('used_memory_peak_human', '?')}"),
        labelled("clients", f"{grouped(info.get('connected_clients', '?'))} connected, {_idle(info.get('blocked_clients', ''))}"),
        labelled("commands", f"{grouped(info.get('instantaneous_ops_per_sec', '?'))} per second"),
        labelled("round trips", f"{quantiles(found.trips)} over the last ten minutes"),
        labelled("last hour", f"memory {_past(past.memory)}  round trips {_past(past.trip_p99)}"),
    ]  # fmt: skip
    rows = [
        Row(f"{one.topic} {n}", ((f"{SIGNS[one.level]} {one.level}", TONES[one.level]), clean(one.topic), clean(f"{one.what}. {one.todo}" if one.todo else one.what)), one)
        for n, one in enumerate(found.findings)
    ]  # fmt: skip
    rows += [
        Row(f"slow {one.at} {n}", (("slow log", "dim"), when(one.at)[11:19], f"{took(one.seconds)}  {clean(one.command)}"), one)
        for n, one in enumerate(found.health.slow or ())
    ]  # fmt: skip
    return Sheet(
        (*lines, BLANK),
        (Column("LEVEL"), Column("ABOUT", rank=1), Column("WHAT", most=300, least=30)),
        tuple(rows),
    )


def _past(values: Sequence[float | None]) -> str:
    return spark([value or 0 for value in values], 30) or "not measured yet"


def audit(found: Iterable[AuditLine]) -> Sheet:
    """Who did what."""
    rows = tuple(
        Row(
            f"{one.at} {one.subject} {one.action}",
            (
                when(one.at),
                clean(one.actor),
                (clean(one.action), "bold"),
                clean(one.subject),
                clean(one.result),
            ),
            one,
        )
        for one in found
    )
    columns = (
        Column("WHEN"), Column("WHO", rank=1), Column("ACTION"), Column("TARGET", most=70, least=24), Column("RESULT", most=200, least=20, rank=2),
    )  # fmt: skip
    return Sheet((), columns, rows, "No actions yet.")


def audit_entry(found: AuditLine) -> Sheet:
    """One entry of the audit, in full."""
    pairs = (
        ("when", when(found.at)),
        ("who", found.actor),
        ("action", found.action),
        ("target", found.subject),
        ("result", found.result),
    )
    return Sheet(tuple(labelled(label, value) for label, value in pairs), subject=found)


def grouped(text: str) -> str:
    """A number from the server's text, with commas between its thousands."""
    return f"{int(text):,}" if text.isdecimal() else text


def _idle(blocked: str) -> str:
    return counted(int(blocked), "idle pool") if blocked.isdecimal() else "? idle pools"


def memory(size: int) -> str:
    """A number of bytes in MiB."""
    return f"{size / (1 << 20):,.0f} MiB" if size else ""

"""Sorting: the columns by which each table can be sorted. Pages, the API, the commands and the terminal view read these. Pure.

A sort is written as a column, or as a minus and a column for the greatest first: `-waiting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dayjob.admin.detail_views import FailurePlace
from dayjob.admin.records import AttemptRecord, SourceView
from dayjob.admin.timeline_views import TimelineEvent
from dayjob.admin.views import (
    AuditEntry,
    BrokenEntry,
    BusyWorker,
    Coming,
    ComingName,
    Condemned,
    DeletionView,
    FailedAttempts,
    FailureGroup,
    Finding,
    JobMetrics,
    JobTypeView,
    JobView,
    Periodic,
    Pool,
    QueueView,
    State,
    Status,
)
from dayjob.admin.views.batches import BatchView
from dayjob.admin.views.limits import KeyView, LimitView
from dayjob.admin.views.payloads import NameSizes
from dayjob.admin.views.workflows import NodeView, WorkflowView
from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.store.ops.health import Slow
from dayjob.text import escaped

T = TypeVar("T")

#: What a column compares. None comes last in either direction.
SortValue = str | float | None


@dataclass(frozen=True, slots=True)
class SortTable(Generic[T]):
    """The columns of one table, and the order in which it comes."""

    #: What its rows are, in the plural.
    rows: str
    #: Each column with what it compares.
    columns: Mapping[str, Callable[[T], SortValue]]
    #: The default sort.
    default: str
    #: Columns whose first click puts the least first: texts, and moments that are yet to come.
    rising: tuple[str, ...] = field(default=("name",))

    def read(self, sort: str) -> tuple[str, bool]:
        """The column of a sort, and whether the greatest comes first. Raises BadOption, which names the columns."""
        column = (sort or self.default).removeprefix("-")
        if column not in self.columns:
            near = suggest(column, tuple(self.columns)) or "."
            raise BadOption(
                f"{self.rows} cannot be sorted by {escaped(column)[:80]!r}{near}\n"
                f"    There are: {', '.join(self.columns)}. A minus puts the greatest first: -{next(iter(self.columns))}."
            )
        return column, (sort or self.default).startswith("-")

    def sorted(self, rows: Iterable[T], sort: str = "") -> list[T]:
        """The rows in order. Rows that are equal stay as they came. Raises BadOption."""
        column, falling = self.read(sort)
        value = self.columns[column]
        known: list[tuple[tuple[bool, Any], T]] = []
        unknown: list[T] = []
        for row in rows:
            found = value(row)
            if found is None:
                unknown.append(row)
            else:
                known.append((_comparable(found), row))
        known.sort(key=lambda pair: pair[0], reverse=falling)
        return [*(row for _, row in known), *unknown]

    def click(self, column: str, sort: str) -> str:
        """The sort that a click on a column means: its usual direction first, then the other one."""
        here, falling = self.read(sort)
        usual = column if column in self.rising else f"-{column}"
        if here != column:
            return usual
        return column if falling else f"-{column}"

    def next(self, sort: str) -> str:
        """The sort by the column after this one, in its usual direction."""
        names = list(self.columns)
        column, _ = self.read(sort)
        following = names[(names.index(column) + 1) % len(names)]
        return following if following in self.rising else f"-{following}"


def _comparable(value: str | float) -> tuple[bool, Any]:
    """Numbers come before texts; texts are compared without regard to case."""
    return (True, (value.casefold(), value)) if isinstance(value, str) else (False, value)


# The tables.

QUEUES: SortTable[QueueView] = SortTable(
    "queues",
    {
        "name": lambda one: one.queue.name, "waiting": lambda one: one.queue.size, "oldest": lambda one: one.queue.age,
        "running": lambda one: one.running, "workers": lambda one: one.workers, "in": lambda one: one.incoming,
        "out": lambda one: one.out, "fails": lambda one: one.failing, "limit": lambda one: one.queue.limit,
        "busy": lambda one: one.utilisation,
    },
    "name",
)  # fmt: skip


def _of_status(value: Callable[[Status], SortValue]) -> Callable[[Pool], SortValue]:
    return lambda pool: None if pool.status is None else value(pool.status)


POOLS: SortTable[Pool] = SortTable(
    "pools",
    {
        "host": _of_status(lambda one: f"{one.host} {one.pid:09}"), "busy": _of_status(lambda one: sum(one.running.values())),
        "workers": _of_status(lambda one: one.concurrency), "memory": _of_status(lambda one: one.rss or None),
        "heartbeat": _of_status(lambda one: one.beat_at), "started": _of_status(lambda one: one.started_at),
        "jobs": _of_status(lambda one: len(one.names)), "version": _of_status(lambda one: one.version),
        "tag": _of_status(lambda one: one.tag or None), "lease": lambda pool: pool.lease, "id": lambda pool: pool.id,
    },
    "host",
    ("host", "heartbeat", "started", "version", "tag", "lease", "id"),
)  # fmt: skip

BUSY: SortTable[BusyWorker] = SortTable(
    "busy workers",
    {
        "for": lambda one: one.running_for, "name": lambda one: one.worker.name, "left": lambda one: one.left,
        "progress": lambda one: one.progress, "checkin": lambda one: one.worker.checkin_at, "attempt": lambda one: one.worker.attempt,
        "source": lambda one: one.worker.source, "host": lambda one: f"{one.host} {one.pid:09}",
    },
    "-for",
    ("name", "left", "source", "host"),
)  # fmt: skip

#: The column in whose order Redis keeps the jobs of a state, so that all of them can be paged through in it.
STORED_ORDER: dict[State, str] = {
    "waiting": "place", "running": "pool", "scheduled": "due", "retry": "due", "dead": "died", "done": "kept",
}  # fmt: skip

_OF_ANY_JOB: dict[str, Callable[[JobView], SortValue]] = {
    "name": lambda job: job.name, "size": lambda job: job.size, "attempts": lambda job: job.attempts, "deaths": lambda job: job.deaths,
    "enqueued": lambda job: job.enqueued_at, "source": lambda job: job.source, "error": lambda job: job.error or None,
}  # fmt: skip
_MOMENTS: dict[State, Callable[[JobView], SortValue]] = {
    "waiting": lambda job: job.place, "running": lambda job: job.pool_id,
}  # fmt: skip


def _jobs(state: State) -> SortTable[JobView]:
    stored = STORED_ORDER[state]
    moment = _MOMENTS.get(state, lambda job: job.at)
    default = f"-{stored}" if state in ("dead", "done") else stored
    rising = ("name", "source", "error", "enqueued", *(() if state in ("dead", "done") else (stored,)))
    return SortTable(f"{state} jobs", {stored: moment, **_OF_ANY_JOB}, default, rising)


JOBS: dict[State, SortTable[JobView]] = {state: _jobs(state) for state in STORED_ORDER}

FAILURES: SortTable[FailureGroup] = SortTable(
    "groups of failures",
    {
        "jobs": lambda one: one.count, "hour": lambda one: one.last_hour, "day": lambda one: one.last_day,
        "three_days": lambda one: one.last_three_days, "dead": lambda one: one.dead, "retry": lambda one: one.retry,
        "first": lambda one: one.first_at, "last": lambda one: one.last_at, "name": lambda one: one.name, "error": lambda one: one.kind,
    },
    "-jobs",
    ("name", "error"),
)  # fmt: skip

PERIODIC: SortTable[Periodic] = SortTable(
    "schedules",
    {
        "name": lambda one: one.name, "job": lambda one: one.job, "next": lambda one: one.next[0] if one.next and not one.paused else None,
        "last": lambda one: one.last_at, "paused": lambda one: one.paused,
    },
    "name",
    ("name", "job", "next"),
)  # fmt: skip

METRICS: SortTable[JobMetrics] = SortTable(
    "figures of jobs",
    {
        "runs": lambda one: one.runs.count, "name": lambda one: one.name, "failed": lambda one: one.failed, "failing": lambda one: one.failing,
        "wait_p50": lambda one: one.waits.p50, "wait_p95": lambda one: one.waits.p95, "wait_p99": lambda one: one.waits.p99,
        "run_p50": lambda one: one.runs.p50, "run_p95": lambda one: one.runs.p95, "run_p99": lambda one: one.runs.p99,
        "done": lambda one: one.totals.get("done", 0),
    },
    "-runs",
)  # fmt: skip

AUDIT: SortTable[AuditEntry] = SortTable(
    "entries of the audit",
    {
        "when": lambda one: one.at, "who": lambda one: one.actor, "action": lambda one: one.action, "target": lambda one: one.subject,
        "result": lambda one: one.result,
    },
    "-when",
    ("who", "action", "target", "result"),
)  # fmt: skip

BROKEN: SortTable[BrokenEntry] = SortTable(
    "broken entries",
    {
        "number": lambda one: one.index, "found": lambda one: one.at, "where": lambda one: one.where, "why": lambda one: one.why,
        "size": lambda one: len(one.entry),
    },
    "number",
    ("number", "found", "where", "why"),
)  # fmt: skip

JOB_TYPES: SortTable[JobTypeView] = SortTable(
    "job types",
    {
        "name": lambda one: one.name, "kind": lambda one: one.colour, "priority": lambda one: one.priority, "fails": lambda one: one.max_fails,
        "timeout": lambda one: one.timeout, "announced": lambda one: one.announced_at,
    },
    "name",
    ("name", "kind"),
)  # fmt: skip

#: Redis keeps the attempts in the order of `ended`, so that all of them can be paged through in it.
HISTORY: SortTable[AttemptRecord] = SortTable(
    "attempts",
    {
        "ended": lambda one: one.ended_at, "ran": lambda one: one.ran, "waited": lambda one: one.waited, "attempt": lambda one: one.attempt,
        "name": lambda one: one.name, "outcome": lambda one: one.outcome, "error": lambda one: one.error or None,
        "source": lambda one: one.source, "pool": lambda one: one.pool_id,
    },
    "-ended",
    ("name", "outcome", "error", "source", "pool"),
)  # fmt: skip

SOURCES: SortTable[SourceView] = SortTable(
    "sources",
    {
        "worked": lambda one: one.worked, "attempts": lambda one: one.attempts, "failed": lambda one: one.failed,
        "waited": lambda one: one.waited, "running": lambda one: one.running, "last": lambda one: one.last_at, "source": lambda one: one.source,
    },
    "-worked",
    ("source",),
)  # fmt: skip

#: Redis keeps batches in the order of `created`.
BATCHES: SortTable[BatchView] = SortTable(
    "batches",
    {
        "created": lambda one: one.created_at, "members": lambda one: one.total, "left": lambda one: one.left, "dead": lambda one: one.dead,
        "done": lambda one: one.done, "ended": lambda one: one.ended_at, "state": lambda one: one.state, "name": lambda one: one.description or None,
    },
    "-created",
    ("state", "name"),
)  # fmt: skip

#: Redis keeps workflows in the order of `created`.
WORKFLOWS: SortTable[WorkflowView] = SortTable(
    "workflows",
    {
        "created": lambda one: one.created_at, "nodes": lambda one: one.total, "left": lambda one: one.left, "dead": lambda one: one.dead,
        "done": lambda one: one.done, "ended": lambda one: one.ended_at, "state": lambda one: one.state, "name": lambda one: one.name,
    },
    "-created",
    ("state", "name"),
)  # fmt: skip

CALENDAR: SortTable[Coming] = SortTable(
    "entries of the calendar",
    {"due": lambda one: one.at, "name": lambda one: one.name, "from": lambda one: f"{one.kind} {one.schedule}"},
    "due",
    ("due", "name", "from"),
)  # fmt: skip

TIMELINE: SortTable[TimelineEvent] = SortTable(
    "events",
    {
        "when": lambda one: one.at, "kind": lambda one: one.kind, "by": lambda one: one.actor or None,
        "name": lambda one: one.name or one.schedule or None, "host": lambda one: one.host or None,
    },
    "-when",
    ("kind", "by", "name", "host"),
)  # fmt: skip

LIMITS: SortTable[LimitView] = SortTable(
    "rate limits",
    {
        "name": lambda one: one.name, "used": lambda one: one.used / one.most if one.most else None, "next": lambda one: one.wait,
        "waiting": lambda one: one.waiting, "delay": lambda one: one.delay, "held": lambda one: one.held_for,
    },
    "name",
)  # fmt: skip

KEYS: SortTable[KeyView] = SortTable(
    "keys",
    {
        "waiting": lambda one: one.waiting, "key": lambda one: one.key, "oldest": lambda one: one.oldest, "running": lambda one: one.running,
        "weight": lambda one: one.weight,
    },
    "-waiting",
    ("key",),
)  # fmt: skip

PAYLOADS: SortTable[NameSizes] = SortTable(
    "payload sizes",
    {
        "total": lambda one: one.total, "name": lambda one: one.name, "read": lambda one: one.count, "median": lambda one: one.median,
        "largest": lambda one: one.largest,
    },
    "-total",
)  # fmt: skip

# Tables that are a part of a page, and no list of their own.

#: The attempts of one job, the first of them first.
OWN_ATTEMPTS: SortTable[AttemptRecord] = SortTable("attempts", HISTORY.columns, "ended", HISTORY.rising)

FAILED_ATTEMPTS: SortTable[FailedAttempts] = SortTable(
    "failed attempts", {"hour": lambda one: one.last_hour, "name": lambda one: one.name}, "-hour"
)

PLACES: SortTable[FailurePlace] = SortTable(
    "machines",
    {
        "attempts": lambda one: one.attempts, "host": lambda one: one.host or None, "version": lambda one: one.tag or None,
        "last": lambda one: one.last_at,
    },
    "-attempts",
    ("host", "version"),
)  # fmt: skip

NODES: SortTable[NodeView] = SortTable(
    "nodes",
    {
        "number": lambda one: one.number, "name": lambda one: one.name, "state": lambda one: one.state,
        "took": lambda one: None if one.released_at is None or one.ended_at is None else one.ended_at - one.released_at,
        "error": lambda one: one.error or None,
    },
    "number",
    ("number", "name", "state", "error"),
)  # fmt: skip

CONDEMNED: SortTable[Condemned] = SortTable(
    "dead pools",
    {"died": lambda one: one.since, "held": lambda one: one.held, "id": lambda one: one.id},
    "died",
    ("died", "id"),
)

COMING_NAMES: SortTable[ComingName] = SortTable(
    "names",
    {
        "all": lambda one: one.scheduled + one.retry + one.periodic, "name": lambda one: one.name, "scheduled": lambda one: one.scheduled,
        "retry": lambda one: one.retry, "periodic": lambda one: one.periodic,
    },
    "-all",
)  # fmt: skip

_LEVELS = {"error": 0, "warning": 1, "could not check": 1, "ok": 2}

CHECKS: SortTable[Finding] = SortTable(
    "checks",
    {"level": lambda one: _LEVELS[one.level], "topic": lambda one: one.topic},
    "level",
    ("level", "topic"),
)

SLOW: SortTable[Slow] = SortTable(
    "slow commands",
    {"when": lambda one: one.at, "took": lambda one: one.seconds, "command": lambda one: one.command},
    "-when",
    ("command",),
)

BIN: SortTable[DeletionView] = SortTable(
    "deletions",
    {
        "gone": lambda one: one.expires_at, "who": lambda one: one.actor, "action": lambda one: one.action, "target": lambda one: one.subject,
        "jobs": lambda one: one.jobs,
    },
    "-gone",
    ("who", "action", "target"),
)  # fmt: skip

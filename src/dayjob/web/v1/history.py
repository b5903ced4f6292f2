"""The history in the API: attempts that ended, their counts over time, and the use of each source."""

from __future__ import annotations

from typing import Any

import msgspec

from dayjob.admin.detail_views import SourceDetail
from dayjob.admin.records import AttemptRecord, HistoryCounts, LoggedLines, SourcesView
from dayjob.web.v1.inputs import HistoryInput, HistorySteps, OneJob, OneSource, SourceFilter
from dayjob.web.v1.table import Call, Endpoint


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Attempts that ended."""

    now: float
    records: list[AttemptRecord]
    #: How many records were searched for this page.
    searched: int
    #: The value of after for the next page; empty when this is the last.
    next: str
    #: Whether older records were not searched.
    partial: bool
    #: The share of the attempts that was recorded: 1 if every attempt was.
    sample_rate: float


async def _history(call: Call[HistoryInput]) -> Any:
    sent = call.sent
    page = await call.admin.history(
        sent.name, since=sent.since, until=sent.until, outcome=sent.outcome, source=sent.source, pool=sent.pool,
        schedule=sent.schedule, sort=sent.sort, limit=sent.size, after=sent.after,
    )  # fmt: skip
    return HistoryAnswer(
        page.now, list(page.records), page.searched, page.next, page.partial, page.sample_rate
    )


async def _counts(call: Call[HistorySteps]) -> HistoryCounts:
    sent = call.sent
    return await call.admin.history_counts(
        sent.name, since=sent.since, until=sent.until, outcome=sent.outcome, source=sent.source, pool=sent.pool,
        schedule=sent.schedule, steps=sent.steps,
    )  # fmt: skip


async def _sources(call: Call[SourceFilter]) -> SourcesView:
    sent = call.sent
    return await call.admin.sources(since=sent.since, until=sent.until, source=sent.source, sort=sent.sort)


async def _source(call: Call[OneSource]) -> SourceDetail:
    return await call.admin.source(call.sent.source)


async def _children(call: Call[OneJob]) -> tuple[AttemptRecord, ...]:
    return await call.admin.children(call.sent.id)


async def _logs(call: Call[OneJob]) -> tuple[LoggedLines, ...]:
    return await call.admin.logs(call.sent.id, name=call.sent.name)


ENDPOINTS = (
    Endpoint("GET", "/job/children", "jobs", "The jobs that a job enqueued: the last recorded attempt of each.", _children, tuple[AttemptRecord, ...], OneJob),
    Endpoint("GET", "/job/logs", "jobs", "What the attempts of a job logged, for job types with keep_logs.", _logs, tuple[LoggedLines, ...], OneJob),
    Endpoint("GET", "/history", "history", "Attempts that ended, the newest first, or sorted by a column.", _history, HistoryAnswer, HistoryInput),
    Endpoint("GET", "/history/counts", "history", "How many attempts ended and failed in each step of a span.", _counts, HistoryCounts, HistorySteps),
    Endpoint("GET", "/sources", "history", "What each source used: attempts, failures, seconds worked.", _sources, SourcesView, SourceFilter),
    Endpoint("GET", "/source", "history", "One source: what it used, its last attempts, and its stored jobs.", _source, SourceDetail, OneSource),
)  # fmt: skip

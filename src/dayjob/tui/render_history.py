"""Renders the history and the sources as sheets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.admin.detail_views import ScheduleDetail
from dayjob.admin.records import AttemptRecord, HistoryPage, SourcesView
from dayjob.cli.console import clean, took, when
from dayjob.text import source_text, span
from dayjob.tui.render import BLANK, arguments, heading, labelled
from dayjob.tui.sheet import Column, Line, Row, Sheet

_ATTEMPTS = (
    Column("ENDED"), Column("OUTCOME"), Column("JOB", most=40), Column("ID", rank=2, most=24), Column("ATTEMPT", rank=2),
    Column("WAITED", rank=1), Column("RAN"), Column("SOURCE", rank=1, most=24), Column("ERROR", most=60),
)  # fmt: skip
_SOURCES = (
    Column("SOURCE", most=40), Column("ATTEMPTS"), Column("FAILED"), Column("WORKED"), Column("WAITED", rank=1),
    Column("RUNNING"), Column("LAST", rank=1), Column("JOBS", rank=2, most=60),
)  # fmt: skip


def history(found: HistoryPage) -> Sheet:
    """Attempts that ended."""
    lines: list[Line] = []
    if found.sample_rate < 0.995:
        sampled = (
            f"Under load pools record a sample: these are about {found.sample_rate:.1%} of the attempts."
        )
        lines.append(((sampled, "dim"),))
    if found.partial:
        lines.append(((f"Of the newest {found.searched:,} records.", "dim"),))
    if lines:
        lines.append(BLANK)
    return Sheet(
        tuple(lines), _ATTEMPTS, _attempt_rows(found.records), "No attempt matches.", next=found.next
    )


def _attempt_rows(records: Sequence[AttemptRecord]) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"{one.name} {one.id} {one.attempt} {one.ended_at}",
            (
                when(one.ended_at), (one.outcome.replace("_", " "), "error" if one.failed else ""), clean(one.name),
                clean(one.id), str(one.attempt), took(one.waited), took(one.ran), clean(source_text(one.source)),
                clean(one.reason),
            ),
            one,
        )
        for one in records
    )  # fmt: skip


def schedule(found: ScheduleDetail) -> Sheet:
    """One schedule and the runs of it that ended."""
    one = found.schedule
    lines = [
        ((clean(one.name), "title"),), BLANK, ((clean(one.english), "bold"),), BLANK,
        labelled("job", one.job), labelled("arguments", arguments(one.args) or "none"), labelled("spec", one.spec),
        labelled("time zone", one.timezone or "UTC"), labelled("missed", one.missed), labelled("last", when(one.last_at) or "never"),
        *(labelled("tick", f"{when(tick.at)}  {tick.text}") for tick in found.ticks[:3]),
        BLANK, heading("Next"), *(((when(at), ""),) for at in one.next),
    ]  # fmt: skip
    if not one.live:
        lines.append((("no live pool has this schedule", "warning"),))
    if one.paused:
        lines.append(labelled("paused", "its ticks enqueue nothing", "warning"))
    lines += [BLANK, heading("Past runs")]
    return Sheet(tuple(lines), _ATTEMPTS, _attempt_rows(found.runs), "No run of it has ended.", subject=one)


def sources(found: SourcesView) -> Sheet:
    """What each source used in the last day."""
    rows = tuple(
        Row(
            one.source,
            (
                clean(one.source), f"{one.attempts:,}", (f"{one.failed:,}", "error" if one.failed else ""),
                span(one.worked), took(one.waited), str(one.running), when(one.last_at), clean(", ".join(one.names)),
            ),
            one,
        )
        for one in found.sources
    )  # fmt: skip
    counted = f"Since {when(found.since)}: the newest {found.searched:,} records are counted."
    lines: tuple[Line, ...] = (((counted, "dim"),), BLANK) if found.partial else ()
    return Sheet(lines, _SOURCES, rows, "No job with a source has run.")

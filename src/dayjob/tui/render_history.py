"""Renders the history and the sources as sheets. Pure."""

from __future__ import annotations

from dayjob.admin.records import HistoryPage, SourcesView
from dayjob.cli.console import clean, source_text, took, when
from dayjob.text import span
from dayjob.tui.render import BLANK
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
    """Attempts that ended, the newest first."""
    rows = tuple(
        Row(
            f"{one.name} {one.id} {one.attempt} {one.ended_at}",
            (
                when(one.ended_at), (one.outcome.replace("_", " "), "error" if one.failed else ""), clean(one.name),
                clean(one.id), str(one.attempt), took(one.waited), took(one.ran), clean(source_text(one.source)),
                clean(one.error),
            ),
            one,
        )
        for one in found.records
    )  # fmt: skip
    sampled = f"Under load pools record a sample: these are about {found.sample_rate:.1%} of the attempts."
    lines: tuple[Line, ...] = (((sampled, "dim"),), BLANK) if found.sample_rate < 0.995 else ()
    return Sheet(lines, _ATTEMPTS, rows, "No attempt matches.")


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
    return Sheet((), _SOURCES, rows, "No job with a source has run.")

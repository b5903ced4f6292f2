"""Renders the timeline as sheets. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dayjob.admin.timeline_views import TimelineEvent
from dayjob.admin.timeline_words import became
from dayjob.cli.console import clean, when
from dayjob.tui.render import BLANK, labelled
from dayjob.tui.sheet import Column, Row, Sheet, Tone

_COLUMNS = (Column("WHEN"), Column("KIND"), Column("WHO", rank=1), Column("WHAT", most=300, least=40))
_TONES: dict[str, Tone] = {
    "died": "error",
    "redis": "error",
    "starved": "warning",
    "pause": "warning",
    "deploy": "ok",
}


def timeline(found: Iterable[TimelineEvent]) -> Sheet:
    """What the system and its operators did."""
    rows = tuple(
        Row(
            f"{one.at} {one.kind} {one.pool}{one.name}{one.schedule} {one.subject}",
            (when(one.at), (one.kind, _TONES.get(one.kind, "")), clean(one.actor), clean(one.text)),
            one,
        )
        for one in found
    )
    return Sheet((), _COLUMNS, rows, "Nothing has happened yet.")


def timeline_event(one: TimelineEvent) -> Sheet:
    """One event, in full."""
    pairs = (
        ("when", when(one.at)), ("kind", one.kind), ("who", one.actor), ("pool", one.pool),
        ("process", f"{one.host}, pid {one.pid}" if one.host else ""), ("tag", one.tag), ("job type", one.name),
        ("schedule", one.schedule), ("first", when(one.first_at)), ("last", when(one.last_at)),
        ("new", ", ".join(one.added)), ("changed", ", ".join(one.changed)),
    )  # fmt: skip
    lines = [labelled(label, clean(value)) for label, value in pairs if value]
    rows = tuple(
        Row(f"{n}", (clean(job.name), clean(job.id), became(job.became)), job)
        for n, job in enumerate(one.jobs)
    )
    columns = (Column("JOB"), Column("ID"), Column("WHAT BECAME OF IT", most=60))
    return Sheet(
        (((clean(one.text), "bold"),), BLANK, *lines, BLANK), columns if rows else (), rows, subject=one
    )

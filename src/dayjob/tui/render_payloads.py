"""Renders the sizes of payloads as a sheet. Pure."""

from __future__ import annotations

from dayjob.admin.views.payloads import NameSizes, PayloadSizes
from dayjob.cli.console import clean
from dayjob.text import counted, size
from dayjob.tui.sheet import Column, Row, Sheet

_NAMES = (
    Column("JOB", most=60), Column("READ", right=True), Column("MEDIAN", right=True), Column("LARGEST", right=True),
    Column("IN ALL", right=True),
)  # fmt: skip


def payloads(found: PayloadSizes) -> Sheet:
    """How large stored jobs are, by job name."""
    line = f"{found.searched:,} of {counted(found.total, 'stored job')} read"
    if found.largest:
        first = found.largest[0]
        line += f"; the largest has {size(first.size)}: {clean(first.name) or 'cannot be read'} {clean(first.id)} in {first.state}"
    return Sheet((((line, "dim"),),), _NAMES, tuple(map(_name, found.names)), "No job is stored.")


def _name(one: NameSizes) -> Row:
    name = clean(one.name) or "cannot be read"
    return Row(
        one.name,
        ((name, "bold"), f"{one.count:,}", size(one.median), size(one.largest), size(one.total)),
        one,
    )

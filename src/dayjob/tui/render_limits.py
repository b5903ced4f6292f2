"""Renders rate limits, and the keys of a queue, as sheets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.admin.views.limits import KeysView, KeyView, LimitView
from dayjob.cli.console import ago, clean
from dayjob.cli.limits import columns
from dayjob.text import counted, span
from dayjob.tui.sheet import Column, Piece, Row, Sheet, Tone

_LIMITS = (
    Column("LIMIT", most=40), Column("ALLOWS", most=60), Column("USED", right=True), Column("NEXT", right=True),
    Column("WAITING", right=True), Column("QUEUES", rank=1, most=80),
)  # fmt: skip
_KEYS = (
    Column("KEY", most=60), Column("WAITING", right=True), Column("SHARE", right=True, rank=1), Column("OLDEST", right=True, rank=1),
    Column("RUNNING", right=True), Column("WEIGHT", right=True, rank=2), Column("STATE"),
)  # fmt: skip


def limits(found: Sequence[LimitView]) -> Sheet:
    """Every rate limit: what it allows, what is used, when the next job may start, and what waits."""
    waiting = sum(one.waiting for one in found)
    line = f"{counted(len(found), 'limit')}, {counted(waiting, 'job')} waiting in their queues"
    return Sheet((((line, "dim"),),), _LIMITS, tuple(map(_limit, found)), "No job type has a rate limit.")


def _limit(one: LimitView) -> Row:
    name, allows, used, wait, waiting = map(clean, columns(one))
    late: Tone = "error" if one.wrong else "warning" if one.held_for or one.wait or one.keys_held_back else ""
    queues = clean(", ".join(one.queues) or "no queue")
    return Row(one.name, ((name, "bold"), allows, used, (wait, late), waiting, queues), one)


def keys(found: KeysView) -> Sheet:
    """The keys of a queue, those with most jobs first."""
    by = " and ".join(found.by) or "an older rule"
    line = f"{counted(found.total, 'key')} by {by}, {found.held_back:,} held back, {counted(found.waiting, 'job')} waiting"
    return Sheet((((clean(line), "dim"),),), _KEYS, tuple(map(_key, found.keys)), "No key has waiting jobs.")


def _key(one: KeyView) -> Row:
    running = "" if one.running is None else f"{one.running:,}"
    running += "" if one.limit is None else f" of {one.limit:,}"
    return Row(
        one.key,
        (
            (clean(one.key) or "(none)", "bold"), f"{one.waiting:,}", f"{one.share:.0%}", ago(one.oldest), running,
            f"{one.weight:g}", _state(one),
        ),
        one,
    )  # fmt: skip


def _state(one: KeyView) -> Piece:
    if one.paused:
        return ("! paused", "warning")
    if one.full:
        return ("at its limit", "dim")
    return (f"next in {span(one.wait)}", "dim") if one.wait else ("", "")

"""The timeline: events of the system merged with the audit of operators, newest first, and marks for charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from dayjob.admin import sorting
from dayjob.admin.session import Session
from dayjob.admin.timeline_views import KINDS, Timeline, TimelineEvent, TimelineKind, TimelineMark
from dayjob.admin.timeline_words import sentence
from dayjob.errors import BadOption
from dayjob.names import suggest
from dayjob.store.ops import audit, events, inspect
from dayjob.store.ops.events import PoolAbout, StoredEvent, StoredKind, TickRun
from dayjob.store.steps import Steps, ask

#: How many events one read returns at most, and how many marks a chart gets.
MAX_SIZE = 500
MAX_MARKS = 50
#: Kinds that charts mark.
MARKED: tuple[TimelineKind, ...] = ("deploy", "died", "pause", "redis")
#: Seconds within which the audit entry of an action follows the event that the action wrote.
TWIN_SECONDS = 5.0

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
_TWINS = {"pause": "pause", "resume": "pause", "limit": "limit"}


def timeline(
    session: Session,
    *,
    kinds: Sequence[str] = (),
    pool: str = "",
    name: str = "",
    actor: str = "",
    since: float | None = None,
    until: float | None = None,
    offset: int = 0,
    size: int = 100,
    sort: str = "",
) -> Steps[Timeline]:
    """What the system and its operators did, newest first, or sorted by another column: `kind`. Raises BadOption.

    `pool` is the beginning of a pool's id, or a host; `name` a job name or a schedule; `since` and `until` are seconds
    of Redis time. The scripts keep 500 events of each kind, and the audit 1,000 actions.
    """
    wanted = _kinds(kinds)
    newest_first = sorting.TIMELINE.read(sort) == sorting.TIMELINE.read("")
    now = yield from ask(inspect.now())
    first, size = max(0, offset), max(1, min(size, MAX_SIZE))
    # Without these filters, and in this order, the newest lines of each kind are enough.
    selective = bool(pool or name or actor or until is not None or not newest_first)
    lines = yield from _lines(session, wanted, events.MAX_EVENTS if selective else first + size + 1)
    who = yield from abouts(session, ended="leader" in wanted or "deploy" in wanted)
    jobs = (yield from _rescued(session, 0.0)) if name else {}
    found: list[TimelineEvent] = []
    for line in lines:
        if since is not None and line.at < since:
            break
        event = None if until is not None and line.at >= until else _event(line, who, jobs)
        if event is not None and _fits(event, pool, name, actor):
            found.append(event)
        if newest_first and len(found) > first + size:
            break
    if not newest_first:
        found = sorting.TIMELINE.sorted(found, sort)
    part = yield from _with_jobs(session, found[first : first + size])
    return Timeline(now, _worded(part), len(found) > first + size)


def marks_for(session: Session, since: float, until: float) -> Steps[tuple[TimelineMark, ...]]:
    """The events to mark on a chart of this span of Redis time, oldest first; the 50 newest at most."""
    lines = yield from _lines(session, MARKED, events.MAX_EVENTS)
    who = yield from abouts(session, ended=False)
    inside = [line for line in lines if since <= line.at < until][:MAX_MARKS]
    found = [event for line in inside if (event := _event(line, who, {})) is not None]
    part = _worded((yield from _with_jobs(session, found)))
    return tuple(TimelineMark(event.at, event.kind, event.text, event.name) for event in reversed(part))


def _fits(event: TimelineEvent, pool: str, name: str, actor: str) -> bool:
    return (
        (not pool or _is_of_pool(event, pool))
        and (not name or name in _names_of(event))
        and (not actor or actor.casefold() in event.actor.casefold())
    )


def _worded(found: Sequence[TimelineEvent]) -> tuple[TimelineEvent, ...]:
    """Events with their sentences. Made last, because most events that are read are filtered out."""
    return tuple(replace(event, text=sentence(event)) for event in found)


def _kinds(asked: Sequence[str]) -> tuple[TimelineKind, ...]:
    for one in asked:
        if one not in KINDS:
            all_kinds = f"; there are: {', '.join(KINDS)}"
            raise BadOption(f"there is no kind of event {one!r}{suggest(one, KINDS) or all_kinds}")
    return tuple(kind for kind in KINDS if not asked or kind in asked)


class _Line(NamedTuple):
    """A stored line of the timeline that is not read yet: most of them are not shown."""

    at: float
    kind: TimelineKind
    raw: bytes
    #: For ticks: the schedule and its job name.
    schedule: str = ""
    job: str = ""


def _lines(session: Session, kinds: Sequence[TimelineKind], most: int) -> Steps[list[_Line]]:
    """The lines of these kinds, newest first; `most` of each kind at most, and all of the ticks."""
    stored = [kind for kind in KINDS if kind in kinds and kind not in ("tick", "action")]
    found: list[_Line] = []
    lists = yield from events.lines(session.keys, [cast("StoredKind", kind) for kind in stored], most)
    for kind, raws in zip(stored, lists, strict=True):
        found += [_Line(events.moment_of(raw), kind, raw) for raw in raws]
    if "tick" in kinds:
        schedules = yield from ask(inspect.schedules(session.keys))
        of_each = yield from events.tick_lines(session.keys, [one.name for one in schedules])
        for one, raws in zip(schedules, of_each, strict=False):
            found += [_Line(events.moment_of(raw), "tick", raw, one.name, one.job) for raw in raws]
    if "action" in kinds:
        found += yield from _actions(session, most)
    # Of events in the same millisecond, those of a later kind followed from the others: a start before a leadership.
    found.sort(key=lambda line: (line.at, _RANKS[line.kind]), reverse=True)
    return found


def _actions(session: Session, most: int) -> Steps[list[_Line]]:
    """The lines of the audit that no event shows already: a pause and a change of a limit are both."""
    raws = yield from ask(audit.lines(session.keys, audit.MAX_LINES if most >= events.MAX_EVENTS else most))
    twins: dict[tuple[str, str, str], list[float]] = {}
    kinds: tuple[StoredKind, ...] = ("pause", "limit")
    for kind, some in zip(kinds, (yield from events.read(session.keys, kinds)), strict=True):
        for at, one in some:
            subject = f"schedule {one.schedule}" if one.schedule else f"queue {one.name}"
            twins.setdefault((kind, one.actor, subject), []).append(at)
    found = []
    for raw in raws:
        entry = audit.entry_of(raw)
        near = twins.get((_TWINS.get(entry.action, ""), entry.actor, entry.subject), ())
        if not any(0 <= entry.at - at < TWIN_SECONDS for at in near):
            found.append(_Line(entry.at, "action", raw))
    return found


def abouts(session: Session, *, ended: bool) -> Steps[dict[str, PoolAbout]]:
    """What registered pools published about themselves, by pool id; with `ended` also others, of which events are kept.

    Of the events, only those of leaders and deploys need the latter; the others carry it.
    """
    known: dict[str, PoolAbout] = {}
    if ended:
        for found in (yield from events.read(session.keys, ("started", "stopped", "died"))):
            known |= {one.pool: one.about for _, one in found if one.about.host}
    return known | (yield from events.members(session.keys))


def _rescued(session: Session, since: float) -> Steps[dict[str, list[StoredEvent]]]:
    """What became of the jobs of pools that died or stopped since then, by pool id; the first rescue first."""
    found: dict[str, list[StoredEvent]] = {}
    for first in range(0, events.MAX_EVENTS, events.RESCUED_AT_ONCE):
        raws = yield from ask(events.rescued(session.keys, first))
        for raw in raws:
            if (read := events.event_of(raw)) is not None:
                found.setdefault(read[1].pool, []).insert(0, read[1])
        if len(raws) < events.RESCUED_AT_ONCE or events.moment_of(raws[-1]) < since:
            break
    return found


def _with_jobs(session: Session, found: Sequence[TimelineEvent]) -> Steps[list[TimelineEvent]]:
    """These events; those of pools that died or stopped with the jobs that they held."""
    ended = [event.at for event in found if event.kind in ("died", "stopped")]
    rescued = (yield from _rescued(session, min(ended))) if ended else {}
    return [
        _with_rescued(event, rescued.get(event.pool, ())) if event.kind in ("died", "stopped") else event
        for event in found
    ]


def _with_rescued(event: TimelineEvent, rescued: Sequence[StoredEvent]) -> TimelineEvent:
    jobs = tuple(job for one in rescued for job in one.jobs)
    cause = next((one.cause for one in rescued if one.cause), "")
    return replace(event, jobs=jobs, count=len(jobs), cause=cause)


def _event(
    line: _Line, who: dict[str, PoolAbout], rescued: dict[str, list[StoredEvent]]
) -> TimelineEvent | None:
    """The event of a line, without its sentence; None if the line cannot be read."""
    if line.kind == "tick":
        run = events.ticks_of(line.schedule, line.raw)
        return None if run is None else _tick(run, line.job)
    if line.kind == "action":
        one = audit.entry_of(line.raw)
        return TimelineEvent(
            one.at, "action", actor=one.actor, before=one.result, after=one.action, subject=one.subject
        )
    read = events.event_of(line.raw)
    if read is None:
        return None
    at, stored = read
    about = stored.about if stored.about.host else who.get(stored.pool, PoolAbout())
    event = TimelineEvent(
        at, line.kind, actor=stored.actor, pool=stored.pool, host=about.host, pid=about.pid, tag=about.tag,
        name=stored.name, schedule=stored.schedule, before=stored.before, after=stored.why or stored.after,
        count=stored.waiting, added=stored.added, changed=stored.changed,
    )  # fmt: skip
    return (
        _with_rescued(event, rescued[event.pool])
        if event.pool in rescued and line.kind in ("died", "stopped")
        else event
    )


def _tick(run: TickRun, job: str) -> TimelineEvent:
    return TimelineEvent(
        run.at, "tick", name=job, schedule=run.schedule, after=run.what, count=run.count,
        first_at=float(run.first), last_at=float(run.last),
    )  # fmt: skip


def _is_of_pool(event: TimelineEvent, pool: str) -> bool:
    ids = {event.pool} | ({event.before} if event.kind == "leader" else set())
    return event.host == pool or any(one.startswith(pool) for one in ids) or pool in event.subject.split()


def _names_of(event: TimelineEvent) -> set[str]:
    """The job names and schedules that an event is about."""
    names = {event.name, event.schedule, *event.added, *event.changed, *(job.name for job in event.jobs)}
    return names | set(re.split(r"[\s()]+", event.subject))

"""The timeline: events of the system merged with the audit of operators, newest first, and marks for charts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dayjob.admin.session import Session
from dayjob.admin.timeline_views import KINDS, Timeline, TimelineEvent, TimelineKind, TimelineMark
from dayjob.admin.timeline_words import sentence
from dayjob.errors import BadOption
from dayjob.options import suggest
from dayjob.store.ops import audit, events, inspect
from dayjob.store.ops.events import PoolAbout, RescuedJob, StoredEvent, StoredKind, TickRun
from dayjob.store.steps import Steps, ask, ask_all

#: How many events one read returns at most, and how many marks a chart gets.
MAX_SIZE = 500
MAX_MARKS = 50
#: Kinds that charts mark.
MARKED: tuple[TimelineKind, ...] = ("deploy", "died", "pause", "redis")
#: Seconds within which the audit entry of an action follows the event that the action wrote.
TWIN_SECONDS = 5.0

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
) -> Steps[Timeline]:
    """What the system and its operators did, newest first. Raises BadOption for a kind that does not exist.

    `pool` is the beginning of a pool's id, or a host; `name` a job name or a schedule; `since` and `until` are seconds
    of Redis time. The scripts keep 500 events of each kind, and the audit 1,000 actions.
    """
    wanted = _kinds(kinds)
    now = yield from ask(inspect.now())
    found = yield from _read(session, wanted)
    fitting = [
        event
        for event in found
        if (since is None or event.at >= since)
        and (until is None or event.at < until)
        and (not pool or _is_of_pool(event, pool))
        and (not name or name in _names_of(event))
        and (not actor or actor.casefold() in event.actor.casefold())
    ]
    first, size = max(0, offset), max(1, min(size, MAX_SIZE))
    return Timeline(now, _worded(fitting[first : first + size]), len(fitting) > first + size)


def marks_for(session: Session, since: float, until: float) -> Steps[tuple[TimelineMark, ...]]:
    """The events to mark on a chart of this span of Redis time, oldest first; the 50 newest at most."""
    found = yield from _read(session, MARKED)
    inside = _worded([event for event in found if since <= event.at < until][:MAX_MARKS])
    return tuple(TimelineMark(event.at, event.kind, event.text, event.name) for event in reversed(inside))


def _worded(found: Sequence[TimelineEvent]) -> tuple[TimelineEvent, ...]:
    """Events with their sentences. Made last, because most events that are read are filtered out."""
    return tuple(replace(event, text=sentence(event)) for event in found)


def _kinds(asked: Sequence[str]) -> tuple[TimelineKind, ...]:
    for one in asked:
        if one not in KINDS:
            all_kinds = f"; there are: {', '.join(KINDS)}"
            raise BadOption(f"there is no kind of event {one!r}{suggest(one, KINDS) or all_kinds}")
    return tuple(kind for kind in KINDS if not asked or kind in asked)


def _read(session: Session, kinds: Sequence[TimelineKind]) -> Steps[list[TimelineEvent]]:
    """The events of these kinds, newest first."""
    stored: list[StoredKind] = [kind for kind in events.STORED_KINDS if kind in kinds]
    if {"died", "stopped"} & set(stored):
        stored.append("rescued")
    lists = dict(zip(stored, (yield from events.read(session.keys, stored)), strict=True))
    rescued: dict[str, list[StoredEvent]] = {}
    for _, one in reversed(lists.pop("rescued", [])):
        rescued.setdefault(one.pool, []).append(one)
    who = _who((yield from events.members(session.keys)), lists.values())
    found = [
        _event(kind, at, one, who, rescued.get(one.pool, ())) for kind, events_ in lists.items() for at, one in events_
    ]  # fmt: skip
    if "tick" in kinds:
        schedules = yield from ask(inspect.schedules(session.keys))
        runs = yield from events.ticks(session.keys, [one.name for one in schedules])
        jobs = {one.name: one.job for one in schedules}
        found += [_tick(run, jobs[run.schedule]) for run in runs]
    if "action" in kinds:
        found += _untwinned((yield from _audit(session)), found)
    # Of events in the same millisecond, those of a later kind followed from the others: a start before a leadership.
    found.sort(key=lambda event: (event.at, KINDS.index(event.kind)), reverse=True)
    return found


def _who(
    members: dict[str, PoolAbout], lists: Iterable[list[tuple[float, StoredEvent]]]
) -> dict[str, PoolAbout]:
    """What is known of each pool, by its id: from the registered pools, and from events that carry it."""
    known = {one.pool: one.about for found in lists for _, one in found if one.about.host}
    return known | members


def _event(
    kind: StoredKind,
    at: float,
    stored: StoredEvent,
    who: dict[str, PoolAbout],
    rescued: Sequence[StoredEvent],
) -> TimelineEvent:
    about = stored.about if stored.about.host else who.get(stored.pool, PoolAbout())
    jobs: tuple[RescuedJob, ...] = ()
    cause = ""
    if kind in ("died", "stopped"):
        jobs = tuple(job for one in rescued for job in one.jobs)
        cause = next((one.cause for one in rescued if one.cause), "")
    return TimelineEvent(
        at, kind,  # type: ignore[arg-type]  # `rescued` is not among the lists
        actor=stored.actor, pool=stored.pool, host=about.host, pid=about.pid, tag=about.tag, cause=cause,
        name=stored.name, schedule=stored.schedule, before=stored.before, after=stored.why or stored.after,
        count=stored.waiting or len(jobs), jobs=jobs, added=stored.added, changed=stored.changed,
    )  # fmt: skip


def _tick(run: TickRun, job: str) -> TimelineEvent:
    return TimelineEvent(
        run.at, "tick", name=job, schedule=run.schedule, after=run.what, count=run.count,
        first_at=float(run.first), last_at=float(run.last),
    )  # fmt: skip


def _audit(session: Session) -> Steps[list[TimelineEvent]]:
    parts = yield from ask_all(
        [
            audit.read(session.keys, offset=first, size=inspect.MAX_ENTRIES)
            for first in range(0, audit.MAX_LINES, inspect.MAX_ENTRIES)
        ]
    )
    return [
        TimelineEvent(
            one.at, "action", actor=one.actor, before=one.result, after=one.action, subject=one.subject
        )
        for part in parts
        for one in part
    ]  # fmt: skip


def _untwinned(actions: list[TimelineEvent], found: list[TimelineEvent]) -> list[TimelineEvent]:
    """The actions that no event shows already: a pause and a change of a limit are both an event and an action."""
    twins: dict[tuple[str, str, str], list[float]] = {}
    for event in found:
        if event.kind in _TWINS.values():
            subject = f"schedule {event.schedule}" if event.schedule else f"queue {event.name}"
            twins.setdefault((event.kind, event.actor, subject), []).append(event.at)
    return [
        action
        for action in actions
        if not any(
            0 <= action.at - at < TWIN_SECONDS
            for at in twins.get((_TWINS.get(action.after, ""), action.actor, action.subject), ())
        )
    ]


def _is_of_pool(event: TimelineEvent, pool: str) -> bool:
    ids = {event.pool} | ({event.before} if event.kind == "leader" else set())
    return event.host == pool or any(one.startswith(pool) for one in ids) or pool in event.subject.split()


def _names_of(event: TimelineEvent) -> set[str]:
    """The job names and schedules that an event is about."""
    names = {event.name, event.schedule, *event.added, *event.changed, *(job.name for job in event.jobs)}
    return names | set(re.split(r"[\s()]+", event.subject))

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
    return Timeline(now, tuple(fitting[first : first + size]), len(fitting) > first + size)


def marks_for(session: Session, since: float, until: float) -> Steps[tuple[TimelineMark, ...]]:
    """The events to mark on a chart of this span of Redis time, oldest first; the 50 newest at most."""
    found = yield from _read(session, MARKED)
    inside = [event for event in found if since <= event.at < until][:MAX_MARKS]
    return tuple(TimelineMark(event.at, event.kind, event.text) for event in reversed(inside))


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
    rescued = lists.pop("rescued", [])
    who = _who((yield from events.members(session.keys)), lists.values())
    found = [
        _event(kind, at, one, who, rescued) for kind, events_ in lists.items() for at, one in events_
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
    rescued: list[tuple[float, StoredEvent]],
) -> TimelineEvent:
    about = stored.about if stored.about.host else who.get(stored.pool, PoolAbout())
    jobs: tuple[RescuedJob, ...] = ()
    cause = ""
    if kind in ("died", "stopped"):
        own = [one for _, one in reversed(rescued) if one.pool == stored.pool]
        jobs = tuple(job for one in own for job in one.jobs)
        cause = next((one.cause for one in own if one.cause), "")
    event = TimelineEvent(
        at, kind,  # type: ignore[arg-type]  # `rescued` is not among the lists
        actor=stored.actor, pool=stored.pool, host=about.host, pid=about.pid, tag=about.tag, name=stored.name,
        schedule=stored.schedule, before=stored.before, after=stored.why or stored.after,
        count=stored.waiting or len(jobs), jobs=jobs, added=stored.added, changed=stored.changed,
    )  # fmt: skip
    return replace(event, text=sentence(event, cause))


def _tick(run: TickRun, job: str) -> TimelineEvent:
    event = TimelineEvent(
        run.at, "tick", name=job, schedule=run.schedule, after=run.what, count=run.count,
        first_at=float(run.first), last_at=float(run.last),
    )  # fmt: skip
    return replace(event, text=sentence(event))


def _audit(session: Session) -> Steps[list[TimelineEvent]]:
    parts = yield from ask_all(
        [
            audit.read(session.keys, offset=first, size=inspect.MAX_ENTRIES)
            for first in range(0, audit.MAX_LINES, inspect.MAX_ENTRIES)
        ]
    )
    found = []
    for entry in (one for part in parts for one in part):
        event = TimelineEvent(
            entry.at,
            "action",
            actor=entry.actor,
            before=entry.result,
            after=entry.action,
            subject=entry.subject,
        )
        found.append(replace(event, text=sentence(event)))
    return found


def _untwinned(actions: list[TimelineEvent], found: list[TimelineEvent]) -> list[TimelineEvent]:
    """The actions that no event shows already: a pause and a change of a limit are both an event and an action."""
    twins = [event for event in found if event.kind in _TWINS.values() and event.actor]
    return [
        action
        for action in actions
        if not any(
            _TWINS.get(action.after) == event.kind
            and event.actor == action.actor
            and action.subject in (f"queue {event.name}", f"schedule {event.schedule}")
            and 0 <= action.at - event.at < TWIN_SECONDS
            for event in twins
        )
    ]


def _is_of_pool(event: TimelineEvent, pool: str) -> bool:
    ids = {event.pool} | ({event.before} if event.kind == "leader" else set())
    return event.host == pool or any(one.startswith(pool) for one in ids) or pool in event.subject.split()


def _names_of(event: TimelineEvent) -> set[str]:
    """The job names and schedules that an event is about."""
    names = {event.name, event.schedule, *event.added, *event.changed, *(job.name for job in event.jobs)}
    return names | set(re.split(r"[\s()]+", event.subject))

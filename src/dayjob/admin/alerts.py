"""Alerts: what is wrong now by the rules, and what of that is new since the last post. Reads only, but for `post`.

The state of each alert is in Redis, so that restarted watchers and further ones repeat nothing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlencode

import msgspec

from dayjob import cron
from dayjob.admin.alert_rules import LEVELS, AlertRules
from dayjob.admin.failures import failures
from dayjob.admin.queues import listing
from dayjob.admin.session import Session
from dayjob.admin.verdict import verdict
from dayjob.admin.views import Level
from dayjob.errors import BadSchedule
from dayjob.explain.words import quoted
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.ops import alerts, inspect, pools
from dayjob.store.steps import Steps, ask
from dayjob.text import counted, span

AlertKind = Literal["verdict", "failures", "missed", "late", "redis", "test"]

#: Failed jobs of each set that one look reads, and the seconds in which they failed.
MAX_FAILED = 1000
FAILED_SECONDS = 3600.0
#: A group of failures that was not seen for so many seconds is new again.
FORGET_SECONDS = 86_400.0
#: How often it is written down that a group of failures is still seen.
SEEN_SECONDS = 3600.0
#: New groups of failures that one look posts; it only counts the others.
MAX_NEW_GROUPS = 10
#: Groups of failures that one look compares, the latest ones.
MAX_GROUPS = 1000
#: Marks that a watcher has looked before: groups of failures of the first look are not new.
BEGUN = "|begun"


class Alert(msgspec.Struct, frozen=True):
    """One message, as receivers get it."""

    #: The same for every receiver and every repeat.
    id: str
    kind: AlertKind
    #: `firing`: it began or changed. `resolved`: it is over.
    state: Literal["firing", "resolved"]
    level: Level
    namespace: str
    #: What it is about: a queue, a job name, a schedule; "" for all.
    subject: str
    text: str
    #: When it was posted and since when the problem exists, in seconds since the epoch, Redis time.
    at: float
    since: float
    #: The page of the console about it; "" if the rules do not name the console.
    link: str = ""


class AlertState(msgspec.Struct, frozen=True):
    """What was posted about an alert: its signature, since when the problem exists, and when it was last seen."""

    signature: str
    since: float
    seen: float
    subject: str = ""
    kind: AlertKind = "verdict"


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """Something that is so now, and is worth a post."""

    kind: AlertKind
    subject: str
    level: Level
    text: str
    #: The path of its page.
    page: str
    #: Distinguishes conditions of one kind and subject: the error of a group of failures.
    detail: str = ""
    #: If this changes, it is posted again.
    signature: str = ""

    @property
    def key(self) -> str:
        """Names the alert in Redis."""
        return f"{self.kind}|{self.subject}|{self.detail}"[:500]


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of an alert's state, and the message about it; None if it is not posted."""

    key: str
    before: bytes
    after: bytes
    alert: Alert | None


# What is so now.


def conditions(session: Session, rules: AlertRules) -> Steps[tuple[float, list[AlertCondition]]]:
    """Redis time, and everything that is worth a post."""
    found = yield from verdict(session)
    conditions: list[AlertCondition] = []
    if rules.verdict.enabled:
        least = LEVELS.index(rules.verdict.level)
        notes = [
            note
            for note in found.notes
            if note.kind not in rules.verdict.ignore and note.level in LEVELS[least:]
        ]
        if notes:
            text = "; ".join(note.text for note in notes[:4]) + (
                f"; and {len(notes) - 4} more" if notes[4:] else ""
            )
            signature = ";".join(sorted({f"{note.level} {note.kind} {note.subject}" for note in notes}))
            conditions.append(
                AlertCondition(
                    "verdict", "", notes[0].level, f"{text[0].upper()}{text[1:]}.", "/", signature=signature
                )
            )
    if rules.late.enabled:
        conditions += yield from _late(session, rules)
    if rules.missed.enabled:
        conditions += yield from _missed(session, rules, found.now)
    if rules.failures.enabled:
        conditions += yield from _failing(session, rules)
    return found.now, conditions


def _late(session: Session, rules: AlertRules) -> Steps[list[AlertCondition]]:
    found = []
    for view in (yield from listing(session)).queues:
        queue, limit = view.queue, rules.late.limit(view.queue.name)
        if limit is None or queue.paused or (queue.age or 0.0) <= limit:
            continue
        text = f"The oldest job of {quoted(queue.name)} has waited for {span(queue.age or 0.0)}, longer than {span(limit)}."
        found.append(AlertCondition("late", queue.name, "warning", text, _page("/queue", name=queue.name)))
    return found


def _missed(session: Session, rules: AlertRules, now: float) -> Steps[list[AlertCondition]]:
    """Schedules with a tick that enqueued nothing. One that no live pool has was removed, unless no pool runs at all."""
    stored = yield from ask(inspect.schedules(session.keys))
    live = [pool for pool in (yield from pools.pools(session.keys)) if pool.lease > 0]
    had = {name for pool in live if pool.status is not None for name in pool.status.schedules or ()}
    found = []
    for one in stored:
        if (
            one.paused
            or not one.spec
            or (live and one.name not in had)
            or _matches(one.name, rules.missed.ignore)
        ):
            continue
        due = _due_tick(one)
        if due is not None and now - due > rules.missed.after:
            why = "" if live else " No pool is running."
            text = f"The schedule {quoted(one.name)} missed its tick {span(now - due)} ago.{why}"
            found.append(AlertCondition("missed", one.name, "error", text, "/periodic"))
    return found


def _due_tick(schedule: inspect.StoredSchedule) -> int | None:
    """The first tick that was not processed; None if the schedule cannot be read, or has no more ticks."""
    try:
        return cron.parse(schedule.spec, schedule.timezone).next_after(
            max(schedule.last, schedule.ticked or 0)
        )
    except BadSchedule:
        return None


def _failing(session: Session, rules: AlertRules) -> Steps[list[AlertCondition]]:
    found = yield from failures(session, window=FAILED_SECONDS, most=MAX_FAILED)
    return [
        AlertCondition(
            "failures", group.name, "warning", f"{quoted(group.name)} fails in a new way: {group.kind}",
            _page("/failures", name=group.name, kind=group.kind), detail=group.kind,
        )
        for group in sorted(found.groups, key=lambda one: -one.last_at)
        if not _matches(group.name, rules.failures.ignore)
    ][:MAX_GROUPS]  # fmt: skip


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _page(path: str, **query: str) -> str:
    return f"{path}?{urlencode(query)}"


# What is new.


@dataclass(slots=True)
class AlertLog:
    """Compares the current problems with the posted alerts. Keeps how long each change has lasted; the rest is in Redis."""

    rules: AlertRules
    namespace: str
    #: Alert to its wanted signature, None if it is over, and since when that is wanted.
    _pending: dict[str, tuple[str | None, float]] = field(default_factory=dict)

    def changes(
        self, now: float, found: Sequence[AlertCondition], stored: Mapping[str, bytes]
    ) -> list[AlertChange]:
        """What to post and to write, in order."""
        states = {key: state for key, raw in stored.items() if (state := _read(raw)) is not None}
        first = BEGUN not in stored
        made = [AlertChange(BEGUN, b"", b"1", None)] if first else []
        current = {one.key: one for one in found}
        new_groups = 0
        for key, one in current.items():
            state = states.get(key)
            if one.kind == "failures":
                is_new = state is None or now - state.seen > FORGET_SECONDS
                new_groups += is_new and not first
                silent = first or new_groups > MAX_NEW_GROUPS
                made += self._group(one, state, stored.get(key, b""), now, silent=silent)
            elif (state is None or state.signature != one.signature) and self._lasts(key, one.signature, now):
                made.append(self._firing(one, state, stored.get(key, b""), now))
        if new_groups > MAX_NEW_GROUPS:
            made = _with_rest(made, new_groups - MAX_NEW_GROUPS)
        made += self._over(now, current, states, stored)
        self._pending = {key: one for key, one in self._pending.items() if key in current or key in states}
        return made

    def _lasts(self, key: str, wanted: str | None, now: float) -> bool:
        """Whether this change has been wanted for as long as the rules ask."""
        before = self._pending.get(key)
        if before is None or before[0] != wanted:
            self._pending[key] = before = (wanted, now)
        if now - before[1] < self.rules.settle:
            return False
        del self._pending[key]
        return True

    def _group(
        self, one: AlertCondition, state: AlertState | None, raw: bytes, now: float, *, silent: bool
    ) -> list[AlertChange]:
        """A group of failures: posted when it is new, and remembered while it is seen."""
        if state is not None and now - state.seen <= SEEN_SECONDS:
            return []
        if state is not None and now - state.seen <= FORGET_SECONDS:
            return [AlertChange(one.key, raw, _written(one, state.since, now), None)]
        change = self._firing(one, None, raw, now)
        return [AlertChange(change.key, raw, change.after, None)] if silent else [change]

    def _firing(self, one: AlertCondition, state: AlertState | None, raw: bytes, now: float) -> AlertChange:
        since = now if state is None else state.since
        alert = Alert(
            new_id(), one.kind, "firing", one.level, self.namespace, one.subject, one.text, now, since, self._link(one.page),
        )  # fmt: skip
        return AlertChange(one.key, raw, _written(one, since, now), alert)

    def _over(
        self,
        now: float,
        current: Mapping[str, AlertCondition],
        states: Mapping[str, AlertState],
        stored: Mapping[str, bytes],
    ) -> list[AlertChange]:
        made = []
        for key, state in states.items():
            if key in current:
                if state.signature == current[key].signature:
                    self._pending.pop(key, None)
            elif state.kind == "failures":
                if now - state.seen > FORGET_SECONDS:
                    made.append(AlertChange(key, stored[key], b"", None))
            elif self._lasts(key, None, now):
                alert = Alert(
                    new_id(), state.kind, "resolved", "ok", self.namespace, state.subject, _over_text(state, now), now,
                    state.since, self._link("/"),
                )  # fmt: skip
                made.append(AlertChange(key, stored[key], b"", alert if self.rules.resolved else None))
        return made

    def _link(self, page: str) -> str:
        return self.rules.console + page if self.rules.console else ""


def _over_text(state: AlertState, now: float) -> str:
    lasted = f"after {span(now - state.since)}"
    words = {
        "late": f"{quoted(state.subject)} is no longer late, {lasted}.",
        "missed": f"The schedule {quoted(state.subject)} ticks again, {lasted}.",
    }
    return words.get(state.kind, f"All is well again, {lasted}.")


def _with_rest(made: list[AlertChange], rest: int) -> list[AlertChange]:
    """The last post about a new group also counts the groups that are not posted."""
    for place in range(len(made) - 1, -1, -1):
        alert = made[place].alert
        if alert is not None and alert.kind == "failures":
            more = counted(rest, "further new group of failures", "further new groups of failures")
            changed = msgspec.structs.replace(alert, text=f"{alert.text} (and {more})")
            made[place] = AlertChange(made[place].key, made[place].before, made[place].after, changed)
            break
    return made


def _written(one: AlertCondition, since: float, now: float) -> bytes:
    return msgspec.json.encode(AlertState(one.signature, since, now, one.subject, one.kind))


def _read(raw: bytes) -> AlertState | None:
    try:
        return msgspec.json.decode(raw, type=AlertState)
    except codec.UNREADABLE:
        return None


def post(session: Session, receivers: Sequence[str], changes: Sequence[AlertChange]) -> Steps[list[Alert]]:
    """Write changes, and keep their messages for the receivers. Returns the messages."""
    posted = []
    for change in changes:
        message = b"" if change.alert is None else msgspec.json.encode(change.alert)
        op = alerts.record_alert(
            session.keys, receivers, change.key, before=change.before, after=change.after, message=message
        )
        if (yield from ask(op)) and change.alert is not None:
            posted.append(change.alert)
    return posted

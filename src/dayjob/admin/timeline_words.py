"""The sentences of the timeline. Nothing compares them: a program uses the kinds and fields. Pure."""

from __future__ import annotations

from collections import Counter

from dayjob.admin.timeline_views import TimelineEvent
from dayjob.explain.words import quoted
from dayjob.text import counted, listed

#: How many names of job types a sentence lists.
MAX_NAMED = 5

_DIED = {"lease": "its lease ended", "exit": "its process exited"}
_REDIS = {
    "restarted": "The Redis server was restarted.",
    "another server": "Another Redis server has taken over, or the server was restarted while no pool ran.",
}
_BECAME = {
    "reaped": "back in their queues", "retried": "to be retried", "died": "moved to dead", "dropped": "discarded",
    "cancelled": "cancelled", "unreadable": "moved to broken",
}  # fmt: skip


def sentence(event: TimelineEvent) -> str:
    """What happened."""
    match event.kind:
        case "started":
            return f"{pool_words(event)} started."
        case "stopped":
            return f"{pool_words(event)} stopped.{_rescued(event)}"
        case "died":
            why = event.cause or _DIED.get(event.after, event.after)
            return f"{pool_words(event)} died: {why}.{_rescued(event) or ' It held no jobs.'}"
        case "leader":
            after = f", after pool {event.before}" if event.before else ""
            return f"{pool_words(event)} became the leader{after}."
        case "deploy":
            return _deploy(event)
        case "tick":
            return _ticks(event)
        case "limit":
            return _limit(event)
        case "pause":
            what = f"Schedule {quoted(event.schedule)}" if event.schedule else f"Queue {quoted(event.name)}"
            return f"{what} was {event.after}{_by(event)}."
        case "starved":
            return _starved(event)
        case "redis":
            return _REDIS.get(event.after, f"Redis: {event.after}.")
        case "action":
            return f"{event.after} {event.subject}: {event.before}"


def pool_words(event: TimelineEvent) -> str:
    """The pool of an event, by its machine and process where they are known."""
    where = f"Pool {event.host}/{event.pid}" if event.host else f"Pool {event.pool}"
    return f"{where} ({event.tag})" if event.tag else where


def became(kind: str) -> str:
    """What became of a job that its pool could not finish."""
    return _BECAME.get(kind, kind).replace("their queues", "its queue")


def _rescued(event: TimelineEvent) -> str:
    if not event.jobs:
        return ""
    kinds = Counter(job.became for job in event.jobs)
    parts = ", ".join(
        f"{number:,} {became(kind) if number == 1 else _BECAME.get(kind, kind)}"
        for kind, number in kinds.most_common()
    )
    return f" It held {counted(event.count, 'job')}: {parts}."


def _deploy(event: TimelineEvent) -> str:
    version = f"Version {quoted(event.after)}" if event.after else "A program without a version"
    before = f" after {quoted(event.before)}" if event.before and event.before != event.after else ""
    parts = [
        f"{counted(len(names), f'{kind} job type')} ({listed(names, MAX_NAMED)})"
        for kind, names in (("new", event.added), ("changed", event.changed))
        if names
    ]
    return f"{version} was deployed{before}: {', '.join(parts) or 'the same job types'}."


def _ticks(event: TimelineEvent) -> str:
    schedule = f"Schedule {quoted(event.schedule)}"
    if event.after == "fired":
        return f"{schedule} fired{'' if event.count == 1 else f' {event.count:,} times'}."
    why = " because it is paused" if event.after == "paused" else ""
    return f"{schedule} missed {counted(event.count, 'tick')}{why}."


def _limit(event: TimelineEvent) -> str:
    by = _by(event) or " by the code"
    name = quoted(event.name)
    if not event.after:
        return f"The limit of {name} was removed{by}; it was {event.before}."
    before = f"from {event.before} " if event.before else ""
    return f"The limit of {name} was set {before}to {event.after}{by}."


def _starved(event: TimelineEvent) -> str:
    if event.after == "starved":
        jobs = counted(event.count, "job")
        return f"Queue {quoted(event.name)} starves: no worker takes its oldest job in time, {jobs} waiting."
    return f"Queue {quoted(event.name)} is served in time again."


def _by(event: TimelineEvent) -> str:
    return f" by {event.actor}" if event.actor else ""

"""One group of failures: its jobs, when they failed, and the notes of operators."""

from __future__ import annotations

import math

from dayjob.admin.detail_views import FailurePlace, GroupDetail
from dayjob.admin.failures import one_group
from dayjob.admin.history import failed_attempts
from dayjob.admin.session import Session, outcome
from dayjob.admin.timeline import abouts
from dayjob.admin.views import FailureGroup, JobView, Outcome
from dayjob.errors import BadOption
from dayjob.store.ops import groups, inspect
from dayjob.store.ops.history import MAX_ID, MAX_TEXT
from dayjob.store.steps import Steps, ask
from dayjob.text import span

#: Entries of each set that are searched for the group, and jobs of each that are shown.
MAX_SEARCHED = 1000
MAX_JOBS = 25
#: Machines and versions that are shown.
MAX_PLACES = 50
#: Steps of the chart, and the shortest time that it shows.
STEPS = 48
MIN_SECONDS = 1200.0
#: Notes and ignores that a namespace keeps.
MAX_MARKS = 1000
MAX_IGNORED_SECONDS = 366 * 86400.0


def group(session: Session, name: str, kind: str) -> Steps[GroupDetail | None]:
    """One group of failures: its newest jobs, when and where they failed, and its note. None if no such job is found."""
    now = yield from ask(inspect.now())
    found = yield from one_group(session, name, kind, MAX_SEARCHED)
    if found is None:
        return None
    one, some = found
    jobs = sorted(some, key=lambda job: -(job.failed_at or 0.0))
    starts, counts = _over_time(one, jobs, now)
    places = yield from _places(session, name, kind, jobs)
    return GroupDetail(
        now, one, tuple(jobs[:MAX_JOBS]), starts[1] - starts[0], starts, counts, pools=_pools(jobs), places=places
    )  # fmt: skip


def _over_time(
    found: FailureGroup, jobs: list[JobView], now: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many attempts of these jobs failed in each step since the first, or in the last minutes."""
    begin = min(found.first_at, now - MIN_SECONDS)
    step = max(1, math.ceil((now - begin) / STEPS / 60)) * 60
    first = int(begin // step) * step
    starts = tuple(range(first, int(now) + 1, step))
    counts = [0] * len(starts)
    for at in (at for job in jobs for at in _moments(job)):
        place = (at - first) // step
        if found.first_at < at + 1 and 0 <= place < len(counts):
            counts[place] += 1
    return starts, tuple(counts)


def _moments(job: JobView) -> set[int]:
    """The seconds in which attempts of a job failed: the last one, and those in `past`."""
    return {int(at) for at in (job.failed_at, *(one.at for one in job.past)) if at}


def _pools(jobs: list[JobView]) -> tuple[str, ...]:
    """The pools whose process died with one of these jobs."""
    return tuple(dict.fromkeys(one.died_in for job in jobs for one in job.past if one.died_in))[:20]


def _places(session: Session, name: str, kind: str, jobs: list[JobView]) -> Steps[tuple[FailurePlace, ...]]:
    """The machines and versions of the attempts of these jobs that failed with this class of error."""
    attempts = yield from failed_attempts(session, name, {job.id[:MAX_ID] for job in jobs})
    about = yield from abouts(session, ended=True)
    found: dict[tuple[str, str], FailurePlace] = {}
    for one in attempts:
        if one.error != kind.partition(":")[0][:MAX_TEXT]:
            continue
        pool = about.get(one.pool_id)
        key = pool.host if pool else "", one.tag or (pool.tag if pool else "")
        before = found.get(key, FailurePlace(*key, 0, 0.0))
        found[key] = FailurePlace(*key, before.attempts + 1, max(before.last_at, one.ended_at))
    return tuple(sorted(found.values(), key=lambda one: (-one.attempts, one.host, one.tag)))[:MAX_PLACES]


# What operators note.


def note_group(session: Session, name: str, kind: str, text: str) -> Steps[Outcome]:
    """Write a note on a group of failures for other operators; an empty text removes it. Raises BadOption."""
    text = " ".join(text.split())
    now = yield from _make_room(session, adds=bool(text))
    yield from ask(groups.write_note(session.keys, name, kind, text, by=session.actor, at=now))
    message = f"Noted: {text[: groups.MAX_TEXT]}" if text else "The note is removed."
    return (yield from outcome(session, "note", _subject(name, kind), "done", message))


def ignore_group(session: Session, name: str, kind: str, seconds: float | None) -> Steps[Outcome]:
    """Hide a group of failures from the lists for so many seconds; None shows it again. Its jobs stay. Raises BadOption."""
    if seconds is not None and not 1 <= seconds <= MAX_IGNORED_SECONDS:
        raise BadOption("a group of failures can be ignored for a second to a year")
    now = yield from _make_room(session, adds=seconds is not None)
    until = None if seconds is None else now + seconds
    yield from ask(groups.ignore(session.keys, name, kind, until, by=session.actor, at=now))
    message = (
        "It is shown again."
        if seconds is None
        else f"Ignored for {span(seconds)}. Its jobs stay where they are."
    )
    action = "unignore" if seconds is None else "ignore"
    return (yield from outcome(session, action, _subject(name, kind), "done", message))


def _make_room(session: Session, *, adds: bool) -> Steps[float]:
    """Redis time. Removes ignores that are over. Raises BadOption if there are too many notes."""
    now = yield from ask(inspect.now())
    known = yield from ask(groups.marks(session.keys, now))
    if known.over:
        yield from ask(groups.forget(session.keys, list(known.over)))
    if adds and known.count - len(known.over) >= MAX_MARKS:
        raise BadOption(f"there are {MAX_MARKS:,} notes and ignores already: remove some first")
    return now


def _subject(name: str, kind: str) -> str:
    return f"failures of {name}: {kind[:200]}"

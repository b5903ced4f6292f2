"""Preview: what an action on many jobs would change, with ten of the jobs. Reads only."""

from __future__ import annotations

from dayjob.admin import verbs
from dayjob.admin.bulk import check_bulk
from dayjob.admin.filters import Filter, filter_of
from dayjob.admin.job_lists import count, page
from dayjob.admin.session import Session
from dayjob.admin.verbs import Verb
from dayjob.admin.views import Count, JobView, Preview, State
from dayjob.store.ops import inspect
from dayjob.store.steps import Steps, ask
from dayjob.text import counted

#: How many jobs a preview shows, and how many pages are searched for them.
SAMPLES, MAX_PAGES = 10, 10


def preview(
    session: Session,
    verb: Verb,
    state: State,
    *,
    where: Filter | str | None = None,
    name: str | None = None,
    most: int | None = None,
) -> Steps[Preview]:
    """What `apply` with the same arguments would change, and the first ten jobs of it. Raises BadOption."""
    wanted = filter_of(where)
    queue = (name or wanted.name or "") if state == "waiting" else ""
    check_bulk(verb, state, wanted, queue)
    return (yield from _preview(session, verbs.row("job", verb).label, state, wanted, name, most))


def preview_move(
    session: Session, *, where: Filter | str | None = None, name: str | None = None, most: int | None = None
) -> Steps[Preview]:
    """The jobs that `move_all` would try to move, and the first ten of them. Their arguments are not checked."""
    row = verbs.row("waiting_job", "move")
    return (yield from _preview(session, row.label, "waiting", filter_of(where), name, most))


def preview_purge(session: Session, name: str) -> Steps[Preview]:
    """What a purge of this queue would delete, and the next ten jobs of it."""
    return (yield from _preview(session, verbs.row("queue", "purge").label, "waiting", Filter(), name, None))


def preview_failures(
    session: Session, verb: Verb, name: str, kind: str, states: tuple[State, ...] = ("dead", "retry")
) -> Steps[Preview]:
    """What `apply_to_failures` with the same arguments would change, and ten jobs of it."""
    label, wanted = verbs.row("job", verb).label, Filter.of(name=name, kind=kind)
    parts = []
    for state in dict.fromkeys(states):
        parts += [(yield from _preview(session, label, state, wanted, None, None))]
    matched, searched, total, left = (
        sum(getattr(part.count, field) for part in parts)
        for field in ("matched", "searched", "total", "left")
    )
    samples = [job for part in parts for job in part.samples][:SAMPLES]
    would = sum(part.would_change for part in parts)
    message = f"{label} {counted(would, 'job')}."
    return Preview(message, Count(matched, searched, total, left=left), would, tuple(samples), parts[0].now)


def _preview(
    session: Session, label: str, state: State, wanted: Filter, name: str | None, most: int | None
) -> Steps[Preview]:
    found = yield from count(session, state, where=wanted, name=name)
    would = found.matched if most is None else min(most, found.matched)
    samples: list[JobView] = []
    after = ""
    for _ in range(MAX_PAGES if would else 0):
        some = yield from page(
            session, state, where=wanted, name=name, after=after, size=SAMPLES, newest_first=False
        )
        samples += some.jobs
        after = some.next
        if not after or len(samples) >= min(SAMPLES, would):
            break
    least = "" if found.complete else "at least "
    which = "" if wanted.empty else f" where {wanted}"
    message = f"{label} {least}{counted(would, 'job')} in {state}{which}."
    now = yield from ask(inspect.now())
    return Preview(message, found, would, tuple(samples[: min(SAMPLES, would)]), now)

"""Pages by number, and jobs by the second of their score, as clients of gocraft's API name them. Reads only."""

from __future__ import annotations

from dayjob.admin.job_lists import MAX_SAME
from dayjob.admin.jobs import source_of, view
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import JobPage, JobView, State
from dayjob.store.ops import inspect
from dayjob.store.steps import Steps, ask


def numbered(session: Session, state: State, number: int = 1, *, size: int = 20) -> Steps[JobPage]:
    """A page of a sorted set by its number, from 1; the earliest jobs first. Raises BadOption."""
    source = source_of(session.keys, state)
    found: list[JobView] = []
    redactor = Redactor(session)
    while True:
        offset = (number - 1) * size + len(found)
        # A read of large entries returns fewer of them. The next read continues.
        seen = yield from ask(inspect.page(source, offset=offset, size=size - len(found)))
        yield from redactor.learn(entry.job.name for entry in seen.entries if entry.job is not None)
        found += [view(redactor, state, entry) for entry in seen.entries]
        if not seen.entries or len(found) >= size:
            return JobPage(seen.now, state, seen.total, tuple(found))


def at_second(session: Session, state: State, job_id: str, second: int) -> Steps[JobView | None]:
    """The job of a sorted set with this id and second; None if it is not there. Raises BadOption."""
    source = source_of(session.keys, state)
    offset = yield from ask(inspect.count_below(source, second))
    for _ in range(MAX_SAME // inspect.MAX_ENTRIES):
        seen = yield from ask(inspect.page(source, offset=offset, size=inspect.MAX_ENTRIES))
        for entry in seen.entries:
            if (entry.at or 0.0) >= second + 1:
                return None
            if entry.job is not None and entry.job.id == job_id:
                redactor = Redactor(session)
                yield from redactor.learn([entry.job.name])
                return view(redactor, state, entry)
        if not seen.entries:
            return None
        offset += len(seen.entries)
    return None

"""Pages by number, and jobs by the second of their moment: how clients of the ancestor's API name them. Reads only."""

from __future__ import annotations

from dayjob.admin.jobs import MOST_SAME, source_of, view
from dayjob.admin.redactor import Veil
from dayjob.admin.session import Desk
from dayjob.admin.views import JobPage, JobView, State
from dayjob.store.op import Op
from dayjob.store.ops import inspect
from dayjob.store.steps import Steps, ask


def numbered(desk: Desk, state: State, number: int = 1, *, size: int = 20) -> Steps[JobPage]:
    """A page of a sorted set by its number from 1, the earliest first. Raises BadOption."""
    source = source_of(desk.keys, state)
    found: list[JobView] = []
    veil = Veil(desk)
    while True:
        offset = (number - 1) * size + len(found)
        # Large entries are rationed: what one look leaves out comes with the next.
        seen = yield from ask(inspect.page(source, offset=offset, size=size - len(found)))
        yield from veil.learn(entry.job.name for entry in seen.entries if entry.job is not None)
        found += [view(veil, state, entry) for entry in seen.entries]
        if not seen.entries or len(found) >= size:
            return JobPage(seen.now, state, seen.total, tuple(found))


def at_second(desk: Desk, state: State, job_id: str, second: int) -> Steps[JobView | None]:
    """The job of a sorted set with this id whose moment is within a second; None when it is not there. Raises BadOption."""
    source = source_of(desk.keys, state)
    offset = yield from ask(Op("ZCOUNT", (source,), ("-inf", f"({second}"), int))
    for _ in range(MOST_SAME // inspect.MOST_ENTRIES):
        seen = yield from ask(inspect.page(source, offset=offset, size=inspect.MOST_ENTRIES))
        for entry in seen.entries:
            if (entry.at or 0.0) >= second + 1:
                return None
            if entry.job is not None and entry.job.id == job_id:
                veil = Veil(desk)
                yield from veil.learn([entry.job.name])
                return view(veil, state, entry)
        if not seen.entries:
            return None
        offset += len(seen.entries)
    return None

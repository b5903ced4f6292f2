"""What each source used, and one source with what it has stored. Counted from the history. Reads only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from shlex import quote

from dayjob.admin import history, sorting
from dayjob.admin.detail_views import SourceDetail
from dayjob.admin.job_lists import count
from dayjob.admin.records import SourcesView, SourceView, attempt_record
from dayjob.admin.session import Session
from dayjob.admin.views import Count, State
from dayjob.store.ops import history as store
from dayjob.store.ops import inspect, pools
from dayjob.store.ops.history import FAILED
from dayjob.store.steps import Steps, ask
from dayjob.text import source_text

#: How many attempts of one source are listed, and how many jobs of each state are searched for its jobs.
MAX_LISTED = 20
MAX_SEARCHED = 1000
#: Bars of its chart.
STEPS = 60
_STATES: tuple[State, ...] = ("waiting", "scheduled", "retry", "dead")


@dataclass(slots=True)
class _Use:
    """What one source used, while it is counted."""

    attempts: float = 0.0
    failed: float = 0.0
    worked: float = 0.0
    waited: float = 0.0
    waits: float = 0.0
    last: int = 0
    running: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, record: store.StoredRecord) -> None:
        """Count an attempt that ended."""
        self.attempts += record.weight
        self.failed += record.weight * (record.ending in FAILED)
        self.worked += record.weight * max(0, record.ran) / 1e6
        if record.waited >= 0:
            self.waited += record.weight * record.waited / 1e6
            self.waits += record.weight
        self.last = max(self.last, record.ended)
        self.names[name] += 1

    def view(self, source: str) -> SourceView:
        """The same, to show."""
        return SourceView(
            source, round(self.attempts), round(self.failed), self.worked,
            self.waited / self.waits if self.waits else None, self.last / 1000 if self.last else None, self.running,
            tuple(name for name, _ in self.names.most_common(10)),
        )  # fmt: skip


def sources(
    session: Session,
    *,
    since: float | None = None,
    until: float | None = None,
    source: str | None = None,
    sort: str = "",
) -> Steps[SourcesView]:
    """What each source used, by default in the last day: attempts, failures, seconds worked, attempts that run now.

    The newest 5,000 records are counted: if there are more, the span begins later and is `partial`. The sources that
    used most time come first, or sorted by another column: `-failed`. Raises BadOption.
    """
    sorting.SOURCES.read(sort)
    now = yield from ask(inspect.now())
    start = now - history.DAY_SECONDS if since is None else since
    newest = yield from history.read_newest(session, history.Query(since=start, until=until, source=source))
    used: dict[str, _Use] = {}
    for name, record in newest.whole():
        if record.source is not None:
            used.setdefault(source_text(record.source), _Use()).add(name, record)
    for pool in (yield from pools.pools(session.keys)):
        for worker in pool.status.workers if pool.status is not None else ():
            shown = source_text(worker.source)
            if shown and source in (None, shown):
                used.setdefault(shown, _Use()).running += 1
    views = sorting.SOURCES.sorted((use.view(one) for one, use in sorted(used.items())), sort)
    return SourcesView(now, tuple(views), max(start, newest.since / 1000), newest.searched, newest.since > 0)


def source(session: Session, name: str) -> Steps[SourceDetail]:
    """One source: what it used in the last day, its last attempts and failures, and its jobs that are stored.

    Among the newest 5,000 records: if there are more, the span begins later and is `partial`. Of each state 1,000 jobs are searched.
    """
    now = yield from ask(inspect.now())
    start = now - history.DAY_SECONDS
    newest = yield from history.read_newest(session, history.Query(since=start, source=name))
    use = _Use()
    for job_name, record in newest.whole():
        use.add(job_name, record)
    for pool in (yield from pools.pools(session.keys)):
        workers = pool.status.workers if pool.status is not None else ()
        use.running += sum(source_text(worker.source) == name for worker in workers)
    records = sorted(
        (attempt_record(job_name, one) for job_name, one in newest.whole()), key=lambda one: -one.ended_at
    )
    stored: dict[State, Count] = {}
    for state in _STATES:
        stored[state] = yield from count(session, state, where=f"source={quote(name)}", most=MAX_SEARCHED)
    counts = history.counted(newest, start, now, STEPS, now)
    return SourceDetail(
        now, use.view(name), max(start, newest.since / 1000), newest.searched, newest.since > 0, counts, stored,
        tuple(records[:MAX_LISTED]), tuple([one for one in records if one.failed][:MAX_LISTED]),
    )  # fmt: skip

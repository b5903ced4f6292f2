"""Failures: the jobs of dead and retry, grouped by job name and error, counted by hour and day. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from dayjob.admin import sorting
from dayjob.admin.filter_checks import kind_of
from dayjob.admin.jobs import source_of, view
from dayjob.admin.redactor import Redactor
from dayjob.admin.session import Session
from dayjob.admin.views import FailedAttempts, FailureGroup, Failures, JobView, State
from dayjob.store import codec
from dayjob.store.ops import groups as group_ops
from dayjob.store.ops import inspect, rollups
from dayjob.store.ops.inspect import StoredEntry
from dayjob.store.steps import Steps, ask

#: How many entries of each set are searched.
MAX_SEARCHED = 10_000
_HOUR = 3600.0


@dataclass(slots=True)
class _Heap:
    """The counts of one group while it is read."""

    count: int = 0
    hour: int = 0
    day: int = 0
    three_days: int = 0
    dead: int = 0
    first_at: float = float("inf")
    first_known: bool = True
    last_at: float = float("-inf")
    sample: tuple[State, StoredEntry] | None = None
    #: Its jobs, if they are wanted.
    entries: list[tuple[State, StoredEntry]] = field(default_factory=list)

    def add(self, state: State, entry: StoredEntry, at: float, now: float) -> None:
        self.count += 1
        self.hour += now - at <= _HOUR
        self.day += now - at <= 24 * _HOUR
        self.three_days += now - at <= 72 * _HOUR
        self.dead += state == "dead"
        self.first_at = min(self.first_at, at)
        if at >= self.last_at:
            self.last_at, self.sample = at, (state, entry)


def failures(
    session: Session,
    *,
    window: float | None = None,
    states: Iterable[State] = ("dead", "retry"),
    most: int = MAX_SEARCHED,
    sort: str = "",
) -> Steps[Failures]:
    """Groups of jobs that failed the same way, within `window` seconds or ever; `most` entries of each set are searched.

    The largest first, or sorted by another column: `-last`. Raises BadOption.
    """
    sorting.FAILURES.read(sort)
    now = yield from ask(inspect.now())
    groups, searched, total = yield from _groups(session, now, window, states, most)
    groups = tuple(sorting.FAILURES.sorted(groups, sort))
    return Failures(now, groups, searched, total, (yield from _attempts(session, now)))


def groups_of(
    session: Session, name: str, most: int = inspect.MAX_ENTRIES
) -> Steps[tuple[FailureGroup, ...]]:
    """The groups of one job name, among so many entries of each set."""
    now = yield from ask(inspect.now())
    groups, _, _ = yield from _groups(session, now, None, ("dead", "retry"), most, name)
    return groups


def one_group(
    session: Session, name: str, kind: str, most: int
) -> Steps[tuple[FailureGroup, tuple[JobView, ...]] | None]:
    """One group with its jobs, among so many entries of each set; None if there is none."""
    now = yield from ask(inspect.now())
    found = yield from _scan(session, now, None, ("dead", "retry"), most, name)
    heap = found.heaps.get((name, kind))
    if heap is None:
        return None
    marks = yield from ask(group_ops.marks(session.keys, now))
    group = replace(_group(found.redactor, name, kind, heap), mark=marks.of(name, kind))
    return group, tuple(view(found.redactor, state, entry) for state, entry in heap.entries)


def _groups(
    session: Session,
    now: float,
    window: float | None,
    states: Iterable[State],
    most: int,
    name: str | None = None,
) -> Steps[tuple[tuple[FailureGroup, ...], int, int]]:
    """The groups, how many entries were searched, and how many there are."""
    found = yield from _scan(session, now, window, states, most, name)
    marks = yield from ask(group_ops.marks(session.keys, now))
    groups = [
        replace(_group(found.redactor, *key, heap), mark=marks.of(*key)) for key, heap in found.heaps.items()
    ]
    groups.sort(key=lambda group: (-group.count, group.name, group.kind))
    return tuple(groups), found.searched, found.total


@dataclass(slots=True)
class _Scanned:
    """What a search found: groups by job name and error, and how many entries were searched of how many."""

    redactor: Redactor
    heaps: dict[tuple[str, str], _Heap] = field(default_factory=dict)
    searched: int = 0
    total: int = 0


def _scan(
    session: Session,
    now: float,
    window: float | None,
    states: Iterable[State],
    most: int,
    name: str | None,
) -> Steps[_Scanned]:
    """Search the sets. The jobs of each group are kept only if one name is asked for."""
    found = _Scanned(Redactor(session))
    for state in states:
        source = source_of(session.keys, state)
        seen = yield from ask(inspect.page(source, size=inspect.MAX_ENTRIES, newest_first=state == "dead"))
        found.total += seen.total
        left = most
        while True:
            yield from found.redactor.learn(entry.job.name for entry in seen.entries if entry.job is not None)
            for entry in seen.entries[:left]:
                if name is None:
                    _gather(found.heaps, found.redactor, state, entry, now, window)
                elif entry.job is not None and entry.job.name == name:
                    heap = _gather(found.heaps, found.redactor, state, entry, now, window)
                    if heap is not None:
                        heap.entries.append((state, entry))
            found.searched += min(left, len(seen.entries))
            left -= len(seen.entries)
            past = state == "dead" and window is not None and _past(seen.entries, now - window)
            if seen.next is None or left <= 0 or past:
                break
            seen = yield from ask(
                inspect.page(source, after=seen.next, size=inspect.MAX_ENTRIES, newest_first=state == "dead")
            )
    return found


def _attempts(session: Session, now: float) -> Steps[tuple[FailedAttempts, ...]]:
    """How often each job name failed in the last hour, from the figures of each minute."""
    last = int(now // 60)
    read = partial(session.minute_cache.minutes, now=now)
    minutes = yield from rollups.series(session.keys, last - 59, last, 1, read)
    fails = rollups.merged_counts(minutes, last - 59).fails
    return tuple(
        FailedAttempts(name, count)
        for name, count in sorted(fails.items(), key=lambda one: (-one[1], one[0]))
        if count
    )


def _past(entries: tuple[StoredEntry, ...], since: float) -> bool:
    return bool(entries) and (entries[-1].at or 0.0) < since


def _gather(
    heaps: dict[tuple[str, str], _Heap],
    redactor: Redactor,
    state: State,
    entry: StoredEntry,
    now: float,
    window: float | None,
) -> _Heap | None:
    if entry.job is None or (state == "retry" and not entry.job.err):
        return None
    at = float(entry.job.failed_at) or (entry.at if state == "dead" else None) or now
    if window is None or now - at <= window:
        kind = kind_of(redactor.error(entry.job))
        heap = heaps.setdefault((entry.job.name, kind), _Heap())
        heap.add(state, entry, at, now)
        _trace_back(heap, redactor, entry.job, kind)
        return heap
    return None


def _trace_back(heap: _Heap, redactor: Redactor, wire: codec.Wire, kind: str) -> None:
    """Search the past attempts of the job for an earlier failure of this kind."""
    past = codec.past(wire)
    if wire.fails + wire.deaths > len(past) and wire.fails + wire.deaths > 1:
        heap.first_known = False
    for one in past:
        if one.at >= heap.first_at:
            return
        if _same_kind(one, kind, redactor, wire):
            heap.first_at = float(one.at)
            return


def _same_kind(one: codec.Fault, kind: str, redactor: Redactor, wire: codec.Wire) -> bool:
    if one.died_in:
        # A job that died too often is dead with an error that counts its deaths.
        return kind.startswith(one.error)
    found = kind_of(redactor.text(one.error, redactor.secrets(wire)))
    # The attempt's line may be cut within a number or an id.
    return found == kind or (len(one.error) >= codec.MAX_LINE and kind.startswith(found[:-40]))


def _group(redactor: Redactor, name: str, kind: str, heap: _Heap) -> FailureGroup:
    assert heap.sample is not None  # noqa: S101 - a heap is made for its first entry
    return FailureGroup(
        name, kind, heap.count, heap.hour, heap.day, heap.three_days, heap.dead, heap.count - heap.dead,
        heap.first_at, heap.last_at, view(redactor, *heap.sample), heap.first_known,
    )  # fmt: skip

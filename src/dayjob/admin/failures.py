"""What fails: jobs of dead and retry, grouped by error and job name, with how many in which time. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dayjob.admin.desk import Desk
from dayjob.admin.filters import kind_of
from dayjob.admin.jobs import source_of, view
from dayjob.admin.veil import Veil
from dayjob.admin.views import FailureGroup, Failures, State
from dayjob.store.ops import inspect
from dayjob.store.ops.inspect import Kept
from dayjob.store.steps import Steps, ask

#: How many entries of each set are looked at.
MOST_LOOKED = 10_000
_HOUR = 3600.0


@dataclass(slots=True)
class _Heap:
    """What is gathered of one group."""

    count: int = 0
    hour: int = 0
    day: int = 0
    three_days: int = 0
    dead: int = 0
    first_at: float = float("inf")
    last_at: float = float("-inf")
    sample: tuple[State, Kept] | None = None

    def add(self, state: State, entry: Kept, at: float, now: float) -> None:
        self.count += 1
        self.hour += now - at <= _HOUR
        self.day += now - at <= 24 * _HOUR
        self.three_days += now - at <= 72 * _HOUR
        self.dead += state == "dead"
        self.first_at = min(self.first_at, at)
        if at >= self.last_at:
            self.last_at, self.sample = at, (state, entry)


def failures(
    desk: Desk,
    *,
    window: float | None = None,
    states: Iterable[State] = ("dead", "retry"),
    most: int = MOST_LOOKED,
) -> Steps[Failures]:
    """Groups of jobs that failed the same way, within `window` seconds or ever; `most` entries of each set are looked at."""
    heaps: dict[tuple[str, str], _Heap] = {}
    looked = total = 0
    now = yield from ask(inspect.now())
    veil = Veil(desk)
    for state in states:
        source = source_of(desk.keys, state)
        seen = yield from ask(inspect.page(source, size=inspect.MOST_ENTRIES, newest_first=state == "dead"))
        total += seen.total
        left = most
        while True:
            yield from veil.learn(entry.job.name for entry in seen.entries if entry.job is not None)
            for entry in seen.entries[:left]:
                _gather(heaps, veil, state, entry, now, window)
            looked += min(left, len(seen.entries))
            left -= len(seen.entries)
            past = state == "dead" and window is not None and _past(seen.entries, now - window)
            if seen.next is None or left <= 0 or past:
                break
            seen = yield from ask(
                inspect.page(source, after=seen.next, size=inspect.MOST_ENTRIES, newest_first=state == "dead")
            )
    groups = [_group(veil, *key, heap) for key, heap in heaps.items()]
    groups.sort(key=lambda group: (-group.count, group.name, group.kind))
    return Failures(now, tuple(groups), looked, total)


def _past(entries: tuple[Kept, ...], since: float) -> bool:
    return bool(entries) and (entries[-1].at or 0.0) < since


def _gather(
    heaps: dict[tuple[str, str], _Heap],
    veil: Veil,
    state: State,
    entry: Kept,
    now: float,
    window: float | None,
) -> None:
    if entry.job is None or (state == "retry" and not entry.job.err):
        return
    at = float(entry.job.failed_at) or (entry.at if state == "dead" else None) or now
    if window is None or now - at <= window:
        heaps.setdefault((entry.job.name, kind_of(veil.error(entry.job))), _Heap()).add(state, entry, at, now)


def _group(veil: Veil, name: str, kind: str, heap: _Heap) -> FailureGroup:
    assert heap.sample is not None  # noqa: S101 - a heap is made for its first entry
    return FailureGroup(
        name, kind, heap.count, heap.hour, heap.day, heap.three_days, heap.dead, heap.count - heap.dead,
        heap.first_at, heap.last_at, view(veil, *heap.sample),
    )  # fmt: skip

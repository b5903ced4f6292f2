"""Payload sizes: how large stored jobs are, by job name, and which are the largest. Reads a bounded sample."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from dayjob.admin import sorting
from dayjob.admin.jobs import source_of
from dayjob.admin.session import Session
from dayjob.admin.views import State
from dayjob.admin.views.payloads import LargeJob, NameSizes, PayloadSizes
from dayjob.store.ops import inspect
from dayjob.store.ops.inspect import Page
from dayjob.store.steps import Steps, ask

#: Jobs that are read: of each set, and of all queues together.
MAX_OF_SET = 300
MAX_OF_QUEUES = 1000
#: The longest queues that are read, and how many of them in one round trip.
MAX_QUEUES = 40
QUEUES_AT_ONCE = 8
_SETS: tuple[State, ...] = ("scheduled", "retry", "dead", "done")
#: Bytes after which no more is read.
MAX_BYTES = 8 << 20
#: How many of the largest jobs are listed.
MAX_LARGEST = 20


def payloads(session: Session, *, sort: str = "") -> Steps[PayloadSizes]:
    """The sizes of payloads of waiting, scheduled, retry, dead and done jobs: of a few hundred of each set, and of the longest queues.

    `sort` is the order of the names. Raises BadOption.
    """
    sorting.PAYLOADS.read(sort)
    overview = yield from inspect.all_queues(session.keys)
    found: list[LargeJob] = []
    total = 0
    for state in _SETS:
        seen = yield from ask(
            inspect.page(source_of(session.keys, state), size=MAX_OF_SET, newest_first=True)
        )
        total += seen.total
        found += _sizes(state, seen)
    queues = sorted((one for one in overview.queues if one.size and not one.wrong), key=lambda one: -one.size)
    total += sum(queue.size for queue in queues)
    largest_queues = [queue.name for queue in queues[:MAX_QUEUES]]
    share = MAX_OF_QUEUES // max(1, len(largest_queues))
    for first in range(0, len(largest_queues), QUEUES_AT_ONCE):
        if sum(one.size for one in found) < MAX_BYTES:
            some = largest_queues[first : first + QUEUES_AT_ONCE]
            for name in some:
                found += _sizes("waiting", (yield from inspect.peek_all(session.keys, name, size=share)))
    largest = heapq.nlargest(MAX_LARGEST, found, key=lambda one: one.size)
    return PayloadSizes(overview.now, len(found), total, _steps(found), _by_name(found, sort), tuple(largest))


def _sizes(state: State, seen: Page) -> list[LargeJob]:
    return [
        LargeJob(len(entry.member), "" if entry.job is None else entry.job.id, "" if entry.job is None else entry.job.name, state)
        for entry in seen.entries
    ]  # fmt: skip


def _steps(found: Iterable[LargeJob]) -> dict[int, int]:
    """How many payloads have at most so many bytes and more than half of that."""
    counts: dict[int, int] = {}
    for one in found:
        step = 1 << max(0, one.size - 1).bit_length()
        counts[step] = counts.get(step, 0) + 1
    if not counts:
        return {}
    step, last = min(counts), max(counts)
    steps: dict[int, int] = {}
    while step <= last:
        steps[step] = counts.get(step, 0)
        step *= 2
    return steps


def _by_name(found: Iterable[LargeJob], sort: str) -> tuple[NameSizes, ...]:
    sizes: dict[str, list[int]] = {}
    for one in found:
        sizes.setdefault(one.name, []).append(one.size)
    rows = [
        NameSizes(name, len(some), sorted(some)[len(some) // 2], max(some), sum(some))
        for name, some in sorted(sizes.items())
    ]
    return tuple(sorting.PAYLOADS.sorted(rows, sort))

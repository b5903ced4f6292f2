"""Needs: which queues fall behind, and how many workers would let them keep up, in words. Pure.

A worker runs the jobs of every queue of its pool. So queues that share pools are judged together: their jobs may come in
faster than all their workers can run them, although each queue alone would have enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dayjob.admin.views import QueueView
from dayjob.explain.obstacles import Fleet
from dayjob.text import counted, doing, span

NeedKind = Literal["more_workers", "no_worker", "at_limit", "unknown"]

#: A queue that grows by fewer jobs a minute than this keeps up.
MIN_GROWTH = 0.5
#: Durations are known to within a fifth. If all workers are busy and the load is above this share of them, they are too few.
FULL_SHARE = 0.8
#: How many needs the sentence has, and how many queues one need names.
MAX_NEEDS = 3
MAX_NAMES = 2

_ORDER: dict[NeedKind, int] = {"no_worker": 0, "more_workers": 1, "at_limit": 2, "unknown": 3}


@dataclass(frozen=True, slots=True)
class Need:
    """Queues that fall behind, and what they need."""

    kind: NeedKind
    queues: tuple[str, ...]
    #: Further workers that are needed to keep up; None if that is not known, or if workers do not help.
    more: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """A queue and about how many seconds one of its jobs takes; None if none ended in the last minutes."""

    view: QueueView
    run_seconds: float | None

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.view.queue.name

    @property
    def growth(self) -> float:
        """By how many jobs a minute it grows."""
        return self.view.growth or 0.0

    @property
    def falls_behind(self) -> bool:
        """Whether jobs wait, and more of them every minute."""
        return self.view.queue.size > 0 and self.growth >= MIN_GROWTH

    @property
    def workers(self) -> float:
        """How many workers the jobs that come in keep busy, by Little's law; at most its limit."""
        if self.view.queue.paused or self.run_seconds is None:
            return 0.0
        incoming = self.view.out if self.view.incoming is None else self.view.incoming
        limit = self.view.queue.limit
        return min(incoming / 60 * self.run_seconds, math.inf if limit is None else limit)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Workers, and the queues that they serve."""

    loads: tuple[QueueLoad, ...]
    workers: int
    stuck: int

    @property
    def usable(self) -> int:
        return max(0, self.workers - self.stuck)


def needs(loads: Sequence[QueueLoad], fleet: Fleet) -> tuple[Need, ...]:
    """What the queues need that fall behind, worst first."""
    open_ones = [one for one in loads if not one.view.queue.paused and not one.view.queue.wrong]
    if not fleet.pools:
        return _without_pools(open_ones)
    found = [_no_worker(one) for one in open_ones if one.view.unattended]
    attended = [one for one in open_ones if not one.view.unattended]
    found += [_at_limit(one) for one in attended if one.falls_behind and one.view.obstacle == "at_limit"]
    rest = [one for one in attended if one.view.obstacle != "at_limit"]
    for crowd in _crowds(rest, fleet):
        alone = [need for one in crowd.loads if (need := _too_few(_alone(one))) is not None]
        together = None if alone else _too_few(crowd)
        found += alone if together is None else [together]
    short = {name for need in found for name in need.queues}
    found += [_unknown(one) for one in rest if one.name not in short and _is_unknown(one)]
    return tuple(sorted(found, key=lambda need: (_ORDER[need.kind], -(need.more or 0), need.queues)))


def _without_pools(loads: list[QueueLoad]) -> tuple[Need, ...]:
    names = tuple(one.name for one in loads if one.view.queue.size)
    waiting = sum(one.view.queue.size for one in loads)
    if not names:
        return ()
    return (Need("no_worker", names, None, f"No pool is running and {doing(waiting, 'job', 'wait')}."),)


def _crowds(loads: Iterable[QueueLoad], fleet: Fleet) -> list[_Crowd]:
    """The queues, grouped so that no two groups share a pool."""
    groups: list[set[str]] = []
    for status in fleet.fetching:
        joined = set(status.names)
        apart = [group for group in groups if not group & joined]
        groups = [*apart, joined.union(*(group for group in groups if group & joined))]
    by_name = {one.name: one for one in loads}
    crowds = []
    for group in groups:
        own = [status for status in fleet.fetching if group.intersection(status.names)]
        some = tuple(by_name[name] for name in sorted(group & by_name.keys()))
        crowds.append(
            _Crowd(
                some, sum(one.concurrency for one in own), sum(min(one.stuck, one.concurrency) for one in own)
            )
        )
    return crowds


def _alone(load: QueueLoad) -> _Crowd:
    """One queue and the workers that can run its jobs."""
    return _Crowd((load,), load.view.workers, load.view.stuck)


def _too_few(crowd: _Crowd) -> Need | None:
    """What a crowd needs so that its queues do not grow; None if it has enough workers, or if that is not known."""
    behind = sorted((one for one in crowd.loads if one.falls_behind), key=lambda one: -one.growth)
    stopped = [one for one in crowd.loads if one.view.queue.size and not crowd.usable]
    if not behind and not stopped:
        return None
    wanted = sum(one.workers for one in crowd.loads)
    all_busy = any(one.view.obstacle == "busy" for one in behind)
    if crowd.usable and wanted <= crowd.usable and not (all_busy and wanted > FULL_SHARE * crowd.usable):
        return None
    more = max(1, math.ceil(wanted - 1e-9) - crowd.usable)
    named = behind or stopped
    growth = sum(one.growth for one in behind)
    causes = []
    if crowd.stuck:
        causes.append(f"{crowd.stuck:,} of {crowd.workers:,} {'is' if crowd.stuck == 1 else 'are'} stuck")
    if growth:
        causes.append(f"the backlog grows by {counted(round(growth), 'job')}/min")
    verb = "needs" if len(named) == 1 else "need"
    text = f"{_names(named)} {verb} {counted(more, 'more worker')}: {'; '.join(causes)}."
    return Need("more_workers", tuple(one.name for one in named), more, text)


def _names(loads: Sequence[QueueLoad]) -> str:
    some = [one.name for one in loads[:MAX_NAMES]]
    left = len(loads) - len(some)
    return f"{', '.join(some)} and {left:,} more" if left else " and ".join(some)


def _no_worker(load: QueueLoad) -> Need:
    waiting = doing(load.view.queue.size, "job", "wait")
    return Need("no_worker", (load.name,), None, f"{load.name} has no worker, and {waiting}.")


def _at_limit(load: QueueLoad) -> Need:
    limit = counted(load.view.queue.limit or 0, "job")
    text = f"{load.name} is at its limit of {limit} at once, and grows by {counted(round(load.growth), 'job')}/min: more workers do not help."
    return Need("at_limit", (load.name,), None, text)


def _is_unknown(load: QueueLoad) -> bool:
    view = load.view
    return (
        view.queue.size > 0
        and (load.run_seconds is None or view.growth is None)
        and view.drain.kind != "draining"
    )


def _unknown(load: QueueLoad) -> Need:
    why = (
        "none of its jobs ended in the last five minutes"
        if load.run_seconds is None
        else "pools have counted its jobs for less than a minute"
    )
    return Need("unknown", (load.name,), None, f"Whether {load.name} has enough workers is not known: {why}.")


def capacity_sentence(loads: Sequence[QueueLoad], found: Sequence[Need], fleet: Fleet) -> str:
    """Whether there are enough workers, and what is missing."""
    if found:
        more = len(found) - MAX_NEEDS
        left = (
            f" And {counted(more, 'further queue or group', 'further queues or groups')}." if more > 0 else ""
        )
        return " ".join(need.sentence for need in found[:MAX_NEEDS]) + left
    if not fleet.pools:
        return "No pool is running, and no job waits."
    total = sum(status.concurrency for status in fleet.fetching)
    if not total:
        return "No pool fetches jobs, and no job waits that could run."
    busy = sum(one.workers for one in loads)
    words = f"There are enough workers: the jobs that come in keep about {busy:,.1f} of {total:,} busy."
    draining = [one for one in loads if one.view.drain.kind == "draining"]
    longest = max(draining, key=lambda one: one.view.drain.seconds or 0.0, default=None)
    if longest is not None:
        words += f" {longest.name} will be empty in {span(longest.view.drain.seconds or 0.0)}."
    return words

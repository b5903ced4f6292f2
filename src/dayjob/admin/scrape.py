"""Scrape: the figures for monitoring, in a few reads; and a ping. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.admin import batches, limits, workflows
from dayjob.admin.newest import AT_ONCE
from dayjob.admin.queues import listing
from dayjob.admin.session import Session
from dayjob.admin.views import Pool, QueuesView, Sizes
from dayjob.admin.views.batches import BatchView
from dayjob.admin.views.limits import LimitView
from dayjob.admin.views.workflows import WorkflowView
from dayjob.store.ops import figures, inspect, pools
from dayjob.store.ops.figures import Counts, Minute, Times, bucket_limit
from dayjob.store.ops.outbox import OutboxStatus, outbox_status
from dayjob.store.steps import Steps, ask

__all__ = ["Counts", "Minute", "Scrape", "Times", "bucket_limit", "ping", "scrape"]

#: How many minutes one scrape reads at most.
MAX_MINUTES = 60


@dataclass(frozen=True, slots=True)
class Scrape:
    """The fleet at one moment."""

    now: float
    queues: QueuesView
    sizes: Sizes
    pools: tuple[Pool, ...]
    #: For each counter: job name to exact total.
    totals: dict[str, dict[str, int]]
    #: The figures of the last minutes, oldest first. The last minute is not over.
    minutes: tuple[Minute, ...]
    limits: tuple[LimitView, ...] = ()
    #: What a relay of an outbox published; None without one.
    outbox: OutboxStatus | None = None
    #: The newest 100 batches.
    batches: tuple[BatchView, ...] = ()
    #: The newest 100 workflows.
    workflows: tuple[WorkflowView, ...] = ()


def ping(session: Session) -> Steps[float]:
    """The time of the server, to find out whether it answers. Raises StoreError if it does not."""
    del session
    return (yield from ask(inspect.now()))


def scrape(session: Session, *, since: int | None = None) -> Steps[Scrape]:
    """Queues, pools, totals, and the minutes from `since` on (a minute since the epoch), or the last five."""
    queues = yield from listing(session)
    registered = yield from pools.pools(session.keys)
    sizes = yield from inspect.sizes(session.keys)
    totals = yield from ask(figures.totals(session.keys))
    last = int(queues.now // 60)
    first = last - 5 if since is None else min(max(since, last - MAX_MINUTES), last)
    minutes = yield from figures.minutes(session.keys, range(first, last + 1))
    waiting = {view.queue.name: view.queue.size for view in queues.queues}
    rate_limits = yield from limits.listing(session, sizes=waiting)
    outbox = yield from outbox_status(session.keys)
    some_batches = yield from batches.listing(session, size=AT_ONCE)
    some_workflows = yield from workflows.listing(session, size=AT_ONCE)
    return Scrape(
        queues.now, queues, sizes, tuple(registered), totals, tuple(minutes), rate_limits, outbox,
        some_batches.batches, some_workflows.workflows,
    )  # fmt: skip

"""Tests without a server: inside `with testing(pool) as jobs:` enqueues stay in memory, to be checked and run.

Only Redis is replaced. Arguments are checked and become JSON as always, what waits is payload bytes, and attempts
are run and judged by the worker's own Runner.
"""

from __future__ import annotations

from typing import Any

from dayjob.enqueue.enqueuer import AsyncEnqueuer, Enqueuer
from dayjob.errors import BadOption
from dayjob.pool import WorkerPool
from dayjob.store.keys import Keys
from dayjob.testing.clock import FakeClock
from dayjob.testing.fake_store import FakeStore
from dayjob.testing.jobs import Jobs

__all__ = ["FakeClock", "Jobs", "testing"]


def testing(
    *targets: WorkerPool[Any] | Enqueuer | AsyncEnqueuer,
    inline: bool = False,  # noqa: PT028 - it is no test
    clock: FakeClock | None = None,  # noqa: PT028
    limits: bool = False,  # noqa: PT028
    twice: bool = False,  # noqa: PT028
) -> Jobs:
    """Open a block in which what `targets` enqueue stays in memory; use it as a context manager.

    A pool includes its job types and its own enqueuers. Pass further enqueuers of its namespace to catch theirs
    too, or enqueuers alone in a program without handlers. Nothing runs until `jobs.drain()`. With `inline`, every
    job that is due runs before its enqueue returns, and its error is raised there. With `limits`, the limits of job
    types are enforced by the clock of the block: a job over its limit waits in the queue until the clock is moved. With
    `twice`, each job first runs several times more, broken off after each of its enqueues and check-ins as by a crash,
    and once to its end: a test then shows that the handler may safely run twice. Blocks nest: the innermost gets the
    jobs. Raises BadOption.
    """
    pools = [target for target in targets if isinstance(target, WorkerPool)]
    pool = pools[0] if pools else None
    if len(pools) > 1 or not targets:
        raise BadOption(
            "testing(): give one pool, enqueuers of its namespace, or both; a block for each pool"
        )
    if inline and pool is None:
        raise BadOption("testing(inline=True): give the pool too, whose handlers are to run")
    if twice and pool is None:
        raise BadOption("testing(twice=True): give the pool too, whose handlers are to run")
    enqueuers = _enqueuers(pool, [target for target in targets if target is not pool])
    keys = Keys(enqueuers[0].namespace)
    for enqueuer in enqueuers:
        if Keys(enqueuer.namespace).prefix != keys.prefix:
            raise BadOption(
                f"testing(): the namespaces {keys.namespace!r} and {enqueuer.namespace!r} differ: "
                "open a block for each"
            )
    clock = clock or FakeClock()
    # Copies made by using() share a builder.
    builders = {id(enqueuer._builder): enqueuer._builder for enqueuer in enqueuers}
    return Jobs(
        FakeStore(pool, keys, clock, inline=inline, limits=limits, twice=twice),
        list(builders.values()),
        clock,
    )


# pytest would take it for a test wherever it is imported.
testing.__test__ = False  # type: ignore[attr-defined]


def _enqueuers(pool: WorkerPool[Any] | None, others: list[Any]) -> list[Enqueuer | AsyncEnqueuer]:
    for other in others:
        if not isinstance(other, Enqueuer | AsyncEnqueuer):
            raise BadOption(f"testing({other!r}): give a WorkerPool, an Enqueuer or an AsyncEnqueuer")
    return others if pool is None else [pool.enqueuer, pool.async_enqueuer, *others]

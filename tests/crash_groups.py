"""Operations on batches and workflows, so that each round trip of theirs can be cut or killed. See `crashes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from crashes import ALL, nothing, operation, server_url, totals_of, work_until
from dayjob import Dead, Job, WorkerPool
from dayjob.errors import Unknown
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.ops import batches, workflows

__all__ = ["ALL"]


def groups_of(url: str, keys: Keys) -> WorkerPool[Any]:
    """A pool whose jobs are members, callbacks and nodes. Some fail once, one dies, one adds members, one adds nodes."""
    pool = WorkerPool(
        namespace=keys.namespace, redis=url, concurrency=2, lease=10.0, beat=1.0, defaults={"backoff": 0.001}
    )  # fmt: skip

    @pool.job
    def member(job: Job, fails: int = 0) -> None:
        if job.fails < fails:
            raise ValueError("as planned")

    @pool.job
    def mortal() -> None:
        raise Dead("as planned")

    @pool.job(atomic=True)
    def adder(job: Job) -> None:
        with job.batch:
            member.enqueue()
        if not job.fails:
            raise ValueError("once")

    @pool.job
    def called() -> None: ...

    @pool.job
    def node(job: Job, inputs: list[int], adds: int = 0, fails: int = 0) -> int:
        for _ in range(adds):
            job.workflow.add(node, [])
        if job.fails < fails:
            raise ValueError("as planned")
        return 1 + sum(inputs)

    return pool


def settled(send: Callable[[], Any]) -> None:
    """Store something, and repeat what is unknown."""
    try:
        send()
    except Unknown as unknown:
        unknown.repeat()


def _callbacks(pool: WorkerPool[Any]) -> dict[str, Any]:
    called = pool.registry.get("called")
    return {"on_success": called, "on_complete": called, "on_dead": called}


def store_batch(pool: WorkerPool[Any], *members: tuple[str, dict[str, Any]], inside: bool = False) -> None:
    """A batch, with one inside it that has a dead member, if asked for."""
    with pool.batch(**_callbacks(pool)):
        for name, args in members:
            pool.registry.get(name).enqueue(**args)
        if inside:
            store_batch(pool, ("member", {}), ("mortal", {}))


def store_workflow(pool: WorkerPool[Any]) -> None:
    """1, then 3 that need it, then 1 that needs those; and one that runs if one of them is dead."""
    flow, node = pool.workflow("fan"), pool.registry.get("node")
    root = flow.add(node, [])
    parts = [flow.add(node, [root.result], adds=2 * (n == 1), fails=n % 2) for n in range(3)]
    flow.add(node, [part.result for part in parts])
    flow.add(node, [], on_failure_of=parts)
    flow.start()


@operation("batch", nothing, repeatable=False)
def _batch(url: str, keys: Keys, folder: Path) -> int:
    pool = groups_of(url, keys)
    settled(lambda: store_batch(pool, ("member", {}), ("member", {}), ("mortal", {})))
    pool.enqueuer.close()
    return 3


@operation("empty batch", nothing, repeatable=False)
def _empty_batch(url: str, keys: Keys, folder: Path) -> int:
    """Its two callbacks are stored, in the step that creates it."""
    pool = groups_of(url, keys)
    settled(lambda: store_batch(pool))
    pool.enqueuer.close()
    return 2


@operation("workflow", nothing, repeatable=False)
def _workflow(url: str, keys: Keys, folder: Path) -> int:
    """Of its nodes, the first is stored as a job."""
    pool = groups_of(url, keys)
    settled(lambda: store_workflow(pool))
    pool.enqueuer.close()
    return 1


# Pools.

#: What the jobs of `with_groups` come to.
TOTALS = {"done:member": 7, "done:adder": 1, "dead:mortal": 1, "done:called": 8, "done:node": 7}


def with_groups(keys: Keys, link: Link) -> int:
    pool = groups_of(server_url(), keys)
    store_batch(pool, ("member", {}), ("member", {"fails": 1}), ("member", {}))
    store_batch(pool, ("member", {}), inside=True)
    store_batch(pool, ("adder", {}), ("member", {"fails": 1}))
    store_workflow(pool)
    pool.enqueuer.close()
    return 9


def groups_done(keys: Keys, link: Link, times: int = 1) -> bool:
    totals = totals_of(keys, link)
    return all(totals.get(label, 0) >= count * times for label, count in TOTALS.items())


@operation("groups", with_groups, works=True)
def _groups(url: str, keys: Keys, folder: Path) -> int:
    """Run batches and workflows to their end, and stop."""
    work_until(groups_of(url, keys), keys, lambda link: groups_done(keys, link))
    return 0


def state_of_groups(keys: Keys, link: Link) -> tuple[list[tuple[str, int, int, int]], list[str]]:
    """Each batch with its members, how many have ended and are dead; and the letters of each workflow."""
    seen = walk(link, batches.page(keys))
    flows = walk(link, workflows.page(keys))
    return (
        sorted((one.state, one.total, one.ended, one.dead) for one in seen),
        [one.states for one in flows],
    )


#: What `state_of_groups` finds when all has ended.
ENDED = (
    [("failed", 2, 2, 1), ("failed", 2, 2, 1), ("succeeded", 3, 3, 0), ("succeeded", 3, 3, 0)], ["cccccscc"],
)  # fmt: skip

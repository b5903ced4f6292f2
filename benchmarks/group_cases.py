"""The cases of the workloads groups and call."""

from __future__ import annotations

from collections.abc import Iterator

from groups import BATCH, BATCHES, MEMBERS, PEERS, ROWS, Row
from systems import SYSTEMS
from workloads import Case

#: Calls that are timed, and children of one job, in the forms full and tiny.
CALLS, FEW_CALLS = 300, 20
CHILDREN, FEW_CHILDREN = 100_000, 1200


def cases(*, quick: bool = False, peers: bool = True) -> Iterator[Case]:
    """Every row of a form, with its peers."""
    for row in ROWS:
        count = row.quick if quick else row.count
        if count:
            yield _case(row, "dayjob", "sync", count)
        for name, config in PEERS.items():
            if peers and name in row.peers:
                yield _case(row, name, config, row.peers[name])


def _case(row: Row, name: str, config: str, count: int) -> Case:
    return Case(
        "groups", SYSTEMS[name], config, row.shape, count=count, path=row.shape, extra=row.extra(count),
        program="groups",
    )  # fmt: skip


def call(count: int = CALLS) -> Case:
    """Calls that wait for their answer, one after the other, on an idle pool."""
    more = {"program": "calls.py", "arguments": (count,)}
    return Case("call", SYSTEMS["dayjob"], "sync", count=count, more=more)


def children(count: int = CHILDREN) -> Case:
    """One atomic job that enqueues many others."""
    more = {"program": "children.py", "arguments": (count,)}
    return Case("children", SYSTEMS["dayjob"], "atomic", count=count, more=more)


def tiny() -> list[Case]:
    """For a test of the driver: every shape, with few jobs."""
    few = {BATCHES: 5 * MEMBERS, BATCH: 200}
    return [
        *(_case(row, "dayjob", "sync", few.get(row.shape, 30)) for row in ROWS),
        call(FEW_CALLS),
        children(FEW_CHILDREN),
    ]

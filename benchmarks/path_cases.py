"""The cases of the workload paths: the drains, the single enqueues and the start of a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paths import AHEAD, ENQUEUES, LACKING, PEERS, PLAIN, ROWS, Row
from systems import SYSTEMS
from workloads import Case


def cases(scale: float = 1.0, *, peers: bool = True) -> Iterator[Case]:
    """The drains of all rows; `scale` times as many jobs as the full form has."""
    for row in ROWS:
        yield _case(row, "dayjob", row.config, row.count, scale)
        for name, (config, count) in PEERS.items():
            if peers and row.peers and name not in LACKING.get(row.path, ()):
                yield _case(row, name, config, count, scale)


def _case(row: Row, name: str, config: str, count: int, scale: float) -> Case:
    due = AHEAD if row.path == "scheduled" else 0.0
    many = max(100, int(count * scale))
    return Case("paths", SYSTEMS[name], config, row.path, count=many, path=row.path, due_in=due)


def enqueues(count: int) -> Iterator[Case]:
    """Single enqueues on the same core as the server."""
    for path, name in ENQUEUES:
        config = "sync" if name == "dayjob" else "redis-py"
        yield Case("enqueue", SYSTEMS[name], config, path, count=count, path=path, pin="same")


def starts(pools: int = 1) -> Iterator[Case]:
    """From the start of `dayjob worker` to its first job, and the memory of its two processes."""
    yield Case("start", SYSTEMS["dayjob"], "sync", "dayjob worker", count=1, pools=pools)


def chosen(found: Iterable[Case], rows: set[str]) -> list[Case]:
    """The cases of these rows, and the plain ones that they are compared with; all if none is named."""
    wanted = rows and {*rows, "plain", "plain jobs"}
    return [case for case in found if not wanted or case.variant in wanted]


def tiny() -> list[Case]:
    """For a test of the driver: the rows that need two executions for a job or a library, the plain one, and two enqueues."""
    drains = (
        case for case in cases(peers=False) if case.runs == 2 or case.path == "django" or case.key == PLAIN
    )
    sends = (case for case in enqueues(30) if case.path in ("unique", "outbox"))
    return [
        *(replace(case, count=60) for case in drains),
        *(replace(case, pin="scheduler") for case in sends),
    ]

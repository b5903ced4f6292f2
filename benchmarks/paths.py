"""The paths that programs take beside the plain one: their rows, their peers and where dayjob must stand.

One row alone, quickly: python benchmarks/bench.py quick --only paths --rows plain,raises --systems dayjob --rounds 2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from budgets import Budget
from figures import Results

#: Seconds after which scheduled jobs are due: longer than any system here needs to enqueue them.
AHEAD = 4.0
#: Jobs of dayjob in one run, in the forms quick and full.
COUNT = 20_000
#: How peers run each path, and how many jobs, so that a run takes seconds. All of them have one process.
PEERS = {
    "gocraft": ("usual", 10_000), "asynq": ("usual", 5000), "bullmq": ("usual", 5000), "huey": ("usual", 2000),
    "dramatiq": ("usual", 3000), "celery": ("threads", 1500), "rq": ("best", 400), "saq": ("usual", 2000),
}  # fmt: skip
#: What each path needs of a peer that some lack.
LACKING = {
    "keep": {"gocraft"},
    "unique": {"bullmq", "huey", "dramatiq", "celery", "rq", "saq"},
    "limited": {"asynq", "bullmq", "huey", "dramatiq", "celery", "rq", "saq"},
}


@dataclass(frozen=True)
class Row:
    """One path."""

    path: str
    what: str
    #: The rate as a part of the plain rate in the same turn that must be reached; None where that is not asked.
    least: float | None = None
    config: str = "sync"
    count: int = COUNT
    peers: bool = False

    @property
    def key(self) -> str:
        return f"paths / dayjob / {self.config} / {self.path}"


ROWS = (
    Row("plain", "plain"),
    Row("raises", "a handler that raises, job to dead", 0.15, peers=True),
    Row("retry", "fails once, retried at once", 0.15, peers=True),
    Row("limited", "max_concurrency=5", 0.15, peers=True),
    Row("middleware", "context, job and two middlewares", 0.6),
    Row("plain", "async", 0.65, config="async"),
    Row("timeout", "async with a timeout", 0.55, config="async"),
    Row("keep", "keep= result", 0.4, peers=True),
    Row("unique", "unique jobs", 0.2, peers=True, count=COUNT // 4),
    Row("scheduled", "5,000 scheduled jobs due at once", 0.3, peers=True, count=COUNT // 4),
    Row("nested", "a job that enqueues another", peers=True, count=COUNT // 2),
    Row("atomic", "a job that enqueues another, atomic"),
    Row("payload", "10 KB payloads", count=COUNT // 2),
    Row("django", "jobs of a Django project"),
)
PLAIN = ROWS[0].key
#: Single enqueues that are measured, and the systems for each.
ENQUEUES = (
    ("plain", "dayjob"),
    ("unique", "dayjob"),
    ("payload", "dayjob"),
    ("outbox", "dayjob"),
    ("plain", "raw"),
    ("payload", "raw"),
)


def budgets(results: Results) -> Iterator[Budget]:
    """Each target of a path: met or not."""
    for row in ROWS:
        if row.least is not None:
            what = f"{row.what} / plain"
            yield Budget("paths", what, results.ratio(row.key, PLAIN, "rate"), least=row.least)
    yield from _nested(results)
    unique, plain = "enqueue / dayjob / sync / unique", "enqueue / dayjob / sync / plain"
    yield Budget("paths", "enqueue_unique / enqueue", results.ratio(unique, plain, "rate"), least=0.7)
    long = [f"enqueue / {system} / payload" for system in ("dayjob / sync", "raw / redis-py")]
    yield Budget(
        "paths", "enqueue of 10 KB / raw redis-py", results.ratio(long[0], long[1], "rate"), least=0.8
    )
    start = "start / dayjob / sync / dayjob worker"
    yield Budget(
        "start", "`dayjob worker` to its first job", results.figure(start, "first_s"), most=0.5, unit="s"
    )
    yield Budget("start", "memory of the parent", results.figure(start, "parent_mb"), most=25, unit="MB")


def _nested(results: Results) -> Iterator[Budget]:
    """A parent and a child are two jobs; before, both together ran at 0.033 of the plain rate."""
    for path, least in (("nested", 0.065), ("atomic", 0.26)):
        row = next(one for one in ROWS if one.path == path)
        yield Budget("paths", f"{row.what} / plain", results.ratio(row.key, PLAIN, "rate"), least=least)

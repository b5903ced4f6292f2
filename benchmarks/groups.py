"""Jobs that belong together: batches, chains and fan-outs. Their rows, their peers and where dayjob must stand.

One row alone, quickly: python benchmarks/bench.py full --only groups --rows "a batch" --systems dayjob --rounds 2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from budgets import Budget
from figures import Results

#: Members of each batch in the row with many batches.
MEMBERS = 10


@dataclass(frozen=True)
class Row:
    """One shape in which jobs belong together."""

    shape: str
    #: Jobs of dayjob in the forms full and quick; 0 if the quick form leaves it out.
    count: int
    quick: int = 0
    #: Jobs of each peer, so that a run takes seconds.
    peers: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        return f"groups / dayjob / sync / {self.shape}"

    def extra(self, count: int) -> int:
        """Executions beside those of the jobs: callbacks, and the first and last job of a fan-out."""
        return {BATCHES: count // MEMBERS, BATCH: 1, FAN: 2, FAN_BATCH: 2}.get(self.shape, 0)


PLAIN, BESIDE, BATCH, BATCHES = (
    "plain jobs",
    "plain jobs beside a batch",
    "a batch",
    f"batches of {MEMBERS}",
)
CHAIN, FAN, FAN_BATCH = "a chain", "1 to many to 1", "1 to many to 1, as a batch"
NEXT, NEXT_ATOMIC = "each enqueues the next", "each enqueues the next, atomic"
ROWS = (
    Row(PLAIN, 100_000, 20_000, {"celery": 2000, "bullmq": 10_000}),
    Row(BESIDE, 100_000, 20_000),
    Row(BATCH, 100_000, 20_000, {"celery": 2000, "bullmq": 10_000}),
    Row(BATCHES, 10_000, 2000, {"celery": 1000, "bullmq": 5000}),
    Row(CHAIN, 1000, 1000, {"celery": 200, "bullmq": 1000}),
    Row(FAN, 1000, 1000, {"celery": 1000, "bullmq": 1000}),
    Row(FAN_BATCH, 1000),
    Row(NEXT, 5000, 2000),
    Row(NEXT_ATOMIC, 5000, 2000),
)
#: The configuration of each peer.
PEERS = {"celery": "threads", "bullmq": "usual"}
_KEYS = {row.shape: row.key for row in ROWS}


def budgets(results: Results) -> Iterator[Budget]:
    """Each target of jobs that belong together: met or not."""
    plain = _KEYS[PLAIN]
    yield Budget(
        "groups", "plain jobs beside a batch / alone", results.ratio(_KEYS[BESIDE], plain, "rate"), least=0.98
    )
    yield Budget(
        "groups", "members of a batch / plain jobs", results.ratio(_KEYS[BATCH], plain, "rate"), least=0.9
    )
    yield Budget(
        "groups", "CPU time of a member / of a plain job, enqueue to end",
        results.ratio(_KEYS[BATCH], plain, "whole_us"), most=1.1,
    )  # fmt: skip
    yield Budget(
        "groups",
        "a chain of atomic jobs / of others",
        results.ratio(_KEYS[NEXT_ATOMIC], _KEYS[NEXT], "rate"),
        least=8,
    )
    yield Budget(
        "children", "100,000 children of one job visible after its completion",
        results.figure("children / dayjob / atomic", "visible_s"), most=1, unit="s",
    )  # fmt: skip
    yield Budget(
        "call", "call, enqueue to answer / to the start of its handler",
        results.figure("call / dayjob / sync", "answer_ratio"), most=2,
    )  # fmt: skip

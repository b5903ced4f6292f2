"""Latency under load: from enqueue to handler start at 20, 50 and 80 % of what the workers can do.

Ten workers run jobs of 10 ms, so that the capacity is 1,000 jobs a second for every system. One producer enqueues at random
times (exponential gaps), the same times in every run and for every system.
"""

from __future__ import annotations

import heapq
import random
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from figures import percentile
from systems import SYSTEMS
from workloads import GRACE, RUNS, Bench, Case, delivered, wait_executed

from contract import Ledger

#: Workers of the pool, and how long each job occupies one.
WORKERS = 10
JOB_SECONDS = 0.01
CAPACITY = WORKERS / JOB_SECONDS
SHARES = (0.2, 0.5, 0.8)
#: Seconds during which jobs are enqueued, and those before, in which the pool is idle.
SECONDS = 2.5
REST = 0.5
#: The systems that are measured.
MEASURED = (("dayjob", "sync"), ("gocraft", "usual"), ("bullmq", "usual"), ("huey", "usual"))


def label(share: float) -> str:
    return f"{share:.0%} of capacity"


def cases(seconds: float = SECONDS) -> Iterator[Case]:
    for share in SHARES:
        for name, config in MEASURED:
            yield Case(
                "load", SYSTEMS[name], config, label(share), count=round(CAPACITY * share * seconds),
                concurrency=WORKERS, sleep=JOB_SECONDS, rest=REST, more={"share": share},
            )  # fmt: skip


def tiny() -> Iterator[Case]:
    """For a test of the driver."""
    for case in cases(0.2):
        if case.system.kind == "own":
            yield replace(case, rest=0.1)


def arrivals(count: int, rate: float) -> list[float]:
    """Seconds from the first enqueue to each."""
    rng = random.Random(1)
    times = [0.0]
    while len(times) < count:
        times.append(times[-1] + rng.expovariate(rate))
    return times


def ideal(sent: Sequence[float]) -> list[float]:
    """How long these jobs would wait for one of the workers if handing them over took no time."""
    free, waits = [0.0] * WORKERS, []
    for at in sent:
        start = max(at, heapq.heappop(free))
        heapq.heappush(free, start + JOB_SECONDS)
        waits.append(start - at)
    return waits


def under_load(bench: Bench, case: Case) -> dict[str, Any]:
    """Enqueue at random times at a part of the capacity."""
    server = bench.server(case.aof)
    server.empty()
    offsets = bench.folder / "offsets"
    offsets.write_bytes(array("d", arrivals(case.count, CAPACITY * case.more["share"])).tobytes())
    path = bench.folder / "ledger"
    ledger = Ledger.create(path, case.count + 1)
    with bench.workers(case, server.url, path) as programs:
        bench.send(case, server.url, count=1)
        wait_executed(ledger, range(1), programs)
        time.sleep(case.rest)
        answer = bench.send(case, server.url, first=1, offsets=offsets)
        wait_executed(ledger, range(1, case.count + 1), programs)
        time.sleep(GRACE)
    sent = answer["sent"]
    # The first waits for its producer to connect.
    waits = sorted(ledger.times[i + 1] - at for i, at in enumerate(sent) if i)
    best = sorted(ideal(sent)[1:])
    return {
        "rate": round((len(sent) - 1) / (sent[-1] - sent[0]), 1),
        "p50_ms": round(percentile(waits, 0.5) * 1000, 3), "p99_ms": round(percentile(waits, 0.99) * 1000, 3),
        "ideal_p50_ms": round(percentile(best, 0.5) * 1000, 3), "ideal_p99_ms": round(percentile(best, 0.99) * 1000, 3),
        **delivered(ledger, case.count + 1),
    }  # fmt: skip


RUNS["load"] = under_load

"""Renders docs/scale.md from the results of scale.py. Run: python benchmarks/scale_page.py RESULTS.json docs/scale.md"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import charts
from figures import DASH, quantity
from render import table

Sample = dict[str, Any]
#: The longest time that any operation may keep the server from others, in milliseconds; and how flat costs must stay.
SLOWEST_MS = 10.0
FLAT = 1.2
#: Memory of the server by which the page says how many jobs can wait.
MEMORY_GB = 16


def write(raw: dict[str, Any], page: Path) -> None:
    svg = _chart(raw["samples"])
    shown = charts.write(page.parent / "images", "scale.svg", svg, "Server CPU for each job over time")
    page.write_text(_page(raw, shown), "utf-8")


def _micros(sample: Sample, field: str = "cpu") -> float:
    return float(sample[field]) / max(1, sample["jobs"]) * 1e6


def _fewest(waiting: int, least: int) -> str:
    """What became of the jobs that waited at the start."""
    if least >= 0.9 * waiting:
        return f"At least {least:,} jobs wait all the time."
    return f"The pools are faster than the producer: the waiting jobs become fewer, {least:,} at the least, as the table below shows."


def _chart(samples: list[Sample]) -> str:
    lines = [
        ("CPU", "own", [_micros(one) for one in samples]),
        ("in scripts", "peer", [_micros(one, "script_seconds") for one in samples]),
    ]
    about = "microseconds for each job stored, fetched and settled; CPU, and time in scripts by the server's clock"
    return charts.curves("Server time per job", about, [one["at"] for one in samples], lines, "µs")


def _page(raw: dict[str, Any], chart: str) -> str:
    samples: list[Sample] = raw["samples"]
    jobs = sum(one["jobs"] for one in samples)
    seconds = sum(one["seconds"] for one in samples)
    cpu = sum(one["cpu"] for one in samples)
    batch, single = cpu / jobs * 1e6, _micros(raw["single"])
    quarter = max(1, len(samples) // 4)
    first, last = (statistics.median(map(_micros, part)) for part in (samples[:quarter], samples[-quarter:]))
    slow: dict[str, list[float]] = {}
    for one in samples:
        for name, worst in one["slow"].items():
            slow.setdefault(name, []).append(worst)
    worst = max((max(found) for found in slow.values()), default=0.0)
    least = min(one["waiting"] for one in samples)
    about = raw["machine"]
    idle = raw["idle"]
    put_aside = sum(one["put_aside"] for one in samples)
    per_waiting = raw["filled"]["bytes_per_waiting"]
    memory = max(one["memory"] for one in samples)
    return "\n".join(
        [
            "# Scale",
            "",
            "What one server carries. `make bench-scale` generates this page from `benchmarks/results/scale.json`; do not edit it.",
            "",
            f"{raw['pools']} worker processes, each with one pool of {raw['concurrency']} workers and {raw['names']} job names, share one",
            f"{raw['server']} without persistence. At the start {raw['waiting']:,} jobs wait, {raw['scheduled']:,} are scheduled, of which a hundred become due each",
            f"second, and {raw['dead']:,} are dead. For {seconds / 60:.1f} minutes the pools run jobs that do nothing, as fast as they can, and one producer enqueues as",
            f"many in bulk as it can. {_fewest(raw['waiting'], least)} One job in 10,000 fails.",
            "",
            f"Measured {raw['started']} UTC on {about['cores']} cores of {about['cpu']}, {about['memory_gb']} GB, Python {about['python']}, source of dayjob {raw['source']}.",
            f"Server, workers and producer share these cores. The workers have the lowest priority, the server {_priority(raw['server_nice'])}.",
            f"The load of the machine was {raw['load']:g} before the run.",
            "",
            "## What one Redis carries",
            "",
            table(
                ["how jobs come", "server CPU per job", "jobs/s at one full core"],
                [
                    ["in batches: queues are never empty", f"{batch:.2f} µs", f"{1e6 / batch:,.0f}"],
                    [
                        f"one by one: {raw['one_by_one_rate']} single enqueues a second for {raw['pools']} idle pools",
                        f"{single:.0f} µs",
                        f"{1e6 / single:,.0f}",
                    ],
                ],
            ),
            "",
            "The last column is the arithmetic of the one before it. Redis runs scripts in one thread, so that one core is what counts. A program",
            "that enqueues one by one while its workers are mostly idle pays for a wake-up, a fetch and a settlement of each job. The busier",
            "its workers are, the more jobs share one exchange, and the cost falls towards the first row.",
            "",
            f"- In this run the pools ran {jobs:,} jobs, {jobs / seconds:,.0f} a second. The server used {cpu / seconds:.0%} of one core: {_limit(cpu / seconds)}",
            f"- Idle, the {raw['pools']} pools send {idle['sent'] / idle['seconds']:.1f} commands a second and use {idle['cpu'] / idle['seconds']:.1%} of a core of the server.",
            f"- A waiting job takes {per_waiting:.0f} bytes; {MEMORY_GB} GB hold about {MEMORY_GB * 2**30 / per_waiting / 1e6:,.0f} million such jobs. The server used {memory / 2**30:.2f} GB at most. Larger",
            "  arguments take as much more as they are larger.",
            "",
            "## Do costs stay flat?",
            "",
            chart,
            table(
                [
                    "minute",
                    "jobs/s",
                    "server CPU µs/job",
                    "in scripts µs/job",
                    "server CPU",
                    "waiting",
                    "slowest operation",
                ],
                _minutes(samples),
            ),
            "",
            f"- Server CPU per job, last quarter / first quarter: {last / first:.2f} (asked: ≤ {FLAT:g}): {'met' if last / first <= FLAT else 'NOT MET'}.",
            f"- Slowest operation: {_worst(worst, raw)} (asked: ≤ {SLOWEST_MS:g} ms): {'met' if worst <= SLOWEST_MS else 'NOT MET'}. The server measures time, not",
            f"  CPU. The operating system took its core away from it {put_aside:,} times meanwhile.",
            *(
                f"  - `{name}`: {max(found):.1f} ms at most; over {raw['slow_micros'] / 1000:g} ms in {len(found)} of {len(samples)} samples"
                for name, found in sorted(slow.items(), key=lambda pair: -max(pair[1]))
            ),
            f"- Events over 10 ms in the server's latency monitor: {_events(raw['latency'])}.",
            f"- What an operator waits for meanwhile: {', '.join(f'{label} {value:g} ms' for label, value in raw['looks_ms'].items())}.",
            "",
            "## The next limit",
            "",
            "1. **The server's core.** Beyond the rates above, divide the namespaces over several servers. Jobs of one namespace are in one slot",
            "   of a Cluster, so that a Cluster helps only if there are several namespaces.",
            "2. **Memory.** Jobs that wait are in memory. See the figure above and your payloads.",
            "3. **Connections.** Each pool has three. Redis allows 10,000 unless `maxclients` is set, which is enough for 3,000 pools.",
            "",
        ]
    )


def _limit(part: float) -> str:
    if part > 0.85:
        return "it was the limit."
    return "it was not the limit; the workers and the producer, which shared the other cores, were."


def _priority(nice: int) -> str:
    return "a high one" if nice < 0 else "the usual one"


def _events(latency: list[list[Any]]) -> str:
    return ", ".join(f"{event} {longest} ms" for event, _, _, longest, *_ in latency) or "none"


def _worst(worst: float, raw: dict[str, Any]) -> str:
    return f"{worst:.1f} ms" if worst else f"below {raw['slow_micros'] / 1000:g} ms"


def _minutes(samples: list[Sample]) -> list[list[str]]:
    """One row for each minute."""
    rows = []
    by_minute: dict[int, list[Sample]] = {}
    for one in samples:
        by_minute.setdefault(max(0, int((one["at"] - 0.5) // 60)), []).append(one)
    for minute, found in sorted(by_minute.items()):
        jobs, seconds, cpu, scripts = (
            sum(one[field] for one in found) for field in ("jobs", "seconds", "cpu", "script_seconds")
        )
        worst = max((value for one in found for value in one["slow"].values()), default=0.0)
        rows.append(
            [
                str(minute + 1), quantity(jobs / seconds), f"{cpu / jobs * 1e6:.2f}", f"{scripts / jobs * 1e6:.2f}", f"{cpu / seconds:.0%}",
                f"{found[-1]['waiting']:,}", f"{worst:.1f} ms" if worst else DASH,
            ]
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2]))

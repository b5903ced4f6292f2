"""The tally: how often each bulk job ran, one byte per job in a mapped file per process, outside Redis.

A mapped file belongs to the kernel, so what a process counted outlives it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from faults.story import Story


@dataclass
class Count:
    """What became of the bulk jobs."""

    stored: int = 0
    runs: int = 0
    violations: list[str] = field(default_factory=list)
    doubled: int = 0
    unexplained: int = 0
    lost: int = 0


def count(folder: Path, story: Story) -> Count:
    """Add up all tallies and compare with what was stored."""
    found = Count()
    last = 0
    for event in story.events:
        if event.kind == "bulk" and event.how == "stored":
            found.stored += event.count
            last = max(last, int(event.serial.partition("-")[2]))
    tallies = {path: _first(path, last) for path in folder.glob("tally-*")}
    # No byte of the sum can carry: nothing runs 256 times.
    total = sum(int.from_bytes(data, "little") for data in tallies.values()).to_bytes(last + 1, "little")[
        :last
    ]
    found.runs = sum(total)
    if found.stored != last:
        found.violations.append(f"bulk: {last} were asked for, {found.stored} stored")
    found.lost = total.count(0)
    if found.lost:
        found.violations.append(f"bulk: {found.lost} lost, the first is {total.index(0)}")
    over = {process.pid % 10_000_000 for process in story.processes.values() if process.over}
    over |= {story.pool_of[pool] % 10_000_000 for pool in story.reaped if pool in story.pool_of}
    for match in re.finditer(rb"[^\x00\x01]", total):
        at = match.start()
        pids = [int(path.name.split("-")[1]) for path, data in tallies.items() if len(data) > at and data[at]]
        found.doubled += total[at] - 1
        if not any(pid in over for pid in pids):
            found.unexplained += 1
            found.violations.append(f"bulk {at}: ran {total[at]} times in {pids} without a cause")
    done = story.rest.totals.get("done:bulk", 0) if story.rest is not None else -1
    crashed = story.rest.crashed_bulk if story.rest is not None else 0
    if done + crashed != found.stored:
        found.violations.append(
            f"bulk: Redis counted {done} as done, {crashed} died with their processes, {found.stored} were stored"
        )
    return found


def _first(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)

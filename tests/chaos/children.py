"""The children of atomic jobs: each start left a line, in a file that outlives its process. Counted here, not listed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from faults.groups import one_family
from faults.ledger import AGAIN
from faults.story import Story


@dataclass
class Children:
    """What became of the jobs that atomic jobs enqueued."""

    stored: int = 0
    violations: list[str] = field(default_factory=list)
    doubled: int = 0
    unexplained: int = 0


@dataclass
class _Family:
    """The lines about the children of one atomic job."""

    #: Attempt of the parent to number of the child to the ids of its jobs.
    jobs: dict[str, dict[int, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    #: Id of a job to the processes that started it.
    starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def count(folder: Path, story: Story, *, totals: bool = True) -> Children:
    """Compare the lines with what the parents of this story did. With `totals` also with what Redis counted."""
    found, families = Children(), _read(folder)
    over = {process.pid % AGAIN for process in story.processes.values() if process.over}
    over |= {story.pool_of[pool] % AGAIN for pool in story.reaped if pool in story.pool_of}
    missing = 0
    for serial, life in story.lives.items():
        if life.name != "parent" or life.asked is None:
            continue
        family, wanted = families.get(serial, _Family()), life.asked.count
        counts = {place: len(numbers) for place, numbers in family.jobs.items()}
        if story.completed(life):
            found.stored += wanted
            # One that died with its processes before its first line is somewhere in dead.
            lacks = wanted - max(counts.values(), default=0)
            missing += lacks
            counts = (
                {place: there + lacks for place, there in counts.items()} if 0 < lacks < wanted else counts
            )
        problems = list(
            one_family(story, life, dict.fromkeys((one.place for one in life.attempts), wanted), counts)
        )
        found.violations += [f"I21: {problem}" for problem in problems]
        _note_doubles(found, serial, family, over)
    crashed = story.rest.crashed_children if story.rest is not None else 0
    if missing > crashed:
        found.violations.append(f"I21: {missing} children never started, {crashed} are dead")
    done = story.rest.totals.get("done:child", 0) if story.rest is not None else -1
    if totals and done + crashed != found.stored:
        found.violations.append(
            f"I21: Redis counted {done} children as done, {crashed} died with their processes, {found.stored} were stored"
        )
    return found


def _note_doubles(found: Children, serial: str, family: _Family, over: set[int]) -> None:
    for place, numbers in family.jobs.items():
        for n, jobs in numbers.items():
            if len(jobs) > 1:
                found.violations.append(f"I21: {serial}: child {n} of {place} is {len(jobs)} jobs")
    for job, pids in family.starts.items():
        found.doubled += len(pids) - 1
        if len(pids) > 1 and not any(pid in over for pid in pids):
            found.unexplained += 1
            found.violations.append(f"I21: {serial}: {job} ran {len(pids)} times in {pids} without a cause")


def _read(folder: Path) -> dict[str, _Family]:
    families: dict[str, _Family] = defaultdict(_Family)
    for path in folder.glob("children-*"):
        pid = int(path.name.split("-")[1])
        *lines, _ = path.read_text().split("\n")
        for line in lines:
            parent, number, place, job = line.split(" ")
            families[parent].jobs[place][int(number)].add(job)
            families[parent].starts[job].append(pid)
    return dict(families)


def unknown_parents(folder: Path, known: set[str]) -> list[str]:
    """Children of parents that nobody asked for."""
    strange: Counter[str] = Counter(serial for serial in _read(folder) if serial not in known)
    return [f"I21: {serial}: has children, and was never asked for" for serial in strange]

"""python -m chaos.report: add up the kept figures of all runs and write them into the page on reliability."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: made by `make chaos-report` -->", "<!-- end of figures -->"


@dataclass
class Sum:
    """All runs together."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    stops: list[dict[str, Any]] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def all(self) -> list[dict[str, Any]]:
        return [*self.runs, *self.stops, *self.recoveries, *self.others]

    def total(self, key: str) -> int:
        return sum(run.get(key, 0) for run in [*self.runs, *self.others])

    @property
    def faults(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for run in [*self.runs, *self.others]:
            found.update(run["faults"])
        return found

    def repeats(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for run in [*self.runs, *self.others]:
            found.update(run["repeats"])
        return found


def gather(folder: Path) -> Sum:
    """Every result in a folder."""
    found = Sum()
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        kind = result["scenario"]
        {"chaos": found.runs, "stops": found.stops, "recovery": found.recoveries}.get(
            kind, found.others
        ).append(result)
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def render(found: Sum) -> str:
    """The figures as Markdown."""
    parts = [_stand(found), _jobs(found), _faults(found), _recovery(found), _seeds(found)]
    return "\n\n".join("\n".join(part) for part in parts)


def _stand(found: Sum) -> list[str]:
    jobs, faults = found.total("jobs") + found.total("bulk") + found.total("children"), found.faults
    lost, unexplained = found.total("lost"), found.total("unexplained")
    stops = sum(one["stops"] for one in found.stops)
    beyond = sum(one["beyond"] for one in found.stops)
    kill, host = _times(found, "kill -9 of one child of two"), _times(found, "loss of a whole host")
    lease = max((one["lease"] for one in found.recoveries), default=0.0)
    resumed = max(_resumed(found).values(), default=0.0)
    rows: list[tuple[str, str, str, bool]] = [
        ("jobs lost", f"{lost}", "0", lost == 0),
        ("repeated runs without a recorded cause", f"{unexplained}", "0", unexplained == 0),
        ("jobs", f"{jobs:,}", "10,000,000", jobs >= 10_000_000),
        *_groups(found),
        ("faults", f"{faults.total():,}", "2,000", faults.total() >= 2000),
        ("kinds of faults", f"{len(faults)}", "20", len(faults) >= 20),
        ("random stops", f"{stops:,}", "1,000", stops >= 1000),
        ("stops that took longer than their deadline plus one second", f"{beyond}", "0", beyond == 0),
        (
            "from kill -9 of a child until its job runs again in another child",
            f"{max(kill, default=0):.2f} s, worst of {len(kill)}", "1 s", max(kill, default=99.0) <= 1.0,
        ),
        (
            f"from the loss of a whole host until its job runs again, lease {lease:g} s",
            f"{max(host, default=0):.2f} s, worst of {len(host)}", f"{lease + 5:g} s", max(host, default=99.0) <= lease + 5,
        ),
        ("until jobs complete again after a fault of the server or network", f"{resumed:.2f} s, worst case", "5 s", resumed <= 5.0),
    ]  # fmt: skip
    shown = [(what, reached, must, "met" if met else "NOT MET") for what, reached, must, met in rows]
    return ["### Summary", "", *table(("what", "measured", "target", ""), shown), "", *_stops(found)]


def _groups(found: Sum) -> list[tuple[str, str, str, bool]]:
    targets = {"batches": 2000, "workflows": 500, "children": 200_000}
    rows = [
        (
            "jobs that atomic jobs enqueued" if key == "children" else key,
            f"{found.total(key):,}", f"{target:,}", found.total(key) >= target,
        )
        for key, target in targets.items()
    ]  # fmt: skip
    zeros = {
        "batches and workflows that are stuck": "stuck",
        "callbacks, nodes and children that are doubled, missing or too early": "broken_groups",
        "starts over a limit": "over_limit",
    }
    return [
        *rows,
        *((what, f"{found.total(key)}", "0", found.total(key) == 0) for what, key in zeros.items()),
    ]


def _stops(found: Sum) -> list[str]:
    worst: dict[str, float] = {}
    for one in found.stops:
        for label, over in one["by_kind"].items():
            worst[label] = max(over, worst.get(label, -99.0))
    kinds = sorted({label.partition(", ")[2] for label in worst})
    rows = [
        (
            kind,
            *(
                f"{worst[key]:.2f} s" if (key := f"{who}, {kind}") in worst else "–"
                for who in ("pool", "worker")
            ),
        )
        for kind in kinds
    ]
    intro = "Random stops, by what the jobs were doing: the worst time beyond the deadline, for `pool.stop()` and for `dayjob worker` until its process had exited:"
    return [intro, "", *table(("jobs", "pool", "worker"), rows)]


def _jobs(found: Sum) -> list[str]:
    repeats = found.repeats()
    asked_for = repeats["fail"] + repeats["snooze"]
    rows = [
        ("jobs recorded one by one", f"{found.total('jobs'):,}"),
        ("jobs counted only", f"{found.total('bulk'):,}"),
        ("jobs that atomic jobs enqueued, counted only", f"{found.total('children'):,}"),
        ("starts under a limit", f"{found.total('limited'):,}"),
        ("– of them under a limit by key", f"{found.total('keyed'):,}"),
        ("callbacks of batches", f"{found.total('callbacks'):,}"),
        ("nodes of workflows", f"{found.total('nodes'):,}"),
        ("dead jobs of batches and workflows that an operator retried", f"{found.total('retried'):,}"),
        ("lost", found.total("lost")),
        ("run again because the handler failed or snoozed", f"{asked_for:,}"),
        ("run again for another recorded cause", f"{found.total('doubled'):,}"),
        *(
            (f"– {cause}", f"{count:,}")
            for cause, count in sorted(repeats.items())
            if cause not in ("fail", "snooze", "none")
        ),
        ("run again without a cause", found.total("unexplained")),
        ("late outcomes, which changed nothing", f"{found.total('late'):,}"),
        (
            "snapshots of all jobs: during faults, and at rest",
            f"{found.total('censuses'):,}, {found.total('rests'):,}",
        ),
    ]
    return ["### What happened to the jobs", "", *table(("", ""), rows)]


def _resumed(found: Sum) -> dict[str, float]:
    worst: dict[str, float] = {}
    for run in [*found.runs, *found.others]:
        for how, took in run["resumed"].items():
            worst[how] = max(took, worst.get(how, 0.0))
    return worst


def _faults(found: Sum) -> list[str]:
    rows = [(kind, count) for kind, count in sorted(found.faults.items())]
    worst = [(how, f"{took:.2f} s") for how, took in sorted(_resumed(found).items())]
    intro = (
        "Time from the end of a fault until a job that started after it had completed, if no other fault was active; "
        "the worst case:"
    )
    faults = ["### Faults", "", *table(("fault", "times"), rows)]
    return [*faults, "", intro, "", *table(("fault", "worst"), worst)]


def _times(found: Sum, how: str) -> list[float]:
    return [took for one in found.recoveries for took in one["times"].get(how, [])]


def _recovery(found: Sum) -> list[str]:
    kinds = dict.fromkeys(how for one in found.recoveries for how in one["times"])
    rows = []
    for how in kinds:
        times = sorted(_times(found, how))
        rows.append((how, len(times), f"{times[len(times) // 2]:.2f} s", f"{times[-1]:.2f} s"))
    return ["### One fault at a time", "", *table(("", "times", "median", "worst"), rows)]


def _seeds(found: Sum) -> list[str]:
    rows = [
        (
            run["scenario"], run["seed"], f"{run.get('jobs', 0) + run.get('bulk', 0):,}", sum(run["faults"].values()),
            run["lost"], run["doubled"], run["unexplained"], len(run["violations"]),
        )
        for run in [*found.runs, *found.others]
    ]  # fmt: skip
    rows += [
        ("stops", one["seed"], "–", one["stops"], "–", "–", "–", len(one["violations"]))
        for one in found.stops
    ]
    head = (
        "scenario",
        "seed",
        "jobs",
        "faults or stops",
        "lost",
        "repeated, with a cause",
        "repeated, without",
        "broken promises",
    )
    return ["### Every run", "", *table(head, rows)]


def main() -> int:
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.stderr.write(f"{PAGE} has no place for figures: write {BEGIN} and {END}\n")
        return 2
    PAGE.write_text(f"{before}{BEGIN}\n\n{render(gather(RESULTS))}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The benchmark: dayjob, its peers and the limits of the machine, measured in turn on one real server.

Run: python benchmarks/bench.py quick|full. Writes benchmarks/results/FORM.json and prints the tables.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(HERE / "contract"), str(SOURCE)]

import machine  # noqa: E402 - after the path
import path_cases  # noqa: E402 - after the path
import render  # noqa: E402 - after the path
from plan import Group, level, plan  # noqa: E402 - after the path
from systems import SYSTEMS, Installed, install  # noqa: E402 - after the path
from workloads import Bench, Case  # noqa: E402 - after the path


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def as_text(results: dict[str, Any]) -> str:
    """Results as JSON with one record on each line."""

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    others = compact({name: value for name, value in results.items() if name != "records"})
    return others[:-1] + ',"records":[\n' + ",\n".join(map(compact, results["records"])) + "\n]}\n"


def installed(groups: list[Group]) -> dict[str, Installed]:
    """Install what the plan needs."""
    wanted = {case.system.name for group in groups for case in group.cases} | {"dayjob"}
    found = {}
    for name in SYSTEMS:
        if name in wanted:
            found[name] = install(SYSTEMS[name])
            say(f"{name}: {found[name].version or 'NOT INSTALLED: ' + found[name].reason}")
    return found


#: Cases that run at once where a group allows it. More would starve each other, and what else runs on the machine.
MAX_TOGETHER = 6


class Progress:
    """How many of all runs have ended, and how long they took."""

    def __init__(self, groups: list[Group], rounds: int) -> None:
        self._total = sum(
            len(group.cases) * group.turns * min(rounds, group.rounds or rounds) for group in groups
        )
        self._ended = 0
        self._started = time.monotonic()

    def end(self, record: dict[str, Any]) -> None:
        """Print a run that has ended."""
        self._ended += 1
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        say(f"  {self._ended}/{self._total} {minutes}:{seconds:02} {render.brief(record)}")


def run_group(bench: Bench, group: Group, rng: random.Random, progress: Progress) -> list[dict[str, Any]]:
    """One round of a group."""
    cases = [case for case in group.cases if not bench.installed[case.system.name].reason]
    rng.shuffle(cases)
    if group.together:
        return run_together(bench, cases, progress)
    records = []
    for case in cases:
        record = bench.run(case)
        records.append(record)
        progress.end(record)
    return records


def run_together(bench: Bench, cases: list[Case], progress: Progress) -> list[dict[str, Any]]:
    """Several at once, each with a server of its own."""

    def one(number: int, case: Case) -> dict[str, Any]:
        own = Bench(bench.folder / f"together-{number}", bench.installed)
        own.folder.mkdir(exist_ok=True)
        try:
            return own.run(case)
        finally:
            own.close()

    with ThreadPoolExecutor(max(1, min(MAX_TOGETHER, len(cases)))) as threads:
        records = list(threads.map(one, range(len(cases)), cases))
    for record in records:
        progress.end(record)
    return records


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("form", choices=("tiny", "quick", "full"))
    options.add_argument("--rounds", type=int, default=3, help="runs of each case")
    options.add_argument("--only", default="", help="workloads to run, like A,C")
    options.add_argument(
        "--rows", default="", help="rows of the workloads paths and L to run, like plain,raises"
    )
    options.add_argument("--systems", default="", help="systems to run, like dayjob,bare,gocraft")
    options.add_argument(
        "--waiting", type=int, default=0, help="G: also with so many jobs waiting, like 10000000"
    )
    options.add_argument("--out", type=Path, help="results file; benchmarks/results/FORM.json by default")
    options.add_argument("--seed", type=int, default=0, help="order of the cases")
    given = options.parse_args()
    out = given.out or HERE / "results" / f"{given.form}.json"

    groups = chosen(plan(given.form), given)
    started = time.time()
    before = machine.about()
    found = installed(groups)
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="dayjob-bench-") as folder:
        bench = Bench(Path(folder), found)
        results: dict[str, Any] = {
            "form": given.form,
            "rounds": given.rounds,
            "started": time.strftime("%Y-%m-%d %H:%M", time.gmtime(started)),
            "machine": before,
            "server": bench.server().version(),
            "source": machine.source(SOURCE),
            "systems": {name: {"version": one.version, "reason": one.reason} for name, one in found.items()},
            "records": [],
        }
        progress = Progress(groups, given.rounds)
        try:
            for round_ in range(given.rounds):
                for group in groups:
                    if group.rounds and round_ >= group.rounds:
                        continue
                    say(f"round {round_ + 1} of {given.rounds}: {group.title}")
                    for turn in range(group.turns):
                        for record in run_group(bench, group, rng, progress):
                            results["records"].append({**record, "round": round_, "turn": turn})
        finally:
            bench.close()
            results["source_after"] = machine.source(SOURCE)
            results["seconds"] = round(time.time() - started)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(as_text(results))
    print(render.report(results))
    say(f"{results['seconds']} s; written to {out}")


def chosen(groups: list[Group], given: argparse.Namespace) -> list[Group]:
    """The groups as narrowed by the options."""
    workloads, systems, rows = (
        set(filter(None, text.split(","))) for text in (given.only, given.systems, given.rows)
    )
    kept = []
    for group in groups:
        cases = [
            case
            for case in path_cases.chosen(group.cases, rows)
            if (not workloads or group.title in workloads) and (not systems or case.system.name in systems)
        ]
        if cases:
            kept.append(replace(group, cases=tuple(cases)))
    if given.waiting:
        kept.append(Group("G", (level(given.waiting),)))
    return kept


if __name__ == "__main__":
    main()

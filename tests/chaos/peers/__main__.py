"""python -m chaos.peers: dayjob and its peers under the same faults, the figures as JSON and as a table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from chaos.peers.attack import EVERY, FAULTS, JOBS, PATIENCE, RATE, Result, attack
from chaos.peers.fleet import LEASE, LENGTH, Fleet

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reliability-peers.md"
FIGURES = Path(__file__).with_name("figures.json")
sys.path.insert(0, str(ROOT / "benchmarks"))

import systems  # noqa: E402 - found through the line above

#: System to what is set, workers, and how many jobs each runs at once.
SYSTEMS = {
    "dayjob": (f"`lease={LEASE}`, supervised workers of one process", 4, 4),
    "celery": (f"`acks_late`, `reject_on_worker_lost`, prefetch 1, `visibility_timeout` {LEASE} s, prefork", 4, 4),
    "rq": (f"`Worker` (forks per job), `Retry(20)`, monitoring 1 s, maintenance {LEASE} s, `worker_ttl` {LEASE * 3} s", 8, 1),
    "dramatiq": (f"`heartbeat_timeout` {LEASE} s, 20 retries, maintenance at one call in ten", 4, 4),
    "arq": (f"`job_timeout` {LEASE} s, 20 tries", 4, 4),
    "saq": (f"`timeout` and `heartbeat` {LEASE} s, 20 retries, swept every 5 s", 4, 4),
    "streaq": (f"`idle_timeout` {LEASE} s, prefetch 0, 20 tries", 4, 4),
}  # fmt: skip


def play(name: str, folder: Path, seed: int) -> Result:
    """Attack one system."""
    settings, workers, concurrency = SYSTEMS[name]
    installed = systems.install(systems.SYSTEMS[name])
    result = Result(name, installed.version, settings)
    if installed.reason:
        result.reason = installed.reason
        return result
    fleet = Fleet(name, installed.command[0], folder / name, workers=workers, concurrency=concurrency)
    try:
        attack(fleet, result, seed)
    finally:
        fleet.close()
    return result


def table(results: list[Result]) -> str:
    """One line for each system and fault."""
    rows = [
        "| system | fault | faults | jobs | lost | ended twice | interrupted | slowest rescue | longest wait |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        title = f"{result.name} {result.version}"
        if result.reason:
            rows.append(f"| {title} | not measured: {result.reason} | | | | | | | |")
        for part in result.parts:
            lost = f"{part.lost}" + (f" ({part.lost_begun} begun)" if part.lost_begun else "")
            rescue = f"{part.slowest:g} s" if part.interrupted else "–"
            rows.append(
                f"| {title} | {part.fault} | {part.faults} | {part.stored} | {lost} | {part.twice} | {part.interrupted} "
                f"| {rescue} | {part.longest:g} s |"
            )
    return "\n".join(rows) + "\n"


def write(results: list[Result], seed: int) -> None:
    """Keep the figures, and put the tables into the page."""
    figures = {
        "seed": seed, "python": platform.python_version(), "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "jobs a part": JOBS, "jobs a second": RATE, "job seconds": LENGTH, "faults a part": FAULTS, "fault every seconds": EVERY,
        "patience seconds": PATIENCE, "systems": [dataclasses.asdict(result) for result in results],
    }  # fmt: skip
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    settings = "| system | settings | workers × jobs at once |\n|---|---|---|\n" + "".join(
        f"| {result.name} {result.version} | {result.settings} | {SYSTEMS[result.name][1]} × {SYSTEMS[result.name][2]} |\n"
        for result in results
    )
    text = PAGE.read_text("utf-8")
    for mark, found in (("figures", table(results)), ("settings", settings)):
        block = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = block.sub(lambda old, found=found: f"{old[1]}\n{found}\n{old[2]}", text)
    PAGE.write_text(text, "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.peers", description=__doc__)
    parser.add_argument("systems", nargs="*", choices=[*SYSTEMS, []], help="which; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/reliability-peers.md")
    parser.add_argument("--keep", type=Path, help="a folder for ledgers and logs")
    options = parser.parse_args()
    # The proxy is written to by workers whose connection it has just cut: that is its purpose.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="dayjob-peers-"))
    names = options.systems or list(SYSTEMS)
    results: dict[str, Result] = {}
    places = threading.Semaphore(2)

    def one(name: str) -> None:
        with places:
            results[name] = play(name, folder, options.seed)
            sys.stderr.write(table([results[name]]))

    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = [results[name] for name in names if name in results]
    sys.stdout.write(table(ordered))
    if options.write:
        write(ordered, options.seed)
    if options.keep is None:
        shutil.rmtree(folder)
    return 0 if len(ordered) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())

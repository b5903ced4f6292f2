"""python -m chaos: a run of seeded faults, its verdict on standard output, and its figures as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from chaos import faults, recovery, runner, stops, topologies
from chaos.jobs import LEASE


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument(
        "scenario",
        nargs="?",
        choices=["faults", "stops", "recovery", "sentinel", "cluster"],
        default="faults",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the faults go on")
    parser.add_argument(
        "--count", type=int, default=100, help="how many stops, kills of each kind, failovers or reshards"
    )
    parser.add_argument("--bulk", type=int, default=4_000_000, help="how many bulk jobs at most")
    parser.add_argument("--small", action="store_true", help="fewer processes and no slow faults")
    parser.add_argument(
        "--only", action="append", choices=sorted(faults.KINDS), help="only faults of this kind"
    )
    parser.add_argument(
        "--empty",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="at the end, have the server lose all it has",
    )
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    parser.add_argument("--keep", type=Path, help="a folder that is kept, with ledgers and logs")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="dayjob-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    figures = play(options, folder)
    text = json.dumps(figures, indent=1)
    sys.stdout.write(text + "\n")
    if options.out is not None:
        options.out.write_text(text + "\n")
    broken = figures["violations"]
    if broken:
        sys.stderr.write(f"{len(broken)} violations; everything is kept in {folder}\n")
    elif options.keep is None:
        shutil.rmtree(folder)
    return 1 if broken else 0


def play(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play one scenario; its figures."""
    if options.scenario == "stops":
        return {"scenario": "stops", **dataclasses.asdict(stops.run(options.seed, options.count))}
    if options.scenario == "recovery":
        measured = recovery.measure(folder, options.seed, options.count, LEASE)
        return {"scenario": "recovery", **dataclasses.asdict(measured)}
    if options.scenario in ("sentinel", "cluster"):
        scenario = topologies.failovers if options.scenario == "sentinel" else topologies.reshards
        return dataclasses.asdict(scenario(folder, options.seed, options.count))
    only = None if options.only is None else set(options.only)
    result = runner.run(
        folder,
        options.seed,
        options.minutes,
        small=options.small,
        bulk=options.bulk,
        only=only,
        empty=options.empty,
    )
    return runner.as_json(result)


if __name__ == "__main__":
    sys.exit(main())

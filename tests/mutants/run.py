"""Runs the mutants: breaks a copy of the tree in one place at a time, and runs the tests that must notice.

python tests/mutants/run.py [part of a name ...]; the answer is 1 when a mutant lives. `--jobs N` runs N at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import ALL, ROOT, Mutant

#: What a copy consists of.
PARTS = ("src", "tests", "examples", "pyproject.toml", "docs", "README.md")
#: The exit code of pytest when some tests failed; others mean that they could not be run.
FAILED = 1


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def copy_tree(source: Path, folder: Path) -> None:
    """Copy what the tests need."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis", "chaos")
    for part in PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, folder / part, ignore=ignore)
        elif (source / part).exists():
            shutil.copy(source / part, folder / part)


def run_tests(folder: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Run tests of the copy at `folder`: the exit code, and the test that failed, or the last lines."""
    environ = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=line", *tests,
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    failed = [line.split()[1] for line in lines if line.startswith("FAILED ")]
    return ended.returncode, failed[0] if failed else "\n".join(lines[-6:])


def try_one(base: Path, mutant: Mutant) -> tuple[str, float, str]:
    """Run the tests of one mutant in a copy of its own: killed, alive or an error, seconds, and what failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        copy_tree(base, folder)
        mutant.apply(folder)
        code, said = run_tests(folder, mutant.tests)
    fate = {FAILED: "killed", 0: "ALIVE"}.get(code, f"ERROR {code}")
    return fate, time.monotonic() - began, said


def main() -> int:
    """Try all of them, or those whose names contain one of the words given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names; all mutants without one")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = [one for one in ALL if not options.words or any(word in one.name for word in options.words)]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(options.jobs) as pool:
        base = Path(name)
        copy_tree(ROOT, base)
        # Without a mutant they pass, or their failing would say nothing.
        code, said = run_tests(base, tuple(sorted({test for mutant in chosen for test in mutant.tests})))
        if code != 0:
            tell(f"the tests fail without a mutant:\n{said}")
            return 1
        answers = pool.map(lambda mutant: try_one(base, mutant), chosen)
        for mutant, (fate, seconds, said) in zip(chosen, answers, strict=True):
            tell(f"{fate:8} {seconds:6.1f} s  {mutant.name}\n{'':19}{said}")
            bad += fate != "killed"
    tell(f"{len(chosen) - bad} of {len(chosen)} mutants were killed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

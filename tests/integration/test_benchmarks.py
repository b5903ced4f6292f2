"""The benchmark driver runs; nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The first test waits for a whole run of the driver.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[dict, str]:
    """What a tiny run wrote, and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "tiny.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "bench.py"), "tiny", "--rounds", "1", "--out", str(out)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


def test_every_workload_is_measured_without_an_error(results):
    records = results[0]["records"]
    assert {record["workload"] for record in records} >= {
        "A",
        "B",
        "C",
        "D",
        "F",
        "G ops",
        "H",
        "paths",
        "enqueue",
    }
    assert [record["error"] for record in records if record["error"]] == []


def test_every_run_says_what_was_delivered(results):
    drained = [record for record in results[0]["records"] if "executed" in record]
    assert len(drained) >= 9
    assert all(record["missing"] == 0 and record["twice"] == 0 for record in drained)


def test_every_run_records_the_load_of_the_machine(results):
    assert all({"foreign", "load", "loop_ms"} <= record.keys() for record in results[0]["records"])


def test_the_tables_are_rendered_from_the_results_file(results, tmp_path):
    raw, printed = results
    source, page = tmp_path / "results.json", tmp_path / "page.md"
    source.write_text(json.dumps(raw))
    script = ROOT / "benchmarks" / "render.py"
    subprocess.run([sys.executable, str(script), str(source), str(page)], check=True, timeout=120)
    assert page.read_text().endswith(printed.rstrip("\n") + "\n")
    assert "| A | sync / bare loop |" in printed
    assert "NOT INSTALLED" not in printed


def test_the_readme_has_the_five_rows_that_the_results_file_gives(tmp_path):
    readme, page = tmp_path / "README.md", tmp_path / "page.md"
    readme.write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    source = ROOT / "benchmarks" / "results" / "full.json"
    script = ROOT / "benchmarks" / "render.py"
    subprocess.run(
        [sys.executable, str(script), str(source), str(page), str(readme)], check=True, timeout=120
    )
    assert readme.read_text("utf-8") == (ROOT / "README.md").read_text("utf-8")
    figures = readme.read_text("utf-8").partition("<!-- figures:")[2].partition("<!-- end of figures -->")[0]
    head, _, *rows = [line for line in figures.splitlines() if line.startswith("|")]
    assert "jobs/s" in head
    assert len(rows) == 5

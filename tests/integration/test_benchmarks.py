"""The benchmark driver runs; nothing here looks at a time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
#: The first test waits for a whole run of the driver.
pytestmark = pytest.mark.timeout(1000)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[dict, str]:
    """What a tiny run wrote, and what it printed."""
    out = tmp_path_factory.mktemp("bench") / "tiny.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "bench.py"), "tiny", "--rounds", "1", "--out", str(out)],
        capture_output=True, text=True, timeout=900, check=False,
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
        "load",
        "groups",
        "call",
        "children",
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


def test_the_readme_has_the_rows_that_the_results_file_gives(tmp_path):
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
    # A system that was not installed for the run has no row.
    assert [row.split("|")[1].split()[0].strip(",") for row in rows[:2]] == ["dayjob", "gocraft/work"]
    assert len(rows) > 3


def test_every_reason_for_a_missed_budget_names_a_budget(results, tmp_path):
    source = tmp_path / "results.json"
    source.write_text(json.dumps(results[0]))
    program = (
        "import json, sys, render; from figures import Results;"
        "names = {one.name for path in sys.argv[1:] for one in render.all_budgets(Results(json.load(open(path))))};"
        "print(json.dumps(sorted(set(render.reasons()) - names)))"
    )
    full = ROOT / "benchmarks" / "results" / "full.json"
    done = subprocess.run(
        [sys.executable, "-c", program, str(source), str(full)],
        cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == []


def test_the_page_shows_charts_of_what_was_measured(results, tmp_path):
    source, page = tmp_path / "results.json", tmp_path / "page.md"
    source.write_text(json.dumps(results[0]))
    script = ROOT / "benchmarks" / "render.py"
    subprocess.run([sys.executable, str(script), str(source), str(page)], check=True, timeout=120)
    shown = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", page.read_text())
    assert shown == ["images/bench-throughput.svg", "images/bench-latency.svg", "images/bench-paths.svg"]
    titles = [
        ET.parse(tmp_path / name).getroot().findtext("{http://www.w3.org/2000/svg}title")  # noqa: S314 - a file of ours
        for name in shown
    ]
    assert titles == ["No-op jobs per second", "Latency under load", "Paths beside the plain one"]

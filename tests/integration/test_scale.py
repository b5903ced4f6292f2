"""The program that measures what one server carries runs; nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1000)


def test_the_scale_of_a_small_fleet_is_measured_and_rendered(tmp_path):
    out, page = tmp_path / "scale.json", tmp_path / "scale.md"
    small = "--pools 2 --waiting 2000 --scheduled 100 --dead 100 --minutes 0.02 --idle 0.5 --one-by-one 0.5"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "scale.py"), *small.split(), "--out", str(out), "--page", str(page)],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sum(one["jobs"] for one in json.loads(out.read_text())["samples"]) > 0
    text = page.read_text()
    assert "2 worker processes, each with one pool of 4 workers" in text
    assert (tmp_path / "images" / "scale.svg").exists()

"""scripts/debian.py: packages are installed also where the first try fails, as on a machine that was started a minute ago."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

APT = """#!/bin/sh
echo "$RUNLEVEL $*" >> "$LOG"
count=$(wc -l < "$LOG")
[ "$count" -gt "$FAILING" ]
"""


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """The script, with an apt-get that fails a number of times."""
    spec = importlib.util.spec_from_file_location("debian", ROOT / "scripts" / "debian.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)
    apt = tmp_path / "apt-get"
    apt.write_text(APT)
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return module


@pytest.mark.parametrize(
    ("failing", "installed", "calls"), [(0, True, 2), (1, True, 2), (3, True, 4), (99, False, 8)]
)
def test_a_mirror_that_fails_is_asked_again_from_the_index_on(
    debian, tmp_path, monkeypatch, failing, installed, calls
):
    monkeypatch.setenv("FAILING", str(failing))
    assert debian.install(["ruby", "gcc"]) is installed
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == calls
    for update, install in zip(lines[::2], lines[1::2], strict=True):
        # No service of a package is started, and a lock that another program holds is waited for.
        assert update.startswith("1 ")
        assert "Lock::Timeout" in install
        assert update.endswith("update -q")
        assert install.endswith("--no-install-recommends ruby gcc")


def test_packages_can_be_installed_by_root_alone(debian, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not debian.possible()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert debian.possible()

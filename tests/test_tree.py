"""What is in the repository: nothing that a run of anything has left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Files beside the folders.
TOP = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "mkdocs.yml", "pyproject.toml",
}  # fmt: skip
MAX_BYTES = 300_000


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone, so the tracked files are not known")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def test_only_known_files_are_beside_the_folders(tracked: list[Path]) -> None:
    assert {str(path) for path in tracked if len(path.parts) == 1} <= TOP


def test_no_file_is_large(tracked: list[Path]) -> None:
    assert not [path for path in tracked if (ROOT / path).stat().st_size > MAX_BYTES]

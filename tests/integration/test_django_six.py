"""The same tests with Django 6, which needs a newer Python than the oldest that dayjob supports: in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server import binary

ROOT = Path(__file__).resolve().parents[2]
FILES = tuple(f"tests/integration/test_django_{name}.py" for name in ("app", "guide", "tasks", "outbox"))


def interpreter() -> str | None:
    """A Python of 3.12 or newer: this one, one on the PATH, or one of pyenv's."""
    if sys.version_info >= (3, 12):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in ("3.13", "3.12", "3.14"):
        on_path = shutil.which(f"python{version}")
        for found in [*([on_path] if on_path else []), *map(str, pyenv.glob(f"{version}.*/bin/python"))]:
            # A shim of pyenv is there for versions that are not switched on.
            if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
                return found
    return None


def environment(python: str) -> Path:
    """An environment with Django 6, made once and kept under build/."""
    folder = ROOT / "build" / "django6"
    ready = folder / f"ready-{sys.version_info.major}"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run(
            [
                *pip, "--editable", f"{ROOT}[web,speed]", "django>=6,<7", "psycopg[binary]>=3.2", "httpx", "pytest>=8.3",
                "pytest-timeout>=2.3", "psutil", "hypothesis",
            ],
            check=True,
        )  # fmt: skip
        ready.touch()
    return folder / "bin" / "python"


@pytest.mark.timeout(3600)
def test_the_tests_of_django_pass_with_django_six():
    python = interpreter()
    if python is None:
        pytest.skip("Django 6 needs Python 3.12 or newer, and there is none on this machine")
    done = subprocess.run(
        [str(environment(python)), "-W", "default", "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES],
        cwd=ROOT, env={**os.environ, "DAYJOB_TEST_SERVER": binary()}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

"""`make oldest` installs the lower bounds of pyproject.toml, and of everything that dayjob works with."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: Extras that bring a program or a tool of dayjob, and integrate nothing.
TOOLS = {"server", "dev", "tui", "mcp", "all"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("oldest", ROOT / "scripts" / "oldest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bounds(requirements: list[str]) -> dict[str, str]:
    """Name to lower bound, without what pulls in another extra and what only Windows needs."""
    found = {}
    for one in requirements:
        if one.startswith("dayjob[") or "== 'win32'" in one:
            continue
        name, version = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)(?:;.*)?", one).groups()
        found[name] = version
    return found


def test_every_lower_bound_of_an_integration_is_the_version_that_is_installed(script):
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = bounds(PROJECT["project"]["dependencies"])
    for name in extras.keys() - TOOLS:
        wanted |= bounds(extras[name])
    group = bounds(PROJECT["dependency-groups"]["test"])
    wanted |= {name: group[name] for name in script.OTHERS}
    pinned = [re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)", one).groups() for one in script.requirements()]
    assert sorted(pinned) == sorted(wanted.items())


def test_the_tests_install_nothing_older_than_the_extras_promise():
    group = bounds(PROJECT["dependency-groups"]["test"])
    for requirements in PROJECT["project"]["optional-dependencies"].values():
        for name, version in bounds(requirements).items():
            assert group.get(name, version) == version, name


def test_the_tests_of_every_integration_run_with_the_oldest_packages(script):
    folder = ROOT / "tests" / "integration"
    for name in (*script.TESTS, *script.SLOW_FILES):
        assert (folder / f"test_{name}.py").is_file()
    assert set(script.SLOW_FILES) < set(script.TESTS)
    # Django 6 has an environment of its own.
    of_django = {path.stem.removeprefix("test_") for path in folder.glob("test_django*.py")} - {"django_six"}
    assert of_django < set(script.TESTS)
    assert "make oldest QUICK=--quick" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_a_python_is_found_for_which_old_packages_have_wheels(script, tmp_path, monkeypatch):
    assert script.interpreter((3, 12)) == script.sys.executable
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(SystemExit, match=r"need Python 3\.11 or 3\.12"):
        script.interpreter((3, 14))
    shim, python = tmp_path / "python3.11", tmp_path / "versions" / "3.12.1" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for path, code in ((shim, 127), (python, 0)):
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    assert script.interpreter((3, 14)) == str(python)

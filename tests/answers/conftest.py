"""The four places an operator looks at: web pages, the API, the command line and the terminal, over one namespace."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import run_command
from integration.conftest import announce, look, new_pool  # noqa: F401 - fixtures
from tui.conftest import Terminal, terminal, top  # noqa: F401 - fixtures
from web.conftest import RunningConsole, console  # noqa: F401 - fixtures

SRC = str(Path(__file__).resolve().parents[2] / "src")


class Faces:
    """Reads the same facts in each place."""

    def __init__(
        self, served: RunningConsole, redis_url: str, start_top: Callable[..., Terminal], folder: Path
    ) -> None:
        self.console = served
        self._there = ("--redis", redis_url, "--namespace", served.namespace)
        self._top = start_top
        self._folder = folder

    def page(self, path: str, status: int = 200, **query: Any) -> str:
        """The text of the main part of a page, with single spaces."""
        answer = self.console.get(path, params=query, headers={"accept": "text/html"})
        assert answer.status_code == status, answer.text
        main = answer.text.partition("<main")[2].partition("</main>")[0]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())

    def api(self, path: str, **query: Any) -> Any:
        return self.console.api(path, **query)

    def run(self, *words: str, zone: str = "UTC", code: int = 0) -> str:
        """What a command prints, with single spaces; for another `code` than 0, with its errors."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        env = {**kept, "PYTHONPATH": SRC, "TZ": zone}
        done = run_command((*words, *self._there), cwd=self._folder, env=env)
        assert done.returncode == code, done.stderr
        printed = done.stdout + (done.stderr if code else "")
        return "\n".join(" ".join(line.split()) for line in printed.splitlines())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on until it is ended."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", "dayjob", *words, *self._there],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._folder, env={**kept, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    def run_json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def top(self, tab: str, zone: str = "UTC") -> Terminal:
        """The terminal on one tab, wide enough for every column."""
        return self._top("--tab", tab, columns=220, lines=60, TZ=zone)


@pytest.fixture
def faces(console, redis_url, top, tmp_path) -> Faces:  # noqa: F811 - the fixtures above
    return Faces(console, redis_url, top, tmp_path)


@pytest.fixture
def admin(console):  # noqa: F811 - the fixture above
    return console.admin

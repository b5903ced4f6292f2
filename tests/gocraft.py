"""The real gocraft/work as a process, for the tests: built once, told what to do line by line (see wire/go/main.go)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "wire" / "go"
#: Seconds a build may take on a machine that has never built anything.
MAX_BUILD = 300


class GoError(Exception):
    """What the library answered instead of a value."""


def build(folder: Path, *, released: bool = False) -> Path:
    """Build the program, with the last released version or the later one that most forks come from."""
    go = shutil.which("go")
    if go is None:
        what = "go is not installed: nothing here was tested beside the real gocraft/work (https://go.dev/dl)"
        if os.environ.get("CI") == "true":
            pytest.fail(what)
        pytest.skip(what)
    program = folder / ("gocraft_released" if released else "gocraft")
    version = ("-tags", "released", "-modfile=released.mod") if released else ()
    done = subprocess.run(
        [go, "build", *version, "-o", str(program), "."],
        cwd=SOURCE, capture_output=True, text=True, timeout=MAX_BUILD, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"go build failed in {SOURCE}:\n{done.stdout}{done.stderr}"
    return program


class Gocraft:
    """One process of the program, with an enqueuer, a client and at most one worker pool."""

    def __init__(self, program: Path, address: str, namespace: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(program), "-redis", address, "-ns", namespace],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
            )  # fmt: skip

    def ask(self, do: str, /, **fields: Any) -> Any:
        """Have something done; the answer is what the library returned. Raises GoError."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the Go program ended:\n{self.log.read_text()}"
        answer = json.loads(line)
        if answer["error"]:
            raise GoError(answer["error"])
        return answer["value"]

    def start(self, *, periodic: dict[str, str] | None = None, concurrency: int = 2, **jobs: Any) -> None:
        """Start a worker pool; each job is named with what its handler does, or with all that is set of it."""
        specs = {name: {"does": spec} if isinstance(spec, str) else spec for name, spec in jobs.items()}
        self.ask("start", jobs=specs, periodic=periodic or {}, concurrency=concurrency)

    def ran(self, name: str | None = None) -> list[dict[str, Any]]:
        """The calls of handlers that were begun, in order."""
        return [run for run in self.ask("ran") if name in (None, run["name"])]

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

"""Nursery: a process that does operations in children of its own, to be killed at once and cheaply."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import crash_groups
from crashes import ALL
from dayjob.store.keys import Keys

OPERATIONS = ALL | crash_groups.ALL


class Nursery:
    """A process that forks one child for each operation: to start an interpreter for each would take minutes."""

    def __init__(self, port: int) -> None:
        environ = os.environ | {"DAYJOB_TEST_PORT": str(port), "PYTHONPATH": str(Path(__file__).parent)}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )

    def begin(self, name: str, url: str, keys: Keys, folder: Path) -> int:
        """Start an operation in a child that waits for `go`; the answer is its pid."""
        return int(self._ask(json.dumps([name, url, keys.namespace, str(folder)])))

    def go(self) -> int:
        """Let it run until it ends; the answer is its exit status, negative for a signal."""
        return int(self._ask("go"))

    def _ask(self, line: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _serve() -> None:
    """The nursery's own loop."""
    while line := sys.stdin.readline():
        name, url, namespace, folder = json.loads(line)
        ready_r, ready_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready_w)
            os.read(ready_r, 1)
            code = 0
            try:
                OPERATIONS[name].act(url, Keys(namespace), Path(folder))
            except BaseException as error:
                sys.stderr.write(f"{name}: {error!r}\n")
                code = 1
            os._exit(code)
        _answer(pid)
        sys.stdin.readline()
        os.close(ready_r)
        os.close(ready_w)
        _, status = os.waitpid(pid, 0)
        _answer(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _serve()

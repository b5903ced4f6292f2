"""The `dayjob` command itself, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED_AT = """
import os, signal, sys

# A shell starts background jobs with SIGINT ignored, and the tests may run in one.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["dayjob", "stats", "--help"]
from dayjob.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["dayjob.cli", "click"])
def test_ctrl_c_while_a_command_starts_shows_no_traceback(module):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT.format(module=module)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_python_m_dayjob_runs_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "--version"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dayjob, version")

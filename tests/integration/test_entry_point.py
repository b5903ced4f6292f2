"""The `dayjob` command itself, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dayjob.cli import main
from dayjob.store.link_errors import NEXT_STEP

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


def failed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, list[str]]:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    return ended.value.code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["queus", "ls"], "Did you mean 'queues'?"),
        (["queues", "purg"], "Did you mean 'purge'?"),
        (["queues", "q"], "There are: key, keys, limit, ls, pause, purge, resume, show."),
    ],
)
def test_a_command_that_does_not_exist_names_the_nearest_or_all(args, hint, capsys):
    code, lines = failed(capsys, *args)
    assert code == 2
    assert lines[-1].endswith(hint)


def test_a_command_that_cannot_reach_redis_names_the_server_once_and_the_next_step(capsys):
    code, lines = failed(capsys, "queues", "ls", "--redis", "redis://127.0.0.1:1")
    assert code == 69
    assert [line.count("127.0.0.1:1") for line in lines] == [1, 0]
    assert lines[1].strip() == NEXT_STEP

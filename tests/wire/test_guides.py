"""The code that the guides show of other systems is code: it compiles. What they show of dayjob is run by test_docs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gocraft import SOURCE

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.timeout(900)


def shown(guide: str, language: str) -> list[str]:
    """The blocks in one language, those of Python that begin with the name of a file from before."""
    blocks = [code for found, code in BLOCK.findall((GUIDES / guide).read_text("utf-8")) if found == language]
    return [code for code in blocks if language != "python" or code.startswith("# before/")]


def tool(name: str) -> str:
    """A compiler, or the test ends here and says so."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed: what a guide shows in its language was not compiled")
        pytest.skip(f"{name} is not installed: what a guide shows in its language was not compiled")
    return found


@pytest.mark.parametrize("guide", ["from-celery.md", "from-rq.md", "from-dramatiq.md"])
def test_what_a_guide_shows_of_another_python_system_compiles(guide):
    [code] = shown(guide, "python")
    compile(code, guide, "exec")


def test_what_the_guide_shows_of_sidekiq_compiles(tmp_path):
    [code] = shown("from-sidekiq.md", "ruby")
    path = tmp_path / "shop.rb"
    path.write_text(code)
    done = subprocess.run([tool("ruby"), "-wc", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Syntax OK\n"), done.stderr


def test_what_the_guide_shows_of_gocraft_builds_with_the_real_library(tmp_path):
    go = tool("go")
    [code] = shown("gocraft.md", "go")
    (tmp_path / "main.go").write_text(code)
    for name in ("go.mod", "go.sum"):
        shutil.copy(SOURCE / name, tmp_path / name)
    done = subprocess.run(
        [go, "vet", "."], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr

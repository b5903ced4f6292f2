"""The names that `import dayjob` gives, and what it does not load."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dayjob

#: What a program that only defines or enqueues jobs must not pay for.
HEAVY = (
    "asyncio", "click", "concurrent.futures", "cronsim", "dayjob.admin", "dayjob.cli", "dayjob.enqueue.enqueuer",
    "dayjob.store.async_link", "dayjob.store.link", "dayjob.testing", "dayjob.web", "dayjob.worker", "multiprocessing", "redis",
    "sqlite3", "ssl", "starlette", "subprocess", "uvloop",
)  # fmt: skip


def loaded_by(program: str) -> set[str]:
    """The modules that a fresh interpreter has after a program."""
    source = Path(dayjob.__file__).parent.parent
    text = f"import sys; sys.path.insert(0, {str(source)!r}); {program}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=240
    )
    return set(done.stdout.split())


def test_all_is_sorted_complete_and_short():
    assert dayjob.__all__ == sorted(dayjob.__all__)
    assert len(dayjob.__all__) <= 32
    assert len(set(dayjob.__all__)) == len(dayjob.__all__)
    for name in dayjob.__all__:
        assert getattr(dayjob, name) is not None


def test_every_public_name_that_the_package_imports_is_in_all():
    tree = ast.parse(inspect.getsource(dayjob))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dayjob")
        for alias in node.names
    }
    assert imported <= set(dayjob.__all__)


def test_a_star_import_gives_exactly_these_names():
    given: dict[str, object] = {}
    exec("from dayjob import *", given)  # noqa: S102 - what it does is what is tested
    assert set(given) - {"__builtins__"} == set(dayjob.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = dayjob.nothing_like_this


@pytest.mark.parametrize("name", [name for name in dayjob.__all__ if not name.startswith("__")])
def test_every_public_name_says_what_it_is(name):
    documented = inspect.getdoc(getattr(dayjob, name)) or ""
    assert documented.splitlines()[0].endswith(".")


def test_importing_dayjob_loads_nothing_heavy():
    found = loaded_by("import dayjob")
    assert "dayjob.pool" in found
    assert [module for module in HEAVY if module in found] == []


def test_defining_jobs_loads_neither_worker_nor_redis():
    program = "import dayjob; pool = dayjob.WorkerPool(namespace='n'); pool.job('a')(lambda: None)"
    found = loaded_by(program)
    assert [module for module in HEAVY if module in found] == []


def test_an_enqueuer_loads_redis_but_no_worker_and_no_command_line():
    found = loaded_by("import dayjob; dayjob.Enqueuer('n', redis='redis://127.0.0.1:1')")
    assert "dayjob.store.link" in found
    for module in ("dayjob.worker", "dayjob.cli", "dayjob.admin", "click", "uvloop", "cronsim"):
        assert module not in found

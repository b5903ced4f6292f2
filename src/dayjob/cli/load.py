"""Finds the pool that `module:pool` names. If it cannot, the error explains what to write."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from dayjob.errors import DayjobError, NotReady, UsageError
from dayjob.names import suggest
from dayjob.pool import WorkerPool
from dayjob.text import message_of

#: How many lines of an error in the program are shown.
_MAX_LINES = 3
_OURS = str(Path(__file__).resolve().parent.parent) + os.sep


def find_pool(target: str) -> WorkerPool[Any]:
    """The pool that `module:pool` names; `module` alone is enough if it has one pool. Raises UsageError."""
    name, _, path = target.partition(":")
    _check_form(target, name)
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    module = _import(name)
    if not path:
        return _only_pool(module)
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(_no_attribute(module, found, part, target)) from None
        except Exception as error:  # a module may make its pool at first use, and raise anything
            raise UsageError(_explained(name, error)) from error
    if not isinstance(found, WorkerPool):
        pools = _pools(module)
        hint = f"Write {name}:{pools[0]}" if pools else "Name a WorkerPool"
        raise UsageError(f"{target} is a {type(found).__name__}, not a WorkerPool.\n    {hint}.")
    return found


def ready_pool(target: str) -> WorkerPool[Any]:
    """The pool that `module:pool` names, with all its jobs imported and checked. Raises UsageError."""
    pool = find_pool(target)
    problems = pool.check()
    if problems:
        more = f"\n    {len(problems) - 1} more: dayjob check {target}" if len(problems) > 1 else ""
        raise type(problems[0])(f"{problems[0]}{more}")
    if not len(pool.registry):
        raise NotReady(
            f"{target} has no jobs.\n    Write @pool.job above a function, "
            "or name the modules that do in WorkerPool(include=[...])"
        )
    return pool


def _check_form(target: str, name: str) -> None:
    if name.endswith(".py") or "/" in name or os.sep in name:
        dotted = name.removesuffix(".py").strip("./" + os.sep).replace(os.sep, ".").replace("/", ".")
        # A package is imported by its folder's name; by this one it would be imported twice.
        dotted = dotted.removesuffix(".__init__")
        rest = target[len(name) :]
        raise UsageError(
            f"{target!r} is a path, but a module is needed.\n    Write {dotted}{rest or ':pool'}"
        )
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{target!r} names no module.\n    Write module:pool, like app.jobs:pool")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, SystemExit included
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise UsageError(_no_module(name, missing)) from None
        raise UsageError(_explained(name, error)) from error


def _no_module(name: str, missing: str) -> str:
    package, _, last = missing.rpartition(".")
    parent = sys.modules.get(package) if package else None
    if package and not hasattr(parent, "__path__"):
        return f"cannot import {name}: {package} is a module, not a package, so there is no {missing}."
    # Without the standard library, which has a similar name for almost anything.
    own = [path or "." for path in sys.path if not path.startswith((sys.prefix, sys.base_prefix))]
    paths = list(parent.__path__) if parent is not None else own
    near = suggest(last, [found.name for found in pkgutil.iter_modules(paths)])
    where = f"in the package {package}" if package else f"in {os.getcwd()} or on PYTHONPATH"  # noqa: PTH109
    next_step = "" if near else "\n    Run the command in the folder that contains it, or check the spelling."
    return f"no module {missing!r} {where}{near}{next_step}"


def _explained(name: str, error: BaseException) -> str:
    kind = type(error).__name__
    message = message_of(error)
    if isinstance(error, SyntaxError):
        message = error.msg or message
        where = f"{error.filename}:{error.lineno}" + (f": {error.text.strip()}" if error.text else "")
    else:
        where = _place(error)
    lines = (f"{kind}: {message}" if message else kind).splitlines()
    if isinstance(error, DayjobError):
        lines = message.splitlines()
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], "..."]
    return "\n".join([f"cannot import {name}: {lines[0]}", *lines[1:], *([f"    {where}"] if where else [])])


def _place(error: BaseException) -> str:
    """The last line of user code in a traceback, without dayjob's frames and those of the import system."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_OURS, "<frozen")):
            return (
                f"{frame.filename}:{frame.lineno}: {frame.line}"
                if frame.line
                else f"{frame.filename}:{frame.lineno}"
            )
    return ""


def _pools(module: ModuleType) -> list[str]:
    """The names of the pools in a module, one for each pool."""
    names: dict[int, str] = {}
    for name, value in vars(module).items():
        if isinstance(value, WorkerPool):
            names.setdefault(id(value), name)
    return list(names.values())


def _only_pool(module: ModuleType) -> WorkerPool[Any]:
    names = _pools(module)
    if len(names) == 1:
        found: WorkerPool[Any] = getattr(module, names[0])
        return found
    name = module.__name__
    if not names:
        raise UsageError(
            f"{name} has no WorkerPool ({module.__file__ or 'a package without code'}).\n"
            "    Write `pool = WorkerPool()` there, or name the module that does."
        )
    raise UsageError(
        f"{name} has {len(names)} pools.\n    Name one: {', '.join(f'{name}:{one}' for one in names)}"
    )


def _no_attribute(module: ModuleType, owner: Any, part: str, target: str) -> str:
    near = suggest(part, [name for name in dir(owner) if not name.startswith("__")])
    pools = _pools(module)
    next_step = "Write `pool = WorkerPool()` there, or name the module that does."
    if pools:
        next_step = f"Pools there: {', '.join(f'{module.__name__}:{name}' for name in pools)}"
    return f"{target}: {owner.__name__ if owner is module else target} has no {part!r}{near}\n    {module.__file__}\n    {next_step}"

"""Imports the modules that define a pool's jobs, with errors that name the module and the line at fault."""

from __future__ import annotations

import importlib
import os
import pkgutil
import traceback
from collections.abc import Sequence
from typing import Any

from dayjob.errors import UsageError
from dayjob.text import message_of


def import_modules(names: Sequence[str]) -> None:
    """Import modules, "shop.mail.*" for every module of a package. Raises UsageError, which names the one that failed."""
    for name in names:
        package = _import(name.removesuffix(".*"))
        if not name.endswith(".*"):
            continue
        if not hasattr(package, "__path__"):
            raise UsageError(
                f"include={name!r}: {package.__name__} is a module, not a package: drop the '.*'"
            )
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if not found.name.endswith(".__main__"):
                _import(found.name)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"include: cannot import {name!r}: {message_of(error)}") from error
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a module may raise anything
        what = f"{type(error).__name__}: {_first_line(error)}".removesuffix(": ")
        raise UsageError(f"include: cannot import {name!r}: {what}{_place(error)}") from error


def _first_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else message_of(error)
    return text.strip().partition("\n")[0]


def _place(error: BaseException) -> str:
    """The line of the user's code where an import failed, on a line of its own; "" if it is not known."""
    if isinstance(error, SyntaxError):
        return f"\n    {error.filename}:{error.lineno}: {(error.text or '').strip()}".removesuffix(": ")
    ours = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - file names of tracebacks are strings
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<frozen")):
            return f"\n    {frame.filename}:{frame.lineno}: {frame.line or ''}".removesuffix(": ")
    return ""

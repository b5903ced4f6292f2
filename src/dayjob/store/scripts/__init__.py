"""Loads the Lua scripts from the package and reads their headers.

A script names the parts of `prelude/` that it needs in one line, such as `--@use time bell`, below its header. The loader
puts their functions into that line. Further such lines may stand in branches that are seldom taken, also in a part.
"""

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
    """Load the script `name` from the package, with the parts of the prelude that it uses. Each file is read once."""
    source = _joined(_read(f"{name}.lua"))
    # Redis identifies scripts by their SHA-1; it protects nothing here.
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, sha, "no-writes" not in source.partition("\n")[0])


def _joined(text: str) -> str:
    """`text` with the parts of the prelude that its `--@use` lines name."""
    return re.sub(
        r"^ *--@use (.+)$", lambda line: " ".join(map(part, line[1].split())), text, flags=re.MULTILINE
    )


@cache
def part(name: str) -> str:
    """A part of the prelude, on one line, so that line numbers in errors of the server are those of the script's file."""
    lines = (line.strip() for line in _joined(_read(f"prelude/{name}.lua")).splitlines())
    return " ".join(line for line in lines if not line.startswith("--"))


def _read(path: str) -> str:
    return _FOLDER.joinpath(path).read_text("utf-8")


def all_names() -> list[str]:
    """The names of all scripts."""
    return sorted(path.name.removesuffix(".lua") for path in _FOLDER.iterdir() if path.name.endswith(".lua"))
